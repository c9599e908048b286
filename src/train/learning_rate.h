/* Learning-rate schedules as Hugging Face defines them. */
#ifndef HOP_TRAIN_LEARNING_RATE_H
#define HOP_TRAIN_LEARNING_RATE_H

#include <stdint.h>

enum hop_scheduler { HOP_SCHEDULER_CONSTANT, HOP_SCHEDULER_LINEAR, HOP_SCHEDULER_COSINE };
extern const char *const hop_scheduler_names[]; /* "constant", "linear", "cosine", NULL */

struct hop_learning_rate {
    enum hop_scheduler scheduler;
    double peak;
    int64_t warmup_steps, total_steps;
};

/* The rate of the step that `completed` steps came before: step 1 uses completed = 0. Rises
 * linearly from 0 over warmup_steps, then stays, falls linearly, or follows half a cosine, to 0 at
 * total_steps. */
double hop_learning_rate_at(const struct hop_learning_rate *schedule, int64_t completed);

#endif
