#include "support_large.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "model/weights.h"

enum { PIECE = 4 << 20 }; /* bytes */

/* xorshift64: four bf16 or two f32 a step. */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Random sign and fraction, one exponent: magnitudes from 2^exponent to twice that. */
static void fill_random(enum hop_dtype dtype, int exponent, size_t n, uint64_t *state,
                        uint64_t *words)
{
    const uint64_t biased = (uint64_t)(exponent + 127);
    const uint64_t keep = dtype == HOP_BF16 ? 0x807f807f807f807fu : 0x807fffff807fffffu;
    const uint64_t set =
        dtype == HOP_BF16 ? biased * 0x0080008000800080u : biased << 55 | biased << 23;
    for (size_t i = 0; i < n; i++)
        words[i] = (draw(state) & keep) | set;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static int64_t elements(const struct hop_tensor_want *want)
{
    return want->rank == 2 ? want->shape[0] * want->shape[1] : want->shape[0];
}

static void write_all(FILE *file, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, file) != n)
        fail_msg("writing a generated model: %s", strerror(errno));
}

static void write_ones(FILE *file, enum hop_dtype dtype, int64_t n)
{
    const float one = 1;
    unsigned char bytes[4];
    hop_convert(bytes, dtype, &one, HOP_F32, 1);
    for (int64_t i = 0; i < n; i++)
        write_all(file, bytes, hop_dtype_size(dtype));
}

static void write_tensor(FILE *file, const struct hop_tensor_want *want, enum hop_dtype dtype,
                         uint64_t *state)
{
    static uint64_t piece[PIECE / sizeof(uint64_t)];
    const bool matrix = want->rank == 2;
    size_t left = (size_t)elements(want) * hop_dtype_size(dtype);
    const double width = (double)want->shape[matrix ? 1 : 0];
    const int exponent = (int)floor(-0.5 * log2(width) - 0.5);
    if (!matrix && !ends_with(want->name, ".bias")) {
        write_ones(file, dtype, want->shape[0]);
        return;
    }
    while (left > 0) {
        const size_t n = left < PIECE ? left : PIECE;
        fill_random(dtype, exponent, (n + 7) / 8, state, piece);
        write_all(file, piece, n);
        left -= n;
    }
}

static json_t *header_of(const struct hop_tensor_want *wants, size_t n, enum hop_dtype dtype)
{
    json_t *const header = json_object();
    json_int_t at = 0;
    for (size_t i = 0; i < n; i++) {
        const json_int_t end =
            at + (json_int_t)elements(&wants[i]) * (json_int_t)hop_dtype_size(dtype);
        json_t *const shape = json_array();
        for (int d = 0; d < wants[i].rank; d++)
            json_array_append_new(shape, json_integer(wants[i].shape[d]));
        json_object_set_new(header, wants[i].name,
                            json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                                      dtype == HOP_BF16 ? "BF16" : "F32", "shape", shape,
                                      "data_offsets", at, end));
        at = end;
    }
    return header;
}

static void write_header(FILE *file, json_t *header)
{
    char *const text = json_dumps(header, JSON_COMPACT);
    const uint64_t used = strlen(text), length = (used + 7) / 8 * 8;
    write_all(file, &length, sizeof length);
    write_all(file, text, used);
    write_all(file, "       ", length - used);
    free(text);
    json_decref(header);
}

static void write_shard(const char *path, const struct hop_tensor_want *wants, size_t n,
                        enum hop_dtype dtype, uint64_t *state)
{
    FILE *const file = fopen(path, "wb");
    if (!file)
        fail_msg("%s: %s", path, strerror(errno));
    write_header(file, header_of(wants, n, dtype));
    for (size_t i = 0; i < n; i++)
        write_tensor(file, &wants[i], dtype, state);
    if (fclose(file) != 0)
        fail_msg("%s: %s", path, strerror(errno));
}

/* How many of the tensors go into one shard: at least one, then up to `bytes`. */
static size_t shard_end(const struct hop_tensor_want *wants, size_t begin, size_t count,
                        enum hop_dtype dtype, int64_t bytes)
{
    int64_t sum = 0;
    size_t i = begin;
    for (; i < count && (i == begin || bytes == 0 || sum < bytes); i++)
        sum += elements(&wants[i]) * (int64_t)hop_dtype_size(dtype);
    return i;
}

static void write_shards(const char *name, const struct hop_tensor_want *wants, size_t count,
                         enum hop_dtype dtype, int64_t bytes, uint64_t *state)
{
    json_t *const map = json_object();
    int number = 0;
    for (size_t begin = 0, end; begin < count; begin = end) {
        const char *const file =
            bytes ? text("model-%05d.safetensors", ++number) : "model.safetensors";
        end = shard_end(wants, begin, count, dtype, bytes);
        write_shard(scratch("%s/%s", name, file), wants + begin, end - begin, dtype, state);
        for (size_t i = begin; i < end; i++)
            json_object_set_new(map, wants[i].name, json_string(file));
    }
    json_t *const index = keep_json(json_pack("{s:{}, s:o}", "metadata", "weight_map", map));
    if (bytes)
        write_text(text("%s/model.safetensors.index.json", name), "%s", dump_json(index));
}

const char *write_generated(const char *name, const struct hop_model_config *config,
                            enum hop_dtype dtype, int64_t shard_bytes, uint64_t seed)
{
    struct hop_error err = {0};
    struct hop_tensor_want *wants;
    size_t count;
    uint64_t state = seed * 2654435769u + 88172645463325252u;
    json_t *const object = keep_json(hop_model_config_json(config));
    write_text(text("%s/config.json", name), "%s\n", dump_json(object));
    if (hop_weights_list(config, 0, config->blocks, true, true, &wants, &count, &err) != HOP_OK)
        fail_msg("%s", err.message);
    write_shards(name, wants, count, dtype, shard_bytes, &state);
    free(wants);
    return scratch("%s", name);
}

/* The number of kB behind `key` in a file of /proc; -1 when it is not there. */
static int64_t kilobytes(const char *path, const char *key)
{
    char line[256];
    long long value = -1;
    FILE *const file = fopen(path, "r");
    if (!file)
        return -1;
    while (value < 0 && fgets(line, sizeof line, file))
        if (strncmp(line, key, strlen(key)) == 0)
            sscanf(line + strlen(key), ": %lld", &value);
    fclose(file);
    return value;
}

bool read_resident(pid_t pid, struct resident *out)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/status", pid);
    const int64_t highest = kilobytes(path, "VmHWM"), files = kilobytes(path, "RssFile");
    const int64_t own = kilobytes(path, "RssAnon");
    if (highest < 0 || files < 0 || own < 0)
        return false;
    *out = (struct resident){highest * 1024, files * 1024, own * 1024};
    return true;
}

int64_t free_disk(void)
{
    struct statvfs info;
    const char *const path = write_text("space", "%s", "");
    return statvfs(path, &info) == 0 ? (int64_t)info.f_bavail * (int64_t)info.f_frsize : 0;
}

int64_t free_memory(void)
{
    return kilobytes("/proc/meminfo", "MemAvailable") * 1024;
}
