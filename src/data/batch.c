#include "data/batch.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

hop_status hop_batch_create(const struct hop_batch_limits *limits, struct hop_batch *out,
                            struct hop_error *err)
{
    if (limits->sequences < 0 || limits->tokens < 0 || limits->labels < 0)
        return hop_fail(err, HOP_INTERNAL, "a batch of %d sequences, %d tokens, %d labels",
                        limits->sequences, limits->tokens, limits->labels);
    const size_t tokens = (size_t)limits->tokens, labels = (size_t)limits->labels;
    const size_t words = 2 * tokens + (size_t)limits->sequences + 1 + 2 * labels;
    int32_t *block;
    HOP_TRY(hop_calloc(&block, words, sizeof *block, err));
    *out = (struct hop_batch){.ids = block,
                              .position = block + tokens,
                              .label_row = block + 2 * tokens,
                              .label_id = block + 2 * tokens + labels,
                              .offset = block + 2 * tokens + 2 * labels};
    return HOP_OK;
}

void hop_batch_free(struct hop_batch *batch)
{
    if (!batch)
        return;
    free(batch->ids);
    *batch = (struct hop_batch){0};
}

static int32_t label_count(const struct hop_example *example)
{
    int32_t n = 0;
    for (int32_t i = 1; i < example->length; i++)
        n += example->labels[i] != HOP_LABEL_IGNORED;
    return n;
}

int64_t hop_batch_label_count(const struct hop_dataset *dataset, const uint32_t *rows, size_t n)
{
    int64_t total = 0;
    for (size_t i = 0; i < n; i++)
        total += label_count(&dataset->examples[rows[i]]);
    return total;
}

static void pack_example(const struct hop_example *example, struct hop_batch *out)
{
    const int32_t begin = out->tokens;
    for (int32_t i = 0; i < example->length; i++) {
        out->ids[begin + i] = example->ids[i];
        out->position[begin + i] = i;
        if (i == 0 || example->labels[i] == HOP_LABEL_IGNORED)
            continue;
        out->label_row[out->labels] = begin + i - 1;
        out->label_id[out->labels] = example->labels[i];
        out->labels++;
    }
    out->tokens += example->length;
    out->sequences++;
    out->offset[out->sequences] = out->tokens;
}

void hop_batch_pack(const struct hop_dataset *dataset, const uint32_t *rows, size_t n,
                    struct hop_batch *out)
{
    out->sequences = out->tokens = out->labels = out->micro_batch = 0;
    out->offset[0] = 0;
    for (size_t i = 0; i < n; i++)
        pack_example(&dataset->examples[rows[i]], out);
    out->label_total = out->labels;
}
