/* Memory and memory bandwidth of this machine and this process. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cluster/measure_internal.h"

#if defined(__SANITIZE_ADDRESS__)
/* Of the sanitizer's runtime; its header is not installed everywhere. */
size_t __sanitizer_get_current_allocated_bytes(void);
#elif defined(__GLIBC__)
#include <malloc.h>
#if __GLIBC__ > 2 || (__GLIBC__ == 2 && __GLIBC_MINOR__ >= 33)
#define HAVE_MALLINFO2 1
#endif
#endif

/* The number of bytes behind "Key:" in a file of lines "Key:   123 kB"; NAN where there is none. */
static double proc_bytes(const char *path, const char *key)
{
    char line[256];
    double kib = NAN;
    FILE *const file = fopen(path, "re");
    if (!file)
        return NAN;
    const size_t n = strlen(key);
    while (isnan(kib) && fgets(line, sizeof line, file))
        if (strncmp(line, key, n) == 0 && line[n] == ':')
            kib = strtod(line + n + 1, NULL);
    fclose(file);
    return kib * 1024;
}

/* A file of one number; "max" and missing files are NAN. */
static double number_in(const char *path)
{
    char line[64];
    double value = NAN;
    FILE *const file = fopen(path, "re");
    if (!file)
        return NAN;
    if (fgets(line, sizeof line, file) && line[0] >= '0' && line[0] <= '9')
        value = strtod(line, NULL);
    fclose(file);
    return value;
}

double hop__heap_bytes(void)
{
#if defined(__SANITIZE_ADDRESS__)
    return (double)__sanitizer_get_current_allocated_bytes();
#elif defined(HAVE_MALLINFO2)
    const struct mallinfo2 info = mallinfo2();
    return (double)info.uordblks + (double)info.hblkhd;
#else
    const double bytes = proc_bytes("/proc/self/status", "RssAnon");
    return isnan(bytes) ? 0 : bytes;
#endif
}

double hop__file_bytes(void)
{
    const double bytes = proc_bytes("/proc/self/status", "RssFile");
    return isnan(bytes) ? 0 : bytes;
}

double hop__available_bytes(void)
{
    const double machine = proc_bytes("/proc/meminfo", "MemAvailable");
    const double limit = number_in("/sys/fs/cgroup/memory.max");
    const double used = number_in("/sys/fs/cgroup/memory.current");
    const double group = limit - used > 0 ? limit - used : 0;
    if (isnan(limit) || isnan(used))
        return machine;
    return group < machine || isnan(machine) ? group : machine;
}

/* Far beyond any cache, and small beside the memory. */
static size_t triad_elements(double available)
{
    const size_t most = (size_t)64 << 20;
    const size_t bytes = available < 16 * (double)most ? (size_t)8 << 20 : most;
    return bytes / sizeof(double);
}

/* The pages are first touched by the threads that use them. */
static void fill(int32_t threads, size_t n, double *a, double *b, double *c)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++) {
        a[i] = 0;
        b[i] = (double)(i & 7);
        c[i] = 1;
    }
}

static void triad(int32_t threads, size_t n, double *restrict a, const double *restrict b,
                  const double *restrict c)
{
#pragma omp parallel for num_threads(threads) schedule(static)
    for (size_t i = 0; i < n; i++)
        a[i] = b[i] + 3 * c[i];
}

hop_status hop__triad(int32_t threads, double available, double *out, struct hop_error *err)
{
    enum { REPETITIONS = 8 };
    const size_t n = triad_elements(available);
    double *memory, best = INFINITY;
    HOP_TRY(hop_calloc(&memory, 3 * n, sizeof *memory, err));
    double *const a = memory, *const b = memory + n, *const c = memory + 2 * n;
    fill(threads, n, a, b, c);
    for (int i = 0; i < REPETITIONS; i++) {
        const double begin = hop_clock_now();
        triad(threads, n, a, b, c);
        const double seconds = hop_clock_now() - begin;
        best = seconds < best ? seconds : best;
    }
    /* The sum keeps the compiler from leaving the work out. */
    const bool right = a[n - 1] == b[n - 1] + 3;
    free(memory);
    if (!right)
        return hop_fail(err, HOP_INTERNAL, "the triad gave a wrong sum");
    *out = 3 * (double)n * sizeof(double) / best;
    return HOP_OK;
}
