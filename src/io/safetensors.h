/* safetensors files (Hugging Face format): reading one file or a folder of shards through mmap, and
 * writing.
 *
 * The reader checks everything before a pointer is handed out: header length against the file and
 * the 100 MB limit, JSON depth, dtypes, shapes without overflow, offsets that tile the buffer
 * without hole or overlap. Views stay valid until the set is closed. */
#ifndef HOP_IO_SAFETENSORS_H
#define HOP_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "io/file.h"

enum { HOP_TENSOR_MAX_RANK = 8 };

struct hop_tensor {
    const char *name;
    enum hop_dtype dtype; /* HOP_DTYPE_OTHER for types no computation here uses (I64, U8, F8...) */
    char dtype_text[16];  /* as in the file, for messages */
    int rank;
    int64_t shape[HOP_TENSOR_MAX_RANK];
    const void *data; /* may be unaligned: use memcpy or hop_convert(), or check the alignment */
    size_t bytes;
    int file;      /* index of the file it is in */
    size_t offset; /* of data from the start of that file */
};

struct hop_safetensors;

/* A file. */
hop_status hop_safetensors_open(const char *path, struct hop_safetensors **out,
                                struct hop_error *err);
/* A model folder: model.safetensors, or else model.safetensors.index.json with its shards (the
 * order Hugging Face looks in). Shards may hold tensors the index does not name: those are left
 * out. */
hop_status hop_safetensors_open_folder(const char *directory, struct hop_safetensors **out,
                                       struct hop_error *err);
void hop_safetensors_close(struct hop_safetensors *set);

size_t hop_safetensors_count(const struct hop_safetensors *set);
const struct hop_tensor *hop_safetensors_at(const struct hop_safetensors *set, size_t index);
/* NULL when there is none of that name. */
const struct hop_tensor *hop_safetensors_find(const struct hop_safetensors *set, const char *name);

size_t hop_safetensors_files(const struct hop_safetensors *set);
const char *hop_safetensors_path(const struct hop_safetensors *set, size_t file);
/* A hash of header and size of a file: equal hashes mean the same layout and very likely the same
 * content (two copies of one model folder on two boards). */
uint64_t hop_safetensors_fingerprint(const struct hop_safetensors *set, size_t file);

/* One tensor to write; data is row-major and contiguous. */
struct hop_tensor_source {
    const char *name;
    enum hop_dtype dtype;
    const char *dtype_text; /* of HOP_DTYPE_OTHER, as in struct hop_tensor; else unused */
    int rank;
    int64_t shape[HOP_TENSOR_MAX_RANK];
    const void *data; /* unused where the data is put by a function */
};

/* Writes sorted by dtype and name as the reference writer does, header padded to 8 bytes, metadata
 * {"format": "pt"}; to path + ".tmp", then renamed. */
hop_status hop_safetensors_write(const char *path, const struct hop_tensor_source *tensors,
                                 size_t count, struct hop_error *err);

/* Puts the data of one tensor with hop_file_put(): as many bytes as its dtype and shape say. */
typedef hop_status (*hop_tensor_put)(void *context, const struct hop_tensor_source *source,
                                     struct hop_file_writer *writer, struct hop_error *err);

/* The tensors of a model folder, which exists: model.safetensors, or where that would take more
 * than shard_bytes of data, model-00001-of-0000N.safetensors, ... and model.safetensors.index.json.
 * Shards are filled in the order of the list; a tensor larger than shard_bytes has one of its own.
 * `put` is called once a tensor, so that no more than it needs is in memory. *files: how many were
 * written, without the index. */
hop_status hop_safetensors_write_folder(const char *directory,
                                        const struct hop_tensor_source *tensors, size_t count,
                                        size_t shard_bytes, hop_tensor_put put, void *context,
                                        size_t *files, struct hop_error *err);

#endif
