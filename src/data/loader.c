#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/batch.h"

static int descending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x < y) - (x > y);
}

/* The sum of the m largest of sizes[0..n), sorting them. */
static int64_t largest(int32_t *sizes, size_t n, size_t m)
{
    int64_t sum = 0;
    qsort(sizes, n, sizeof *sizes, descending);
    for (size_t i = 0; i < m; i++)
        sum += sizes[i];
    return sum;
}

static hop_status find_limits(struct hop_loader *loader, struct hop_error *err)
{
    const struct hop_dataset *const d = loader->dataset;
    size_t m = loader->micro_batch_size;
    if (m > loader->batch_size)
        m = loader->batch_size;
    if (m > d->count)
        m = d->count;
    int32_t *sizes;
    HOP_TRY(hop_calloc(&sizes, d->count, sizeof *sizes, err));
    for (size_t i = 0; i < d->count; i++)
        sizes[i] = d->examples[i].length;
    const int64_t tokens = largest(sizes, d->count, m);
    for (uint32_t i = 0; i < d->count; i++)
        sizes[i] = (int32_t)hop_batch_label_count(d, &i, 1);
    const int64_t labels = largest(sizes, d->count, m);
    free(sizes);
    if (tokens > INT32_MAX / 2)
        return hop_fail(err, HOP_INPUT,
                        "micro-batches of %zu rows may have %lld tokens, too many; lower "
                        "train.micro_batch or data.max_length",
                        m, (long long)tokens);
    loader->limits = (struct hop_batch_limits){
        .sequences = (int32_t)m, .tokens = (int32_t)tokens, .labels = (int32_t)labels};
    return HOP_OK;
}

hop_status hop_loader_create(const struct hop_dataset *dataset, size_t batch_size,
                             size_t micro_batch_size, uint64_t seed, bool shuffle,
                             struct hop_loader *out, struct hop_error *err)
{
    struct hop_loader loader = {.dataset = dataset,
                                .batch_size = batch_size,
                                .micro_batch_size = micro_batch_size,
                                .seed = seed,
                                .shuffle = shuffle,
                                .epoch = -1};
    if (batch_size == 0 || micro_batch_size == 0 || dataset->count == 0 ||
        dataset->count > UINT32_MAX)
        return hop_fail(err, HOP_INPUT,
                        "%zu rows cannot be cut into mini-batches of %zu and micro-batches of %zu",
                        dataset->count, batch_size, micro_batch_size);
    HOP_TRY(find_limits(&loader, err));
    HOP_TRY(hop_calloc(&loader.order, dataset->count, sizeof *loader.order, err));
    loader.steps_per_epoch =
        (int64_t)(dataset->count / batch_size + (dataset->count % batch_size != 0));
    *out = loader;
    return HOP_OK;
}

void hop_loader_free(struct hop_loader *loader)
{
    if (!loader)
        return;
    free(loader->order);
    *loader = (struct hop_loader){0};
}

struct hop_batch_limits hop_loader_limits(const struct hop_loader *loader)
{
    return loader->limits;
}

static void order_epoch(struct hop_loader *loader, int64_t epoch)
{
    const struct hop_random_key key = {
        .seed = loader->seed, .domain = HOP_RANDOM_SHUFFLE, .step = (uint32_t)epoch};
    for (size_t i = 0; i < loader->dataset->count; i++)
        loader->order[i] = (uint32_t)i;
    if (loader->shuffle)
        hop_random_shuffle(&key, loader->order, loader->dataset->count);
    loader->epoch = epoch;
}

size_t hop_loader_rows(struct hop_loader *loader, int64_t step, const uint32_t **rows)
{
    const int64_t epoch = step / loader->steps_per_epoch;
    if (epoch != loader->epoch)
        order_epoch(loader, epoch);
    const size_t begin = (size_t)(step % loader->steps_per_epoch) * loader->batch_size;
    const size_t left = loader->dataset->count - begin;
    *rows = loader->order + begin;
    return left < loader->batch_size ? left : loader->batch_size;
}
