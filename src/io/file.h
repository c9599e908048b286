/* Small file helpers. */
#ifndef HOP_IO_FILE_H
#define HOP_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"
#include "base/string.h"

/* A whole file, read-only, through mmap. */
struct hop_map {
    const unsigned char *data;
    size_t size;
};

/* HOP_INPUT with the reason when the file cannot be opened. An empty file maps to size 0. */
hop_status hop_map_open(const char *path, struct hop_map *out, struct hop_error *err);
void hop_map_close(struct hop_map *map);
/* Gives the memory of a part of a map back: it can still be read, from the file again. For those
 * who go through a large file once. */
void hop_map_release(const void *begin, size_t bytes);

/* A file that appears under its name only when it is complete: written to path + ".tmp", flushed to
 * the disk, then renamed. Zero-initialised is empty and may be discarded. */
struct hop_file_writer {
    FILE *stream;
    char *path, *temporary;
};

hop_status hop_file_begin(const char *path, struct hop_file_writer *out, struct hop_error *err);
hop_status hop_file_put(struct hop_file_writer *writer, const void *bytes, size_t n,
                        struct hop_error *err);
hop_status hop_file_commit(struct hop_file_writer *writer, struct hop_error *err);
/* Drops what was not committed; after a commit it only releases. */
void hop_file_discard(struct hop_file_writer *writer);

/* All of the above in one call. */
hop_status hop_file_write(const char *path, const void *bytes, size_t n, struct hop_error *err);
/* mkdir -p. */
hop_status hop_directory_create(const char *path, struct hop_error *err);
bool hop_file_exists(const char *path);
/* *out = malloc'ed "directory/name"; an absolute name is copied as it is. */
hop_status hop_path_join(const char *directory, const char *name, char **out,
                         struct hop_error *err);
/* *out = malloc'ed directory part of path ("." when there is none). */
hop_status hop_path_directory(const char *path, char **out, struct hop_error *err);

#endif
