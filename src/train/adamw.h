/* AdamW (Loshchilov and Hutter 2019) on flat f32 arrays: decoupled weight decay, bias correction,
 * as in PyTorch. */
#ifndef HOP_TRAIN_ADAMW_H
#define HOP_TRAIN_ADAMW_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct hop_adamw_options {
    double beta1, beta2, epsilon, weight_decay;
};
/* 0.9, 0.999, 1e-8, 0. */
struct hop_adamw_options hop_adamw_default(void);

struct hop_adamw {
    size_t n;
    float *exp_avg, *exp_avg_sq; /* (n) moving means of the gradient and of its square */
    int64_t steps;               /* updates made */
};

hop_status hop_adamw_create(size_t n, struct hop_adamw *out, struct hop_error *err);
void hop_adamw_free(struct hop_adamw *adamw);

/* One update of values (n). HOP_NUMERIC, with nothing changed, when a gradient is not finite. */
hop_status hop_adamw_step(struct hop_adamw *adamw, const struct hop_adamw_options *options,
                          double learning_rate, float *values, const float *gradients,
                          struct hop_error *err);

#endif
