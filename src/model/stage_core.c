/* Cores of a stage: what is trained is R, what the operations see are plain factors A and B R.
 *
 * The stage holds a plain set of factors beside its parameters. Its first factors never change, its
 * second follow from the cores whenever these change, and its gradients become those of the cores
 * by the chain rule: y = scale (B R) A x, so dR = B^T d(B R). */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "model/core.h"
#include "model/stage_internal.h"

/* sum (rank, rank) = b^T d, both (out, rank) */
static void transposed_product(const float *b, const float *d, int64_t out, int64_t rank,
                               double *sum)
{
    memset(sum, 0, (size_t)(rank * rank) * sizeof *sum);
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < rank; k++)
            for (int64_t j = 0; j < rank; j++)
                sum[k * rank + j] += (double)b[o * rank + k] * (double)d[o * rank + j];
}

static bool is_core(const struct hop_parameter *item)
{
    return item->factor == HOP_LORA_CORE;
}

/* The plain factor (the first of two, of a core) that parameter p stands for. */
static const struct hop_parameter *plain_of(const struct hop_stage *stage, size_t p)
{
    return &stage->plain.items[stage->cores.place[p]];
}

static hop_status allocate(struct hop_stage *stage, struct hop_error *err)
{
    struct hop__cores *const cores = &stage->cores;
    size_t fixed = 0, plain = 0, largest = 0;
    HOP_TRY(hop_calloc(&cores->place, stage->parameters.count, sizeof *cores->place, err));
    HOP_TRY(hop_calloc(&cores->fixed, stage->parameters.count, sizeof *cores->fixed, err));
    for (size_t p = 0; p < stage->parameters.count; p++) {
        const struct hop_parameter *const item = &stage->parameters.items[p];
        cores->place[p] = plain;
        cores->fixed[p] = fixed;
        plain += is_core(item) ? 2 : 1;
        if (!is_core(item))
            continue;
        fixed += stage->plain.items[cores->place[p] + 1].count;
        largest = item->count > largest ? item->count : largest;
    }
    HOP_TRY(hop_calloc(&cores->sum, largest, sizeof *cores->sum, err));
    return hop_calloc_aligned(&cores->b, fixed, sizeof *cores->b, err);
}

hop_status hop__cores_create(struct hop_stage *stage, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    if (!hop_lora_has_cores(&config->lora, config->lo, config->hi))
        return HOP_OK;
    HOP_TRY(hop_parameters_create_plain(&config->model, &config->lora, config->lo, config->hi,
                                        &stage->plain, err));
    stage->adapters = &stage->plain;
    return allocate(stage, err);
}

void hop__cores_free(struct hop_stage *stage)
{
    hop_parameters_free(&stage->plain);
    free(stage->cores.place);
    free(stage->cores.fixed);
    free(stage->cores.sum);
    free(stage->cores.b);
}

bool hop__stage_has_cores(const struct hop_stage *stage)
{
    return stage->adapters == &stage->plain;
}

hop_status hop__cores_load(struct hop_stage *stage, const struct hop_weights *weights,
                           struct hop_error *err)
{
    for (size_t p = 0; hop__stage_has_cores(stage) && p < stage->parameters.count; p++) {
        const struct hop_parameter *const item = &stage->parameters.items[p];
        if (is_core(item))
            HOP_TRY(hop_core_of(weights, &stage->config.model, item->block, item->target,
                                (int32_t)item->rows,
                                stage->plain.values + plain_of(stage, p)->offset,
                                stage->cores.b + stage->cores.fixed[p], err));
    }
    return HOP_OK;
}

void hop__cores_changed(struct hop_stage *stage)
{
    for (size_t p = 0; p < stage->parameters.count; p++) {
        const struct hop_parameter *const item = &stage->parameters.items[p];
        const struct hop_parameter *const plain = plain_of(stage, p);
        const float *const values = stage->parameters.values + item->offset;
        if (is_core(item))
            hop_core_product(stage->cores.b + stage->cores.fixed[p], values, plain[1].rows,
                             item->rows, stage->plain.values + plain[1].offset);
        else
            memcpy(stage->plain.values + plain->offset, values, item->count * sizeof *values);
    }
}

void hop__cores_add_gradients(struct hop_stage *stage, const float *plain_gradients)
{
    double *const sum = stage->cores.sum;
    for (size_t p = 0; p < stage->parameters.count; p++) {
        const struct hop_parameter *const item = &stage->parameters.items[p];
        const struct hop_parameter *const plain = plain_of(stage, p);
        float *const to = stage->parameters.gradients + item->offset;
        if (is_core(item))
            transposed_product(stage->cores.b + stage->cores.fixed[p],
                               plain_gradients + plain[1].offset, plain[1].rows, item->rows, sum);
        for (size_t i = 0; i < item->count; i++)
            to[i] += is_core(item) ? (float)sum[i] : plain_gradients[plain->offset + i];
    }
}

void hop__cores_fill(const struct hop_stage *stage, size_t p, const float *r, bool moves_only,
                     struct hop__factors *to)
{
    const struct hop_parameter *const plain = plain_of(stage, p);
    hop_core_product(stage->cores.b + stage->cores.fixed[p], r, plain[1].rows, plain->rows, to->b);
    if (moves_only)
        memset(to->a, 0, plain->count * sizeof *to->a);
    else
        memcpy(to->a, stage->plain.values + plain->offset, plain->count * sizeof *to->a);
}
