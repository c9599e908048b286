/* The devices that AccPar shares a model among, and gangs of them. Private to src/strategy. */
#ifndef HOP_STRATEGY_ACCPAR_TEAM_H
#define HOP_STRATEGY_ACCPAR_TEAM_H

#include "strategy/accpar_bisect.h"
#include "strategy/strategy.h"

/* Tensor shares are multiples of 1 / tensor_units of the cost table, which are attention heads, or
 * of 1 / HOP_ACCPAR_UNITS where it knows none. What columns a share is, the runtime decides. */
enum { HOP_ACCPAR_UNITS = 1024 };

struct hop_accpar_team {
    const struct hop_plan_request *request;
    struct hop_accpar_device *devices; /* (count) in the order of hop_accpar_sort() */
    double *rates;  /* (count) 1 / (forward + backward) of the whole model on one micro-batch */
    int32_t *caps;  /* (count) scratch of hop_accpar_add_gang() */
    int32_t *units; /* the same */
    int32_t whole;  /* units of all tensors */
    int32_t count, rows; /* of a micro-batch; at least 1 of each */
};

/* Every device that can run backward, at whatever rate, takes part; those without backward times
 * are HOP_INFEASIBLE unless the request lets devices out. bp_only leaves BP-free ones out. The
 * request is borrowed. */
hop_status hop_accpar_team_create(const struct hop_plan_request *request, const char *strategy,
                                  struct hop_accpar_team *out, struct hop_error *err);
void hop_accpar_team_free(struct hop_accpar_team *team);

/* Devices [lo, hi) of the team, and the rows of every micro-batch that are theirs. */
struct hop_accpar_gang {
    int32_t lo, hi, row_lo, row_hi;
};

/* Appends the parts of a gang to a plan of one stage: tensor shares in proportion to the rates, as
 * far as memory allows with one micro-batch kept. A device whose share rounds to nothing gets no
 * part, unless the request wants every device. HOP_INFEASIBLE: the gang's memory does not hold the
 * model; by how much. */
hop_status hop_accpar_add_gang(const struct hop_accpar_team *team,
                               const struct hop_accpar_gang *gang, struct hop_plan *plan,
                               struct hop_error *err);

#endif
