/* What a run folder says of its training. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "io/file.h"
#include "io/json.h"
#include "runtime/study.h"

void hop_study_curve_free(struct hop_study_curve *curve)
{
    if (!curve)
        return;
    free(curve->loss);
    free(curve->seconds);
    free(curve->eval_step);
    free(curve->eval_loss);
    free(curve->eval_metric);
    *curve = (struct hop_study_curve){0};
}

static double number(const json_t *object, const char *key)
{
    const json_t *const value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

static void add_step(struct hop_study_curve *curve, const json_t *line)
{
    const size_t i = curve->steps++;
    curve->loss[i] = number(line, "loss");
    curve->seconds[i] = (i ? curve->seconds[i - 1] : 0) + number(line, "seconds");
}

static void add_evaluation(struct hop_study_curve *curve, const json_t *line, const char *key)
{
    const size_t i = curve->evaluations++;
    curve->eval_step[i] = number(line, "step");
    curve->eval_loss[i] = number(line, "eval_loss");
    curve->eval_metric[i] = number(line, key);
}

static size_t count_lines(const struct hop_map *map)
{
    size_t n = 1;
    for (size_t i = 0; i < map->size; i++)
        n += map->data[i] == '\n';
    return n;
}

static hop_status create(size_t lines, struct hop_study_curve *curve, struct hop_error *err)
{
    HOP_TRY(hop_calloc(&curve->loss, lines, sizeof *curve->loss, err));
    HOP_TRY(hop_calloc(&curve->seconds, lines, sizeof *curve->seconds, err));
    HOP_TRY(hop_calloc(&curve->eval_step, lines, sizeof *curve->eval_step, err));
    HOP_TRY(hop_calloc(&curve->eval_loss, lines, sizeof *curve->eval_loss, err));
    return hop_calloc(&curve->eval_metric, lines, sizeof *curve->eval_metric, err);
}

static hop_status read_line(const char *text, size_t length, const char *path, const char *key,
                            struct hop_study_curve *curve, struct hop_error *err)
{
    json_t *line;
    if (length == 0)
        return HOP_OK;
    HOP_TRY(hop_json_parse(text, length, path, &line, err));
    if (json_object_get(line, "eval_loss"))
        add_evaluation(curve, line, key);
    else if (json_object_get(line, "loss") && json_object_get(line, "seconds"))
        add_step(curve, line);
    json_decref(line);
    return HOP_OK;
}

static hop_status read_lines(const struct hop_map *map, const char *path, const char *key,
                             struct hop_study_curve *curve, struct hop_error *err)
{
    const char *text = (const char *)map->data;
    HOP_TRY(create(count_lines(map), curve, err));
    for (size_t at = 0; at < map->size;) {
        const char *const end = memchr(text + at, '\n', map->size - at);
        const size_t length = end ? (size_t)(end - text) - at : map->size - at;
        HOP_TRY(read_line(text + at, length, path, key, curve, err));
        at += length + 1;
    }
    return HOP_OK;
}

static hop_status read_metrics(const char *directory, const char *metric,
                               struct hop_study_curve *curve, struct hop_error *err)
{
    hop_status status = HOP_OK;
    char *path = NULL, key[128];
    struct hop_map map = {0};
    snprintf(key, sizeof key, "eval_%s", metric);
    HOP_TRY_DONE(hop_path_join(directory, "metrics.jsonl", &path, err));
    HOP_TRY_DONE(hop_map_open(path, &map, err));
    HOP_TRY_DONE(read_lines(&map, path, key, curve, err));
done:
    hop_map_close(&map);
    free(path);
    return status;
}

static hop_status read_number(const char *directory, const char *file, const char *key, double *out,
                              struct hop_error *err)
{
    char *path;
    json_t *object = NULL;
    HOP_TRY(hop_path_join(directory, file, &path, err));
    const hop_status status = hop_json_load(path, &object, err);
    *out = number(object, key);
    json_decref(object);
    free(path);
    return status;
}

static double last_tenth(const double *values, size_t n)
{
    const size_t count = n >= 10 ? n / 10 : n;
    double sum = 0;
    for (size_t i = n - count; i < n; i++)
        sum += values[i];
    return count ? sum / (double)count : NAN;
}

hop_status hop_study_curve_read(const char *directory, const char *metric,
                                struct hop_study_curve *out, struct hop_error *err)
{
    struct hop_study_curve curve = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(read_metrics(directory, metric, &curve, err));
    HOP_TRY_DONE(
        read_number(directory, "plan.json", "simulated_seconds", &curve.step_seconds, err));
    HOP_TRY_DONE(read_number(directory, "summary.json", "utilization", &curve.utilization, err));
    curve.final_loss = last_tenth(curve.loss, curve.steps);
    *out = curve;
    return HOP_OK;
done:
    hop_study_curve_free(&curve);
    return status;
}
