/* The header of one safetensors file, checked and turned into tensors. Internal to src/io. */
#ifndef HOP_IO_SAFETENSORS_HEADER_H
#define HOP_IO_SAFETENSORS_HEADER_H

#include "io/file.h"
#include "io/safetensors.h"

/* Every tensor of the mapped file in the order of its data: *out is malloc'ed, as is each name;
 * `file` is stored in each. *header_bytes = size of the length field and the JSON text. */
hop_status hop_safetensors_parse(const char *path, const struct hop_map *map, int file,
                                 struct hop_tensor **out, size_t *count, size_t *header_bytes,
                                 struct hop_error *err);

/* Frees tensors and their names. */
void hop_tensors_free(struct hop_tensor *tensors, size_t count);

#endif
