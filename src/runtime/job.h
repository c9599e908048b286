/* The job file: everything a run is told. */
#ifndef HOP_RUNTIME_JOB_H
#define HOP_RUNTIME_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

#include "base/error.h"
#include "cluster/cluster.h"
#include "io/schema.h"
#include "model/lora.h"
#include "train/learning_rate.h"

enum hop_job_dtype { HOP_JOB_DTYPE_AUTO, HOP_JOB_DTYPE_F32, HOP_JOB_DTYPE_BF16 };

/* Whose adapter a run leaves; auto: the best one with early stopping, else the last. */
enum hop_job_result { HOP_RESULT_AUTO, HOP_RESULT_LAST, HOP_RESULT_BEST };

/* The rate of the zeroth-order half, where the job gives none, in those of the exact half. */
#define HOP_JOB_ZO_RATE 0.1

/* Which blocks train cores. */
enum hop_core_blocks { HOP_CORE_ZEROTH_ORDER, HOP_CORE_ALL };

struct hop_job {
    char *model, *strategy, *output;
    struct {               /* data */
        int task;          /* enum hop_data_task */
        int chat_template; /* enum hop_chat_family */
        char *train, *eval;
        struct hop_string_list labels;
        int64_t max_length, limit, eval_limit, eval_max_tokens;
        bool shuffle;
    } data;
    struct {                /* lora */
        int64_t rank, core; /* core 0: none */
        int core_blocks;    /* enum hop_core_blocks */
        double alpha, dropout;
        bool rslora;
        struct hop_string_list targets;
        char *init;
    } lora;
    struct { /* train */
        int64_t batch_size, micro_batch, epochs, max_steps, warmup_steps, eval_every, save_every,
            early_stopping, seed, trace_steps;
        double learning_rate, weight_decay, max_grad_norm, peer_timeout;
        int scheduler; /* enum hop_scheduler */
        int dtype;     /* enum hop_job_dtype */
        int result;    /* enum hop_job_result */
        bool log_grad_norms;
    } train;
    struct { /* zo */
        json_t *probes_value;
        int32_t probes; /* from probes_value, or HOP_PROBES_AUTO */
        int64_t probe_batch, feedback_blocks;
        double epsilon, learning_rate; /* learning_rate 0: HOP_JOB_ZO_RATE of train.learning_rate,
                                          with feedback the same */
        json_t *early_exit, *blocks;
        int32_t lo, hi;      /* from blocks: those of `single` that are zeroth-order */
        int32_t exit_probes; /* from early_exit, or HOP_PROBES_AUTO */
        int estimator;       /* enum hop_estimator; HOP_ESTIMATORS: none, they stay untrained */
        int directions;      /* enum hop_directions */
        int distribution;    /* enum hop_distribution */
        int exit_base;       /* enum hop_exit_base */
    } zo;
    struct { /* plan */
        json_t *blocks;
        char *file;
        int devices;   /* enum hop_device_use */
        int objective; /* enum hop_objective */
        int64_t micro_batches, tokens, label_tokens;
    } plan;
    json_t *cluster_value; /* a file name, an object or NULL */
    struct hop_cluster cluster;
    bool resume; /* set by --resume, kept in config.yaml */
};

/* Reads a job file, applies `--set key=value` texts, fills defaults, checks what can be checked
 * without opening model and data. Relative paths are relative to the working directory. */
hop_status hop_job_load(const char *path, const char *const *overrides, size_t override_count,
                        struct hop_job *out, struct hop_error *err);
void hop_job_free(struct hop_job *job);

/* The resolved job as YAML, readable by hop_job_load(). */
hop_status hop_job_save(const struct hop_job *job, const char *path, struct hop_error *err);

/* rank, alpha, targets and core of the job's adapters; a plan decides which blocks have cores. */
hop_status hop_job_lora(const struct hop_job *job, struct hop_lora_config *out,
                        struct hop_error *err);
/* Micro-batches of a full mini-batch, and rows of one micro-batch. */
int32_t hop_job_micro_batches(const struct hop_job *job);
int64_t hop_job_micro_batch_rows(const struct hop_job *job);
/* Tokens of an answer at most, where evaluation decodes free answers; 0: it does not. */
int32_t hop_job_answer_tokens(const struct hop_job *job);
/* Micro-batches that decode at once: enough to fill the pipeline, each with a micro-batch's rows.
 */
int32_t hop_job_answer_batches(const struct hop_job *job);
/* Is the adapter of the best evaluation what the run leaves? */
bool hop_job_keeps_best(const struct hop_job *job);
/* Tokens of a row that times are priced at, and label tokens among them. */
int32_t hop_job_priced_tokens(const struct hop_job *job);
int32_t hop_job_priced_labels(const struct hop_job *job);

/* All known keys with defaults and help, for `hybridop train --help-job`. */
extern const struct hop_field hop_job_fields[];

#endif
