/* tokenizer.json, a NUL byte, a text: loading, encoding in every way, decoding. */
#include <string.h>

#include "fuzz.h"

enum { TEXT_LIMIT = 4096 };

static void check_decoding(const struct hop_tokenizer *t, const struct hop_ids *ids)
{
    for (int skip = 0; skip < 2; skip++) {
        struct hop_string text = {0};
        struct hop_error err = {0};
        hop_fuzz_read(hop_tokenizer_decode(t, ids->data, ids->count, skip, &text, &err), &err);
        hop_string_free(&text);
    }
}

static void check_ids(const struct hop_tokenizer *t, const struct hop_ids *ids)
{
    for (size_t i = 0; i < ids->count; i++)
        HOP_FUZZ_EXPECT(ids->data[i] >= 0 && ids->data[i] < hop_tokenizer_vocabulary(t));
}

/* The same text gives the same ids, whatever was encoded in between. */
static void check_encoding(struct hop_tokenizer *t, const char *text, size_t length, bool special)
{
    struct hop_ids ids = {0}, again = {0};
    struct hop_error err = {0};
    if (hop_fuzz_read(hop_tokenizer_encode(t, text, length, special, &ids, &err), &err)) {
        check_ids(t, &ids);
        check_decoding(t, &ids);
        hop_fuzz_ok(hop_tokenizer_encode(t, text, length, special, &again, &err), &err);
        HOP_FUZZ_EXPECT(ids.count == again.count);
        HOP_FUZZ_EXPECT(!ids.count || !memcmp(ids.data, again.data, ids.count * sizeof *ids.data));
    } else {
        HOP_FUZZ_EXPECT(ids.count == 0);
    }
    hop_ids_free(&ids);
    hop_ids_free(&again);
}

static void check_plain(struct hop_tokenizer *t, const char *text, size_t length)
{
    struct hop_ids ids = {0};
    struct hop_error err = {0};
    if (hop_fuzz_read(hop_tokenizer_encode_plain(t, text, length, &ids, &err), &err))
        check_ids(t, &ids);
    hop_ids_free(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct hop_fuzz_part rest = {data, size};
    struct hop_tokenizer *t = NULL;
    struct hop_error err = {0};
    const struct hop_fuzz_part json = hop_fuzz_next(&rest);
    if (rest.size > TEXT_LIMIT)
        return -1;
    hop_fuzz_write("tokenizer.json", json.data, json.size);
    if (!hop_fuzz_read(hop_tokenizer_load(hop_fuzz_folder(), &t, &err), &err))
        return 0;
    const char *const text = rest.size ? (const char *)rest.data : "";
    check_encoding(t, text, rest.size, false);
    check_encoding(t, text, rest.size, true);
    check_plain(t, text, rest.size);
    hop_tokenizer_free(t);
    return 0;
}
