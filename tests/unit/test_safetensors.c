#include "support_files.h"

#include <unistd.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "io/file.h"
#include "io/safetensors.h"

static struct hop_error err;

static const float floats[] = {1.5f, -2.0f, 0.25f, 3.0f, 4.0f, 5.0f};
static const uint16_t halves[] = {0x3f80, 0x4000, 0x4040};

static const struct hop_tensor_source sources[] = {
    {.name = "b.10", .dtype = HOP_F32, .rank = 2, .shape = {2, 3}, .data = floats},
    {.name = "b.2", .dtype = HOP_F32, .rank = 0, .data = floats + 1},
    {.name = "a", .dtype = HOP_BF16, .rank = 1, .shape = {3}, .data = halves},
    {.name = "c", .dtype = HOP_F16, .rank = 3, .shape = {1, 2, 1}, .data = halves},
    {.name = "none", .dtype = HOP_F32, .rank = 2, .shape = {0, 7}, .data = floats},
};
enum { SOURCES = sizeof sources / sizeof *sources };

static void test_round_trip(void **state)
{
    (void)state;
    struct hop_safetensors *set = NULL;
    const char *const path = hop_test_path("round.safetensors");
    ASSERT_OK(hop_safetensors_write(path, sources, SOURCES, &err));
    ASSERT_OK(hop_safetensors_open(path, &set, &err));
    assert_int_equal(hop_safetensors_count(set), SOURCES);
    assert_int_equal(hop_safetensors_files(set), 1);
    assert_string_equal(hop_safetensors_path(set, 0), path);
    for (size_t i = 0; i < SOURCES; i++) {
        const struct hop_tensor *const t = hop_safetensors_find(set, sources[i].name);
        assert_non_null(t);
        assert_int_equal(t->dtype, sources[i].dtype);
        assert_int_equal(t->rank, sources[i].rank);
        for (int d = 0; d < t->rank; d++)
            assert_int_equal(t->shape[d], sources[i].shape[d]);
        assert_memory_equal(t->data, sources[i].data, t->bytes);
    }
    assert_null(hop_safetensors_find(set, "b"));
    assert_string_equal(hop_safetensors_at(set, 0)->name, "a");
    hop_safetensors_close(set);
    hop_safetensors_close(NULL);
}

static void test_layout_is_the_reference_writers(void **state)
{
    (void)state;
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"},\"b.10\":{\"dtype\":\"F32\",\"shape\":[2,3],"
        "\"data_offsets\":[0,24]},\"b.2\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[24,28]}"
        ","
        "\"none\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[28,28]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[28,34]},"
        "\"c\":{\"dtype\":\"F16\",\"shape\":[1,2,1],\"data_offsets\":[34,38]}}";
    struct hop_map map = {0};
    const char *const path = hop_test_path("layout.safetensors");
    ASSERT_OK(hop_safetensors_write(path, sources, SOURCES, &err));
    ASSERT_OK(hop_map_open(path, &map, &err));
    assert_int_equal(map.data[0] % 8, 0);
    assert_memory_equal(map.data + 8, header, strlen(header));
    hop_map_close(&map);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct hop_tensor_source twice[2] = {sources[0], sources[0]};
    struct hop_tensor_source other = sources[0];
    const char *const path = hop_test_path("refused.safetensors");
    other.dtype = HOP_DTYPE_OTHER;
    ASSERT_REFUSED(hop_safetensors_write(path, twice, 2, &err), HOP_INTERNAL, "given twice");
    ASSERT_REFUSED(hop_safetensors_write(path, &other, 1, &err), HOP_UNSUPPORTED, "b.10");
    ASSERT_REFUSED(hop_safetensors_write(hop_test_path("no/x"), sources, 1, &err), HOP_IO, "x");
    assert_false(hop_file_exists(path));
}

/* Writes a file of the header text, padded by nothing, and `data` zero bytes. */
static const char *build(const char *header, size_t data)
{
    const size_t n = strlen(header);
    unsigned char *const bytes = calloc(1, 8 + n + data);
    for (int i = 0; i < 8; i++)
        bytes[i] = (unsigned char)((uint64_t)n >> 8 * i);
    memcpy(bytes + 8, header, n);
    const char *const path = hop_test_write("bad.safetensors", bytes, 8 + n + data);
    free(bytes);
    return path;
}

#define ENTRY(dtype, shape, begin, end)                                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_malformed_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t data;
        const char *part;
    } cases[] = {
        {"", 0, "does not start with '{'"},
        {"[]", 0, "does not start with '{'"},
        {" {}", 0, "does not start with '{'"},
        {"{not json", 0, "not valid JSON"},
        {"{\"a\":\"\xff\"}", 0, "not valid JSON"},
        {"{} x", 0, "not valid JSON"},
        {"{\"a\":1}", 0, "tensor a: its entry is not an object"},
        {"{\"a\":{}}", 0, "tensor a: \"dtype\" is missing"},
        {"{\"a\":{\"dtype\":3}}", 0, "tensor a: \"dtype\" is missing"},
        {"{\"a\":{\"dtype\":\"F32\"}}", 0, "\"shape\" is missing"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 0, "\"data_offsets\" must be"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0]}}", 0, "two integers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4.0]}}", 4, "two integers"},
        {"{\"a\":" ENTRY("F33", "[1]", "0", "4") "}", 4, "unknown dtype \"F33\""},
        {"{\"a\":" ENTRY("f32", "[1]", "0", "4") "}", 4, "unknown dtype"},
        {"{\"a\":" ENTRY("F32", "[-1]", "0", "4") "}", 4, "shape[0] is not a non-negative"},
        {"{\"a\":" ENTRY("F32", "[1.0]", "0", "4") "}", 4, "shape[0]"},
        {"{\"a\":" ENTRY("F32", "[99999999999999999999]", "0", "4") "}", 4, "shape[0]"},
        {"{\"a\":" ENTRY("F32", "[4294967296,4294967296]", "0", "4") "}", 4, "overflows"},
        {"{\"a\":" ENTRY("F32", "[4611686018427387904]", "0", "4") "}", 4, "whole number"},
        {"{\"a\":" ENTRY("F4", "[1]", "0", "1") "}", 1, "whole number of bytes"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "8") "}", 4, "do not lie in the 4 bytes"},
        {"{\"a\":" ENTRY("F32", "[1]", "-4", "0") "}", 4, "do not lie in"},
        {"{\"a\":" ENTRY("F32", "[1]", "4", "0") "}", 4, "do not lie in"},
        {"{\"a\":" ENTRY("F32", "[2]", "0", "4") "}", 4, "need 8 bytes, data_offsets hold 4"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"b\":" ENTRY("F32", "[1]", "2", "6") "}", 6,
         "tensor b begins at byte 2 of the data, overlapping"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"b\":" ENTRY("F32", "[1]", "0", "4") "}", 4,
         "overlapping"},
        {"{\"a\":" ENTRY("F32", "[1]", "4", "8") "}", 8, "after a hole"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") "}", 5, "1 bytes of data follow"},
        {"{}", 1, "1 bytes of data follow"},
        {"{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"a\":" ENTRY("F32", "[1]", "0", "4") "}", 4,
         "duplicate"},
        {"{\"__metadata__\":[]}", 0, "__metadata__ is not an object"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: \"a\" is not a string"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_safetensors *set = NULL;
        const char *const path = build(cases[i].header, cases[i].data);
        ASSERT_REFUSED(hop_safetensors_open(path, &set, &err), HOP_INPUT, cases[i].part);
        assert_non_null(strstr(err.message, "bad.safetensors"));
        assert_null(set);
    }
}

static void test_malformed_files(void **state)
{
    (void)state;
    static const struct {
        unsigned char bytes[10];
        size_t n;
        const char *part;
    } cases[] = {
        {{0}, 0, "too few"},
        {{2, 0, 0, 0, 0, 0, 0}, 7, "too few"},
        {{3, 0, 0, 0, 0, 0, 0, 0, '{', '}'}, 10, "longer than the file"},
        {{0x01, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}'}, 10, "claims a header of 100000001"},
        {{255, 255, 255, 255, 255, 255, 255, 255, '{', '}'}, 10, "claims a header"},
        {{0x00, 0xe1, 0xf5, 0x05, 0, 0, 0, 0, '{', '}'}, 10, "longer than the file"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_safetensors *set = NULL;
        const char *const path = hop_test_write("bad.safetensors", cases[i].bytes, cases[i].n);
        ASSERT_REFUSED(hop_safetensors_open(path, &set, &err), HOP_INPUT, cases[i].part);
    }
}

static void test_deep_header(void **state)
{
    (void)state;
    enum { DEPTH = 200000 };
    char *const header = calloc(1, DEPTH + 1);
    struct hop_safetensors *set = NULL;
    memset(header, '[', DEPTH);
    memcpy(header, "{\"a\":", 5);
    ASSERT_REFUSED(hop_safetensors_open(build(header, 0), &set, &err), HOP_INPUT, "depth");
    free(header);
}

static void test_accepts_what_the_format_allows(void **state)
{
    (void)state;
    static const char header[] = "{\"z\":" ENTRY(
        "I64", "[1]", "0",
        "8") ",\"y\":{\"data_offsets\":"
             "[8,8],\"extra\":1,\"shape\":[3,0],\"dtype\":\"F8_E4M3\"},\"x\":" ENTRY(
                 "F4", "[4]", "8", "10") "}   ";
    struct hop_safetensors *set = NULL;
    ASSERT_OK(hop_safetensors_open(build(header, 10), &set, &err));
    assert_int_equal(hop_safetensors_find(set, "z")->dtype, HOP_DTYPE_OTHER);
    assert_string_equal(hop_safetensors_find(set, "y")->dtype_text, "F8_E4M3");
    assert_int_equal(hop_safetensors_find(set, "x")->bytes, 2);
    hop_safetensors_close(set);
    static const char *const without_tensors[] = {"{}", "{\"__metadata__\":{\"format\":\"pt\"}}"};
    for (size_t i = 0; i < 2; i++) {
        ASSERT_OK(hop_safetensors_open(build(without_tensors[i], 0), &set, &err));
        assert_int_equal(hop_safetensors_count(set), 0);
        assert_null(hop_safetensors_find(set, "z"));
        hop_safetensors_close(set);
    }
}

/* A header that is there in full, in a sparse file, and yet too long. */
static void test_header_of_126_megabytes(void **state)
{
    (void)state;
    static const unsigned char start[] = {0x80, 0x9b, 0x82, 0x07, 0, 0, 0, 0, '{', '}'};
    struct hop_safetensors *set = NULL;
    const char *const path = hop_test_write("long-header.safetensors", start, sizeof start);
    assert_int_equal(truncate(path, 8 + 126000000), 0);
    ASSERT_REFUSED(hop_safetensors_open(path, &set, &err), HOP_INPUT,
                   "claims a header of 126000000");
    assert_null(set);
    assert_int_equal(unlink(path), 0);
}

static void test_rank_beyond_ours_is_unsupported(void **state)
{
    (void)state;
    struct hop_safetensors *set = NULL;
    ASSERT_REFUSED(
        hop_safetensors_open(build("{\"a\":" ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4),
                             &set, &err),
        HOP_UNSUPPORTED, "tensor a has 9 dimensions");
}

/* A model folder of two shards; returns its path. */
static const char *shards(const char *folder, const char *weight_map)
{
    char name[128];
    struct hop_string index = {0};
    const char *const path = hop_test_path(folder);
    ASSERT_OK(hop_directory_create(path, &err));
    snprintf(name, sizeof name, "%s/one.safetensors", folder);
    ASSERT_OK(hop_safetensors_write(hop_test_path(name), sources, 2, &err));
    snprintf(name, sizeof name, "%s/two.safetensors", folder);
    ASSERT_OK(hop_safetensors_write(hop_test_path(name), sources + 1, 2, &err));
    ASSERT_OK(hop_string_printf(&index, &err, "{\"weight_map\": %s}", weight_map));
    snprintf(name, sizeof name, "%s/model.safetensors.index.json", folder);
    hop_test_write_text(name, index.data);
    hop_string_free(&index);
    return path;
}

static void test_shards(void **state)
{
    (void)state;
    struct hop_safetensors *set = NULL;
    const char *const folder =
        shards("good", "{\"b.10\": \"one.safetensors\", \"b.2\": \"two.safetensors\", \"a\": "
                       "\"two.safetensors\"}");
    ASSERT_OK(hop_safetensors_open_folder(folder, &set, &err));
    assert_int_equal(hop_safetensors_files(set), 2);
    assert_int_equal(hop_safetensors_count(set), 3);
    assert_int_equal(hop_safetensors_find(set, "b.10")->file, 0);
    assert_int_equal(hop_safetensors_find(set, "b.2")->file, 1);
    assert_true(hop_safetensors_fingerprint(set, 0) != hop_safetensors_fingerprint(set, 1));
    hop_safetensors_close(set);
}

static void test_malformed_shards(void **state)
{
    (void)state;
    static const struct {
        const char *weight_map, *part;
    } cases[] = {
        {"[]", "\"weight_map\" is missing"},
        {"{\"a\": 1}", "tensor a must name a file"},
        {"{\"a\": \"../good/two.safetensors\"}", "tensor a must name a file"},
        {"{\"a\": \"..\"}", "tensor a must name a file"},
        {"{\"a\": \"three.safetensors\"}", "shard of tensor a"},
        {"{\"a\": \"one.safetensors\"}", "tensor a is not in one.safetensors"},
        {"{\"b.10\": \"one.safetensors\", \"q\": \"one.safetensors\"}", "tensor q is not in"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_safetensors *set = NULL;
        const char *const folder = shards("bad", cases[i].weight_map);
        ASSERT_REFUSED(hop_safetensors_open_folder(folder, &set, &err), HOP_INPUT, cases[i].part);
        assert_null(set);
    }
    struct hop_safetensors *set = NULL;
    ASSERT_OK(hop_directory_create(hop_test_path("void"), &err));
    ASSERT_REFUSED(hop_safetensors_open_folder(hop_test_path("void"), &set, &err), HOP_INPUT,
                   "neither model.safetensors");
}

/* Reads a file, writes it again and compares all bytes. */
static void assert_copy_is_equal(const char *path)
{
    struct hop_safetensors *set = NULL;
    struct hop_tensor_source copy[256];
    struct hop_map before = {0}, after = {0};
    ASSERT_OK(hop_safetensors_open(path, &set, &err));
    const size_t n = hop_safetensors_count(set);
    assert_in_range(n, 1, sizeof copy / sizeof *copy);
    for (size_t i = 0; i < n; i++) {
        const struct hop_tensor *const t = hop_safetensors_at(set, i);
        copy[i] = (struct hop_tensor_source){
            .name = t->name, .dtype = t->dtype, .rank = t->rank, .data = t->data};
        memcpy(copy[i].shape, t->shape, sizeof t->shape);
    }
    const char *const again = hop_test_path("again.safetensors");
    ASSERT_OK(hop_safetensors_write(again, copy, n, &err));
    ASSERT_OK(hop_map_open(path, &before, &err));
    ASSERT_OK(hop_map_open(again, &after, &err));
    assert_int_equal(before.size, after.size);
    assert_memory_equal(before.data, after.data, before.size);
    hop_map_close(&before);
    hop_map_close(&after);
    hop_safetensors_close(set);
}

static void test_real_files_are_written_alike(void **state)
{
    (void)state;
    static const char *const names[] = {"models/stories260K/model.safetensors",
                                        "lora/final/adapter_model.safetensors",
                                        "formats/peft_0.18.1/adapter_model.safetensors"};
    size_t found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *const path = hop_test_data(names[i]);
        if (path)
            assert_copy_is_equal(path);
        found += path != NULL;
    }
    if (!found)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_layout_is_the_reference_writers),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_malformed_headers),
        cmocka_unit_test(test_malformed_files),
        cmocka_unit_test(test_deep_header),
        cmocka_unit_test(test_accepts_what_the_format_allows),
        cmocka_unit_test(test_header_of_126_megabytes),
        cmocka_unit_test(test_rank_beyond_ours_is_unsupported),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_malformed_shards),
        cmocka_unit_test(test_real_files_are_written_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
