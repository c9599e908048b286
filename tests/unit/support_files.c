#include "support_files.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[256];
static char *paths[4096];
static size_t path_count;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *state)
{
    (void)info, (void)kind, (void)state;
    return remove(path);
}

static void clean_up(void)
{
    if (folder[0])
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    for (size_t i = 0; i < path_count; i++)
        free(paths[i]);
}

/* Kept to the end of the program, once each. */
static const char *keep(const char *directory, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", directory, name) < 0 || path_count == sizeof paths / sizeof *paths)
        fail_msg("no more paths");
    if (path_count == 0)
        atexit(clean_up);
    for (size_t i = 0; i < path_count; i++)
        if (strcmp(paths[i], path) == 0) {
            free(path);
            return paths[i];
        }
    paths[path_count++] = path;
    return path;
}

/* Memory where there is such a folder: some tests write thousands of files. */
static const char *scratch_base(void)
{
    const char *const given = getenv("TMPDIR");
    if (given)
        return given;
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

const char *hop_test_path(const char *name)
{
    if (!folder[0]) {
        snprintf(folder, sizeof folder, "%.200s/hop-test-XXXXXX", scratch_base());
        if (!mkdtemp(folder))
            fail_msg("cannot create %s", folder);
    }
    return keep(folder, name);
}

const char *hop_test_write(const char *name, const void *bytes, size_t n)
{
    const char *const path = hop_test_path(name);
    FILE *const file = fopen(path, "wb");
    if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0)
        fail_msg("cannot write %s", path);
    return path;
}

const char *hop_test_write_text(const char *name, const char *text)
{
    return hop_test_write(name, text, strlen(text));
}

const char *hop_test_data(const char *name)
{
    const char *const given = getenv("HYBRIDOP_TESTDATA");
    const char *const path = keep(given ? given : HOP_SOURCE_DIR "/../shared/testdata", name);
    if (access(path, R_OK) == 0)
        return path;
    print_message("skip: %s is not there; set HYBRIDOP_TESTDATA\n", path);
    return NULL;
}

void hop_test_ok(hop_status status, const struct hop_error *err, const char *file, int line)
{
    if (status == HOP_OK)
        return;
    print_error("%s: %s\n", hop_status_text(status), err->message);
    _fail(file, line);
}

void hop_test_refused(hop_status status, hop_status expected, const struct hop_error *err,
                      const char *part, const char *file, int line)
{
    const char *const message = status == HOP_OK ? "" : err->message;
    if (status == expected && strstr(message, part) && !strchr(message, '\n'))
        return;
    print_error("expected \"%s\" with \"%s\", found \"%s\" with \"%s\"\n",
                hop_status_text(expected), part, hop_status_text(status), message);
    _fail(file, line);
}

void hop_test_near(double found, double expected, double tolerance, const char *file, int line)
{
    if (fabs(found - expected) <= tolerance)
        return;
    print_error("expected %.17g within %g, found %.17g\n", expected, tolerance, found);
    _fail(file, line);
}
