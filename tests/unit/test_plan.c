/* Plans: rules, neighbours, JSON there and back, bad files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "io/json.h"
#include "support_schedule.h"

static const char *const names[] = {"npu0", "npu1", "gpu0", "gpu1", "gpu2", "gpu3"};
static const int32_t devices[] = {0, 1, 2, 3};
static const enum hop_gradient hybrid[] = {HOP_GRADIENT_ZEROTH_ORDER, HOP_GRADIENT_ZEROTH_ORDER,
                                           HOP_GRADIENT_BACKPROP, HOP_GRADIENT_BACKPROP};

static void assert_message(hop_status status, const struct hop_error *err, hop_status expected,
                           const char *message)
{
    if (status != expected || !strstr(err->message, message))
        fail_msg("status %d, message '%s'; expected status %d, '%s'", (int)status, err->message,
                 (int)expected, message);
    assert_null(strchr(err->message, '\n'));
}

static void neighbours_do_not_need_order(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, devices, hybrid);
    const struct hop_part first = plan.parts[0];
    plan.parts[0] = plan.parts[3];
    plan.parts[3] = first;
    struct hop_error err = {0};
    assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
    assert_int_equal(hop_plan_previous(&plan, 3), -1);
    assert_int_equal(hop_plan_next(&plan, 3), 1);
    assert_int_equal(hop_plan_previous(&plan, 0), 2);
    assert_int_equal(hop_plan_next(&plan, 0), -1);
    assert_int_equal(hop_plan_head(&plan, 1), 0);
    assert_true(hop_plan_sends_gradient(&plan, 0));
    assert_false(hop_plan_sends_gradient(&plan, 2));
    assert_false(hop_plan_sends_gradient(&plan, 3));
    assert_true(hop_plan_has_zeroth_order(&plan));
    hop_plan_free(&plan);
    hop_plan_free(NULL);
}

static void first_stage_may_only_embed(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(2, devices, hybrid + 2);
    struct hop_error err = {0};
    plan.parts[0].hi = plan.parts[1].lo = 0;
    assert_int_equal(hop_plan_check(&plan, &err), HOP_OK);
    plan.parts[0].hi = plan.parts[1].lo = 2;
    assert_message(hop_plan_check(&plan, &err), &err, HOP_INPUT, "plan: part 1 holds no block");
    hop_plan_free(&plan);
}

static void broken_plans_are_named(void **state)
{
    (void)state;
    struct hop_plan good = support_plan(4, devices, hybrid);
    struct hop_part parts[4], *const kept = good.parts;
    memcpy(parts, good.parts, sizeof parts);
    struct hop_plan plan = good;
    plan.parts = parts;
    struct hop_error err = {0};
#define BREAKS(change, status, message)                                                            \
    do {                                                                                           \
        change;                                                                                    \
        assert_message(hop_plan_check(&plan, &err), &err, status, message);                        \
        plan = good;                                                                               \
        plan.parts = parts;                                                                        \
        memcpy(parts, kept, sizeof parts);                                                         \
    } while (0)
    BREAKS(plan.blocks = 5, HOP_INPUT, "plan: the last stage ends at block 4; the model has 5");
    BREAKS(plan.blocks = 0, HOP_INPUT, "plan: 0 blocks");
    BREAKS(plan.micro_batches = 0, HOP_INPUT, "plan: 0 micro-batches");
    BREAKS(plan.probes = -1, HOP_INPUT, "-1 probes");
    BREAKS(plan.part_count = 0, HOP_INPUT, "0 parts");
    BREAKS(plan.exit_probes = -1, HOP_INPUT, "plan: -1 exit probes");
    BREAKS(plan.estimator = HOP_ESTIMATORS, HOP_INPUT, "estimator 4, directions 0 or exit base 0");
    BREAKS(plan.directions = (enum hop_directions)2, HOP_INPUT, "directions 2");
    BREAKS(plan.exit_base = (enum hop_exit_base)2, HOP_INPUT, "exit base 2 is none");
    BREAKS(parts[1].pending = -1, HOP_INPUT, "part 1 keeps 0 micro-batches and the tangents of -1");
    BREAKS(parts[2].device = 4, HOP_INPUT, "plan: part 2 is on device 4; there are 4 devices");
    BREAKS(parts[2].stage = 4, HOP_INPUT, "plan: part 2 has stage 4; stages are 0 to 3");
    BREAKS(parts[2].stage = 1, HOP_INPUT, "plan: no part has stage 2");
    BREAKS(parts[2].lo = 1, HOP_INPUT,
           "plan: part 2 (stage 2) begins at block 1; the stage before");
    BREAKS(parts[1].hi = 9, HOP_INPUT,
           "plan: part 1 holds blocks [1, 9); the model has blocks [0, 4)");
    BREAKS(parts[1].lo = -1, HOP_INPUT, "plan: part 1 holds blocks [-1, 2)");
    BREAKS(parts[3].gradient = HOP_GRADIENT_ZEROTH_ORDER, HOP_INPUT,
           "plan: part 3 (stage 3) is zeroth-order behind part 2");
    BREAKS(parts[3].gradient = HOP_GRADIENT_NONE, HOP_INPUT, "part 3 (stage 3) is none behind");
    BREAKS(parts[3].gradient = (enum hop_gradient)7, HOP_INPUT,
           "part 3 has no known gradient mode");
    BREAKS(parts[0].forward_seconds = NAN, HOP_INPUT, "part 0 has forward_seconds nan");
    BREAKS(parts[0].memory_bytes = -1, HOP_INPUT, "memory_bytes -1");
    BREAKS(parts[0].memory_bytes = INFINITY, HOP_INPUT, "memory_bytes inf");
    BREAKS(parts[0].in_flight = -1, HOP_INPUT, "part 0 keeps -1 micro-batches");
    BREAKS(parts[3].pipeline = 1, HOP_UNSUPPORTED, "plan: part 3 is in pipeline 1");
    BREAKS(parts[0].sample_hi = 0.5, HOP_UNSUPPORTED, "plan: part 0 takes the share [0, 0.5)");
    BREAKS(parts[0].tensor_lo = 0.5, HOP_UNSUPPORTED,
           "plan: part 0 takes the share [0.5, 1) of the tensors");
#undef BREAKS
    hop_plan_free(&good);
}

/* Of a line whose stages have those gradients, one letter each: N, B or Z. */
static hop_status check_line(const char *gradients, enum hop_estimator estimator, int32_t probes,
                             int32_t exit_probes, struct hop_error *err)
{
    const int32_t stages[] = {0, 1, 2, 3};
    enum hop_gradient modes[4];
    const int32_t count = (int32_t)strlen(gradients);
    for (int32_t p = 0; p < count; p++)
        modes[p] = gradients[p] == 'N'   ? HOP_GRADIENT_NONE
                   : gradients[p] == 'B' ? HOP_GRADIENT_BACKPROP
                                         : HOP_GRADIENT_ZEROTH_ORDER;
    struct hop_plan plan = support_plan(count, stages, modes);
    plan.estimator = estimator;
    plan.probes = probes;
    plan.exit_probes = exit_probes;
    const hop_status status = hop_plan_check(&plan, err);
    hop_plan_free(&plan);
    return status;
}

static void estimators_find_what_they_need(void **state)
{
    (void)state;
    const struct {
        const char *gradients;
        enum hop_estimator estimator;
        int32_t probes, exit_probes;
        const char *message; /* NULL: fine */
    } cases[] = {
        {"ZZBB", HOP_DIFFERENCE, 1, 2, NULL},
        {"ZZBB", HOP_CENTRAL, 0, 2, NULL},
        {"ZNBB", HOP_CENTRAL, 1, 1, NULL},
        {"ZZ", HOP_CENTRAL, 1, 1, NULL},
        {"ZZBB", HOP_BOUNDARY, 2, 0, NULL},
        {"NZZB", HOP_BOUNDARY, 2, 0, NULL},
        {"NZZB", HOP_FEEDBACK, 0, 0, NULL},
        {"NZZB", HOP_DIFFERENCE, 2, 0, NULL},
        {"ZNZB", HOP_CENTRAL, 2, 0, NULL},
        {"BB", HOP_BOUNDARY, 2, 0, NULL},
        {"BB", HOP_FEEDBACK, 2, 0, NULL},
        {"BB", HOP_DIFFERENCE, 2, 1, "1 exit probes, but no zeroth-order part"},
        {"NN", HOP_DIFFERENCE, 2, 1, "1 exit probes, but no zeroth-order part"},
        {"ZZBB", HOP_BOUNDARY, 2, 1, "1 exit probes, which estimator boundary does not know"},
        {"ZZBB", HOP_FEEDBACK, 0, 1, "1 exit probes, which estimator feedback does not know"},
        {"ZZBB", HOP_FEEDBACK, 1, 0, "1 probes, but estimator feedback has none"},
        {"ZZ", HOP_BOUNDARY, 1, 0, "boundary needs the gradient of the output of part 1"},
        {"ZZNB", HOP_BOUNDARY, 1, 0, "boundary needs the gradient of the output of part 1"},
        {"ZNB", HOP_FEEDBACK, 0, 0, "feedback needs the gradient of the output of part 0"},
        {"ZNZB", HOP_BOUNDARY, 1, 0,
         "part 1 (stage 1) is none in front of a zeroth-order one; the tangents of boundary"},
        {"ZNZB", HOP_FEEDBACK, 0, 0,
         "part 1 (stage 1) is none in front of a zeroth-order one; the gradient of feedback"},
        {"ZNZB", HOP_CENTRAL, 1, 1,
         "part 1 (stage 1) is none in front of a zeroth-order one; exit probes"},
        {"NZB", HOP_DIFFERENCE, 1, 1,
         "part 0 (stage 0) is none in front of a zeroth-order one; exit probes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_error err = {0};
        const hop_status status = check_line(cases[i].gradients, cases[i].estimator,
                                             cases[i].probes, cases[i].exit_probes, &err);
        if (cases[i].message)
            assert_message(status, &err, HOP_INPUT, cases[i].message);
        else if (status != HOP_OK)
            fail_msg("case %zu: %s", i, err.message);
    }
}

static bool same_number(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void assert_same(const struct hop_plan *a, const struct hop_plan *b)
{
    assert_string_equal(a->strategy, b->strategy);
    assert_int_equal(a->blocks, b->blocks);
    assert_int_equal(a->devices, b->devices);
    assert_int_equal(a->micro_batches, b->micro_batches);
    assert_int_equal(a->probes, b->probes);
    assert_int_equal(a->probe_batch, b->probe_batch);
    assert_int_equal(a->exit_probes, b->exit_probes);
    assert_int_equal(a->feedback_blocks, b->feedback_blocks);
    assert_int_equal(a->estimator, b->estimator);
    assert_int_equal(a->directions, b->directions);
    assert_int_equal(a->exit_base, b->exit_base);
    assert_int_equal(a->collective, b->collective);
    assert_true(same_number(a->formula_seconds, b->formula_seconds));
    assert_true(same_number(a->simulated_seconds, b->simulated_seconds));
    assert_true(same_number(a->bound_seconds, b->bound_seconds));
    assert_true(same_number(a->all_devices_seconds, b->all_devices_seconds));
    assert_int_equal(a->micro_batch_samples, b->micro_batch_samples);
    assert_int_equal(a->part_count, b->part_count);
    for (int32_t p = 0; p < a->part_count; p++) {
        const struct hop_part *const x = &a->parts[p], *const y = &b->parts[p];
        assert_int_equal(x->device, y->device);
        assert_int_equal(x->pipeline, y->pipeline);
        assert_int_equal(x->stage, y->stage);
        assert_int_equal(x->lo, y->lo);
        assert_int_equal(x->hi, y->hi);
        assert_int_equal(x->gradient, y->gradient);
        assert_true(x->sample_lo == y->sample_lo && x->sample_hi == y->sample_hi);
        assert_true(x->tensor_lo == y->tensor_lo && x->tensor_hi == y->tensor_hi);
        assert_true(x->forward_seconds == y->forward_seconds);
        assert_int_equal(x->in_flight, y->in_flight);
        assert_int_equal(x->pending, y->pending);
        assert_true(x->memory_bytes == y->memory_bytes);
        assert_true(x->memory_limit == y->memory_limit);
    }
}

static void json_round_trip(void **state)
{
    (void)state;
    uint64_t random = 11;
    for (int32_t n = 0; n < 500; n++) {
        struct hop_plan plan = support_random_plan(&random), back;
        struct hop_error err = {0};
        plan.micro_batch_samples = support_between(&random, 0, 3);
        plan.parts[0].forward_seconds = support_between(&random, 1, 1000) / 7.0;
        plan.parts[0].memory_bytes = support_between(&random, 1, 1000) / 3.0;
        plan.parts[0].memory_limit = support_between(&random, 0, 1) ? 1e9 / 3 : INFINITY;
        support_random_estimator(&plan, &random);
        plan.formula_seconds = support_between(&random, 0, 1) ? 1 / 7.0 : NAN;
        plan.simulated_seconds = support_between(&random, 0, 1) ? 1 / 9.0 : NAN;
        plan.bound_seconds = support_between(&random, 0, 1) ? 1 / 11.0 : NAN;
        plan.all_devices_seconds = support_between(&random, 0, 1) ? 1 / 13.0 : NAN;
        json_t *const object = hop_plan_json(&plan, names);
        assert_non_null(object);
        char *const text = json_dumps(object, 0);
        json_t *parsed = NULL;
        assert_int_equal(hop_json_parse(text, strlen(text), "text", &parsed, &err), HOP_OK);
        if (hop_plan_parse(parsed, "plan.json", names, plan.devices, &back, &err) != HOP_OK)
            fail_msg("%s", err.message);
        assert_same(&plan, &back);
        free(text);
        json_decref(parsed);
        json_decref(object);
        hop_plan_free(&back);
        hop_plan_free(&plan);
    }
}

static void older_files_mean_differences(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, devices, hybrid), back;
    struct hop_error err = {0};
    plan.estimator = HOP_BOUNDARY;
    plan.directions = HOP_PER_SAMPLE;
    plan.exit_base = HOP_EXIT_FULL_MODEL;
    plan.parts[1].pending = 2;
    json_t *const object = hop_plan_json(&plan, names);
    assert_string_equal(json_string_value(json_object_get(object, "estimator")), "boundary");
    assert_string_equal(json_string_value(json_object_get(object, "directions")), "per-sample");
    assert_string_equal(json_string_value(json_object_get(object, "exit_base")), "full-model");
    json_object_del(object, "estimator");
    json_object_del(object, "directions");
    json_object_del(object, "exit_base");
    json_object_del(json_array_get(json_object_get(object, "parts"), 1), "pending");
    assert_int_equal(hop_plan_parse(object, "p.json", names, 4, &back, &err), HOP_OK);
    assert_int_equal(back.estimator, HOP_DIFFERENCE);
    assert_int_equal(back.directions, HOP_SHARED);
    assert_int_equal(back.exit_base, HOP_EXIT_OWN);
    assert_int_equal(back.parts[1].pending, 0);
    json_decref(object);
    hop_plan_free(&back);
    hop_plan_free(&plan);
}

static void json_follows_the_contract(void **state)
{
    (void)state;
    struct hop_plan plan = support_plan(4, devices, hybrid);
    plan.micro_batch_samples = 2;
    json_t *const object = hop_plan_json(&plan, names);
    const json_t *const part = json_array_get(json_object_get(object, "parts"), 1);
    char *const text = json_dumps(part, JSON_COMPACT);
    assert_string_equal(
        text, "{\"device\":\"npu1\",\"pipeline\":0,\"stage\":1,\"blocks\":[1,2],"
              "\"gradient\":\"zeroth-order\",\"sample_share\":[0.0,1.0],\"tensor\":[0.0,1.0],"
              "\"micro_share\":[0.0,1.0],"
              "\"in_flight\":0,\"pending\":0,\"forward_seconds\":1.0,\"memory_bytes\":0.0,"
              "\"memory_limit\":null,\"samples\":[0,2]}");
    assert_true(json_is_true(json_object_get(object, "feasible")));
    assert_int_equal(json_integer_value(json_object_get(object, "micro_batches")), 2);
    free(text);
    json_decref(object);
    hop_plan_free(&plan);
}

static void parse_text(const char *text, hop_status expected, const char *message)
{
    json_t *object = NULL;
    struct hop_error err = {0};
    struct hop_plan plan;
    assert_int_equal(hop_json_parse(text, strlen(text), "text", &object, &err), HOP_OK);
    const hop_status status = hop_plan_parse(object, "p.json", names, 4, &plan, &err);
    json_decref(object);
    if (expected == HOP_OK) {
        if (status != HOP_OK)
            fail_msg("%s", err.message);
        hop_plan_free(&plan);
        return;
    }
    assert_message(status, &err, expected, message);
}

static void bad_files_are_named(void **state)
{
    (void)state;
    parse_text("{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4]}]}", HOP_OK, "");
    parse_text("[]", HOP_INPUT, "p.json: a plan is a map");
    parse_text("{}", HOP_INPUT, "p.json: parts: a list of at least one part");
    parse_text("{\"parts\": [3]}", HOP_INPUT, "p.json: parts[0]: a map is needed");
    parse_text("{\"feasible\": false, \"reason\": \"npu0 lacks 1 GB\", \"parts\": []}", HOP_INPUT,
               "p.json: the plan is not feasible: npu0 lacks 1 GB");
    parse_text("{\"parts\": [{\"device\": \"gpu9\", \"blocks\": [0, 4]}]}", HOP_INPUT,
               "p.json: parts[0]: device: there is no 'gpu9'; did you mean 'gpu");
    parse_text("{\"parts\": [{\"blocks\": [0, 4]}]}", HOP_INPUT,
               "parts[0]: device: there is no ''");
    parse_text("{\"parts\": [{\"device\": \"gpu0\"}]}", HOP_INPUT, "parts[0]: blocks: a range");
    parse_text("{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0]}]}", HOP_INPUT,
               "parts[0]: blocks: a list of two numbers");
    parse_text("{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 1.5]}]}", HOP_INPUT,
               "parts[0]: blocks: a range");
    parse_text("{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 1e300]}]}", HOP_INPUT,
               "parts[0]: blocks: a range");
    parse_text("{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4], \"stage\": \"x\"}]}",
               HOP_INPUT, "p.json: parts[0]");
    parse_text(
        "{\"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4], \"gradient\": \"backprob\"}]}",
        HOP_INPUT, "gradient: there is no 'backprob'; did you mean 'backprop'?");
    parse_text("{\"blocks\": 6, \"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4]}]}",
               HOP_INPUT, "p.json: plan: the last stage ends at block 4; the model has 6 blocks");
    parse_text(
        "{\"micro_batch_samples\": 2, \"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4], "
        "\"samples\": [0, 1]}]}",
        HOP_INPUT, "no part of stage 0 in pipeline 0 takes the samples from 0.5 on");
    parse_text("{\"micro_batches\": 99999999999, \"parts\": []}", HOP_INPUT,
               "p.json: micro_batches: 99999999999 is out of range");
    parse_text("{\"estimator\": \"centre\", \"parts\": []}", HOP_INPUT,
               "p.json: estimator: there is no 'centre'; did you mean 'central'?");
    parse_text("{\"directions\": \"shard\", \"parts\": []}", HOP_INPUT,
               "p.json: directions: there is no 'shard'; did you mean 'shared'?");
    parse_text("{\"strategy\": \"a name that is longer than any of them\", \"parts\": []}",
               HOP_INPUT, "is too long");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_do_not_need_order),
        cmocka_unit_test(first_stage_may_only_embed),
        cmocka_unit_test(broken_plans_are_named),
        cmocka_unit_test(estimators_find_what_they_need),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(older_files_mean_differences),
        cmocka_unit_test(json_follows_the_contract),
        cmocka_unit_test(bad_files_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
