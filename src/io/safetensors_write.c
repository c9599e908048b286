#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/safetensors.h"
#include "io/safetensors_header.h"

static const struct hop_dtype_entry *entry_of(const struct hop_tensor_source *source)
{
    static const char *const texts[] = {[HOP_F32] = "F32", [HOP_BF16] = "BF16", [HOP_F16] = "F16"};
    if (source->dtype < HOP_DTYPE_OTHER)
        return hop_dtype_entry_find(texts[source->dtype]);
    return source->dtype_text ? hop_dtype_entry_find(source->dtype_text) : NULL;
}

/* The reference writer sorts dtypes in descending order. */
static int write_order(const void *a, const void *b)
{
    const struct hop_tensor_source *const *const x = a, *const *const y = b;
    const struct hop_dtype_entry *const first = entry_of(*x), *const second = entry_of(*y);
    if (first != second)
        return first > second ? -1 : 1;
    return strcmp((*x)->name, (*y)->name);
}

hop_status hop_tensor_source_bytes(const char *path, const struct hop_tensor_source *source,
                                   size_t *bytes, struct hop_error *err)
{
    const struct hop_dtype_entry *const entry = entry_of(source);
    if (!entry || source->rank < 0 || source->rank > HOP_TENSOR_MAX_RANK)
        return hop_fail(err, HOP_UNSUPPORTED, "%s: tensor %s: this dtype or rank is not written",
                        path, source->name);
    size_t bits = entry->bits;
    for (int i = 0; i < source->rank; i++)
        if (source->shape[i] < 0 || __builtin_mul_overflow(bits, (size_t)source->shape[i], &bits))
            return hop_fail(err, HOP_INTERNAL, "%s: tensor %s: the shape overflows", path,
                            source->name);
    *bytes = bits / 8;
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
    HOP_TRY(hop_tensor_source_bytes(path, source, &bytes, err));
    if (__builtin_add_overflow(*offset, bytes, &end))
        return hop_fail(err, HOP_INTERNAL, "%s: the tensors overflow 64 bits", path);
    if (json_object_get(header, source->name))
        return hop_fail(err, HOP_INTERNAL, "%s: tensor %s is given twice", path, source->name);
    json_t *const entry =
        json_pack("{s:s, s:o, s:[I, I]}", "dtype", entry_of(source)->text, "shape",
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

static hop_status put_header(struct hop_file_writer *writer, const struct hop_string *header,
                             struct hop_error *err)
{
    unsigned char length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)header->length >> 8 * i);
    HOP_TRY(hop_file_put(writer, length, sizeof length, err));
    return hop_file_put(writer, header->data, header->length, err);
}

/* The header has said where each tensor lies: what is put must be as long. */
static hop_status put_tensor(struct hop_file_writer *writer, const struct hop_tensor_source *source,
                             hop_tensor_put put, void *context, struct hop_error *err)
{
    const off_t begin = ftello(writer->stream);
    size_t bytes = 0;
    HOP_TRY(hop_tensor_source_bytes(writer->path, source, &bytes, err));
    HOP_TRY(put(context, source, writer, err));
    const off_t end = ftello(writer->stream);
    if (begin < 0 || end < begin || (size_t)(end - begin) != bytes)
        return hop_fail(err, HOP_INTERNAL,
                        "%s: tensor %s: %lld bytes were put, the header says %zu", writer->path,
                        source->name, (long long)(end - begin), bytes);
    return HOP_OK;
}

/* *out = malloc'ed list in the order of writing. */
static hop_status sort_sources(const struct hop_tensor_source *const *tensors, size_t count,
                               const struct hop_tensor_source ***out, struct hop_error *err)
{
    const struct hop_tensor_source **sorted;
    HOP_TRY(hop_calloc(&sorted, count, sizeof *sorted, err));
    for (size_t i = 0; i < count; i++)
        sorted[i] = tensors[i];
    qsort(sorted, count, sizeof *sorted, write_order);
    *out = sorted;
    return HOP_OK;
}

static hop_status check_sources(const char *path, const struct hop_tensor_source *const *tensors,
                                size_t count, struct hop_error *err)
{
    size_t bytes;
    for (size_t i = 0; i < count; i++)
        HOP_TRY(hop_tensor_source_bytes(path, tensors[i], &bytes, err));
    return HOP_OK;
}

hop_status hop_safetensors_write_with(const char *path,
                                      const struct hop_tensor_source *const *tensors, size_t count,
                                      hop_tensor_put put, void *context, struct hop_error *err)
{
    const struct hop_tensor_source **sorted = NULL;
    struct hop_file_writer writer = {0};
    struct hop_string header = {0};
    hop_status status;
    HOP_TRY_DONE(check_sources(path, tensors, count, err));
    HOP_TRY_DONE(sort_sources(tensors, count, &sorted, err));
    HOP_TRY_DONE(header_text(path, sorted, count, &header, err));
    HOP_TRY_DONE(hop_file_begin(path, &writer, err));
    HOP_TRY_DONE(put_header(&writer, &header, err));
    for (size_t i = 0; i < count; i++)
        HOP_TRY_DONE(put_tensor(&writer, sorted[i], put, context, err));
    HOP_TRY_DONE(hop_file_commit(&writer, err));
done:
    hop_file_discard(&writer);
    hop_string_free(&header);
    free(sorted);
    return status;
}

static hop_status put_data(void *context, const struct hop_tensor_source *source,
                           struct hop_file_writer *writer, struct hop_error *err)
{
    size_t bytes = 0;
    (void)context;
    HOP_TRY(hop_tensor_source_bytes(writer->path, source, &bytes, err));
    return hop_file_put(writer, source->data, bytes, err);
}

hop_status hop_safetensors_write(const char *path, const struct hop_tensor_source *tensors,
                                 size_t count, struct hop_error *err)
{
    const struct hop_tensor_source **list;
    HOP_TRY(hop_calloc(&list, count, sizeof *list, err));
    for (size_t i = 0; i < count; i++)
        list[i] = &tensors[i];
    const hop_status status = hop_safetensors_write_with(path, list, count, put_data, NULL, err);
    free(list);
    return status;
}
