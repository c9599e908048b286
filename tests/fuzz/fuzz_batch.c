/* A micro-batch as ranks send it: what is decoded lies inside the limits and encodes to the same
 * words. */
#include <stdlib.h>
#include <string.h>

#include "data/batch.h"
#include "fuzz.h"

enum { VOCABULARY = 100 };
static const struct hop_batch_limits limits = {.sequences = 4, .tokens = 24, .labels = 12};

static void check_batch(const struct hop_batch *b)
{
    HOP_FUZZ_EXPECT(b->offset[0] == 0 && b->offset[b->sequences] == b->tokens);
    for (int32_t s = 0; s < b->sequences; s++)
        HOP_FUZZ_EXPECT(b->offset[s] < b->offset[s + 1]);
    for (int32_t t = 0; t < b->tokens; t++)
        HOP_FUZZ_EXPECT(b->ids[t] >= 0 && b->ids[t] < VOCABULARY && b->position[t] >= 0 &&
                        b->position[t] <= t);
    for (int32_t l = 0; l < b->labels; l++)
        HOP_FUZZ_EXPECT(b->label_row[l] >= 0 && b->label_row[l] < b->tokens &&
                        b->label_id[l] >= 0 && b->label_id[l] < VOCABULARY);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_batch batch = {0};
    struct hop_error err = {0};
    size_t n;
    int32_t *const words = hop_fuzz_words(data, size, &n);
    hop_fuzz_ok(hop_batch_create(&limits, &batch, &err), &err);
    if (hop_fuzz_read(hop_batch_decode(words, n, &limits, VOCABULARY, &batch, &err), &err)) {
        int32_t *const again = malloc(hop_batch_words(&limits) * sizeof *again);
        HOP_FUZZ_EXPECT(again);
        check_batch(&batch);
        HOP_FUZZ_EXPECT(hop_batch_encode(&batch, again) == n);
        HOP_FUZZ_EXPECT(!memcmp(words, again, n * sizeof *again));
        free(again);
    }
    hop_batch_free(&batch);
    free(words);
    return 0;
}
