#include "io/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

static hop_status map_descriptor(int descriptor, const char *path, struct hop_map *out,
                                 struct hop_error *err)
{
    struct stat info;
    if (fstat(descriptor, &info) != 0)
        return hop_fail(err, HOP_INPUT, "%s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return hop_fail(err, HOP_INPUT, "%s: is %s, a regular file is needed", path,
                        S_ISDIR(info.st_mode) ? "a folder" : "a special file");
    const size_t size = (size_t)info.st_size;
    if (size == 0) {
        *out = (struct hop_map){.data = (const unsigned char *)"", .size = 0};
        return HOP_OK;
    }
    void *const data = mmap(NULL, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (data == MAP_FAILED)
        return hop_fail(err, HOP_IO, "%s: cannot be mapped: %s", path, strerror(errno));
    *out = (struct hop_map){.data = data, .size = size};
    return HOP_OK;
}

hop_status hop_map_open(const char *path, struct hop_map *out, struct hop_error *err)
{
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0)
        return hop_fail(err, HOP_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
    const hop_status status = map_descriptor(descriptor, path, out, err);
    close(descriptor);
    return status;
}

void hop_map_close(struct hop_map *map)
{
    if (!map)
        return;
    if (map->size)
        munmap((void *)map->data, map->size);
    *map = (struct hop_map){0};
}

void hop_map_release(const void *begin, size_t bytes)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = ((uintptr_t)begin + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)begin + bytes) / page * page;
    /* Only whole pages; advice that is not taken costs nothing but memory. */
    if (end > first)
        madvise((void *)first, end - first, MADV_DONTNEED);
}

static hop_status write_failed(const char *path, struct hop_error *err)
{
    return hop_fail(err, HOP_IO, "%s: cannot be written: %s", path, strerror(errno));
}

hop_status hop_file_begin(const char *path, struct hop_file_writer *out, struct hop_error *err)
{
    struct hop_file_writer writer = {0};
    struct hop_string temporary = {0};
    hop_status status;
    HOP_TRY_DONE(hop_string_copy(&writer.path, path, err));
    HOP_TRY_DONE(hop_string_printf(&temporary, err, "%s.tmp", path));
    writer.temporary = temporary.data;
    writer.stream = fopen(writer.temporary, "wbe");
    if (!writer.stream)
        status = write_failed(writer.temporary, err);
done:
    if (status == HOP_OK) {
        *out = writer;
    } else {
        free(writer.path);
        hop_string_free(&temporary);
    }
    return status;
}

hop_status hop_file_put(struct hop_file_writer *writer, const void *bytes, size_t n,
                        struct hop_error *err)
{
    if (n && fwrite(bytes, 1, n, writer->stream) != n)
        return write_failed(writer->temporary, err);
    return HOP_OK;
}

hop_status hop_file_commit(struct hop_file_writer *writer, struct hop_error *err)
{
    FILE *const stream = writer->stream;
    const bool flushed = fflush(stream) == 0 && fsync(fileno(stream)) == 0;
    hop_status status = flushed ? HOP_OK : write_failed(writer->temporary, err);
    writer->stream = NULL;
    if (fclose(stream) != 0 && status == HOP_OK)
        status = write_failed(writer->temporary, err);
    if (status == HOP_OK && rename(writer->temporary, writer->path) != 0)
        status = write_failed(writer->path, err);
    if (status != HOP_OK)
        unlink(writer->temporary);
    return status;
}

void hop_file_discard(struct hop_file_writer *writer)
{
    if (!writer)
        return;
    if (writer->stream) {
        fclose(writer->stream);
        unlink(writer->temporary);
    }
    free(writer->path);
    free(writer->temporary);
    *writer = (struct hop_file_writer){0};
}

hop_status hop_file_write(const char *path, const void *bytes, size_t n, struct hop_error *err)
{
    struct hop_file_writer writer = {0};
    hop_status status;
    HOP_TRY_DONE(hop_file_begin(path, &writer, err));
    HOP_TRY_DONE(hop_file_put(&writer, bytes, n, err));
    HOP_TRY_DONE(hop_file_commit(&writer, err));
done:
    hop_file_discard(&writer);
    return status;
}

static hop_status create_one(const char *path, struct hop_error *err)
{
    struct stat info;
    if (mkdir(path, 0777) == 0)
        return HOP_OK;
    const int reason = errno;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return HOP_OK;
    return hop_fail(err, HOP_IO, "%s: the folder cannot be created: %s", path, strerror(reason));
}

hop_status hop_directory_create(const char *path, struct hop_error *err)
{
    char *copy = NULL;
    HOP_TRY(hop_string_copy(&copy, path, err));
    hop_status status = HOP_OK;
    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        if (slash == copy)
            continue;
        *slash = '\0';
        HOP_TRY_DONE(create_one(copy, err));
        *slash = '/';
    }
    status = create_one(copy, err);
done:
    free(copy);
    return status;
}

bool hop_file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

hop_status hop_path_join(const char *directory, const char *name, char **out, struct hop_error *err)
{
    const size_t n = strlen(directory);
    if (name[0] == '/' || n == 0)
        return hop_string_copy(out, name, err);
    struct hop_string joined = {0};
    const char *const separator = directory[n - 1] == '/' ? "" : "/";
    HOP_TRY(hop_string_printf(&joined, err, "%s%s%s", directory, separator, name));
    *out = joined.data;
    return HOP_OK;
}

hop_status hop_path_directory(const char *path, char **out, struct hop_error *err)
{
    const char *const slash = strrchr(path, '/');
    if (!slash)
        return hop_string_copy(out, ".", err);
    struct hop_string directory = {0};
    HOP_TRY(hop_string_append(&directory, path, slash == path ? 1 : (size_t)(slash - path), err));
    *out = directory.data;
    return HOP_OK;
}
