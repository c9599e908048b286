/* `hybridop plan` and `hybridop simulate` as users and their scripts run them. */
#include "support.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *model, *rows, *job, *cluster;

static int set_up(void **state)
{
    (void)state;
    model = write_model("model", (struct model){0});
    rows = write_rows("rows.jsonl", 16, 6, 10, 64);
    job = write_job("job.yaml", model, rows, NULL);
    cluster = text("cluster=%s", write_cluster("NNBB", 1, NULL));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

/* Inputs */

static const char *example(const char *name)
{
    return text("%s/examples/cost/%s", HOP_SOURCE_DIR, name);
}

/* Two BP-free and two BP-capable devices with figures that no short decimal is exact for. */
static const char *const tidy =
    "{\"micro_batch_samples\": 3, \"blocks\": 6, \"boundary_bytes\": 70001,\n"
    " \"devices\": [\n"
    "  {\"name\": \"npu0\", \"bp\": false, \"forward\": [0.11, 0.12, 0.13, 0.14, 0.15, 0.16],\n"
    "   \"memory\": 1001, \"state_bytes\": [90, 90, 90, 90, 90, 90], \"power\": {\"idle\": 3, "
    "\"busy\": 7}},\n"
    "  {\"name\": \"npu1\", \"bp\": false, \"forward\": [0.21, 0.22, 0.23, 0.24, 0.25, 0.26],\n"
    "   \"memory\": 1001, \"state_bytes\": [90, 90, 90, 90, 90, 90], \"power\": {\"idle\": 3, "
    "\"busy\": 7}},\n"
    "  {\"name\": \"gpu0\", \"bp\": true, \"forward\": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1],\n"
    "   \"backward\": [0.17, 0.17, 0.17, 0.17, 0.17, 0.17], \"power\": {\"idle\": 5, \"busy\": "
    "11}},\n"
    "  {\"name\": \"gpu1\", \"bp\": true, \"forward\": [0.1, 0.1, 0.1, 0.1, 0.1, 0.1],\n"
    "   \"backward\": [0.19, 0.19, 0.19, 0.19, 0.19, 0.19], \"power\": {\"idle\": 5, \"busy\": "
    "11}}],\n"
    " \"network\": {\"bandwidth\": 1e7, \"latency\": 0.0003}}\n";

static const char *tidy_table(void)
{
    return write_text("tidy.json", "%s", tidy);
}

/* A copy of a text with one piece replaced; it must be there. */
static const char *replaced(const char *whole, const char *piece, const char *by)
{
    const char *const at = strstr(whole, piece);
    if (!at)
        fail_msg("\"%s\" is not in the text", piece);
    return text("%.*s%s%s", (int)(at - whole), whole, by, at + strlen(piece));
}

static json_t *parse(const char *content)
{
    json_error_t where;
    json_t *const value = json_loads(content, 0, &where);
    if (!value)
        fail_msg("not JSON: %s in\n%s", where.text, content);
    return keep_json(value);
}

/* What a successful command with --json printed. */
static json_t *printed(struct process done)
{
    assert_success(&done);
    return parse(done.out);
}
#define PRINTED(...) printed(RUN(__VA_ARGS__, "--json"))

static const json_t *at(const json_t *list, size_t index)
{
    if (index >= json_array_size(list))
        fail_msg("no element %zu in a list of %zu", index, json_array_size(list));
    return json_array_get(list, index);
}

static const char *string(const json_t *object, const char *key)
{
    const char *const value = json_string_value(json_object_get(object, key));
    if (!value)
        fail_msg("\"%s\" is not there or no string", key);
    return value;
}

static void assert_exactly(const char *what, double actual, double expected)
{
    if (actual != expected)
        fail_msg("%s: %.17g, expected exactly %.17g", what, actual, expected);
}

/* The worked example: 51, 36, 24 and 23. */

static void check_worked(const char *what, const json_t *plan, double seconds)
{
    assert_near(what, number(plan, "formula_seconds"), seconds, 1e-12);
    assert_near(what, number(plan, "simulated_seconds"), seconds, 1e-12);
}

static void test_worked_example(void **state)
{
    (void)state;
    check_worked(
        "GPipe over all devices",
        PRINTED("plan", "--cost", example("worked-first-order.json"), "--strategy", "gpipe"), 51);
    check_worked("GPipe over the GPUs",
                 PRINTED("plan", "--cost", example("worked-gpus-only.json"), "--strategy", "gpipe",
                         "--bp-only", "--micro-batches", "2"),
                 36);
    const json_t *const hybrid = PRINTED("plan", "--cost", example("worked-hybridop.json"),
                                         "--micro-batches", "4", "--probes", "1");
    check_worked("HybridOP", hybrid, 23);
    assert_near("HybridOP, tail", number(hybrid, "tail_seconds"), 24, 1e-12);
    assert_near("HybridOP, rate", number(hybrid, "samples_per_second"), 4.0 / 23, 1e-12);
}

/* Fields */

enum kind { TEXT, FLAG, WHOLE, REAL, REAL_OR_NULL, LIST, MAP };

struct field {
    const char *key;
    enum kind kind;
};

static bool is_kind(const json_t *value, enum kind kind)
{
    switch (kind) {
    case TEXT:
        return json_is_string(value);
    case FLAG:
        return json_is_boolean(value);
    case WHOLE:
        return json_is_integer(value);
    case REAL:
        return json_is_real(value);
    case REAL_OR_NULL:
        return json_is_real(value) || json_is_null(value);
    case LIST:
        return json_is_array(value);
    default:
        return json_is_object(value);
    }
}

static void check_fields(const json_t *object, const struct field *fields)
{
    for (; fields->key; fields++)
        if (!is_kind(json_object_get(object, fields->key), fields->kind))
            fail_msg("\"%s\" is missing or of the wrong kind in %s", fields->key,
                     dump_json(object));
}

static const struct field plan_fields[] = {{"strategy", TEXT},
                                           {"feasible", FLAG},
                                           {"reason", TEXT},
                                           {"micro_batches", WHOLE},
                                           {"micro_batch_samples", WHOLE},
                                           {"probes", WHOLE},
                                           {"probe_batch", WHOLE},
                                           {"exit_probes", WHOLE},
                                           {"estimator", TEXT},
                                           {"directions", TEXT},
                                           {"exit_base", TEXT},
                                           {"formula_seconds", REAL_OR_NULL},
                                           {"simulated_seconds", REAL},
                                           {"bound_seconds", REAL_OR_NULL},
                                           {"all_devices_seconds", REAL_OR_NULL},
                                           {"tail_seconds", REAL_OR_NULL},
                                           {"samples_per_second", REAL},
                                           {"utilization", REAL},
                                           {"planner_seconds", REAL},
                                           {"left_out", LIST},
                                           {"parts", LIST},
                                           {NULL, TEXT}};
static const struct field part_fields[] = {{"device", TEXT},
                                           {"pipeline", WHOLE},
                                           {"stage", WHOLE},
                                           {"blocks", LIST},
                                           {"gradient", TEXT},
                                           {"samples", LIST},
                                           {"tensor", LIST},
                                           {"forward_seconds", REAL},
                                           {"memory_bytes", REAL},
                                           {"memory_limit", REAL_OR_NULL},
                                           {NULL, TEXT}};
static const struct field simulation_fields[] = {{"devices", TEXT},
                                                 {"iteration_seconds", REAL},
                                                 {"busy_seconds", MAP},
                                                 {"peak_memory", MAP},
                                                 {"energy_joules_per_sample", REAL_OR_NULL},
                                                 {"bytes_sent", MAP},
                                                 {NULL, TEXT}};

static void check_part(const json_t *part)
{
    check_fields(part, part_fields);
    assert_int_equal(json_array_size(json_object_get(part, "blocks")), 2);
    assert_int_equal(json_array_size(json_object_get(part, "samples")), 2);
    assert_int_equal(json_array_size(json_object_get(part, "tensor")), 2);
}

static void check_parts(const json_t *plan)
{
    const json_t *const parts = json_object_get(plan, "parts");
    for (size_t p = 0; p < json_array_size(parts); p++)
        check_part(at(parts, p));
    assert_true(json_array_size(parts) > 0);
}

static void test_plan_fields(void **state)
{
    (void)state;
    const json_t *const plan = PRINTED("plan", "--cost", tidy_table(), "--devices", "all");
    check_fields(plan, plan_fields);
    check_parts(plan);
    assert_string_equal(string(plan, "strategy"), "hybridop");
    assert_string_equal(string(plan, "reason"), "");
    assert_true(json_is_true(json_object_get(plan, "feasible")));
    assert_int_equal(number(plan, "micro_batches"), 4);
    assert_int_equal(number(plan, "probes"), 1);
    assert_int_equal(number(plan, "micro_batch_samples"), 3);
    assert_near("rate", number(plan, "samples_per_second"), 12 / number(plan, "simulated_seconds"),
                1e-15);
    const json_t *const first = at(json_object_get(plan, "parts"), 0);
    assert_string_equal(string(first, "gradient"), "zeroth-order");
    assert_exactly("limit", number(first, "memory_limit"), 1001);
    const json_t *const last = at(json_object_get(plan, "parts"), 3);
    assert_string_equal(string(last, "gradient"), "backprop");
    assert_true(json_is_null(json_object_get(last, "memory_limit")));
}

static void test_simulate_fields(void **state)
{
    (void)state;
    const json_t *const list = PRINTED("simulate", "--cost", tidy_table(), "--devices", "all");
    assert_int_equal(json_array_size(list), 2);
    for (size_t i = 0; i < 2; i++) {
        const json_t *const entry = at(list, i);
        check_fields(entry, plan_fields);
        check_fields(entry, simulation_fields);
        check_parts(entry);
        assert_string_equal(string(entry, "devices"), i ? "bp-only" : "all");
        assert_exactly("iteration", number(entry, "iteration_seconds"),
                       number(entry, "simulated_seconds"));
        const json_t *const busy = json_object_get(entry, "busy_seconds");
        assert_int_equal(json_object_size(busy), 4);
        assert_true(number(busy, "gpu0") > 0);
        assert_true((number(busy, "npu0") > 0) == !i);
        assert_true(number(entry, "energy_joules_per_sample") > 0);
        assert_true(number(json_object_get(entry, "bytes_sent"), "gpu0") > 0);
    }
    const json_t *const left = json_object_get(at(list, 1), "left_out");
    assert_int_equal(json_array_size(left), 2);
    assert_string_equal(string(at(left, 0), "device"), "npu0");
    assert_holds("left out", string(at(left, 0), "reason"), "BP-capable");
}

/* Numbers come back as the same doubles. */
static void test_round_trip(void **state)
{
    (void)state;
    const json_t *const one = PRINTED("plan", "--cost", tidy_table(), "--strategy", "single");
    const json_t *const part = at(json_object_get(one, "parts"), 0);
    double forward = 0;
    for (int i = 0; i < 6; i++)
        forward += 0.1;
    assert_exactly("forward", number(part, "forward_seconds"), forward);
    const struct process planned =
        RUN("plan", "--cost", tidy_table(), "--devices", "all", "--probes", "2", "--json");
    const json_t *const plan = printed(planned);
    const json_t *const played = PRINTED("simulate", "--cost", tidy_table(), "--plan",
                                         write_text("plan.json", "%s", planned.out));
    assert_int_equal(json_array_size(played), 1);
    static const char *const same[] = {"simulated_seconds", "formula_seconds", "samples_per_second",
                                       "utilization",       "tail_seconds",    "probes",
                                       "micro_batches"};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++)
        assert_exactly(same[i], number(at(played, 0), same[i]), number(plan, same[i]));
    assert_string_equal(string(at(played, 0), "devices"), "all");
    if (!json_equal(json_object_get(at(played, 0), "parts"), json_object_get(plan, "parts")))
        fail_msg("the parts have changed:\n%s\n%s", dump_json(at(played, 0)), dump_json(plan));
}

/* What does not fit */

static void check_infeasible(const struct process *done, const json_t *plan, const char *part)
{
    assert_int_equal(done->status, 1);
    assert_true(json_is_false(json_object_get(plan, "feasible")));
    assert_holds("reason", string(plan, "reason"), part);
    assert_int_equal(json_array_size(json_object_get(plan, "parts")), 0);
    assert_true(json_is_null(json_object_get(plan, "simulated_seconds")));
}

static void test_infeasible(void **state)
{
    (void)state;
    const char *const small =
        write_text("small.json",
                   "{\"micro_batch_samples\": 1, \"blocks\": 2, \"devices\": [{\"name\": \"gpu0\","
                   " \"bp\": true, \"forward\": [1, 1], \"backward\": [1, 1], \"memory\": 1000,"
                   " \"state_bytes\": [10, 5000]}]}");
    const struct process json = RUN("plan", "--cost", small, "--json");
    const json_t *const plan = parse(json.out);
    check_infeasible(&json, plan, "gpu0");
    assert_holds("reason", string(plan, "reason"), "1000");
    ASSERT_REFUSED(&json, 1, "gpu0");
    const struct process people = RUN("plan", "--cost", small);
    ASSERT_REFUSED(&people, 1, "gpu0");
    assert_string_equal(people.out, "");
    const struct process compared = RUN("simulate", "--cost", small, "--json", "--strategy", "all");
    const json_t *const list = parse(compared.out);
    for (size_t i = 0; i < json_array_size(list); i++)
        check_infeasible(&compared, at(list, i), "gpu0");
    assert_true(json_array_size(list) >= 2);
}

/* One that fits is enough, and the others say why they do not. */
static void test_some_infeasible(void **state)
{
    (void)state;
    const char *const table = write_text(
        "few.json",
        "{\"micro_batch_samples\": 1, \"blocks\": 2, \"devices\": ["
        "{\"name\": \"gpu0\", \"bp\": true, \"forward\": [1, 1], \"backward\": [1, 1]},"
        "{\"name\": \"gpu1\", \"bp\": true, \"forward\": [1, 1], \"backward\": [1, 1]},"
        "{\"name\": \"gpu2\", \"bp\": true, \"forward\": [1, 1], \"backward\": [1, 1]}]}");
    const struct process done =
        RUN("simulate", "--cost", table, "--json", "--strategy", "hybridop,single");
    assert_success(&done);
    const json_t *const list = parse(done.out);
    assert_int_equal(json_array_size(list), 2);
    assert_holds("reason", string(at(list, 0), "reason"), "3 devices");
    assert_true(json_is_true(json_object_get(at(list, 1), "feasible")));
    const json_t *const automatic = PRINTED("plan", "--cost", table, "--devices", "auto");
    assert_int_equal(json_array_size(json_object_get(automatic, "left_out")), 1);
    const struct process people = RUN("simulate", "--cost", table, "--strategy", "hybridop,single");
    assert_success(&people);
    assert_holds("table", people.out, "3 devices");
}

/* A plan made for larger boards. */
static void test_given_plan_too_big(void **state)
{
    (void)state;
    const struct process planned =
        RUN("plan", "--cost", tidy_table(), "--devices", "all", "--json");
    const char *const plan = write_text("big.json", "%s", planned.out);
    const char *const smaller =
        write_text("smaller.json", "%s", replaced(tidy, "\"memory\": 1001", "\"memory\": 80"));
    const struct process done = RUN("simulate", "--cost", smaller, "--plan", plan, "--json");
    check_infeasible(&done, at(parse(done.out), 0), "npu0");
}

/* Mistakes */

static void test_bad_tables(void **state)
{
    (void)state;
    static const struct {
        const char *piece, *by, *parts[3];
    } cases[] = {
        {"0.11, 0.12", "-0.11, 0.12", {"devices[0]", "forward[0]", "-0.11"}},
        {"0.11, 0.12", "0.12", {"devices[0]", "forward", "6"}},
        {"0.11, 0.12", "\"fast\", 0.12", {"devices[0]", "forward[0]", "fast"}},
        {"\"backward\": [0.17, 0.17, 0.17, 0.17, 0.17, 0.17], ", "", {"devices[2]", "backward"}},
        {"\"blocks\": 6, ", "", {"blocks", "missing"}},
        {"\"blocks\": 6", "\"blocks\": 0", {"blocks", "0"}},
        {"\"memory\": 1001", "\"memory\": -1", {"devices[0]", "memory"}},
        {"\"memory\": 1001", "\"memroy\": 1001", {"devices[0]", "memroy", "memory"}},
        {"\"name\": \"npu1\"", "\"name\": \"npu0\"", {"devices[1]", "npu0"}},
        {"\"latency\": 0.0003",
         "\"pairs\": [{\"from\": \"npu7\", \"to\": \"gpu0\"}]",
         {"pairs[0]", "npu7", "npu"}},
        {"\"boundary_bytes\": 70001", "\"boundary_bytes\": [1, 2]", {"boundary_bytes", "5"}},
        {"\"devices\": [", "\"devices\": [[", {"bad", ""}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const path =
            write_text(text("bad-%zu.json", i), "%s", replaced(tidy, cases[i].piece, cases[i].by));
        const struct process done = RUN("plan", "--cost", path, "--json");
        const char *const parts[] = {path, cases[i].parts[0], cases[i].parts[1], cases[i].parts[2],
                                     NULL};
        check_refused(&done, 2, parts);
        assert_string_equal(done.out, "");
    }
    const struct process none = RUN("simulate", "--cost", scratch("none.json"));
    ASSERT_REFUSED(&none, 2, "none.json");
}

static void test_bad_plans(void **state)
{
    (void)state;
    static const struct {
        const char *content, *part;
    } cases[] = {
        {"[]", "parts"},
        {"{\"strategy\": \"hybridop\", \"parts\": []}", "parts"},
        {"{\"strategy\": \"hybridop\", \"parts\": [{\"device\": \"gpu7\", \"blocks\": [0, 6]}]}",
         "gpu7"},
        {"{\"strategy\": \"hybridop\", \"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 4]}]}",
         "6"},
        {"{\"strategy\": \"hybridpo\", \"parts\": [{\"device\": \"gpu0\", \"blocks\": [0, 6]}]}",
         "hybridop"},
        {"{\"feasible\": false, \"reason\": \"too big\"}", "too big"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const path = write_text("bad-plan.json", "%s", cases[i].content);
        const struct process done = RUN("simulate", "--cost", tidy_table(), "--plan", path);
        ASSERT_REFUSED(&done, 2, cases[i].part);
    }
}

/* The option parser speaks for itself: the mistake, then where help is. */
static void check_usage(const struct process *done, const char *part)
{
    if (done->status != 2)
        fail_msg("exit status %d, expected 2: %s\n%s", done->status, done->command, done->err);
    assert_holds(done->command, done->err, part);
    assert_holds(done->command, done->err, "--help");
    assert_string_equal(done->out, "");
}

static void test_command_lines(void **state)
{
    (void)state;
    static const char *const cases[][4] = {
        {"--micro-batches", "0", "--micro-batches 0"},
        {"--micro-batches", "two", "--micro-batches two"},
        {"--micro-batches", "", "--micro-batches"},
        {"--probes", "-1", "--probes -1"},
        {"--probes", "atuo", "--probes atuo"},
        {"--probe-batch", "0", "--probe-batch 0"},
        {"--exit-probes", "-1", "--exit-probes -1"},
        {"--exit-base", "its-own", "own"},
        {"--estimator", "boundry", "boundary"},
        {"--directions", "share", "shared"},
        {"--objective", "simulatd", "simulated"},
        {"--devices", "al", "all"},
        {"--set", "zo.probes=2", "--set"},
        {"more.yaml", "--json", "more.yaml"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process done = RUN("plan", "--cost", tidy_table(), cases[i][0], cases[i][1]);
        check_usage(&done, cases[i][2]);
        done = RUN("simulate", "--cost", tidy_table(), cases[i][0], cases[i][1]);
        check_usage(&done, cases[i][2]);
    }
    struct process done = RUN("plan");
    check_usage(&done, "--cost");
    done = RUN("plan", job, job);
    check_usage(&done, "one job file");
    done = RUN("simulate", "--cost", tidy_table(), "--plan", "p.json", "--strategy", "single");
    check_usage(&done, "--strategy");
    done = RUN("plan", "--cost", tidy_table(), "--strategy", "hybridpo");
    ASSERT_REFUSED(&done, 2, "hybridpo", "hybridop");
    done = RUN("simulate", "--cost", tidy_table(), "--strategy", "single,hybridpo");
    ASSERT_REFUSED(&done, 2, "hybridpo", "hybridop");
    done = RUN("plan", "--cost", tidy_table(), "--devices", "all", "--probes", "0");
    ASSERT_REFUSED(&done, 2, "probes");
    done = RUN("plan", "--cost", tidy_table(), "--estimator", "boundary", "--exit-probes", "2");
    ASSERT_REFUSED(&done, 2, "boundary", "early exit");
    done = RUN("plan", job, "--set", "zo.probes=some");
    ASSERT_REFUSED(&done, 2, "zo.probes", "some", "auto");
    done = RUN("plan", job, "--set", "zo.probes=0");
    ASSERT_REFUSED(&done, 2, "zo.probes", "auto");
    done = RUN("plan", job, "--set", "plan.objective=formla");
    ASSERT_REFUSED(&done, 2, "plan.objective", "formula");
    done = RUN("plan", job, "--set", "plan.tokens=-1");
    ASSERT_REFUSED(&done, 2, "plan.tokens", "-1");
}

static void test_help(void **state)
{
    (void)state;
    static const char *const options[] = {
        "--strategy",   "--micro-batches", "--probes",  "--exit-probes", "--probe-batch",
        "--objective",  "--bp-only",       "--devices", "--set",         "--estimator",
        "--directions", "--exit-base",     "--cost",    "--json",        "default"};
    static const char *const commands[] = {"plan", "simulate"};
    for (size_t c = 0; c < 2; c++) {
        const struct process done = RUN(commands[c], "--help");
        assert_success(&done);
        for (size_t i = 0; i < sizeof options / sizeof *options; i++)
            assert_holds(commands[c], done.out, options[i]);
    }
    const struct process all = RUN("help");
    assert_holds("help", all.out, "  plan ");
    assert_holds("help", all.out, "  simulate ");
}

/* Strategies side by side */

static int count_strategy(const json_t *list, const char *name, const char *devices)
{
    int count = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        count += strcmp(string(at(list, i), "strategy"), name) == 0 &&
                 strcmp(string(at(list, i), "devices"), devices) == 0;
    return count;
}

static void test_strategies(void **state)
{
    (void)state;
    const json_t *const all = PRINTED("simulate", "--cost", tidy_table(), "--strategy", "all");
    static const char *const names[] = {"hybridop", "single", "frozen", "gpipe"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(count_strategy(all, names[i], "all"), 1);
        assert_int_equal(count_strategy(all, names[i], "bp-only"), 1);
    }
    const json_t *const two = PRINTED("simulate", "--cost", tidy_table(), "--strategy",
                                      "single,frozen,single", "--bp-only");
    assert_int_equal(json_array_size(two), 2);
    assert_int_equal(count_strategy(two, "frozen", "bp-only"), 1);
    const json_t *const plain = PRINTED("simulate", "--cost", tidy_table());
    assert_int_equal(count_strategy(plain, "hybridop", "all"), 1);
    assert_int_equal(json_array_size(plain), 2);
    const struct process people = RUN("simulate", "--cost", tidy_table(), "--strategy", "all");
    assert_success(&people);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_holds("table", people.out, names[i]);
    assert_holds("table", people.out, "bp-only");
}

/* The blocks of BP-free devices are passed through, not trained, and need no probes. */
static void test_frozen(void **state)
{
    (void)state;
    const json_t *const plan =
        PRINTED("plan", "--cost", tidy_table(), "--strategy", "frozen", "--devices", "all");
    assert_int_equal(number(plan, "probes"), 0);
    const json_t *const parts = json_object_get(plan, "parts");
    assert_int_equal(json_array_size(parts), 4);
    for (size_t p = 0; p < 4; p++)
        assert_string_equal(string(at(parts, p), "gradient"), p < 2 ? "none" : "backprop");
    assert_true(json_is_null(json_object_get(plan, "tail_seconds")));
}

static double seconds_with(const char *probes)
{
    return number(PRINTED("plan", "--cost", tidy_table(), "--devices", "all", "--probes", probes),
                  "simulated_seconds");
}

/* The largest Q that does not lengthen the step, at least 1. */
static void test_probes_auto(void **state)
{
    (void)state;
    const json_t *const chosen =
        PRINTED("plan", "--cost", tidy_table(), "--devices", "all", "--probes", "auto");
    const int probes = (int)number(chosen, "probes");
    const double one = seconds_with("1"), found = number(chosen, "simulated_seconds");
    const double more = seconds_with(text("%d", probes + 1));
    assert_true(probes >= 1);
    if (found > one * (1 + 1e-9) || more <= one)
        fail_msg("1 probe takes %.17g s, %d take %.17g s, one more %.17g s", one, probes, found,
                 more);
}

/* Estimators */

struct estimator_case {
    const char *estimator, *exit_probes, *line; /* of the table; "": none */
    int probes, expected_exits;
};

static void check_estimator(const struct estimator_case *expected)
{
    const json_t *const plan =
        PRINTED("plan", "--cost", example("worked-hybridop.json"), "--devices", "all", "--probes",
                "2", "--estimator", expected->estimator, "--exit-probes", expected->exit_probes);
    const struct process table =
        RUN("plan", "--cost", example("worked-hybridop.json"), "--devices", "all", "--probes", "2",
            "--estimator", expected->estimator, "--exit-probes", expected->exit_probes);
    const bool none = strcmp(expected->estimator, "none") == 0;
    assert_string_equal(string(plan, "estimator"), none ? "difference" : expected->estimator);
    assert_int_equal((int)number(plan, "probes"), expected->probes);
    assert_int_equal((int)number(plan, "exit_probes"), expected->expected_exits);
    assert_success(&table);
    if (*expected->line)
        assert_holds(expected->estimator, table.out, expected->line);
    else if (strstr(table.out, "estimator"))
        fail_msg("plain probes need no line: %s", table.out);
    assert_string_equal(string(at(json_object_get(plan, "parts"), 0), "gradient"),
                        none ? "none" : "zeroth-order");
}

static void test_estimators(void **state)
{
    (void)state;
    static const struct estimator_case cases[] = {
        {"difference", "0", "", 2, 0},
        {"difference", "3", "difference, 2 probes each; 3 exit probes each against the exit's own",
         2, 3},
        {"central", "1", "central, 2 probes each; 1 exit probe each\n", 2, 1},
        {"boundary", "auto", "boundary, 2 probes each\n", 2, 0},
        {"feedback", "auto", "feedback to block 1, no probes\n", 0, 0},
        {"none", "0", "untrained    the adapters of", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_estimator(&cases[i]);
    const struct process refused = RUN("plan", "--cost", tidy_table(), "--devices", "all",
                                       "--probes", "2", "--estimator", "boundary");
    assert_int_equal(refused.status, 1);
    assert_holds("plan", refused.err, "keep for the estimator boundary");
    const struct process compared =
        RUN("simulate", "--cost", example("worked-hybridop.json"), "--devices", "all",
            "--estimator", "boundary", "--directions", "per-sample");
    assert_success(&compared);
    assert_holds("simulate", compared.out, "boundary, 1 probe each, every sample its own");
}

/* The options stand for the job's keys. */
static void test_estimators_of_job(void **state)
{
    (void)state;
    const json_t *plan =
        PRINTED("plan", job, "--set", "zo.estimator=central", "--set", "zo.exit_base=full-model");
    assert_string_equal(string(plan, "estimator"), "central");
    assert_string_equal(string(plan, "exit_base"), "full-model");
    plan = PRINTED("plan", job, "--set", "zo.estimator=central", "--estimator", "boundary",
                   "--directions", "per-sample", "--exit-base", "own");
    assert_string_equal(string(plan, "estimator"), "boundary");
    assert_string_equal(string(plan, "directions"), "per-sample");
    assert_string_equal(string(plan, "exit_base"), "own");
}

/* Traces */

static void test_trace(void **state)
{
    (void)state;
    const char *const path = scratch("simulated.json");
    const struct process done = RUN("simulate", "--cost", tidy_table(), "--devices", "all",
                                    "--strategy", "hybridop,single", "--trace", path);
    assert_success(&done);
    assert_holds("trace", done.err, path);
    assert_holds("trace", done.err, "hybridop");
    const json_t *const events = json_object_get(read_json(path), "traceEvents");
    double last = 0;
    int tasks = 0;
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *const event = at(events, i);
        if (strcmp(string(event, "ph"), "X") != 0 || !json_object_get(event, "tid"))
            continue;
        tasks++;
        last = fmax(last, number(event, "ts") + number(event, "dur"));
    }
    /* 4 forwards and 4 probes a device, 4 backwards on two of them. */
    assert_true(tasks >= 4 * 4 + 4 * 4 + 2 * 4);
    const json_t *const plan = PRINTED("plan", "--cost", tidy_table(), "--devices", "all");
    assert_near("end of the trace", last, 1e6 * number(plan, "simulated_seconds"), 1e-6);
}

/* Jobs */

static void test_job(void **state)
{
    (void)state;
    const char *const table = scratch("written.json");
    const json_t *const plan =
        PRINTED("plan", job, "--set", cluster, "--set", "plan.devices=all", "--write-cost", table);
    check_fields(plan, plan_fields);
    check_parts(plan);
    assert_int_equal(number(plan, "micro_batches"), 4);
    assert_int_equal(number(plan, "probes"), 3);
    assert_true(number(at(json_object_get(plan, "parts"), 0), "memory_bytes") > 0);
    const json_t *const same = PRINTED("plan", "--cost", table, "--devices", "all",
                                       "--micro-batches", "4", "--probes", "3");
    assert_exactly("seconds by the written table", number(same, "simulated_seconds"),
                   number(plan, "simulated_seconds"));
    const json_t *const changed =
        PRINTED("plan", job, "--set", cluster, "--devices", "all", "--micro-batches", "2",
                "--probes", "5", "--probe-batch", "5", "--strategy", "hybridop");
    assert_int_equal(number(changed, "micro_batches"), 2);
    assert_int_equal(number(changed, "micro_batch_samples"), 4);
    assert_int_equal(number(changed, "probes"), 5);
    assert_int_equal(number(changed, "probe_batch"), 5);
}

static void test_table(void **state)
{
    (void)state;
    const struct process done =
        RUN("plan", job, "--set", cluster, "--devices", "all", "--set", "plan.tokens=20");
    assert_success(&done);
    static const char *const parts[] = {"npu0",      "gpu1",       "BP-free",    "BP-capable",
                                        "blocks",    "parameters", "memory",     "kept",
                                        "forward",   "KiB",        "simulation", "samples/s",
                                        "priced at", "20 tokens",  "utilization"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        assert_holds("plan", done.out, parts[i]);
    const struct process alone =
        RUN("plan", job, "--set", cluster, "--strategy", "single", "--bp-only");
    assert_success(&alone);
    assert_holds("plan", alone.out, "left out     npu0");
}

/* What is printed first is what runs, and the run folder has the prediction. */
static void test_train(void **state)
{
    (void)state;
    const char *const run = scratch("run");
    const struct process dry = TRAIN(job, run, cluster, "plan.devices=all", "--dry-run");
    assert_success(&dry);
    assert_holds("dry run", dry.out, "npu1");
    assert_holds("dry run", dry.out, "by simulation");
    assert_false(file_exists(run));
    const struct process done =
        TRAIN(job, run, cluster, "plan.devices=all", "train.max_steps=2", "zo.probes=auto");
    assert_success(&done);
    assert_holds("train", done.err, "by simulation");
    const json_t *const saved = read_json(text("%s/plan.json", run));
    assert_true(number(saved, "simulated_seconds") > 0);
    assert_true(number(saved, "probes") >= 1);
    const json_t *const played =
        PRINTED("simulate", job, "--set", cluster, "--plan", text("%s/plan.json", run));
    assert_exactly("seconds of the saved plan", number(at(played, 0), "simulated_seconds"),
                   number(saved, "simulated_seconds"));
    assert_holds("config.yaml", read_text(text("%s/config.yaml", run)), "probes: auto");
    const struct process again = TRAIN(text("%s/config.yaml", run), scratch("again"), cluster);
    assert_success(&again);
    assert_same_adapter(scratch("again"), run);
}

/* plan.blocks and plan.file are followed exactly. */
static void test_fixed(void **state)
{
    (void)state;
    const char *const fixed = "plan.blocks={npu0: 1, gpu0: 1, gpu1: 2}";
    const struct process planned = RUN("plan", job, "--set", cluster, "--set", fixed, "--json");
    const json_t *const plan = printed(planned);
    const json_t *const parts = json_object_get(plan, "parts");
    assert_int_equal(json_array_size(parts), 3);
    assert_string_equal(dump_json(json_object_get(at(parts, 2), "blocks")), "[2,4]");
    const json_t *const left = json_object_get(plan, "left_out");
    assert_int_equal(json_array_size(left), 1);
    assert_string_equal(string(at(left, 0), "device"), "npu1");
    assert_holds("left out", string(at(left, 0), "reason"), "plan.blocks");
    const char *const file = text("plan.file=%s", write_text("fixed.json", "%s", planned.out));
    const json_t *const followed = PRINTED("plan", job, "--set", cluster, "--set", file);
    if (!json_equal(json_object_get(followed, "parts"), parts))
        fail_msg("the plan of the file was not followed:\n%s", dump_json(followed));
    const json_t *const anew =
        PRINTED("plan", job, "--set", cluster, "--set", file, "--strategy", "single");
    assert_string_equal(string(anew, "strategy"), "single");
    const struct process run = TRAIN(job, scratch("followed"), cluster, file, "train.max_steps=1");
    assert_success(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worked_example),
        cmocka_unit_test(test_plan_fields),
        cmocka_unit_test(test_simulate_fields),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_infeasible),
        cmocka_unit_test(test_some_infeasible),
        cmocka_unit_test(test_given_plan_too_big),
        cmocka_unit_test(test_bad_tables),
        cmocka_unit_test(test_bad_plans),
        cmocka_unit_test(test_command_lines),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_strategies),
        cmocka_unit_test(test_frozen),
        cmocka_unit_test(test_probes_auto),
        cmocka_unit_test(test_estimators),
        cmocka_unit_test(test_estimators_of_job),
        cmocka_unit_test(test_trace),
        cmocka_unit_test(test_job),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_train),
        cmocka_unit_test(test_fixed),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
