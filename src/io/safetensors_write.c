#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/safetensors.h"

/* A larger rank comes first: the reference writer sorts dtypes in descending order. */
static int dtype_rank(enum hop_dtype dtype)
{
    static const int ranks[] = {[HOP_F16] = 0, [HOP_BF16] = 1, [HOP_F32] = 2};
    return ranks[dtype];
}

static const char *dtype_text(enum hop_dtype dtype)
{
    static const char *const texts[] = {[HOP_F32] = "F32", [HOP_BF16] = "BF16", [HOP_F16] = "F16"};
    return texts[dtype];
}

static int write_order(const void *a, const void *b)
{
    const struct hop_tensor_source *const *const x = a, *const *const y = b;
    const int ranks = dtype_rank((*y)->dtype) - dtype_rank((*x)->dtype);
    return ranks ? ranks : strcmp((*x)->name, (*y)->name);
}

static hop_status source_bytes(const char *path, const struct hop_tensor_source *source,
                               size_t *bytes, struct hop_error *err)
{
    if (source->dtype >= HOP_DTYPE_OTHER || source->rank < 0 || source->rank > HOP_TENSOR_MAX_RANK)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: tensor %s: this dtype or rank is not written",
                        path, source->name);
    size_t total = hop_dtype_size(source->dtype);
    for (int i = 0; i < source->rank; i++)
        if (source->shape[i] < 0 || __builtin_mul_overflow(total, (size_t)source->shape[i], &total))
            return hop_fail(err, HOP_INTERNAL, "%s: tensor %s: the shape overflows", path,
                            source->name);
    *bytes = total;
    return HOP_OK;
}

static json_t *shape_json(const struct hop_tensor_source *source)
{
    json_t *const shape = json_array();
    for (int i = 0; i < source->rank; i++)
        json_array_append_new(shape, json_integer(source->shape[i]));
    return shape;
}

static hop_status add_entry(const char *path, json_t *header,
                            const struct hop_tensor_source *source, size_t *offset,
                            struct hop_error *err)
{
    size_t bytes = 0, end;
    HOP_TRY(source_bytes(path, source, &bytes, err));
    if (__builtin_add_overflow(*offset, bytes, &end))
        return hop_fail(err, HOP_INTERNAL, "%s: the tensors overflow 64 bits", path);
    if (json_object_get(header, source->name))
        return hop_fail(err, HOP_INTERNAL, "%s: tensor %s is given twice", path, source->name);
    json_t *const entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_text(source->dtype), "shape",
                  shape_json(source), "data_offsets", (json_int_t)*offset, (json_int_t)end);
    if (!entry || json_object_set_new(header, source->name, entry) != 0)
        return hop_fail(err, HOP_MEMORY, "%s: tensor %s: out of memory or not UTF-8", path,
                        source->name);
    *offset = end;
    return HOP_OK;
}

/* *out = malloc'ed JSON text, padded so that the data starts at a multiple of 8 bytes. */
static hop_status header_text(const char *path, const struct hop_tensor_source *const *sources,
                              size_t count, struct hop_string *out, struct hop_error *err)
{
    json_t *const header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    char *text = NULL;
    size_t offset = 0;
    hop_status status = HOP_OK;
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(add_entry(path, header, sources[i], &offset, err));
    text = json_dumps(header, JSON_COMPACT);
    if (!text) {
        status = hop_fail(err, HOP_MEMORY, "%s: out of memory for the header", path);
        goto done;
    }
    HOP_TRY_DONE(hop_string_append(out, text, strlen(text), err));
    while (out->length % 8 != 0)
        HOP_TRY_DONE(hop_string_append(out, " ", 1, err));
done:
    free(text);
    json_decref(header);
    return status;
}

static hop_status put_all(struct hop_file_writer *writer, const struct hop_string *header,
                          const struct hop_tensor_source *const *sources, size_t count,
                          struct hop_error *err)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    HOP_TRY(hop_file_put(writer, length, sizeof length, err));
    HOP_TRY(hop_file_put(writer, header->data, header->length, err));
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        HOP_TRY(source_bytes(writer->path, sources[i], &bytes, err));
        HOP_TRY(hop_file_put(writer, sources[i]->data, bytes, err));
    }
    return HOP_OK;
}

static hop_status sort_sources(const char *path, const struct hop_tensor_source *tensors,
                               size_t count, const struct hop_tensor_source ***out,
                               struct hop_error *err)
{
    const struct hop_tensor_source **sorted;
    size_t bytes;
    for (size_t i = 0; i < count; i++)
        HOP_TRY(source_bytes(path, &tensors[i], &bytes, err));
    HOP_TRY(hop_calloc(&sorted, count, sizeof *sorted, err));
    for (size_t i = 0; i < count; i++)
        sorted[i] = &tensors[i];
    qsort(sorted, count, sizeof *sorted, write_order);
    *out = sorted;
    return HOP_OK;
}

hop_status hop_safetensors_write(const char *path, const struct hop_tensor_source *tensors,
                                 size_t count, struct hop_error *err)
{
    const struct hop_tensor_source **sorted = NULL;
    struct hop_file_writer writer = {0};
    struct hop_string header = {0};
    hop_status status;
    HOP_TRY_DONE(sort_sources(path, tensors, count, &sorted, err));
    HOP_TRY_DONE(header_text(path, sorted, count, &header, err));
    HOP_TRY_DONE(hop_file_begin(path, &writer, err));
    HOP_TRY_DONE(put_all(&writer, &header, sorted, count, err));
    HOP_TRY_DONE(hop_file_commit(&writer, err));
done:
    hop_file_discard(&writer);
    hop_string_free(&header);
    free(sorted);
    return status;
}
