#include "model/merge_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Columns whose sums are kept on the stack of a thread. */
enum { STRIP = 256 };

hop_status hop__merge_buffer_create(size_t capacity, struct hop__merge_buffer *out,
                                    struct hop_error *err)
{
    struct hop__merge_buffer buffer = {.capacity = capacity};
    hop_status status;
    HOP_TRY_DONE(hop_calloc_aligned(&buffer.raw, capacity, sizeof(float), err));
    HOP_TRY_DONE(hop_calloc_aligned(&buffer.values, capacity, sizeof(float), err));
    *out = buffer;
    return HOP_OK;
done:
    hop__merge_buffer_free(&buffer);
    return status;
}

void hop__merge_buffer_free(struct hop__merge_buffer *buffer)
{
    if (!buffer)
        return;
    free(buffer->raw);
    free(buffer->values);
    *buffer = (struct hop__merge_buffer){0};
}

/* w[0..n) += scale * b a of one row and columns `first`... */
static void add_strip(const struct hop__merge_delta *delta, const float *b, int64_t in,
                      int64_t first, int64_t n, float *w)
{
    double sum[STRIP] = {0};
    for (int64_t r = 0; r < delta->rank; r++) {
        const float *const a = delta->a + r * in + first;
        const double factor = (double)b[r];
        for (int64_t i = 0; i < n; i++)
            sum[i] += factor * (double)a[i];
    }
    for (int64_t i = 0; i < n; i++)
        w[i] = (float)((double)w[i] + delta->scale * sum[i]);
}

/* A piece of a tensor: n elements from element `begin` on, `begin` at the start of a row. */
struct piece {
    const struct hop_tensor *tensor;
    const struct hop__merge_delta *delta;
    enum hop_dtype dtype;
    size_t begin, n;
};

/* Elements that are worked on at a time: a row of a matrix that changes. */
static size_t strip_of(const struct piece *piece)
{
    enum { PLAIN = 4096 };
    return piece->delta ? (size_t)piece->tensor->shape[1] : PLAIN;
}

/* n elements of the piece from element `at` on, in the buffer as f32 and as they are stored. */
static void work(const struct piece *piece, size_t at, size_t n, struct hop__merge_buffer *buffer)
{
    const size_t in = strip_of(piece), size = hop_dtype_size(piece->tensor->dtype);
    float *const values = buffer->values + at;
    char *const raw = (char *)buffer->raw + at * sizeof(float);
    memcpy(raw, (const char *)piece->tensor->data + (piece->begin + at) * size, n * size);
    hop_convert(values, HOP_F32, raw, piece->tensor->dtype, n);
    if (piece->delta) {
        const float *const b =
            piece->delta->b + (piece->begin + at) / in * (size_t)piece->delta->rank;
        for (size_t first = 0; first < in; first += STRIP)
            add_strip(piece->delta, b, (int64_t)in, (int64_t)first,
                      (int64_t)(in - first < STRIP ? in - first : STRIP), values + first);
    }
    hop_convert(raw, piece->dtype, values, HOP_F32, n);
}

static bool is_finite(const void *raw, size_t i, enum hop_dtype dtype)
{
    switch (dtype) {
    case HOP_F32:
        return isfinite(((const float *)raw)[i]);
    case HOP_BF16:
        return (((const uint16_t *)raw)[i] & 0x7f80) != 0x7f80;
    default:
        return (((const uint16_t *)raw)[i] & 0x7c00) != 0x7c00;
    }
}

/* Puts what work() left `at` in the buffer. */
static hop_status put_strip(const struct piece *piece, size_t at, size_t n,
                            const struct hop__merge_buffer *buffer, struct hop_file_writer *writer,
                            struct hop_error *err)
{
    const char *const raw = (const char *)buffer->raw + at * sizeof(float);
    for (size_t i = 0; i < n; i++)
        if (!is_finite(raw, i, piece->dtype))
            return hop_fail(err, HOP_NUMERIC,
                            "tensor %s: element %zu becomes %g, which is no finite number in %s; "
                            "if the model and the adapter are sound, use --dtype bf16 or f32",
                            piece->tensor->name, piece->begin + at + i,
                            (double)buffer->values[at + i], hop_dtype_name(piece->dtype));
    return hop_file_put(writer, raw, n * hop_dtype_size(piece->dtype), err);
}

static hop_status put_piece(const struct piece *piece, struct hop__merge_buffer *buffer,
                            struct hop_file_writer *writer, struct hop_error *err)
{
    const size_t strip = strip_of(piece);
#pragma omp parallel for schedule(static)
    for (size_t at = 0; at < piece->n; at += strip)
        work(piece, at, piece->n - at < strip ? piece->n - at : strip, buffer);
    for (size_t at = 0; at < piece->n; at += strip)
        HOP_TRY(put_strip(piece, at, piece->n - at < strip ? piece->n - at : strip, buffer, writer,
                          err));
    return HOP_OK;
}

/* As it is, with no more of it in memory than a piece. */
static hop_status copy(const struct hop_tensor *tensor, struct hop_file_writer *writer,
                       struct hop_error *err)
{
    enum { PIECE_BYTES = 1 << 24 };
    for (size_t at = 0; at < tensor->bytes; at += PIECE_BYTES) {
        const char *const begin = (const char *)tensor->data + at;
        const size_t left = tensor->bytes - at, n = left < PIECE_BYTES ? left : PIECE_BYTES;
        HOP_TRY(hop_file_put(writer, begin, n, err));
        hop_map_release(begin, n);
    }
    return HOP_OK;
}

hop_status hop__merge_put(const struct hop_tensor *tensor, const struct hop__merge_delta *delta,
                          enum hop_dtype dtype, struct hop__merge_buffer *buffer,
                          struct hop_file_writer *writer, struct hop_error *err)
{
    struct piece piece = {.tensor = tensor, .delta = delta, .dtype = dtype};
    if (!delta && tensor->dtype == dtype)
        return copy(tensor, writer, err);
    const size_t size = hop_dtype_size(tensor->dtype);
    const size_t count = tensor->bytes / size, strip = strip_of(&piece);
    const size_t most = buffer->capacity / strip * strip;
    for (; piece.begin < count; piece.begin += piece.n) {
        piece.n = count - piece.begin < most ? count - piece.begin : most;
        HOP_TRY(put_piece(&piece, buffer, writer, err));
        hop_map_release((const char *)tensor->data + piece.begin * size, piece.n * size);
    }
    return HOP_OK;
}
