/* Tables, the progress line and traces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/json.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/trace.h"
#include "support_schedule.h"

static void read_back(FILE *file, char *text, size_t size)
{
    fflush(file);
    rewind(file);
    text[fread(text, 1, size - 1, file)] = '\0';
}

static void tables_align(void **state)
{
    (void)state;
    const char *const headers[] = {"device", ">blocks", "role", NULL};
    const char *const none[] = {NULL};
    struct hop_table *table = NULL;
    struct hop_error err = {0};
    assert_int_equal(hop_table_create(headers, &table, &err), HOP_OK);
    for (int row = 0; row < 2; row++) {
        assert_int_equal(hop_table_cell(table, &err, row ? "n%d" : "gerät-%d", row), HOP_OK);
        assert_int_equal(hop_table_cell(table, &err, "%d", row ? 12 : 3), HOP_OK);
        assert_int_equal(hop_table_cell(table, &err, "%s", row ? "zeroth-order" : "bp"), HOP_OK);
    }
    char text[512];
    FILE *const file = tmpfile();
    hop_table_print(table, file);
    read_back(file, text, sizeof text);
    fclose(file);
    assert_string_equal(text, "device   blocks  role\n"
                              "gerät-0       3  bp\n"
                              "n1           12  zeroth-order\n");
    hop_table_free(table);
    hop_table_free(NULL);
    assert_int_equal(hop_table_create(none, &table, &err), HOP_INTERNAL);
}

static void progress_line_reads_well(void **state)
{
    (void)state;
    struct hop_string text = {0};
    struct hop_error err = {0};
    struct hop_progress_line line = {.step = 12,
                                     .steps = 200,
                                     .loss = 1.2344,
                                     .learning_rate = 3e-3,
                                     .grad_norm = 0.91,
                                     .zo_grad_norm = NAN,
                                     .samples_per_second = 210.2,
                                     .tokens_per_second = 4123,
                                     .utilization = 0.832,
                                     .eta = 41.6};
    assert_int_equal(hop_progress_format(&line, &text, &err), HOP_OK);
    assert_string_equal(hop_string_text(&text),
                        "step 12/200  loss 1.234  210 samples/s  util 83%  eta 0:42  "
                        "lr 3.0e-03  |g| 0.91  4.1k tokens/s");
    hop_string_free(&text);
    line.samples_per_second = 0.254;
    line.tokens_per_second = 999.7;
    line.eta = 2 * 3600 + 5 * 60 + 7;
    assert_int_equal(hop_progress_format(&line, &text, &err), HOP_OK);
    assert_non_null(strstr(hop_string_text(&text), "0.25 samples/s  util"));
    assert_non_null(strstr(hop_string_text(&text), "1.0k tokens/s"));
    assert_non_null(strstr(hop_string_text(&text), "eta 2:05:07"));
    text.length = 0;
    line.eta = -1;
    assert_int_equal(hop_progress_format(&line, &text, &err), HOP_OK);
    assert_non_null(strstr(hop_string_text(&text), "eta -"));
    hop_string_free(&text);
}

/* The halves have norms of their own. */
static void progress_line_shows_both_norms(void **state)
{
    (void)state;
    static const struct {
        double exact, estimated;
        const char *shown;
    } cases[] = {{0.91, 12.3, "  |g| 0.91  |zo| 12.3  "}, {NAN, 12.3, "  |zo| 12.3  "}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_string text = {0};
        struct hop_error err = {0};
        const struct hop_progress_line line = {
            .steps = 2, .grad_norm = cases[i].exact, .zo_grad_norm = cases[i].estimated};
        assert_int_equal(hop_progress_format(&line, &text, &err), HOP_OK);
        assert_non_null(strstr(hop_string_text(&text), cases[i].shown));
        hop_string_free(&text);
    }
}

/* What steps 1..steps of a run print on stderr. */
static void show_run(bool terminal, int32_t width, int64_t steps, char *text, size_t size)
{
    FILE *const file = tmpfile();
    const int kept = dup(STDERR_FILENO);
    struct hop_progress progress = {.terminal = terminal, .width = width};
    fflush(stderr);
    dup2(fileno(file), STDERR_FILENO);
    for (int64_t step = 1; step <= steps; step++) {
        const struct hop_progress_line line = {
            .step = step, .steps = steps, .loss = 2, .zo_grad_norm = NAN};
        hop_progress_show(&progress, &line);
    }
    hop_progress_break(&progress);
    hop_progress_break(&progress);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    read_back(file, text, size);
    fclose(file);
}

static void progress_is_plain_elsewhere(void **state)
{
    (void)state;
    char text[4096];
    show_run(false, 0, 5, text, sizeof text);
    assert_null(strchr(text, '\r'));
    assert_int_equal(strncmp(text, "step 1/5 ", 9), 0);
    assert_non_null(strstr(text, "\nstep 5/5 "));
    assert_null(strstr(text, "step 3/5"));
    assert_int_equal(text[strlen(text) - 1], '\n');
}

static void progress_redraws_on_a_terminal(void **state)
{
    (void)state;
    char text[4096];
    show_run(true, 20, 3, text, sizeof text);
    const char first[] = "\r\033[Kstep 1/3  loss 2.00\r", last[] = "\r\033[Kstep 3/3  loss 2.00\n";
    assert_int_equal(strncmp(text, first, sizeof first - 1), 0);
    assert_true(strlen(text) > sizeof last);
    assert_string_equal(text + strlen(text) + 1 - sizeof last, last);
}

static void trace_is_json_with_rows(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 1};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_BACKPROP};
    const char *const names[] = {"npu \"0\"", "gpu0"};
    struct hop_plan plan = support_plan(2, devices, gradients);
    struct hop_timeline timeline = {0};
    struct hop_error err = {0};
    const struct hop_event events[] = {
        {0, 3, {HOP_PROBE, 0, 1, 0, 2, 0}, 0.5, 0.75},
        {1, 3, {HOP_STEP, 1, -1, 0, 0, 0}, 0.75, 0.7500015},
    };
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(hop_timeline_add(&timeline, &events[i], &err), HOP_OK);
    char path[] = "/tmp/hop-trace-XXXXXX";
    close(mkstemp(path));
    if (hop_trace_save(path, &timeline, &plan, names, &err) != HOP_OK)
        fail_msg("%s", err.message);
    json_t *object = NULL;
    if (hop_json_load(path, &object, &err) != HOP_OK)
        fail_msg("%s", err.message);
    const json_t *const list = json_object_get(object, "traceEvents");
    assert_int_equal(json_array_size(list), 2 * 2 + 2 + 2);
    const json_t *const row = json_object_get(json_array_get(list, 1), "args");
    assert_string_equal(json_string_value(json_object_get(row, "name")), names[0]);
    char *text = json_dumps(json_array_get(list, 6), JSON_COMPACT);
    assert_string_equal(text, "{\"ph\":\"X\",\"cat\":\"PROBE\",\"name\":\"PROBE 1\",\"pid\":0,"
                              "\"tid\":0,\"ts\":500000.0,\"dur\":250000.0,\"args\":{\"step\":3,"
                              "\"part\":0,\"micro_batch\":1,\"probes\":[0,2]}}");
    free(text);
    text = json_dumps(json_array_get(list, 7), JSON_COMPACT | JSON_REAL_PRECISION(9));
    assert_string_equal(text,
                        "{\"ph\":\"X\",\"cat\":\"STEP\",\"name\":\"STEP\",\"pid\":1,\"tid\":1,"
                        "\"ts\":750000.0,\"dur\":1.5,\"args\":{\"step\":3,\"part\":1}}");
    free(text);
    json_decref(object);
    remove(path);
    assert_int_equal(hop_trace_save("/no/such/folder/t.json", &timeline, &plan, names, &err),
                     HOP_IO);
    assert_non_null(strstr(err.message, "/no/such/folder/t.json"));
    hop_timeline_free(&timeline);
    hop_timeline_free(NULL);
    hop_plan_free(&plan);
}

/* Two devices, one micro-batch, one probe: d0 sends an activation and a probe's in 2 s each, d1 a
 * derivative in no time. */
static void simulated_trace_has_messages(void **state)
{
    (void)state;
    const int32_t devices[] = {0, 1};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_BACKPROP};
    const char *const names[] = {"npu0", "gpu \"0\""};
    struct hop_plan plan = support_plan(2, devices, gradients);
    struct hop_cost_table cost = support_cost(&plan);
    const struct hop_simulation_options options = {.record = true};
    struct hop_schedule schedule;
    struct hop_simulation simulation;
    struct hop_error err = {0};
    cost.latency[1] = 2;
    assert_int_equal(hop_schedule_greedy(&plan, &cost, 1, 1, &schedule, &err), HOP_OK);
    assert_int_equal(hop_simulate(&plan, &schedule, &cost, &options, &simulation, &err), HOP_OK);
    char path[] = "/tmp/hop-trace-XXXXXX";
    close(mkstemp(path));
    if (hop_trace_save_simulation(path, &simulation, &plan, &schedule, names, &err) != HOP_OK)
        fail_msg("%s", err.message);
    json_t *object = NULL;
    if (hop_json_load(path, &object, &err) != HOP_OK)
        fail_msg("%s", err.message);
    const json_t *const list = json_object_get(object, "traceEvents");
    assert_int_equal(json_array_size(list), 2 * 2 + 2 + 2 + 7 + 3);
    char *text = json_dumps(json_array_get(list, 6), JSON_COMPACT);
    assert_string_equal(text, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":0,\"tid\":3,"
                              "\"args\":{\"name\":\"to gpu \\\"0\\\"\"}}");
    free(text);
    text = json_dumps(json_array_get(list, 16), JSON_COMPACT);
    assert_string_equal(text,
                        "{\"ph\":\"X\",\"cat\":\"message\",\"name\":\"probe activation 0\","
                        "\"pid\":0,\"tid\":3,\"ts\":3000000.0,\"dur\":2000000.0,\"args\":"
                        "{\"from_part\":0,\"to_part\":1,\"micro_batch\":0,\"probes\":[0,1]}}");
    free(text);
    json_decref(object);
    remove(path);
    hop_simulation_free(&simulation);
    hop_schedule_free(&schedule);
    hop_cost_free(&cost);
    hop_plan_free(&plan);
}

static void empty_trace_is_json(void **state)
{
    (void)state;
    const int32_t devices[] = {0};
    const enum hop_gradient gradients[] = {HOP_GRADIENT_BACKPROP};
    const char *const names[] = {"local"};
    struct hop_plan plan = support_plan(1, devices, gradients);
    const struct hop_timeline timeline = {0};
    struct hop_error err = {0};
    json_t *object = NULL;
    char path[] = "/tmp/hop-trace-XXXXXX";
    close(mkstemp(path));
    assert_int_equal(hop_trace_save(path, &timeline, &plan, names, &err), HOP_OK);
    assert_int_equal(hop_json_load(path, &object, &err), HOP_OK);
    json_decref(object);
    remove(path);
    hop_plan_free(&plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_align),
        cmocka_unit_test(progress_line_reads_well),
        cmocka_unit_test(progress_line_shows_both_norms),
        cmocka_unit_test(progress_is_plain_elsewhere),
        cmocka_unit_test(progress_redraws_on_a_terminal),
        cmocka_unit_test(trace_is_json_with_rows),
        cmocka_unit_test(simulated_trace_has_messages),
        cmocka_unit_test(empty_trace_is_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
