/* Measures this machine for a model: what a block, the embedding and the head take forward,
 * backward and per probe, and what a stage holds in memory, against what the cost model says.
 *
 * Only as many blocks as needed are created, with the model's own shapes: the time of one block is
 * the slope of a stage's time over its number of blocks, so that what a call costs beside its
 * blocks separates. From the times of one block at several micro-batch sizes
 *
 *     seconds = overhead + operations / rate
 *
 * and from the bytes of stages of several sizes (spec: lambda_1 .. lambda_4)
 *
 *     bytes = lambda_1 frozen + lambda_23 trainable + lambda_4 frozen * in_flight + rest */
#ifndef HOP_CLUSTER_MEASURE_H
#define HOP_CLUSTER_MEASURE_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/dtype.h"
#include "base/error.h"
#include "cluster/cluster.h"
#include "cluster/cost.h"
#include "cluster/cost_model.h"
#include "model/config.h"
#include "model/lora.h"
#include "ops/ops.h"

enum {
    HOP_MEASURE_ROWS = 16,        /* micro-batch sizes */
    HOP_MEASURE_PROBES = 8,       /* numbers of probes */
    HOP_MEASURE_PROBE_BATCH = 64, /* probes of one call */
    HOP_MEASURE_STAGES = 3        /* stages of different numbers of blocks */
};

struct hop_measure_request {
    struct hop_model_config model;
    const char *directory; /* of the weights to map; NULL: random ones */
    struct hop_lora_config lora;
    enum hop_dtype dtype;
    const struct hop_ops *ops; /* without backward: the device is measured as BP-free */
    int32_t threads;
    int32_t tokens, labels;         /* of a sample */
    int32_t rows[HOP_MEASURE_ROWS]; /* micro-batch sizes, distinct; the last is the one that cost
                                       table and memory are for */
    int32_t row_count;
    int32_t probes[HOP_MEASURE_PROBES]; /* of one PROBE, ascending */
    int32_t probe_count;                /* 0: none are measured */
    double seconds; /* to measure for, about; what cannot be left out may take longer */
};

/* Seconds of one call: the median. repetitions 0: not measured. */
struct hop_timing {
    double seconds, spread; /* spread: between the quartiles / median */
    int32_t repetitions;
};

/* The parts of a model that are timed. */
struct hop_measured_part {
    struct hop_timing forward, backward;
    struct hop_timing probe[HOP_MEASURE_PROBES]; /* one PROBE of probes[i] probes */
    double further_probe; /* seconds that each probe after the first adds; NAN: not measured */
};

/* At one micro-batch size. */
struct hop_measured_point {
    int32_t rows;
    double operations; /* of one block forward */
    double fit;        /* seconds of one block forward by the fit */
    double constant;   /* seconds of a stage's forward beside its blocks */
    struct hop_measured_part block, embed, head;
};

struct hop_measured_rate {
    double rate, overhead;              /* TFLOPS, seconds: as in struct hop_device */
    double backward_ratio, probe_ratio; /* NAN: not measured */
    double r2;
    int32_t points;
};

/* A stage that was created to see what it holds. */
struct hop_measured_stage {
    int32_t blocks, slots, rank;
    double held, estimate; /* bytes */
};

/* One term of the memory equation in the largest of the stages. */
struct hop_measured_bytes {
    double held, estimate;
};
enum hop_memory_term { HOP_FROZEN, HOP_TRAINABLE, HOP_KEPT, HOP_REST, HOP_MEMORY_TERMS };
extern const char *const hop_memory_term_names[HOP_MEMORY_TERMS];

enum { HOP_MEASURE_MEMORY = HOP_MEASURE_STAGES * 4 };
struct hop_measured_memory {
    struct hop_measured_stage stages[HOP_MEASURE_MEMORY];
    int32_t count;
    /* Bytes a frozen parameter, a trainable parameter, a frozen parameter and micro-batch in
     * flight. NAN: the model has too few blocks to tell. lambda_4 is 0 for BP-free devices. */
    double lambda_1, lambda_23, lambda_4, r2;
    struct hop_measured_bytes term[HOP_MEMORY_TERMS];
    double backend; /* working memory of the backend, which no stage counts */
};

struct hop_measurement {
    struct hop_measure_request request; /* directory is not kept */
    bool bp, mapped;
    char backend[256]; /* as it describes itself */
    int32_t stage_blocks[HOP_MEASURE_STAGES], stage_count;
    struct hop_measured_point points[HOP_MEASURE_ROWS]; /* as request.rows */
    struct hop_timing step;                             /* optimizer, one block */
    struct hop_measured_rate rate;
    struct hop_measured_memory memory;
    double available; /* bytes this machine had to spare before */
    double bandwidth; /* bytes/s of a triad */
    double elapsed;
};

/* Does the folder hold weights that can be mapped? */
bool hop_measure_has_weights(const char *directory);

/* HOP_INFEASIBLE where not even one block fits. Weights that are mapped must be those of the model.
 */
hop_status hop_measure(const struct hop_measure_request *request, struct hop_measurement *out,
                       struct hop_error *err);

/* The point that cost table and memory are for. */
const struct hop_measured_point *hop_measured_chosen(const struct hop_measurement *m);
/* Seconds of one block forward by the fitted line. */
double hop_measured_fit(const struct hop_measured_rate *rate, double operations);
/* The workload of a micro-batch of `rows`. */
struct hop_workload hop_measured_workload(const struct hop_measurement *m, int32_t rows);
/* This machine as the fits describe it. `name` is borrowed by the device; nothing is to be freed.
 */
struct hop_device hop_measured_device(const struct hop_measurement *m, const char *name);
/* All blocks of the model on one device of that name: times as measured (embedding in the first
 * block, head in the last), bytes by the size functions. */
hop_status hop_measured_cost(const struct hop_measurement *m, const char *name,
                             struct hop_cost_table *out, struct hop_error *err);
/* Everything, as one object. NULL: out of memory. */
json_t *hop_measured_json(const struct hop_measurement *m);

/* A profile that `profile: PATH` of a cluster file reads; every figure says where it is from. */
hop_status hop_profile_write(const char *path, const struct hop_measurement *m, const char *name,
                             struct hop_error *err);

#endif
