/* Adapter layout, identities and initial values. */
#include "model/lora.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "model/weights.h"

bool hop_target_find(const char *name, size_t length, enum hop_target *out)
{
    for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
        if (strlen(hop_target_names[target]) == length &&
            memcmp(hop_target_names[target], name, length) == 0) {
            *out = target;
            return true;
        }
    }
    return false;
}

int32_t hop_lora_adapted(const struct hop_lora_config *lora)
{
    int32_t count = 0;
    for (int target = 0; target < HOP_TARGETS; target++)
        count += lora->targets[target];
    return count;
}

int32_t hop_lora_rank(const struct hop_lora_config *lora, int32_t block, enum hop_target target)
{
    if (!lora->targets[target])
        return 0;
    if (hop_lora_has_core(lora, block))
        return lora->core;
    if (lora->blocks == 0)
        return lora->rank;
    return block < lora->blocks ? lora->ranks[block][target] : 0;
}

double hop_lora_alpha(const struct hop_lora_config *lora, int32_t block, enum hop_target target)
{
    if (hop_lora_rank(lora, block, target) == 0)
        return 0;
    return lora->blocks == 0 || hop_lora_has_core(lora, block) ? lora->alpha
                                                               : lora->alphas[block][target];
}

double hop_lora_scale(const struct hop_lora_config *lora, int32_t block, enum hop_target target)
{
    const double rank = hop_lora_rank(lora, block, target);
    if (!(rank > 0))
        return 0;
    return hop_lora_alpha(lora, block, target) / (lora->rslora ? sqrt(rank) : rank);
}

bool hop_lora_has_core(const struct hop_lora_config *lora, int32_t block)
{
    return lora->core > 0 && lora->core_lo <= block && block < lora->core_hi;
}

bool hop_lora_has_cores(const struct hop_lora_config *lora, int32_t lo, int32_t hi)
{
    for (int32_t block = lo; block < hi; block++)
        if (hop_lora_has_core(lora, block))
            return true;
    return false;
}

/* The same ranks and alphas as tables without cores. */
static void write_tables(const struct hop_lora_config *lora, int32_t blocks,
                         struct hop_lora_config *out)
{
    out->blocks = blocks;
    for (int32_t block = 0; block < blocks; block++) {
        for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
            out->ranks[block][target] = (uint16_t)hop_lora_rank(lora, block, target);
            out->alphas[block][target] = hop_lora_alpha(lora, block, target);
        }
    }
}

hop_status hop_lora_plain(const struct hop_lora_config *lora, int32_t blocks,
                          struct hop_lora_config *out, struct hop_error *err)
{
    struct hop_lora_config plain = *lora;
    plain.core = plain.core_lo = plain.core_hi = 0;
    const bool everywhere = lora->core_lo <= 0 && lora->core_hi >= blocks;
    if (hop_lora_has_cores(lora, 0, blocks)) {
        if (lora->blocks == 0 && (everywhere || lora->core == lora->rank)) {
            plain.rank = lora->core;
        } else if (blocks > HOP_LORA_BLOCKS) {
            return hop_fail(err, HOP_UNSUPPORTED,
                            "cores of rank %d in blocks %d to %d beside adapters of rank %d need a "
                            "model of at most %d blocks, this one has %d; choose the same rank",
                            lora->core, lora->core_lo, lora->core_hi, lora->rank, HOP_LORA_BLOCKS,
                            blocks);
        } else {
            write_tables(lora, blocks, &plain);
        }
    }
    *out = plain;
    return HOP_OK;
}

int32_t hop_lora_largest_rank(const struct hop_lora_config *lora, enum hop_target target)
{
    int32_t largest = lora->targets[target] ? lora->core : 0;
    const int32_t rows = lora->blocks > 0 ? lora->blocks : 1;
    for (int32_t block = 0; block < rows; block++) {
        const int32_t rank = lora->blocks > 0 ? lora->ranks[block][target] : lora->rank;
        if (lora->targets[target] && rank > largest)
            largest = rank;
    }
    return largest;
}

struct hop_lora_config hop_lora_widened(const struct hop_lora_config *lora)
{
    struct hop_lora_config widened = *lora;
    widened.core = widened.core_lo = widened.core_hi = 0;
    widened.rank = lora->core > lora->rank ? lora->core : lora->rank;
    for (int32_t block = 0; block < lora->blocks; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            widened.ranks[block][target] = (uint16_t)hop_lora_largest_rank(lora, target);
    return widened;
}

bool hop_lora_difference(const struct hop_lora_config *a, const struct hop_lora_config *b,
                         int32_t blocks, int32_t *block, enum hop_target *target)
{
    for (int32_t i = 0; i < blocks; i++) {
        for (enum hop_target t = 0; t < HOP_TARGETS; t++) {
            const bool ranks = hop_lora_rank(a, i, t) == hop_lora_rank(b, i, t);
            const bool kinds =
                hop_lora_rank(a, i, t) == 0 || hop_lora_has_core(a, i) == hop_lora_has_core(b, i);
            if (ranks && kinds && !(fabs(hop_lora_scale(a, i, t) - hop_lora_scale(b, i, t)) > 0))
                continue;
            *block = i;
            *target = t;
            return true;
        }
    }
    return false;
}

static int64_t module_parameters(const struct hop_model_config *config, enum hop_target target,
                                 int32_t rank)
{
    return rank * (hop_target_in(config, target) + hop_target_out(config, target));
}

int64_t hop_lora_plain_parameters(const struct hop_model_config *config,
                                  const struct hop_lora_config *lora, int32_t lo, int32_t hi)
{
    int64_t total = 0;
    for (int32_t block = lo; block < hi; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            total += module_parameters(config, target, hop_lora_rank(lora, block, target));
    return total;
}

static int64_t core_parameters(const struct hop_lora_config *lora)
{
    return (int64_t)hop_lora_adapted(lora) * lora->core * lora->core;
}

int64_t hop_lora_parameters(const struct hop_model_config *config,
                            const struct hop_lora_config *lora, int32_t lo, int32_t hi)
{
    int64_t total = 0;
    for (int32_t block = lo; block < hi; block++)
        total += hop_lora_has_core(lora, block)
                     ? core_parameters(lora)
                     : hop_lora_plain_parameters(config, lora, block, block + 1);
    return total;
}

int64_t hop_lora_block_parameters(const struct hop_model_config *config,
                                  const struct hop_lora_config *lora)
{
    int64_t total = 0;
    for (enum hop_target target = 0; target < HOP_TARGETS; target++)
        total += module_parameters(config, target, hop_lora_largest_rank(lora, target));
    return total;
}

uint32_t hop_parameter_id(const struct hop_parameter *parameter)
{
    const uint32_t projection =
        (uint32_t)parameter->block * HOP_TARGETS + (uint32_t)parameter->target;
    if (parameter->factor == HOP_LORA_CORE)
        return 0x80000000u | projection;
    return 2 * projection + (uint32_t)parameter->factor;
}

void hop_parameter_name(const struct hop_parameter *parameter, char *name, size_t size)
{
    static const char *const factors[] = {"A", "B", "core"};
    snprintf(name, size, "base_model.model.model.layers.%d.%s.lora_%s.weight", parameter->block,
             hop_target_paths[parameter->target], factors[parameter->factor]);
}

static size_t add_factor(struct hop_parameter *item, int32_t block, enum hop_target target,
                         enum hop_factor factor, int64_t rows, int64_t columns, size_t offset)
{
    *item = (struct hop_parameter){.block = block,
                                   .target = target,
                                   .factor = factor,
                                   .rows = rows,
                                   .columns = columns,
                                   .offset = offset,
                                   .count = (size_t)(rows * columns)};
    return offset + item->count;
}

/* With cores where they are trained, or `plain`. */
static size_t lay_out(const struct hop_model_config *config, const struct hop_lora_config *lora,
                      int32_t lo, int32_t hi, bool plain, struct hop_parameter *items)
{
    size_t offset = 0, n = 0;
    for (int32_t block = lo; block < hi; block++) {
        for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
            const int32_t rank = hop_lora_rank(lora, block, target);
            if (rank == 0)
                continue;
            if (!plain && hop_lora_has_core(lora, block)) {
                offset = add_factor(&items[n++], block, target, HOP_LORA_CORE, rank, rank, offset);
                continue;
            }
            offset = add_factor(&items[n++], block, target, HOP_LORA_A, rank,
                                hop_target_in(config, target), offset);
            offset = add_factor(&items[n++], block, target, HOP_LORA_B,
                                hop_target_out(config, target), rank, offset);
        }
    }
    return offset;
}

size_t hop_lora_factors(const struct hop_lora_config *lora, int32_t lo, int32_t hi)
{
    size_t factors = 0;
    for (int32_t block = lo; block < hi; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            if (hop_lora_rank(lora, block, target) > 0)
                factors += hop_lora_has_core(lora, block) ? 1 : 2;
    return factors;
}

static size_t plain_factors(const struct hop_lora_config *lora, int32_t lo, int32_t hi)
{
    size_t modules = 0;
    for (int32_t block = lo; block < hi; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            modules += hop_lora_rank(lora, block, target) > 0;
    return 2 * modules;
}

static hop_status create(const struct hop_model_config *config, const struct hop_lora_config *lora,
                         int32_t lo, int32_t hi, bool plain, struct hop_parameters *out,
                         struct hop_error *err)
{
    struct hop_parameters made = {0};
    hop_status status;
    made.count = plain ? plain_factors(lora, lo, hi) : hop_lora_factors(lora, lo, hi);
    HOP_TRY_DONE(hop_calloc(&made.items, made.count, sizeof *made.items, err));
    made.total = lay_out(config, lora, lo, hi, plain, made.items);
    HOP_TRY_DONE(hop_calloc_aligned(&made.values, made.total, sizeof(float), err));
    HOP_TRY_DONE(hop_calloc_aligned(&made.gradients, made.total, sizeof(float), err));
    *out = made;
    return HOP_OK;
done:
    hop_parameters_free(&made);
    return status;
}

hop_status hop_parameters_create(const struct hop_model_config *config,
                                 const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                                 struct hop_parameters *out, struct hop_error *err)
{
    return create(config, lora, lo, hi, false, out, err);
}

hop_status hop_parameters_create_plain(const struct hop_model_config *config,
                                       const struct hop_lora_config *lora, int32_t lo, int32_t hi,
                                       struct hop_parameters *out, struct hop_error *err)
{
    return create(config, lora, lo, hi, true, out, err);
}

void hop_parameters_free(struct hop_parameters *parameters)
{
    if (!parameters)
        return;
    free(parameters->items);
    free(parameters->values);
    free(parameters->gradients);
    *parameters = (struct hop_parameters){0};
}

void hop_parameters_zero_gradients(struct hop_parameters *parameters)
{
    memset(parameters->gradients, 0, parameters->total * sizeof(float));
}

static void initialise_a(const struct hop_parameter *item, uint64_t seed, float *values)
{
    const struct hop_random_key key = {
        .seed = seed, .domain = HOP_RANDOM_INIT, .parameter = hop_parameter_id(item)};
    const float bound = 1 / sqrtf((float)item->columns);
    hop_random_uniform(&key, 0, item->count, values);
    for (size_t i = 0; i < item->count; i++)
        values[i] = (2 * values[i] - 1) * bound;
}

void hop_parameters_initialise(struct hop_parameters *parameters, uint64_t seed)
{
    for (size_t i = 0; i < parameters->count; i++) {
        const struct hop_parameter *const item = &parameters->items[i];
        float *const values = parameters->values + item->offset;
        if (item->factor == HOP_LORA_A)
            initialise_a(item, seed, values);
        else
            memset(values, 0, item->count * sizeof *values);
    }
}
