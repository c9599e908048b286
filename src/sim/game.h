/* A schedule being simulated. Private to src/sim. */
#ifndef HOP_SIM_GAME_H
#define HOP_SIM_GAME_H

#include "schedule/agenda.h"
#include "schedule/meeting.h"
#include "schedule/network.h"
#include "sim/simulate.h"

struct hop_game_task {
    int32_t waits;   /* inputs and send buffers whose time is not known yet */
    double ready;    /* when the last of those that are known is there */
    int32_t outputs; /* index in game.outputs of the first transfer that this task makes */
    int32_t posts;   /* the first transfer whose receive is posted when this task ends; -1: none */
    int32_t meeting; /* that it takes part in; -1: none */
    double keeps;    /* bytes, from when it starts */
    double frees;    /* bytes, when it ends */
};

struct hop_game_meeting {
    int32_t arrived;            /* members whose device waits for the others */
    double seconds, bytes_sent; /* from start to end; by each member */
};

struct hop_game_message {
    int32_t waits;     /* for its task to end, and for its receive to be posted */
    int32_t next_post; /* the next transfer that the same task posts; -1: none */
    int32_t blocks;    /* the task that needs this message's send buffer; -1: none */
};

struct hop_game_device {
    int32_t next; /* task of its list that is to be started next */
    bool busy;    /* with the task before `next` */
    bool waiting; /* for the others to run `next`, too */
    bool holds;   /* a part */
    double kept;  /* bytes now */
};

struct hop_game {
    const struct hop_plan *plan;
    const struct hop_schedule *schedule;
    const struct hop_cost_table *cost;
    struct hop_transfers transfers;
    struct hop_reductions reductions;
    struct hop_meetings meetings;
    struct hop_game_meeting *meeting; /* (meetings) */
    int32_t *first; /* (devices + 1): number of the first task of each list among all */
    int32_t tasks;
    struct hop_game_task *task;       /* (tasks + 1) */
    int32_t *outputs;                 /* (transfers) by the task that makes them */
    struct hop_game_message *message; /* (transfers) */
    struct hop_game_device *device;   /* (devices) */
    int32_t *round;                   /* (devices) */
    struct hop_agenda agenda;
    struct hop_network network;
    int32_t done;
    bool record;
    struct hop_simulation result;
};

/* Checks that plan, schedule and table belong together and links tasks and messages. */
hop_status hop_game_create(const struct hop_plan *plan, const struct hop_schedule *schedule,
                           const struct hop_cost_table *cost,
                           const struct hop_simulation_options *options, struct hop_game *out,
                           struct hop_error *err);
void hop_game_free(struct hop_game *game);
/* Plays until nothing can happen any more. */
hop_status hop_game_play(struct hop_game *game, struct hop_error *err);

#endif
