/* What the steps of a measurement share. Private to src/cluster/measure*.c. */
#ifndef HOP_CLUSTER_MEASURE_INTERNAL_H
#define HOP_CLUSTER_MEASURE_INTERNAL_H

#include "cluster/measure.h"
#include "data/batch.h"
#include "model/stage.h"
#include "model/weights.h"
#include "train/adamw.h"

/* A stage that is timed. */
struct hop__subject {
    int32_t blocks;
    bool embed, head;
    struct hop_stage *stage;
    struct hop_adamw adamw;
};

/* Backend, micro-batches and buffers that all stages use. */
struct hop__bench {
    const struct hop_measure_request *request;
    bool bp;
    struct hop_backend *backend;
    struct hop_batch batches[HOP_MEASURE_ROWS];
    void *input, *output; /* (most probes * most tokens, hidden) */
    void *gradient;       /* (most tokens, hidden) */
    float *logprob;
};
hop_status hop__bench_open(const struct hop_measure_request *request, struct hop__bench *out,
                           struct hop_error *err);
void hop__bench_close(struct hop__bench *bench);
/* The most samples of a micro-batch, and probes of a call (at least 1). */
int32_t hop__most_rows(const struct hop_measure_request *request);
int32_t hop__most_probes(const struct hop_measure_request *request);
struct hop_batch_limits hop__limits(const struct hop_measure_request *request, int32_t rows);

/* The stage of blocks [0, blocks): as the runtime would configure it on such a device. */
struct hop_stage_config hop__subject_config(const struct hop_measure_request *request,
                                            int32_t blocks, bool embed, bool head);
hop_status hop__subject_open(const struct hop__bench *bench, const struct hop_weights *weights,
                             const struct hop_stage_config *config, struct hop__subject *out,
                             struct hop_error *err);
void hop__subject_close(struct hop__subject *subject);

/* One call each; the seconds it took. */
hop_status hop__run_pass(const struct hop__bench *bench, const struct hop__subject *subject,
                         const struct hop_batch *batch, double *forward, double *backward,
                         struct hop_error *err);
hop_status hop__run_probe(const struct hop__bench *bench, const struct hop__subject *subject,
                          const struct hop_batch *batch, int32_t probes, double *seconds,
                          struct hop_error *err);
hop_status hop__run_step(struct hop__subject *subject, double *seconds, struct hop_error *err);

/* Weights of blocks [0, blocks) or of embedding and head: mapped, else made. */
hop_status hop__weights_blocks(const struct hop_measure_request *request, int32_t blocks,
                               struct hop_weights **out, struct hop_error *err);
hop_status hop__weights_tables(const struct hop_measure_request *request, struct hop_weights **out,
                               struct hop_error *err);
/* The first where nothing is mapped, but zeros: enough to see what they hold. */
hop_status hop__weights_empty(const struct hop_measure_request *request, int32_t blocks,
                              struct hop_weights **out, struct hop_error *err);

/* What is timed. */
enum hop__kind { HOP__PASS, HOP__PROBE, HOP__STEP };
enum { HOP__REPETITIONS = 128 };
struct hop__cell {
    int32_t subject, row, probe; /* indices */
    enum hop__kind kind;
    int urgency;   /* lower first */
    bool required; /* measured whatever it takes */
    bool started;
    double warm[2];  /* of the first call; used where there was time for no other */
    double expected; /* of the next one */
    double forward[HOP__REPETITIONS], backward[HOP__REPETITIONS];
    long preemptions[HOP__REPETITIONS]; /* how often a core was taken away meanwhile */
    int32_t count;
};
/* Runs the cells in order of urgency, again and again, until about `seconds` have gone by; those
 * there is no time for stay not `started`. Repetitions take turns so that what else the machine
 * does hits all cells alike. */
hop_status hop__run_cells(const struct hop__bench *bench, struct hop__subject *subjects,
                          struct hop__cell *cells, size_t count, double seconds,
                          struct hop_error *err);
/* Over the quarter of the repetitions that were disturbed least, and all that were no more. */
struct hop_timing hop__cell_forward(const struct hop__cell *cell);
struct hop_timing hop__cell_backward(const struct hop__cell *cell);

/* Blocks, embedding, head. */
hop_status hop__measure_times(const struct hop__bench *bench, struct hop_measurement *m,
                              struct hop_error *err);
/* Bytes of stages. `before`: hop__heap_bytes() before the backend was opened. */
hop_status hop__measure_memory(const struct hop__bench *bench, struct hop_measurement *m,
                               struct hop_error *err);

/* Bytes that are allocated, and bytes of mapped files that are in memory. */
double hop__heap_bytes(void);
double hop__file_bytes(void);
/* Bytes this process may still use: of the machine, and of its control group. */
double hop__available_bytes(void);
/* bytes/s of a[i] = b[i] + s c[i] (McCalpin's STREAM). */
hop_status hop__triad(int32_t threads, double available, double *out, struct hop_error *err);

#endif
