/* Models of any shape and size, written piece by piece: what is in memory at once is one piece. */
#ifndef HOP_TESTS_RUN_SUPPORT_LARGE_H
#define HOP_TESTS_RUN_SUPPORT_LARGE_H

#include "model/config.h"
#include "support.h"

/* A folder in the scratch folder: config.json and random weights in bf16 or f32, in shards of about
 * `shard_bytes` with their index (0: one file). Matrices have magnitudes around 1/sqrt(in), biases
 * around 1/sqrt(out), gains are 1. Returns the folder. */
const char *write_generated(const char *name, const struct hop_model_config *config,
                            enum hop_dtype dtype, int64_t shard_bytes, uint64_t seed);

/* What a process holds, in bytes, from /proc; false when it is gone. */
struct resident {
    int64_t highest; /* VmHWM: all of it, at its highest */
    int64_t files;   /* RssFile: mapped files */
    int64_t own;     /* RssAnon: memory of its own */
};
bool read_resident(pid_t pid, struct resident *out);

/* Bytes that may still be written below the scratch folder, and of memory that is free for use. */
int64_t free_disk(void);
int64_t free_memory(void);

#endif
