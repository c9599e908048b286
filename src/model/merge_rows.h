/* Tensors of a merged model, rows at a time. Internal to src/model. */
#ifndef HOP_MODEL_MERGE_ROWS_H
#define HOP_MODEL_MERGE_ROWS_H

#include <stdint.h>

#include "io/safetensors.h"

/* Working memory for one piece of a tensor. */
struct hop__merge_buffer {
    size_t capacity; /* elements */
    void *raw;       /* as stored: read aligned, then converted for writing */
    float *values;
};
hop_status hop__merge_buffer_create(size_t capacity, struct hop__merge_buffer *out,
                                    struct hop_error *err);
void hop__merge_buffer_free(struct hop__merge_buffer *buffer);

/* What is added to a matrix: scale * b a, a (rank, in), b (out, rank). */
struct hop__merge_delta {
    int64_t rank;
    double scale;
    const float *a, *b;
};

/* Puts the tensor in `dtype`, with the delta added where there is one. */
hop_status hop__merge_put(const struct hop_tensor *tensor, const struct hop__merge_delta *delta,
                          enum hop_dtype dtype, struct hop__merge_buffer *buffer,
                          struct hop_file_writer *writer, struct hop_error *err);

#endif
