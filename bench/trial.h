/* A trained model on which estimates of a gradient are compared with the exact one: blocks
 * [0, TRIAL_SPLIT) are those of devices without backward, but here backpropagation reaches them
 * too. */
#ifndef HOP_BENCH_TRIAL_H
#define HOP_BENCH_TRIAL_H

#include "data/batch.h"
#include "model/stage.h"
#include "schedule/schedule.h"

enum {
    TRIAL_SPLIT = 3, /* of 6 blocks */
    TRIAL_CHUNK = 12 /* probes in one call */
};

struct trial_options {
    const char *model, *data; /* folder, rows */
    int32_t rows;             /* of the micro-batch measured on: the first ones of the data */
    int32_t steps;            /* of training on the other rows; 0: adapters as initialised */
    int32_t rank, core;       /* core > 0: cores in blocks [0, TRIAL_SPLIT) */
    const bool *targets;      /* (HOP_TARGETS) */
    double learning_rate;
    uint64_t seed;
};

struct trial {
    struct hop_ops ops, forward; /* the latter without backward */
    struct hop_backend *backend;
    struct hop_model_config config;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    struct hop_dataset *dataset;
    struct hop_batch batch; /* measured on */
    struct hop_batch_limits limits;
    struct hop_parameters adapters; /* trained, of all blocks */
    struct hop_parameters front; /* layout of blocks [0, TRIAL_SPLIT), and room for an estimate */
    uint64_t seed;
    double loss_before, loss_after; /* of the first and the last step of training */
};

hop_status trial_open(const struct trial_options *options, struct trial *out,
                      struct hop_error *err);
void trial_close(struct trial *trial);

enum trial_part {
    TRIAL_WHOLE,      /* all blocks, backpropagated */
    TRIAL_FRONT,      /* [0, TRIAL_SPLIT), backpropagated */
    TRIAL_BACK,       /* the blocks behind, backpropagated */
    TRIAL_ESTIMATED,  /* [0, TRIAL_SPLIT), zeroth-order */
    TRIAL_PER_SAMPLE, /* the same with a direction a sample */
    TRIAL_EXIT,       /* the same with shared directions and an output layer behind */
    TRIAL_EXIT_MODEL  /* the model that ends there, backpropagated */
};
/* A stage with the trained adapters. */
hop_status trial_stage(const struct trial *trial, enum trial_part part, enum hop_dtype dtype,
                       struct hop_stage **out, struct hop_error *err);

/* ---- trial_exact.c: by backpropagation ---- */

struct trial_exact {
    double loss;
    float *gradient;     /* (front.total) of the adapters of blocks [0, TRIAL_SPLIT) */
    double square;       /* |gradient|^2 */
    double sample_share; /* sum over samples of |gradient of the sample|^2, over |gradient|^2 */
};
/* In f32. */
hop_status trial_exact(const struct trial *trial, struct trial_exact *out, struct hop_error *err);
/* The same of the model that ends with the exit; no shares of samples. */
hop_status trial_exact_exit(const struct trial *trial, struct trial_exact *out,
                            struct hop_error *err);
void trial_exact_free(struct trial_exact *exact);

/* ---- trial_probe.c: by forward passes ---- */

struct trial_choice {
    enum hop_estimator estimator;
    enum hop_distribution distribution;
    enum hop_dtype dtype;
    bool per_sample; /* boundary only */
    bool exit;       /* differences of the exit's loss */
    double epsilon;
};
/* Directional derivatives g of probes 0 .. probes - 1: (probes), or (probes, samples) with
 * per_sample. */
hop_status trial_derivatives(const struct trial *trial, const struct trial_choice *choice,
                             int32_t probes, float *g, struct hop_error *err);
/* <gradient, z> for the same directions. */
hop_status trial_exact_derivatives(const struct trial *trial, const struct trial_exact *exact,
                                   const struct trial_choice *choice, int32_t probes, float *g,
                                   struct hop_error *err);
/* g z of one probe into trial->front.gradients. */
void trial_estimate(struct trial *trial, const struct trial_choice *choice, int32_t probe,
                    const float *g);
/* Loss of the exit. */
hop_status trial_exit_loss(const struct trial *trial, enum hop_dtype dtype, double *loss,
                           struct hop_error *err);
/* Gradients by feedback into trial->front.gradients. */
hop_status trial_feedback(struct trial *trial, enum hop_dtype dtype, struct hop_error *err);

double trial_dot(const float *a, const float *b, size_t n);

#endif
