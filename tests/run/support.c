#include "support.h"

#include <errno.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/file.h"
#include "io/json.h"

static char folder[64];

/* What lives to the end of the program. */
static void **kept;
static size_t kept_count, kept_capacity;
static json_t *values;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *state)
{
    (void)info, (void)kind, (void)state;
    return remove(path);
}

static void clean_up(void)
{
    if (folder[0] && !getenv("HYBRIDOP_KEEP"))
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < kept_count; i++)
        free(kept[i]);
    free(kept);
    json_decref(values);
}

static void *keep(void *block)
{
    if (kept_count == kept_capacity) {
        if (!kept)
            atexit(clean_up);
        kept_capacity = kept_capacity ? 2 * kept_capacity : 64;
        kept = realloc(kept, kept_capacity * sizeof *kept);
    }
    if (!kept || !block)
        fail_msg("out of memory");
    return kept[kept_count++] = block;
}

static const char *print(const char *format, va_list args)
{
    char *out = NULL;
    if (vasprintf(&out, format, args) < 0)
        fail_msg("out of memory");
    return keep(out);
}

const char *text(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *const out = print(format, args);
    va_end(args);
    return out;
}

const char *scratch(const char *format, ...)
{
    va_list args;
    if (!folder[0]) {
        strcpy(folder, "/tmp/hop-run-XXXXXX");
        if (!mkdtemp(folder))
            fail_msg("cannot create %s: %s", folder, strerror(errno));
    }
    va_start(args, format);
    const char *const name = print(format, args);
    va_end(args);
    return text("%s/%s", folder, name);
}

const char *write_bytes(const char *name, const void *bytes, size_t n)
{
    struct hop_error err = {0};
    char *directory = NULL;
    const char *const path = scratch("%s", name);
    if (hop_path_directory(path, &directory, &err) != HOP_OK ||
        hop_directory_create(directory, &err) != HOP_OK ||
        hop_file_write(path, bytes, n, &err) != HOP_OK)
        fail_msg("%s", err.message);
    free(directory);
    return path;
}

const char *write_text(const char *name, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const char *const content = print(format, args);
    va_end(args);
    return write_bytes(name, content, strlen(content));
}

const char *read_text(const char *path)
{
    struct hop_error err = {0};
    struct hop_map map;
    if (hop_map_open(path, &map, &err) != HOP_OK)
        fail_msg("%s", err.message);
    char *const content = keep(calloc(1, map.size + 1));
    if (map.size)
        memcpy(content, map.data, map.size);
    hop_map_close(&map);
    return content;
}

bool file_exists(const char *path)
{
    return access(path, F_OK) == 0;
}

const char *test_data(const char *name)
{
    const char *const given = getenv("HYBRIDOP_TESTDATA");
    const char *const path =
        text("%s/%s", given ? given : HOP_SOURCE_DIR "/../shared/testdata", name);
    if (!file_exists(path)) {
        print_message("skip: %s is not there; set HYBRIDOP_TESTDATA\n", path);
        skip();
    }
    return path;
}

json_t *keep_json(json_t *value)
{
    if (!values)
        values = json_array();
    if (!value || json_array_append_new(values, value) != 0)
        fail_msg("out of memory");
    return value;
}

const char *dump_json(const json_t *value)
{
    return keep(json_dumps(value, JSON_COMPACT));
}

const void *keep_bytes(const void *bytes, size_t n)
{
    void *const copy = keep(malloc(n + 1));
    return memcpy(copy, bytes, n);
}

json_t *read_json(const char *path)
{
    struct hop_error err = {0};
    json_t *value = NULL;
    if (hop_json_load(path, &value, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return keep_json(value);
}

void assert_near(const char *what, double actual, double expected, double tolerance)
{
    if (fabs(actual - expected) <= tolerance * fabs(expected))
        return;
    fail_msg("%s: %.17g, expected %.17g within %.3g relative (found %.3g)", what, actual, expected,
             tolerance, fabs(actual - expected) / fabs(expected));
}

void assert_holds(const char *what, const char *whole, const char *part)
{
    if (!strstr(whole, part))
        fail_msg("%s: \"%s\" is not in:\n%s", what, part, whole);
}
