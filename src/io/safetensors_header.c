#include "io/safetensors_header.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "io/json.h"

static const uint64_t header_limit = 100000000; /* the reference reader's */
enum { LENGTH_BYTES = 8 };

/* In the order the reference writer sorts them. */
static const struct hop_dtype_entry dtypes[] = {
    {"BOOL", 8, HOP_DTYPE_OTHER},
    {"F4", 4, HOP_DTYPE_OTHER},
    {"F6_E2M3", 6, HOP_DTYPE_OTHER},
    {"F6_E3M2", 6, HOP_DTYPE_OTHER},
    {"U8", 8, HOP_DTYPE_OTHER},
    {"I8", 8, HOP_DTYPE_OTHER},
    {"F8_E5M2", 8, HOP_DTYPE_OTHER},
    {"F8_E4M3", 8, HOP_DTYPE_OTHER},
    {"F8_E8M0", 8, HOP_DTYPE_OTHER},
    {"F8_E4M3FNUZ", 8, HOP_DTYPE_OTHER},
    {"F8_E5M2FNUZ", 8, HOP_DTYPE_OTHER},
    {"I16", 16, HOP_DTYPE_OTHER},
    {"U16", 16, HOP_DTYPE_OTHER},
    {"F16", 16, HOP_F16},
    {"BF16", 16, HOP_BF16},
    {"I32", 32, HOP_DTYPE_OTHER},
    {"U32", 32, HOP_DTYPE_OTHER},
    {"F32", 32, HOP_F32},
    {"C64", 64, HOP_DTYPE_OTHER},
    {"F64", 64, HOP_DTYPE_OTHER},
    {"I64", 64, HOP_DTYPE_OTHER},
    {"U64", 64, HOP_DTYPE_OTHER},
};

const struct hop_dtype_entry *hop_dtype_entry_find(const char *text)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(text, dtypes[i].text) == 0)
            return &dtypes[i];
    return NULL;
}

/* What the checks of one entry need to know for their messages. */
struct entry {
    const char *path, *name;
    const json_t *value;
};

static hop_status read_dtype(const struct entry *e, struct hop_tensor *out, unsigned *bits,
                             struct hop_error *err)
{
    const char *const text = json_string_value(json_object_get(e->value, "dtype"));
    if (!text)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s: \"dtype\" is missing or not a string",
                        e->path, e->name);
    const struct hop_dtype_entry *const entry = hop_dtype_entry_find(text);
    if (!entry)
        return hop_fail(err, HOP_INPUT, "%s: tensor %s: unknown dtype \"%.32s\"", e->path, e->name,
                        text);
    out->dtype = entry->dtype;
    snprintf(out->dtype_text, sizeof out->dtype_text, "%s", text);
    *bits = entry->bits;
    return HOP_OK;
}

/* Stores shape, rank and the number of elements. */
static hop_status read_shape(const struct entry *e, struct hop_tensor *out, size_t *elements,
                             struct hop_error *err)
{
    const json_t *const shape = json_object_get(e->value, "shape");
    const size_t rank = json_array_size(shape);
    if (!json_is_array(shape))
        return hop_fail(err, HOP_INPUT, "%s: tensor %s: \"shape\" is missing or not a list",
                        e->path, e->name);
    if (rank > HOP_TENSOR_MAX_RANK)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: tensor %s has %zu dimensions, at most %d work",
                        e->path, e->name, rank, HOP_TENSOR_MAX_RANK);
    *elements = 1;
    for (size_t i = 0; i < rank; i++) {
        const json_t *const size = json_array_get(shape, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return hop_fail(err, HOP_INPUT,
                            "%s: tensor %s: shape[%zu] is not a non-negative 64-bit integer",
                            e->path, e->name, i);
        out->shape[i] = json_integer_value(size);
        if (__builtin_mul_overflow(*elements, (size_t)out->shape[i], elements))
            return hop_fail(err, HOP_INPUT, "%s: tensor %s: the shape overflows 64 bits", e->path,
                            e->name);
    }
    out->rank = (int)rank;
    return HOP_OK;
}

static hop_status read_offsets(const struct entry *e, size_t buffer, size_t *begin, size_t *end,
                               struct hop_error *err)
{
    const json_t *const offsets = json_object_get(e->value, "data_offsets");
    const json_t *const first = json_array_get(offsets, 0);
    const json_t *const second = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(first) || !json_is_integer(second))
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s: \"data_offsets\" must be a list of two integers", e->path,
                        e->name);
    const json_int_t from = json_integer_value(first), to = json_integer_value(second);
    if (from < 0 || from > to || (uint64_t)to > buffer)
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s: data_offsets [%lld, %lld] do not lie in the %zu bytes of "
                        "data; the file is damaged or incomplete",
                        e->path, e->name, (long long)from, (long long)to, buffer);
    *begin = (size_t)from;
    *end = (size_t)to;
    return HOP_OK;
}

/* offset is relative to the data buffer here; the caller moves it to the start of the file. */
static hop_status read_entry(const struct entry *e, size_t buffer, struct hop_tensor *out,
                             struct hop_error *err)
{
    struct hop_tensor tensor = *out;
    unsigned bits = 0;
    size_t elements = 0, begin = 0, end = 0, total;
    if (!json_is_object(e->value))
        return hop_fail(err, HOP_INPUT, "%s: tensor %s: its entry is not an object", e->path,
                        e->name);
    HOP_TRY(read_dtype(e, &tensor, &bits, err));
    HOP_TRY(read_shape(e, &tensor, &elements, err));
    HOP_TRY(read_offsets(e, buffer, &begin, &end, err));
    if (__builtin_mul_overflow(elements, (size_t)bits, &total) || total % 8 != 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s: %zu elements of %s do not make a whole number of bytes",
                        e->path, e->name, elements, tensor.dtype_text);
    if (total / 8 != end - begin)
        return hop_fail(err, HOP_INPUT,
                        "%s: tensor %s: shape and dtype %s need %zu bytes, data_offsets hold %zu",
                        e->path, e->name, tensor.dtype_text, total / 8, end - begin);
    tensor.offset = begin;
    tensor.bytes = end - begin;
    *out = tensor;
    return HOP_OK;
}

static int by_offset(const void *a, const void *b)
{
    const struct hop_tensor *const x = a, *const y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* The tensors must follow each other and fill the buffer. Sorts them. */
static hop_status check_tiling(const char *path, struct hop_tensor *tensors, size_t count,
                               size_t buffer, struct hop_error *err)
{
    qsort(tensors, count, sizeof *tensors, by_offset);
    size_t expected = 0;
    for (size_t i = 0; i < count; i++) {
        const struct hop_tensor *const t = &tensors[i];
        if (t->offset != expected)
            return hop_fail(
                err, HOP_INPUT, "%s: tensor %s begins at byte %zu of the data, %s: byte %zu is due",
                path, t->name, t->offset,
                t->offset < expected ? "overlapping another tensor" : "after a hole", expected);
        expected += t->bytes;
    }
    if (expected != buffer)
        return hop_fail(err, HOP_INPUT, "%s: %zu bytes of data follow the last tensor", path,
                        buffer - expected);
    return HOP_OK;
}

static hop_status check_metadata(const char *path, json_t *metadata, struct hop_error *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return hop_fail(err, HOP_INPUT, "%s: __metadata__ is not an object", path);
    json_object_foreach(metadata, key, value) if (!json_is_string(value)) return hop_fail(
        err, HOP_INPUT, "%s: __metadata__: \"%s\" is not a string", path, key);
    return HOP_OK;
}

static hop_status read_entries(const char *path, json_t *header, size_t buffer,
                               struct hop_tensor *tensors, size_t *count, struct hop_error *err)
{
    const char *key;
    json_t *value;
    *count = 0;
    json_object_foreach(header, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            HOP_TRY(check_metadata(path, value, err));
            continue;
        }
        const struct entry e = {.path = path, .name = key, .value = value};
        struct hop_tensor *const tensor = &tensors[*count];
        HOP_TRY(read_entry(&e, buffer, tensor, err));
        char *name;
        HOP_TRY(hop_string_copy(&name, key, err));
        tensor->name = name;
        ++*count;
    }
    return check_tiling(path, tensors, *count, buffer, err);
}

/* Checks the length field and parses the JSON text behind it. */
static hop_status load_header(const char *path, const struct hop_map *map, size_t *length,
                              json_t **out, struct hop_error *err)
{
    uint64_t n = 0;
    if (map->size < LENGTH_BYTES)
        return hop_fail(err, HOP_INPUT,
                        "%s: %zu bytes are too few for a safetensors file; copy it again", path,
                        map->size);
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        n = n << 8 | map->data[i];
    if (n > header_limit)
        return hop_fail(err, HOP_INPUT,
                        "%s: claims a header of %llu bytes, the limit is %llu; it is not a "
                        "safetensors file",
                        path, (unsigned long long)n, (unsigned long long)header_limit);
    if (n > map->size - LENGTH_BYTES)
        return hop_fail(err, HOP_INPUT,
                        "%s: the header of %llu bytes is longer than the file; copy it again", path,
                        (unsigned long long)n);
    const char *const text = (const char *)map->data + LENGTH_BYTES;
    if (n == 0 || text[0] != '{')
        return hop_fail(err, HOP_INPUT, "%s: the safetensors header does not start with '{'", path);
    json_t *header;
    HOP_TRY(hop_json_parse(text, (size_t)n, path, &header, err));
    *length = (size_t)n;
    *out = header;
    return HOP_OK;
}

hop_status hop_safetensors_parse(const char *path, const struct hop_map *map, int file,
                                 struct hop_tensor **out, size_t *count, size_t *header_bytes,
                                 struct hop_error *err)
{
    json_t *header = NULL;
    struct hop_tensor *tensors = NULL;
    size_t length = 0, n = 0;
    hop_status status;
    HOP_TRY_DONE(load_header(path, map, &length, &header, err));
    const size_t start = LENGTH_BYTES + length;
    HOP_TRY_DONE(hop_calloc(&tensors, json_object_size(header), sizeof *tensors, err));
    HOP_TRY_DONE(read_entries(path, header, map->size - start, tensors, &n, err));
    for (size_t i = 0; i < n; i++) {
        tensors[i].file = file;
        tensors[i].offset += start;
        tensors[i].data = map->data + tensors[i].offset;
    }
    *out = tensors;
    *count = n;
    *header_bytes = start;
    tensors = NULL;
done:
    hop_tensors_free(tensors, n);
    json_decref(header);
    return status;
}

void hop_tensors_free(struct hop_tensor *tensors, size_t count)
{
    for (size_t i = 0; tensors && i < count; i++)
        free((char *)tensors[i].name);
    free(tensors);
}
