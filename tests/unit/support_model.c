#include "support_model.h"
#include "support_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/random.h"
#include "io/json.h"

void support_close(double actual, double expected, double tolerance, const char *what,
                   const char *file, int line)
{
    if (fabs(actual - expected) <= tolerance)
        return;
    print_error("%s is %.12g, expected %.12g within %.3g\n", what, actual, expected, tolerance);
    _fail(file, line);
}

const char *support_data(const char *relative)
{
    const char *const path = hop_test_data(relative);
    if (!path)
        skip();
    return path;
}

json_t *support_json(const char *path)
{
    struct hop_error err = {0};
    json_t *value = NULL;
    assert_ok(hop_json_load(path, &value, &err));
    return value;
}

void support_folder(char *path, size_t size)
{
    snprintf(path, size, "/tmp/hybridop-test-XXXXXX");
    assert_non_null(mkdtemp(path));
}

void support_folder_remove(const char *path)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", path);
    if (system(command) != 0)
        print_message("%s was not removed\n", path);
}

double support_norm(const float *a, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)a[i];
    return sqrt(sum);
}

double support_error(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    const double norm = support_norm(b, n);
    return norm > 0 ? sqrt(sum) / norm : sqrt(sum);
}

double support_loss(const float *logprob, size_t n, double divisor)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum -= (double)logprob[i];
    return sum / divisor;
}

void support_batch_begin(struct support_batch *b)
{
    b->batch = (struct hop_batch){.ids = b->ids,
                                  .position = b->position,
                                  .offset = b->offset,
                                  .label_row = b->label_row,
                                  .label_id = b->label_id};
    b->offset[0] = 0;
}

static void add_label(struct support_batch *b, int32_t row, int32_t id)
{
    b->label_row[b->batch.labels] = row;
    b->label_id[b->batch.labels++] = id;
    b->batch.label_total = b->batch.labels;
}

static void add_sequence(struct support_batch *b, const int32_t *ids, int32_t n)
{
    const int32_t begin = b->batch.tokens;
    assert_true(begin + n <= SUPPORT_TOKENS && b->batch.sequences < SUPPORT_SEQUENCES);
    for (int32_t i = 0; i < n; i++) {
        b->ids[begin + i] = ids[i];
        b->position[begin + i] = i;
    }
    b->batch.tokens += n;
    b->offset[++b->batch.sequences] = b->batch.tokens;
}

void support_batch_add(struct support_batch *b, const int32_t *ids, const int32_t *labels,
                       int32_t n)
{
    const int32_t begin = b->batch.tokens;
    add_sequence(b, ids, n);
    for (int32_t i = 0; i + 1 < n; i++)
        if (!labels || labels[i + 1] >= 0)
            add_label(b, begin + i, labels ? labels[i + 1] : ids[i + 1]);
}

void support_batch_random(struct support_batch *b, int32_t vocabulary, const int32_t *lengths,
                          int32_t count)
{
    uint32_t state = 12345;
    support_batch_begin(b);
    for (int32_t s = 0; s < count; s++) {
        int32_t ids[SUPPORT_TOKENS];
        const int32_t begin = b->batch.tokens;
        for (int32_t i = 0; i < lengths[s]; i++) {
            state = state * 1664525u + 1013904223u;
            ids[i] = (int32_t)((state >> 8) % (uint32_t)vocabulary);
        }
        add_sequence(b, ids, lengths[s]);
        for (int32_t i = 0; i < lengths[s]; i += 3) {
            add_label(b, begin + i, ids[(i + 1) % lengths[s]]);
            if (i % 2 == 0)
                add_label(b, begin + i, (ids[i] + 7) % vocabulary);
        }
    }
}

struct hop_batch_limits support_limits(const struct support_batch *b)
{
    return (struct hop_batch_limits){
        .sequences = b->batch.sequences, .tokens = b->batch.tokens, .labels = b->batch.labels};
}

struct hop_model_config support_tiny_config(void)
{
    return (struct hop_model_config){.hidden = 24,
                                     .intermediate = 44,
                                     .blocks = 3,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 6,
                                     .vocabulary = 37,
                                     .max_positions = 128,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 10000,
                                     .rope_factor = 1,
                                     .bos = 1,
                                     .eos = {2},
                                     .eos_count = 1};
}

struct hop_lora_config support_all_targets(int32_t rank, double alpha)
{
    struct hop_lora_config lora = {.rank = rank, .alpha = alpha};
    for (int target = 0; target < HOP_TARGETS; target++)
        lora.targets[target] = true;
    return lora;
}

void support_stage_open(struct support_stage *s, const struct hop_ops *ops,
                        const struct hop_weights *weights, const struct hop_stage_config *config)
{
    struct hop_error err = {0};
    *s = (struct support_stage){.ops = *ops};
    assert_ok(s->ops.open(2, &s->backend, &err));
    assert_ok(hop_stage_create(&s->ops, s->backend, weights, config, &s->stage, &err));
}

void support_stage_close(struct support_stage *s)
{
    hop_stage_free(s->stage);
    s->ops.close(s->backend);
}

void support_random_adapters(struct support_stage *s, uint64_t seed, float size)
{
    struct hop_error err = {0};
    struct hop_parameters *const parameters = hop_stage_parameters(s->stage);
    for (size_t p = 0; p < parameters->count; p++) {
        const struct hop_parameter *const item = &parameters->items[p];
        const struct hop_random_key key = {.seed = seed,
                                           .domain = HOP_RANDOM_INIT,
                                           .step = 7,
                                           .parameter = hop_parameter_id(item)};
        float *const values = parameters->values + item->offset;
        hop_random_uniform(&key, 0, item->count, values);
        for (size_t i = 0; i < item->count; i++)
            values[i] = (2 * values[i] - 1) * size;
    }
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
}
