/* Small file helpers. */
#ifndef HOP_IO_FILE_H
#define HOP_IO_FILE_H

#include <stdbool.h>
#include <stddef.h>

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

/* Writes all bytes to path + ".tmp", then renames. */
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
