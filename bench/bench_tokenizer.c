/* MB of text a second through each tokenizer that is there: the bundled one, and those of the test
 * data ($HYBRIDOP_TESTDATA, default ../shared/testdata). The text is AG News' test set where it is
 * there, row by row, else as many bytes made from the tokenizer's own words. "warm" has seen every
 * word before. One JSON line a tokenizer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "io/file.h"
#include "text/tokenizer.h"

enum { GENERATED_BYTES = 2 << 20, ROW_BYTES = 240, ROUNDS = 5 };

static void check(hop_status status, const struct hop_error *err)
{
    if (status == HOP_OK)
        return;
    fprintf(stderr, "bench_tokenizer: %s\n", err->message);
    exit(1);
}

/* Tokens drawn at random, one line about as long as a news item. */
static void generate(struct hop_tokenizer *tokenizer, struct hop_string *out)
{
    struct hop_error err = {0};
    uint32_t drawn = 0;
    size_t row = 0;
    while (out->length < GENERATED_BYTES) {
        const struct hop_random_key key = {.seed = 1, .domain = HOP_RANDOM_SAMPLE, .step = drawn++};
        float value;
        hop_random_uniform(&key, 0, 1, &value);
        const int32_t id = (int32_t)(value * (float)hop_tokenizer_vocabulary(tokenizer));
        struct hop_error gap = {0}; /* some ids have no token */
        const size_t before = out->length;
        if (hop_tokenizer_decode(tokenizer, &id, 1, true, out, &gap) != HOP_OK)
            continue;
        row += out->length - before;
        if (row < ROW_BYTES)
            continue;
        check(hop_string_append(out, "\n", 1, &err), &err);
        row = 0;
    }
}

/* Returns the ids of all lines. */
static size_t encode_lines(struct hop_tokenizer *tokenizer, const char *text, size_t length)
{
    struct hop_ids ids = {0};
    struct hop_error err = {0};
    size_t total = 0;
    for (size_t i = 0; i < length;) {
        const char *const end = memchr(text + i, '\n', length - i);
        const size_t n = end ? (size_t)(end - text) - i : length - i;
        ids.count = 0;
        check(hop_tokenizer_encode(tokenizer, text + i, n, true, &ids, &err), &err);
        total += ids.count;
        i += n + 1;
    }
    hop_ids_free(&ids);
    return total;
}

static void measure(const char *name, const char *directory, const struct hop_map *news)
{
    struct hop_tokenizer *tokenizer;
    struct hop_string made = {0};
    struct hop_error err = {0};
    double begin = hop_clock_now(), first = 0, best = 0;
    size_t tokens = 0;
    check(hop_tokenizer_load(directory, &tokenizer, &err), &err);
    const double load = hop_clock_now() - begin;
    if (!news->size)
        generate(tokenizer, &made);
    const char *const text = news->size ? (const char *)news->data : made.data;
    const size_t length = news->size ? news->size : made.length;
    for (int round = 0; round < ROUNDS; round++) {
        begin = hop_clock_now();
        tokens = encode_lines(tokenizer, text, length);
        const double rate = (double)length / 1e6 / (hop_clock_now() - begin);
        if (!round)
            first = rate;
        best = rate > best ? rate : best;
    }
    printf("{\"bench\": \"tokenizer\", \"name\": \"%s\", \"text\": \"%s\", \"bytes\": %zu, "
           "\"tokens\": %zu, \"load_seconds\": %.4f, \"cold_mb_per_second\": %.1f, "
           "\"warm_mb_per_second\": %.1f}\n",
           name, news->size ? "ag_news" : "generated", length, tokens, load, first, best);
    hop_string_free(&made);
    hop_tokenizer_free(tokenizer);
}

static void measure_if_there(const char *name, const char *root, const char *folder,
                             const struct hop_map *news)
{
    char *directory = NULL, *path = NULL;
    struct hop_error err = {0};
    check(hop_path_join(root, folder, &directory, &err), &err);
    check(hop_path_join(directory, "tokenizer.json", &path, &err), &err);
    if (hop_file_exists(path))
        measure(name, directory, news);
    free(directory);
    free(path);
}

int main(void)
{
    const char *const named = getenv("HYBRIDOP_TESTDATA");
    const char *const data = named ? named : HOP_SOURCE_DIR "/../shared/testdata";
    const char *const llama3 = getenv("HYBRIDOP_LLAMA3_TOKENIZER");
    struct hop_map news = {0};
    struct hop_error err = {0};
    char *path = NULL;
    check(hop_path_join(data, "agnews/test.csv", &path, &err), &err);
    if (hop_file_exists(path))
        check(hop_map_open(path, &news, &err), &err);
    measure_if_there("wordnet-3m", HOP_SOURCE_DIR, "models/wordnet-3m", &news);
    measure_if_there("stories260K", data, "models/stories260K", &news);
    measure_if_there("gpt2", data, "tokenizers/gpt2", &news);
    measure_if_there("llama-2", data, "tokenizers/tinyllama", &news);
    if (llama3)
        measure_if_there("llama-3.1", llama3, ".", &news);
    hop_map_close(&news);
    free(path);
    return 0;
}
