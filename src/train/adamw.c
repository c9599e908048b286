#include "train/adamw.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "train/clip.h"

/* Below this a team of threads costs more than it saves. */
enum { SERIAL_ELEMENTS = 1 << 16 };

struct hop_adamw_options hop_adamw_default(void)
{
    return (struct hop_adamw_options){.beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8};
}

hop_status hop_adamw_create(size_t n, struct hop_adamw *out, struct hop_error *err)
{
    struct hop_adamw made = {.n = n};
    hop_status status;
    HOP_TRY_DONE(hop_calloc_aligned(&made.exp_avg, n, sizeof(float), err));
    HOP_TRY_DONE(hop_calloc_aligned(&made.exp_avg_sq, n, sizeof(float), err));
    *out = made;
    return HOP_OK;
done:
    hop_adamw_free(&made);
    return status;
}

void hop_adamw_free(struct hop_adamw *adamw)
{
    if (!adamw)
        return;
    free(adamw->exp_avg);
    free(adamw->exp_avg_sq);
    *adamw = (struct hop_adamw){0};
}

static hop_status check_finite(const float *gradients, size_t n, struct hop_error *err)
{
    if (isfinite(hop_sum_of_squares(gradients, n)))
        return HOP_OK;
    size_t at = 0;
    while (at < n && isfinite(gradients[at]))
        at++;
    return hop_fail(
        err, HOP_NUMERIC,
        "gradient element %zu is %g; lower the learning rate or epsilon, or look at the "
        "rows of this step",
        at, at < n ? (double)gradients[at] : NAN);
}

hop_status hop_adamw_step(struct hop_adamw *adamw, const struct hop_adamw_options *options,
                          double learning_rate, float *values, const float *gradients,
                          struct hop_error *err)
{
    HOP_TRY(check_finite(gradients, adamw->n, err));
    const double step = (double)++adamw->steps;
    const double correction1 = 1 - pow(options->beta1, step);
    const double correction2 = 1 - pow(options->beta2, step);
    const float beta1 = (float)options->beta1, beta2 = (float)options->beta2;
    const float rest1 = (float)(1 - options->beta1), rest2 = (float)(1 - options->beta2);
    const float shrink = (float)(1 - learning_rate * options->weight_decay);
    const float rate = (float)(learning_rate / correction1);
    const float root = (float)(1 / sqrt(correction2)), epsilon = (float)options->epsilon;
    float *const m = adamw->exp_avg, *const v = adamw->exp_avg_sq;
#pragma omp parallel for simd schedule(static) if (adamw->n > SERIAL_ELEMENTS)
    for (size_t i = 0; i < adamw->n; i++) {
        const float g = gradients[i];
        m[i] = beta1 * m[i] + rest1 * g;
        v[i] = beta2 * v[i] + rest2 * g * g;
        values[i] = shrink * values[i] - rate * m[i] / (sqrtf(v[i]) * root + epsilon);
    }
    return HOP_OK;
}
