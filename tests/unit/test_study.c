/* Studies: which variants there are, what a run folder says, means over seeds, charts. */
#include "support_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "io/file.h"
#include "io/yaml.h"
#include "report/chart.h"
#include "runtime/study_summary.h"

static hop_status parse_variants(const char *yaml, struct hop_study *study, struct hop_error *err)
{
    json_t *object;
    HOP_TRY(hop_yaml_parse(yaml, strlen(yaml), "v.yaml", &object, err));
    const hop_status status = hop_study_variants_parse(object, "v.yaml", study, err);
    json_decref(object);
    return status;
}

static void variants_of_a_file(void **state)
{
    struct hop_study study = {0};
    struct hop_error err;
    (void)state;
    ASSERT_OK(parse_variants("frozen: {zo.estimator: none}\n"
                             "boundary Q=3:\n"
                             "  zo.estimator: boundary\n"
                             "  zo.probes: 3\n"
                             "  lora.targets: [q_proj, v_proj]\n"
                             "  tune: {zo.learning_rate: [1.0e-3, 3.0e-3], lora.rank: [4, 8]}\n",
                             &study, &err));
    assert_int_equal(study.variant_count, 2);
    assert_string_equal(study.variants[0].settings.items[0], "zo.estimator=none");
    assert_int_equal(study.variants[0].tune_count, 0);
    assert_int_equal(study.variants[1].settings.count, 3);
    assert_string_equal(study.variants[1].settings.items[1], "zo.probes=3");
    assert_string_equal(study.variants[1].settings.items[2],
                        "lora.targets=[\"q_proj\", \"v_proj\"]");
    assert_int_equal(study.variants[1].tune_count, 2);
    assert_string_equal(study.variants[1].tune[0].values.items[1], "0.003");
    assert_string_equal(study.variants[1].tune[1].key, "lora.rank");
    hop_study_free(&study);
}

static void broken_variants(void **state)
{
    static const struct {
        const char *yaml, *part;
    } cases[] = {{"[]", "a map of variants"},
                 {"a: 3", "a: a map of job keys"},
                 {"a/b: {}", "no '/'"},
                 {"a: {tune: 3}", "tune: a map"},
                 {"a: {tune: {zo.probes: 3}}", "tune.zo.probes: a list"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_study study = {0};
        struct hop_error err;
        ASSERT_REFUSED(parse_variants(cases[i].yaml, &study, &err), HOP_INPUT, cases[i].part);
        hop_study_free(&study);
    }
}

static void axes_cross_variants(void **state)
{
    struct hop_study study = {0};
    struct hop_study_axis probes, targets;
    struct hop_error err;
    (void)state;
    ASSERT_OK(hop_study_axis_parse("zo.probes=1,3", &probes, &err));
    ASSERT_OK(hop_study_axis_parse("lora.targets=[q_proj, v_proj],o_proj", &targets, &err));
    assert_int_equal(targets.values.count, 2);
    assert_string_equal(targets.values.items[0], "[q_proj, v_proj]");
    ASSERT_OK(hop_study_default_variant(&study, &err));
    ASSERT_OK(hop_study_cross(&study, &probes, &err));
    ASSERT_OK(hop_study_cross(&study, &targets, &err));
    assert_int_equal(study.variant_count, 4);
    assert_string_equal(study.variants[3].name, "job zo.probes=3 lora.targets=o_proj");
    assert_string_equal(study.variants[3].settings.items[0], "zo.probes=3");
    assert_string_equal(study.variants[3].settings.items[1], "lora.targets=o_proj");
    hop_study_axis_free(&probes);
    hop_study_axis_free(&targets);
    ASSERT_REFUSED(hop_study_axis_parse("zo.probes", &probes, &err), HOP_INPUT, "KEY=VALUE");
    ASSERT_REFUSED(hop_study_axis_parse("=3", &probes, &err), HOP_INPUT, "KEY=VALUE");
    hop_study_free(&study);
}

/* Training loss 4 - k / seed at step k; evaluations before, at half and at the end. */
static void write_run(const char *directory, int seed, int steps)
{
    char text[4096], path[512];
    struct hop_error err;
    size_t n = 0;
    ASSERT_OK(hop_directory_create(directory, &err));
    for (int k = 0; k <= steps; k++) {
        if (k > 0)
            n += (size_t)snprintf(text + n, sizeof text - n,
                                  "{\"step\": %d, \"loss\": %.17g, \"seconds\": %d}\n", k,
                                  4 - (double)k / seed, seed);
        if (k % (steps / 2) == 0)
            n +=
                (size_t)snprintf(text + n, sizeof text - n,
                                 "{\"step\": %d, \"eval_loss\": %.17g, \"eval_accuracy\": %.17g}\n",
                                 k, 4 - (double)k, 0.25 * seed + 0.01 * k);
    }
    snprintf(path, sizeof path, "%s/metrics.jsonl", directory);
    ASSERT_OK(hop_file_write(path, text, n, &err));
    static const char plan[] = "{\"simulated_seconds\": 0.5}";
    snprintf(path, sizeof path, "%s/plan.json", directory);
    ASSERT_OK(hop_file_write(path, plan, sizeof plan - 1, &err));
    static const char summary[] = "{\"utilization\": 0.75}";
    snprintf(path, sizeof path, "%s/summary.json", directory);
    ASSERT_OK(hop_file_write(path, summary, sizeof summary - 1, &err));
}

static void means_over_seeds(void **state)
{
    int64_t seeds[] = {1, 2};
    struct hop_study_variant variant = {.name = (char *)(uintptr_t) "one"};
    const struct hop_study study = {.directory = hop_test_path("study"),
                                    .variants = &variant,
                                    .variant_count = 1,
                                    .seeds = seeds,
                                    .seed_count = 2,
                                    .metric = "accuracy"};
    struct hop_study_outcome outcome;
    struct hop_error err;
    (void)state;
    for (int s = 0; s < 2; s++) {
        char *folder;
        ASSERT_OK(hop_study_folder(&study, &variant, seeds[s], &folder, &err));
        write_run(folder, (int)seeds[s], 4);
        free(folder);
    }
    ASSERT_OK(hop_study_summarise(&study, &variant, HOP_STUDY_SIMULATED, 1.5, &outcome, &err));
    ASSERT_NEAR(outcome.metric.mean, 0.375 + 0.04, 1e-12);
    ASSERT_NEAR(outcome.metric.deviation, 0.25 / sqrt(2), 1e-12);
    ASSERT_NEAR(outcome.eval_loss.mean, 0, 1e-12);
    ASSERT_NEAR(outcome.step_seconds, 0.5, 1e-12);
    ASSERT_NEAR(outcome.utilization.mean, 0.75, 1e-12);
    /* 2 at step 2, 0 at step 4: 1.5 is a quarter of the way, after 2.5 steps. */
    ASSERT_NEAR(outcome.target_seconds.mean, 1.25, 1e-12);
    assert_int_equal(outcome.loss.count, 4);
    /* Of steps 1 to 4: 4 - 2.5 / seed. */
    ASSERT_NEAR(outcome.loss.mean[3], 4 - 2.5 * 0.75, 1e-12);
    ASSERT_NEAR(outcome.loss.low[3], 4 - 2.5, 1e-12);
    ASSERT_NEAR(outcome.loss.high[3], 4 - 1.25, 1e-12);
    assert_int_equal(outcome.metrics.count, 3);
    ASSERT_NEAR(outcome.metrics.seconds[2], 2, 1e-12);
    hop_study_outcome_free(&outcome);

    ASSERT_OK(hop_study_summarise(&study, &variant, HOP_STUDY_MEASURED, -1, &outcome, &err));
    ASSERT_NEAR(outcome.step_seconds, 1.5, 1e-12);
    assert_true(isinf(outcome.target_seconds.mean));
    hop_study_outcome_free(&outcome);
}

static void charts(void **state)
{
    const double x[] = {0, 1, 2, 3}, y[] = {1, NAN, 3, 2}, low[] = {0, 0, 2, 1},
                 high[] = {2, 2, 4, 3};
    const struct hop_chart_line line = {
        .name = "a < b & c", .x = x, .y = y, .low = low, .high = high, .count = 4};
    struct hop_chart chart = {
        .title = "t", .x_label = "x", .y_label = "y", .lines = &line, .line_count = 1};
    struct hop_string svg = {0};
    struct hop_error err;
    (void)state;
    ASSERT_OK(hop_chart_svg(&chart, &svg, &err));
    assert_non_null(strstr(svg.data, "a &lt; b &amp; c"));
    assert_null(strstr(svg.data, "nan"));
    assert_null(strstr(svg.data, "inf"));
    /* The gap parts the line: two moves, one stroke. */
    const char *const path = strstr(svg.data, "d=\"M");
    assert_non_null(path);
    assert_non_null(strchr(path + 4, 'M'));
    assert_string_equal(svg.data + svg.length - 7, "</svg>\n");
    svg.length = 0;
    chart.line_count = 0;
    ASSERT_OK(hop_chart_svg(&chart, &svg, &err));
    assert_non_null(strstr(svg.data, "nothing to show"));
    hop_string_free(&svg);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_of_a_file),
        cmocka_unit_test(broken_variants),
        cmocka_unit_test(axes_cross_variants),
        cmocka_unit_test(means_over_seeds),
        cmocka_unit_test(charts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
