/* Running jobs and reading run folders. */
#include "support.h"

#include <math.h>
#include <string.h>

#include "io/file.h"
#include "io/safetensors.h"

/* A run that takes longer than this hangs. */
enum { RUN_LIMIT = 120 };

struct process start_train(const char *job, const char *run, const char *const *settings)
{
    enum { LIMIT = 100 };
    const char *all[LIMIT] = {"train", job, "--set", text("output=%s", run)};
    int n = 4;
    for (; *settings && n + 2 < LIMIT; settings++) {
        if (**settings != '-')
            all[n++] = "--set";
        all[n++] = *settings;
    }
    return start_program(all);
}

struct process train(const char *job, const char *run, const char *const *settings)
{
    struct process process = start_train(job, run, settings);
    if (!wait_program(&process, RUN_LIMIT)) {
        kill_tree(&process);
        fail_msg("still running after %d s: %s\n%s", RUN_LIMIT, process.command, process.err);
    }
    return process;
}

json_t *read_metrics(const char *run)
{
    const char *at = read_text(text("%s/metrics.jsonl", run));
    json_t *const lines = keep_json(json_array());
    while (*at) {
        const size_t n = strcspn(at, "\n");
        json_error_t where;
        json_t *const line = json_loadb(at, n, 0, &where);
        if (!line || at[n] != '\n')
            fail_msg("%s/metrics.jsonl: not a line of JSON: %.*s", run, (int)n, at);
        json_array_append_new(lines, line);
        at += n + 1;
    }
    return lines;
}

static bool is_step(const json_t *line)
{
    return json_object_get(line, "loss") != NULL;
}

int count_steps(const json_t *metrics)
{
    size_t i;
    json_t *line;
    int n = 0;
    json_array_foreach(metrics, i, line) n += is_step(line);
    return n;
}

const json_t *step_line(const json_t *metrics, int step)
{
    size_t i;
    json_t *line;
    const json_t *found = NULL;
    json_array_foreach(metrics, i, line)
    {
        if (!is_step(line) || json_integer_value(json_object_get(line, "step")) != step)
            continue;
        if (found)
            fail_msg("step %d stands in metrics.jsonl twice", step);
        found = line;
    }
    if (!found)
        fail_msg("step %d is not in metrics.jsonl", step);
    return found;
}

double number(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    if (!json_is_number(value))
        fail_msg("\"%s\" is not there or not a number", key);
    return json_number_value(value);
}

static void open_map(const char *path, struct hop_map *out)
{
    struct hop_error err = {0};
    if (hop_map_open(path, out, &err) != HOP_OK)
        fail_msg("%s", err.message);
}

void assert_same_file(const char *a, const char *b)
{
    struct hop_map left, right;
    open_map(a, &left);
    open_map(b, &right);
    size_t same = 0;
    while (same < left.size && same < right.size && left.data[same] == right.data[same])
        same++;
    const bool equal = left.size == right.size && same == left.size;
    const size_t sizes[] = {left.size, right.size};
    hop_map_close(&left);
    hop_map_close(&right);
    if (!equal)
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ from byte %zu on", a, sizes[0], b,
                 sizes[1], same);
}

void assert_same_adapter(const char *run_a, const char *run_b)
{
    assert_same_file(text("%s/adapter/adapter_model.safetensors", run_a),
                     text("%s/adapter/adapter_model.safetensors", run_b));
}

static struct hop_safetensors *open_adapter(const char *folder)
{
    struct hop_error err = {0};
    struct hop_safetensors *set = NULL;
    if (hop_safetensors_open(text("%s/adapter_model.safetensors", folder), &set, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return set;
}

/* Adds the squares of the difference and of b. */
static void add_tensor(const struct hop_tensor *a, const struct hop_tensor *b, double *difference,
                       double *norm)
{
    if (a->dtype != HOP_F32 || b->dtype != HOP_F32 || a->rank != b->rank ||
        memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape) != 0)
        fail_msg("tensor %s differs in type or shape", a->name);
    for (size_t i = 0; i < a->bytes / sizeof(float); i++) {
        float x, y;
        memcpy(&x, (const char *)a->data + i * sizeof x, sizeof x);
        memcpy(&y, (const char *)b->data + i * sizeof y, sizeof y);
        *difference += ((double)x - (double)y) * ((double)x - (double)y);
        *norm += (double)y * (double)y;
    }
}

double adapter_distance(const char *a, const char *b)
{
    struct hop_safetensors *const left = open_adapter(a), *const right = open_adapter(b);
    double difference = 0, norm = 0;
    if (hop_safetensors_count(left) != hop_safetensors_count(right))
        fail_msg("%s has %zu tensors, %s has %zu", a, hop_safetensors_count(left), b,
                 hop_safetensors_count(right));
    for (size_t i = 0; i < hop_safetensors_count(left); i++) {
        const struct hop_tensor *const tensor = hop_safetensors_at(left, i);
        const struct hop_tensor *const other = hop_safetensors_find(right, tensor->name);
        if (!other)
            fail_msg("%s has no tensor %s", b, tensor->name);
        add_tensor(tensor, other, &difference, &norm);
    }
    hop_safetensors_close(left);
    hop_safetensors_close(right);
    return sqrt(difference / norm);
}

void assert_same_lines(const char *run_a, const char *run_b, double tolerance,
                       const char *const *keys)
{
    json_t *const a = read_metrics(run_a), *const b = read_metrics(run_b);
    if (count_steps(a) != count_steps(b))
        fail_msg("%s has %d steps, %s has %d", run_a, count_steps(a), run_b, count_steps(b));
    for (int step = 1; step <= count_steps(a); step++)
        for (const char *const *key = keys; *key; key++)
            assert_near(text("%s of step %d in %s against %s", *key, step, run_a, run_b),
                        number(step_line(a, step), *key), number(step_line(b, step), *key),
                        tolerance);
}
