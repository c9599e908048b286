/* The header of one safetensors file, checked and turned into tensors. Internal to src/io. */
#ifndef HOP_IO_SAFETENSORS_HEADER_H
#define HOP_IO_SAFETENSORS_HEADER_H

#include "io/file.h"
#include "io/safetensors.h"

/* A dtype of the format. Entries lie in one array, in the order the reference writer sorts by. */
struct hop_dtype_entry {
    const char *text;
    unsigned bits;
    enum hop_dtype dtype;
};
/* NULL when the format has no such dtype. */
const struct hop_dtype_entry *hop_dtype_entry_find(const char *text);

/* Every tensor of the mapped file in the order of its data: *out is malloc'ed, as is each name;
 * `file` is stored in each. *header_bytes = size of the length field and the JSON text. */
hop_status hop_safetensors_parse(const char *path, const struct hop_map *map, int file,
                                 struct hop_tensor **out, size_t *count, size_t *header_bytes,
                                 struct hop_error *err);

/* Size of the data; HOP_UNSUPPORTED for a dtype or rank the format does not have. */
hop_status hop_tensor_source_bytes(const char *path, const struct hop_tensor_source *source,
                                   size_t *bytes, struct hop_error *err);
/* hop_safetensors_write() with the data from a function. */
hop_status hop_safetensors_write_with(const char *path,
                                      const struct hop_tensor_source *const *tensors, size_t count,
                                      hop_tensor_put put, void *context, struct hop_error *err);

/* Frees tensors and their names. */
void hop_tensors_free(struct hop_tensor *tensors, size_t count);

#endif
