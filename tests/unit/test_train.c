/* Optimizer, schedules, zeroth-order arithmetic, checkpoints. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "base/random.h"
#include "io/file.h"
#include "io/json.h"
#include "train/adamw.h"
#include "train/checkpoint.h"
#include "train/clip.h"
#include "train/learning_rate.h"
#include "train/results.h"
#include "train/zo.h"

static struct hop_error err;

/* The same update in double, by the book. */
struct reference {
    double value, m, v;
};

static void reference_step(struct reference *r, double g, double rate, double decay, int step)
{
    r->m = 0.9 * r->m + 0.1 * g;
    r->v = 0.999 * r->v + 0.001 * g * g;
    r->value -= rate * decay * r->value;
    r->value -= rate * (r->m / (1 - pow(0.9, step))) / (sqrt(r->v / (1 - pow(0.999, step))) + 1e-8);
}

static void test_adamw(void **state)
{
    (void)state;
    enum { N = 19 };
    float values[N], gradients[N];
    struct reference expected[N] = {{0}};
    struct hop_adamw adamw;
    struct hop_adamw_options options = hop_adamw_default();
    options.weight_decay = 0.1;
    assert_ok(hop_adamw_create(N, &adamw, &err));
    for (int i = 0; i < N; i++) {
        values[i] = (float)(i - 9) * 0.1f;
        expected[i].value = (double)values[i];
    }
    for (int step = 1; step <= 7; step++) {
        const double rate = 0.01 / step;
        for (int i = 0; i < N; i++) {
            gradients[i] = sinf((float)(i * step)) * powf(10, (float)(i % 7 - 4));
            reference_step(&expected[i], (double)gradients[i], rate, 0.1, step);
        }
        assert_ok(hop_adamw_step(&adamw, &options, rate, values, gradients, &err));
    }
    assert_int_equal(adamw.steps, 7);
    for (int i = 0; i < N; i++)
        assert_close(values[i], expected[i].value, 1e-6);
    hop_adamw_free(&adamw);
    hop_adamw_free(NULL);
}

static void test_adamw_not_finite(void **state)
{
    (void)state;
    float values[] = {1, 2, 3}, gradients[] = {0, NAN, 1};
    const float before[] = {1, 2, 3};
    struct hop_adamw adamw;
    const struct hop_adamw_options options = hop_adamw_default();
    assert_ok(hop_adamw_create(3, &adamw, &err));
    assert_fails(hop_adamw_step(&adamw, &options, 1, values, gradients, &err), HOP_NUMERIC, "1");
    gradients[1] = INFINITY;
    assert_fails(hop_adamw_step(&adamw, &options, 1, values, gradients, &err), HOP_NUMERIC, "inf");
    assert_memory_equal(values, before, sizeof before);
    assert_int_equal(adamw.steps, 0);
    hop_adamw_free(&adamw);
}

static void test_clip(void **state)
{
    (void)state;
    float a[11], b[2] = {3, 4};
    double expected = 25;
    for (int i = 0; i < 11; i++) {
        a[i] = (float)i;
        expected += i * i;
    }
    assert_close(hop_sum_of_squares(a, 11) + hop_sum_of_squares(b, 2), expected, 0);
    assert_close(hop_clip_coefficient(5, 1), 1 / (5 + 1e-6), 0);
    assert_close(hop_clip_coefficient(0.5, 1), 1, 0);
    assert_close(hop_clip_coefficient(5, 0), 1, 0);
    hop_scale(b, 2, 0.5);
    assert_close(b[1], 2, 0);
    assert_true(isinf(hop_sum_of_squares(&(float){INFINITY}, 1)));
}

/* Every logged rate of a real run with a linear schedule: the value after the step. */
static void test_linear_oracle(void **state)
{
    (void)state;
    json_t *const file =
        support_json(support_data("formats/hf_checkpoint_llama8b/trainer_state.json"));
    const struct hop_learning_rate schedule = {
        .scheduler = HOP_SCHEDULER_LINEAR, .peak = 2e-4, .warmup_steps = 25, .total_steps = 250};
    size_t i, compared = 0;
    const json_t *entry;
    json_array_foreach(json_object_get(file, "log_history"), i, entry)
    {
        const json_t *const rate = json_object_get(entry, "learning_rate");
        const json_int_t step = json_integer_value(json_object_get(entry, "step"));
        if (!rate)
            continue;
        assert_close(hop_learning_rate_at(&schedule, step), json_number_value(rate), 1e-18);
        compared++;
    }
    assert_int_equal(compared, 25);
    json_decref(file);
}

/* Cosine: the value the step used; from step 2040 on the real run lags by one, its scaler skipped
 * one. */
static void test_cosine_oracle(void **state)
{
    (void)state;
    json_t *const file =
        support_json(support_data("formats/hf_checkpoint_tinyllama/trainer_state.json"));
    const struct hop_learning_rate schedule = {
        .scheduler = HOP_SCHEDULER_COSINE, .peak = 1e-5, .warmup_steps = 57, .total_steps = 2808};
    size_t i, compared = 0;
    const json_t *entry;
    json_array_foreach(json_object_get(file, "log_history"), i, entry)
    {
        const json_t *const rate = json_object_get(entry, "learning_rate");
        const json_int_t step = json_integer_value(json_object_get(entry, "step"));
        if (!rate)
            continue;
        const int64_t completed = step - 1 - (step >= 2040);
        assert_close(hop_learning_rate_at(&schedule, completed), json_number_value(rate), 1e-19);
        compared++;
    }
    assert_int_equal(compared, 186);
    json_decref(file);
}

static void test_schedules(void **state)
{
    (void)state;
    struct hop_learning_rate schedule = {.peak = 2, .warmup_steps = 4, .total_steps = 10};
    assert_close(hop_learning_rate_at(&schedule, 0), 0, 0);
    assert_close(hop_learning_rate_at(&schedule, 1), 0.5, 0);
    assert_close(hop_learning_rate_at(&schedule, 4), 2, 0);
    assert_close(hop_learning_rate_at(&schedule, 100), 2, 0);
    schedule.scheduler = HOP_SCHEDULER_LINEAR;
    assert_close(hop_learning_rate_at(&schedule, 7), 1, 1e-15);
    assert_close(hop_learning_rate_at(&schedule, 11), 0, 0);
    schedule.scheduler = HOP_SCHEDULER_COSINE;
    assert_close(hop_learning_rate_at(&schedule, 7), 1, 1e-15);
    assert_close(hop_learning_rate_at(&schedule, 10), 0, 1e-15);
    schedule.warmup_steps = 0;
    assert_close(hop_learning_rate_at(&schedule, 0), 2, 0);
}

static void test_zo(void **state)
{
    (void)state;
    const float logprob[] = {-1, -2, -3.5f};
    const double probe[] = {2.01, 1.98, 2.03};
    double g[3];
    assert_close(hop_loss(logprob, 3, 13), 0.5, 1e-15);
    hop_zo_derivatives(2, probe, 3, 0.01, g);
    assert_close(g[0], 1, 1e-12);
    assert_close(g[1], -2, 1e-12);
    const struct hop_zo_spread spread = hop_zo_spread(g, 3);
    assert_close(spread.mean, 2.0 / 3, 1e-12);
    assert_close(spread.std, sqrt((1.0 / 9 + 64.0 / 9 + 49.0 / 9) / 2), 1e-12);
    assert_close(spread.error, spread.std / sqrt(3), 1e-15);
    assert_close(spread.rms, sqrt((1 + 4 + 9) / 3.0), 1e-12);
    assert_close(hop_zo_spread(g, 1).std, 0, 0);
    assert_close(hop_zo_spread(g, 1).error, 0, 0);
    assert_close(hop_zo_central(2.01, 1.98, 0.01), 1.5, 1e-12);
}

/* Losses along a direction, each with its own rounding error. */
struct curve {
    double slope, sigma;
    struct hop_random_key key;
    size_t drawn;
};

static double loss_at(struct curve *curve, double e)
{
    float z[4];
    hop_random_normal(&curve->key, 4 * curve->drawn++, 4, z);
    return 2 + curve->slope * e + 2 * e * e / 2 + curve->sigma * (double)z[0];
}

static double derivative_at(struct curve *curve, int passes, double e)
{
    double g;
    if (passes == 2)
        return hop_zo_central(loss_at(curve, e), loss_at(curve, -e), e);
    const double probe = loss_at(curve, e);
    hop_zo_derivatives(2, &probe, 1, e, &g);
    return g;
}

/* A known loss curve with known rounding: the floor finds the rounding and ignores slope and,
 * nearly, curvature. */
static void test_zo_floor(void **state)
{
    (void)state;
    enum { N = 4000 };
    static double first[N], repeated[N];
    const double epsilon = 1e-2, sigma = 1e-5;
    for (int passes = 1; passes <= 2; passes++)
        for (int noisy = 0; noisy < 2; noisy++) {
            struct curve curve = {.sigma = noisy ? sigma : 0,
                                  .key = {.seed = 4, .domain = HOP_RANDOM_SAMPLE}};
            for (size_t b = 0; b < N; b++) {
                curve.slope = 3 * (double)(b % 7) - 9;
                first[b] = derivative_at(&curve, passes, epsilon);
                repeated[b] = derivative_at(&curve, passes, epsilon * (1 + hop_zo_tau(passes)));
            }
            const double floor = hop_zo_floor(first, repeated, N, passes);
            const double expected = noisy ? sigma / (passes * epsilon) : 0;
            assert_close(floor, expected, noisy ? 1e-4 : 2e-4);
        }
    assert_close(hop_zo_floor(first, repeated, 0, 1), 0, 0);
}

/* Numbers of all lengths around those of a vector, against a plain sum of what they stand for. */
static void test_zo_inner(void **state)
{
    (void)state;
    enum { N = 37 };
    float a[N], b[N];
    uint16_t a16[N], b16[N];
    const struct hop_random_key key = {.seed = 9, .domain = HOP_RANDOM_SAMPLE};
    hop_random_normal(&key, 0, N, a);
    hop_random_normal(&key, 64, N, b);
    hop_convert(a16, HOP_BF16, a, HOP_F32, N);
    hop_convert(b16, HOP_BF16, b, HOP_F32, N);
    for (size_t n = 0; n <= N; n++) {
        double exact = 0, rounded = 0;
        for (size_t i = 0; i < n; i++) {
            exact += (double)a[i] * (double)b[i];
            rounded += (double)hop_bf16_to_f32(a16[i]) * (double)hop_bf16_to_f32(b16[i]);
        }
        assert_close(hop_zo_inner(a, b, n, HOP_F32), exact, 1e-13);
        assert_close(hop_zo_inner(a16, b16, n, HOP_BF16), rounded, 1e-13);
    }
    /* A small difference of large terms, which float sums would lose. */
    const float large[] = {1e8f, 1, -1e8f}, one[] = {1, 1, 1};
    assert_close(hop_zo_inner(large, one, 3, HOP_F32), 1, 0);
}

struct run {
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_parameters parameters;
    struct hop_adamw adamw;
    struct hop_trainer_state state;
};

static void run_create(struct run *run)
{
    run->model = support_tiny_config();
    run->lora = support_all_targets(2, 4);
    run->state = hop_trainer_state_default();
    assert_ok(hop_parameters_create(&run->model, &run->lora, 0, 3, &run->parameters, &err));
    assert_ok(hop_adamw_create(run->parameters.total, &run->adamw, &err));
}

static void run_free(struct run *run)
{
    hop_parameters_free(&run->parameters);
    hop_adamw_free(&run->adamw);
    hop_trainer_state_free(&run->state);
}

static void run_fill(struct run *run, int64_t step)
{
    for (size_t i = 0; i < run->parameters.total; i++) {
        run->parameters.values[i] = (float)i / 7 + (float)step;
        run->adamw.exp_avg[i] = (float)i / 3;
        run->adamw.exp_avg_sq[i] = (float)i / 11;
    }
    run->adamw.steps = step;
    run->state.global_step = step;
    run->state.max_steps = 100;
    run->state.epoch = 0.1 + 1.0 / 3;
    run->state.best_metric = 0.7;
    run->state.best_step = 5;
    run->state.seed = 18446744073709551615u;
    run->state.evaluations_without_gain = 2;
    json_decref(run->state.log_history);
    run->state.log_history = json_pack("[{s:i, s:f}]", "step", (int)step, "loss", 1.25);
}

static hop_status run_save(const struct run *run, const char *folder)
{
    const struct hop_plain_adapter plain = {.lora = run->lora, .parameters = run->parameters};
    return hop_checkpoint_save(folder, &run->state, &plain, &run->parameters, &run->adamw, "base",
                               &err);
}

static void test_checkpoint_round_trip(void **state)
{
    (void)state;
    struct run saved, loaded;
    char folder[64], *path = NULL;
    support_folder(folder, sizeof folder);
    run_create(&saved);
    run_create(&loaded);
    assert_ok(hop_checkpoint_latest(folder, &path, &err));
    assert_null(path);
    run_fill(&saved, 9);
    assert_ok(run_save(&saved, folder));
    run_fill(&saved, 10);
    assert_ok(run_save(&saved, folder));
    assert_ok(hop_checkpoint_latest(folder, &path, &err));
    assert_non_null(strstr(path, "/checkpoint-10"));
    assert_ok(hop_checkpoint_load(path, &loaded.model, &loaded.lora, &loaded.parameters,
                                  &loaded.adamw, &loaded.state, &err));
    const size_t bytes = saved.parameters.total * sizeof(float);
    assert_memory_equal(loaded.parameters.values, saved.parameters.values, bytes);
    assert_memory_equal(loaded.adamw.exp_avg, saved.adamw.exp_avg, bytes);
    assert_memory_equal(loaded.adamw.exp_avg_sq, saved.adamw.exp_avg_sq, bytes);
    assert_int_equal(loaded.adamw.steps, 10);
    assert_int_equal(loaded.state.global_step, 10);
    assert_close(loaded.state.epoch, saved.state.epoch, 0);
    assert_close(loaded.state.best_metric, 0.7, 0);
    assert_int_equal(loaded.state.best_step, 5);
    assert_int_equal(loaded.state.evaluations_without_gain, 2);
    assert_true(loaded.state.seed == saved.state.seed);
    assert_true(json_equal(loaded.state.log_history, saved.state.log_history));
    loaded.lora.rank = 3;
    assert_fails(hop_checkpoint_load(path, &loaded.model, &loaded.lora, &loaded.parameters,
                                     &loaded.adamw, &loaded.state, &err),
                 HOP_INPUT, "lora.rank 3");
    loaded.lora.rank = 2;
    loaded.lora.targets[HOP_UP_PROJ] = false;
    assert_fails(hop_checkpoint_load(path, &loaded.model, &loaded.lora, &loaded.parameters,
                                     &loaded.adamw, &loaded.state, &err),
                 HOP_INPUT, "up_proj");
    free(path);
    run_free(&saved);
    run_free(&loaded);
    support_folder_remove(folder);
}

static bool exists(const char *folder, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return hop_file_exists(path);
}

/* What a crash may leave behind is never taken for a checkpoint, and does not stop the next one. */
static void test_checkpoint_crash(void **state)
{
    (void)state;
    struct run run;
    char folder[64], path[256], *latest = NULL;
    support_folder(folder, sizeof folder);
    run_create(&run);
    run_fill(&run, 3);
    assert_ok(run_save(&run, folder));
    static const char *const leftovers[] = {"checkpoint-7.tmp", "checkpoint-8", "checkpoint-x",
                                            "checkpoint-9.replaced-1"};
    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, leftovers[i]);
        assert_ok(hop_directory_create(path, &err));
    }
    snprintf(path, sizeof path, "%s/checkpoint-7.tmp/trainer_state.json", folder);
    assert_ok(hop_file_write(path, "{", 1, &err));
    assert_ok(hop_checkpoint_latest(folder, &latest, &err));
    assert_non_null(strstr(latest, "/checkpoint-3"));
    free(latest);
    run_fill(&run, 7);
    assert_ok(run_save(&run, folder));
    assert_false(exists(folder, "checkpoint-7.tmp"));
    assert_ok(hop_checkpoint_latest(folder, &latest, &err));
    assert_non_null(strstr(latest, "/checkpoint-7"));
    free(latest);
    run_fill(&run, 3);
    assert_ok(run_save(&run, folder));
    assert_true(exists(folder, "checkpoint-3.replaced-1/trainer_state.json"));
    assert_ok(hop_checkpoint_latest("/tmp/hybridop-no-such-folder", &latest, &err));
    assert_null(latest);
    run_free(&run);
    support_folder_remove(folder);
}

static const char *const observed[] = {"formats/hf_checkpoint_tinyllama/trainer_state.json",
                                       "formats/hf_checkpoint_llama8b/trainer_state.json"};

/* Every key of `part` is in `whole`, in sorted order there. */
static void assert_keys(const char *what, const json_t *part, const json_t *whole)
{
    const char *key, *before = "";
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)part, key, value)
    {
        if (!json_object_get(whole, key))
            fail_msg("%s: %s is missing", what, key);
    }
    json_object_foreach((json_t *)(uintptr_t)whole, key, value)
    {
        if (strcmp(before, key) >= 0)
            fail_msg("%s: %s is not in order", what, key);
        before = key;
    }
}

/* The Trainer's own files can be read; ours hold all the keys they do and no other but one. */
static void test_trainer_state(void **state)
{
    (void)state;
    json_t *const file = support_json(support_data(observed[0]));
    struct hop_trainer_state s;
    int64_t steps;
    assert_ok(hop_trainer_state_parse(file, observed[0], &s, &steps, &err));
    assert_int_equal(s.global_step, 2800);
    assert_int_equal(steps, 2800);
    assert_int_equal(s.best_step, 2800);
    assert_close(s.best_metric, 1.1219322681427002, 0);
    json_t *const ours = hop_trainer_state_json(&s, steps, "./results/checkpoint-2800");
    assert_non_null(ours);
    assert_keys("observed", file, ours);
    json_object_del(ours, "hybridop");
    assert_keys("ours", ours, file);
    json_t *const older = support_json(support_data(observed[1]));
    assert_keys("older", older, ours);
    static const char *const same[] = {
        "best_global_step", "best_metric", "best_model_checkpoint", "epoch",
        "eval_steps",       "global_step", "log_history",           "logging_steps",
        "max_steps",        "save_steps",  "num_train_epochs",      "trial_params",
        "train_batch_size", "trial_name",  "is_hyper_param_search"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        if (!json_equal(json_object_get(ours, same[i]), json_object_get(file, same[i])))
            fail_msg("%s is another", same[i]);
    json_decref(older);
    json_decref(ours);
    json_decref(file);
    hop_trainer_state_free(&s);
}

/* One of the observed files came through a machine that ends lines with \r\n. */
static void assert_same_text(const struct hop_map *ours, const struct hop_map *theirs)
{
    size_t at = 0;
    for (size_t i = 0; i < theirs->size; i++) {
        if (theirs->data[i] == '\r')
            continue;
        if (at >= ours->size || ours->data[at] != theirs->data[i])
            fail_msg("the text differs from byte %zu on", i);
        at++;
    }
    assert_int_equal(at, ours->size);
}

/* What is read and written again is the same text: indent, order, digits, the last line break. */
static void test_trainer_text(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char folder[64], path[128], source[512];
        struct hop_map theirs, ours;
        snprintf(source, sizeof source, "%s", support_data(observed[i]));
        json_t *const file = support_json(source);
        support_folder(folder, sizeof folder);
        snprintf(path, sizeof path, "%s/trainer_state.json", folder);
        assert_ok(hop_json_save(path, file, &err));
        assert_ok(hop_map_open(source, &theirs, &err));
        assert_ok(hop_map_open(path, &ours, &err));
        assert_same_text(&ours, &theirs);
        hop_map_close(&theirs);
        hop_map_close(&ours);
        json_decref(file);
        support_folder_remove(folder);
    }
}

static void log_line(struct hop_trainer_state *s, json_t *line)
{
    assert_non_null(line);
    assert_ok(hop_trainer_state_log(s, line, &err));
    json_decref(line);
}

/* Two steps and an evaluation, as a run records them. */
static void log_run(struct hop_trainer_state *s)
{
    *s = hop_trainer_state_default();
    s->input_tokens = 1000;
    s->parameters = 50;
    log_line(s, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "step", 1, "epoch", 0.5, "loss",
                          2.00004999, "learning_rate", 1e-4, "grad_norm", 0.123456789,
                          "tokens_per_second", 1.0));
    log_line(s, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f}", "step", 2, "epoch", 1.0, "loss",
                          1.00015001, "learning_rate", 5e-5, "grad_norm", 0.5, "seconds", 2.0));
    log_line(s,
             json_pack("{s:f, s:f, s:i, s:f, s:f, s:f, s:f}", "eval_loss", 1.23456789,
                       "eval_accuracy", 0.98765, "step", 2, "epoch", 1.0, "eval_seconds", 3.00006,
                       "eval_samples_per_second", 12.34567, "eval_steps_per_second", 1.5));
    s->global_step = 2;
    s->epoch = 1;
}

/* Entries have the keys of the observed files, and the Trainer's number of decimals. */
static void test_history(void **state)
{
    (void)state;
    struct hop_trainer_state s;
    json_t *const older = support_json(support_data(observed[1]));
    json_t *const newer = support_json(support_data(observed[0]));
    log_run(&s);
    const json_t *const training = json_array_get(s.log_history, 0);
    assert_keys("training", json_array_get(json_object_get(older, "log_history"), 0), training);
    assert_int_equal(json_object_size(training), 5);
    assert_close(json_number_value(json_object_get(training, "loss")), 2.0, 0);
    assert_close(json_number_value(json_object_get(training, "grad_norm")), 0.123456789, 0);
    assert_close(json_number_value(json_object_get(json_array_get(s.log_history, 1), "loss")),
                 1.0002, 0);
    const json_t *const evaluation = json_array_get(s.log_history, 2);
    const json_t *const last = json_array_get(json_object_get(newer, "log_history"), 199);
    json_t *const theirs = json_copy((json_t *)(uintptr_t)last);
    json_object_del(theirs, "eval_mean_token_accuracy");
    json_object_del(theirs, "eval_num_tokens");
    assert_keys("evaluation", theirs, evaluation);
    assert_int_equal(json_object_size(evaluation), json_object_size(theirs) + 1);
    assert_close(json_number_value(json_object_get(evaluation, "eval_runtime")), 3.0001, 0);
    assert_close(json_number_value(json_object_get(evaluation, "eval_samples_per_second")), 12.346,
                 0);
    assert_close(json_number_value(json_object_get(evaluation, "eval_loss")), 1.23456789, 0);
    assert_close(s.last_loss, 1.00015001, 0);
    json_decref(theirs);
    json_decref(older);
    json_decref(newer);
    hop_trainer_state_free(&s);
}

static void test_results(void **state)
{
    (void)state;
    static const char expected[] =
        "{\n  \"epoch\": 1.0,\n  \"eval_accuracy\": 0.98765,\n  \"eval_loss\": 1.23456789,\n  "
        "\"eval_runtime\": 3.0001,\n  \"eval_samples_per_second\": 12.346,\n  "
        "\"eval_steps_per_second\": 1.5,\n  \"total_flos\": 300000.0,\n  \"train_loss\": "
        "1.5001,\n  \"train_runtime\": 4.0,\n  \"train_samples_per_second\": 2.5,\n  "
        "\"train_steps_per_second\": 0.5\n}\n";
    const struct hop_train_totals totals = {.seconds = 4, .samples = 10, .steps = 2};
    struct hop_trainer_state s;
    struct hop_map map;
    char folder[64], path[128];
    log_run(&s);
    assert_ok(hop_trainer_state_finish(&s, &totals, &err));
    const json_t *const final = json_array_get(s.log_history, 3);
    assert_int_equal(json_integer_value(json_object_get(final, "step")), 2);
    assert_keys("final", final, final);
    support_folder(folder, sizeof folder);
    assert_ok(hop_results_save(folder, &s, &err));
    snprintf(path, sizeof path, "%s/all_results.json", folder);
    assert_ok(hop_map_open(path, &map, &err));
    assert_int_equal(map.size, sizeof expected - 1);
    assert_memory_equal(map.data, expected, map.size);
    hop_map_close(&map);
    assert_true(exists(folder, "train_results.json") && exists(folder, "eval_results.json"));
    support_folder_remove(folder);
    hop_trainer_state_free(&s);
}

/* The best checkpoint is named by its path where it is, and not where it never was. */
static void test_best_checkpoint(void **state)
{
    (void)state;
    struct run run;
    char folder[64], path[160], expected[128];
    const struct {
        int64_t step, best;
        bool named;
    } cases[] = {{4, 0, false}, {5, 5, true}, {6, 5, true}, {7, 3, false}};
    support_folder(folder, sizeof folder);
    run_create(&run);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_fill(&run, cases[i].step);
        run.state.best_step = cases[i].best;
        assert_ok(run_save(&run, folder));
        snprintf(path, sizeof path, "%s/checkpoint-%d/trainer_state.json", folder,
                 (int)cases[i].step);
        snprintf(expected, sizeof expected, "%s/checkpoint-%d", folder, (int)cases[i].best);
        json_t *const file = support_json(path);
        const json_t *const best = json_object_get(file, "best_model_checkpoint");
        if (cases[i].named)
            assert_string_equal(json_string_value(best), expected);
        else
            assert_true(json_is_null(best));
        json_decref(file);
    }
    run_free(&run);
    support_folder_remove(folder);
}

/* A checkpoint of an adapter whose blocks differ fits only such a job. */
static void test_checkpoint_of_patterns(void **state)
{
    (void)state;
    struct run run;
    char folder[64], path[96];
    support_folder(folder, sizeof folder);
    run.model = support_tiny_config();
    run.lora = (struct hop_lora_config){.rank = 2, .alpha = 4, .blocks = 3};
    run.lora.targets[HOP_Q_PROJ] = run.lora.targets[HOP_V_PROJ] = true;
    for (int32_t block = 0; block < 3; block++) {
        run.lora.ranks[block][HOP_Q_PROJ] = (uint16_t)(block + 1);
        run.lora.ranks[block][HOP_V_PROJ] = block == 1 ? 0 : 2;
        run.lora.alphas[block][HOP_Q_PROJ] = run.lora.alphas[block][HOP_V_PROJ] = 4;
    }
    run.lora.alphas[1][HOP_V_PROJ] = 0;
    run.state = hop_trainer_state_default();
    assert_ok(hop_parameters_create(&run.model, &run.lora, 0, 3, &run.parameters, &err));
    assert_ok(hop_adamw_create(run.parameters.total, &run.adamw, &err));
    run_fill(&run, 9);
    assert_ok(run_save(&run, folder));
    const float last = run.parameters.values[run.parameters.total - 1];
    run.parameters.values[run.parameters.total - 1] = 0;
    hop_trainer_state_free(&run.state);
    snprintf(path, sizeof path, "%s/checkpoint-9", folder);
    assert_ok(hop_checkpoint_load(path, &run.model, &run.lora, &run.parameters, &run.adamw,
                                  &run.state, &err));
    assert_close((double)run.parameters.values[run.parameters.total - 1], (double)last, 0);
    run.lora.alphas[2][HOP_Q_PROJ] = 5;
    assert_fails(hop_checkpoint_load(path, &run.model, &run.lora, &run.parameters, &run.adamw,
                                     &run.state, &err),
                 HOP_INPUT, "q_proj of block 2");
    run_free(&run);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw),
        cmocka_unit_test(test_adamw_not_finite),
        cmocka_unit_test(test_clip),
        cmocka_unit_test(test_linear_oracle),
        cmocka_unit_test(test_cosine_oracle),
        cmocka_unit_test(test_schedules),
        cmocka_unit_test(test_zo),
        cmocka_unit_test(test_zo_floor),
        cmocka_unit_test(test_zo_inner),
        cmocka_unit_test(test_checkpoint_round_trip),
        cmocka_unit_test(test_checkpoint_crash),
        cmocka_unit_test(test_trainer_state),
        cmocka_unit_test(test_trainer_text),
        cmocka_unit_test(test_history),
        cmocka_unit_test(test_results),
        cmocka_unit_test(test_best_checkpoint),
        cmocka_unit_test(test_checkpoint_of_patterns),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
