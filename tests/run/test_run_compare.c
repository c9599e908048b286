/* `hybridop compare` as users and their scripts run it. */
#include "support.h"

#include <stdio.h>
#include <string.h>

/* The names that outside programs may rely on. */
static const char *const contract[] = {"hybridop", "gpipe",  "pipedream-flush", "chimera",
                                       "hdp",      "dapple", "asteroid",        "accpar",
                                       "frozen",   "single"};
enum { CONTRACT = sizeof contract / sizeof *contract };

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

/* A BP-free device with slow backward and two BP-capable ones, all of so many bytes. */
static const char *table_of(const char *name, double memory)
{
    static const char *const device =
        "{\"name\": \"%s\", \"bp\": %s, \"forward\": [0.11, 0.12, 0.13, 0.14],"
        " \"backward\": [%s, %s, %s, %s], \"memory\": %.17g, \"state_bytes\": [90, 90, 90, 90],"
        " \"activation_bytes\": [7, 7, 7, 7], \"power\": {\"idle\": 3, \"busy\": 7}}";
    const char *const free_one = text(device, "npu0", "false", "1.1", "1.2", "1.3", "1.4", memory);
    const char *const first = text(device, "gpu0", "true", "0.2", "0.2", "0.2", "0.2", memory);
    const char *const second = text(device, "gpu1", "true", "0.2", "0.2", "0.2", "0.2", memory);
    return write_text(name,
                      "{\"micro_batch_samples\": 2, \"blocks\": 4, \"boundary_bytes\": 1000,"
                      " \"devices\": [%s, %s, %s],"
                      " \"network\": {\"bandwidth\": 1e7, \"latency\": 0.0003}}",
                      free_one, first, second);
}

static json_t *parse(const char *content)
{
    json_error_t where;
    json_t *const value = json_loads(content, 0, &where);
    if (!value)
        fail_msg("not JSON: %s in\n%s", where.text, content);
    return keep_json(value);
}

static json_t *printed(struct process done)
{
    assert_success(&done);
    return parse(done.out);
}
#define PRINTED(...) printed(RUN(__VA_ARGS__, "--json"))

static const char *string(const json_t *object, const char *key)
{
    const char *const value = json_string_value(json_object_get(object, key));
    if (!value)
        fail_msg("\"%s\" is not there or no string", key);
    return value;
}

static bool feasible(const json_t *entry)
{
    return json_is_true(json_object_get(entry, "feasible"));
}

static const json_t *find_entry(const json_t *list, const char *strategy, const char *devices)
{
    size_t i;
    const json_t *entry, *found = NULL;
    json_array_foreach((json_t *)(uintptr_t)list, i, entry)
    {
        if (strcmp(string(entry, "strategy"), strategy) != 0 ||
            strcmp(string(entry, "devices"), devices) != 0)
            continue;
        if (found)
            fail_msg("%s on %s devices is there twice", strategy, devices);
        found = entry;
    }
    if (!found)
        fail_msg("%s on %s devices is not there", strategy, devices);
    return found;
}

/* Fields */

static void assert_every_strategy(const json_t *list)
{
    for (size_t i = 0; i < CONTRACT; i++) {
        find_entry(list, contract[i], "all");
        find_entry(list, contract[i], "bp-only");
    }
}

/* What `simulate` says of the same strategy, but for the time that planning took. */
static void assert_as_simulated(const json_t *entry, const json_t *simulated)
{
    json_t *const a = keep_json(json_copy((json_t *)(uintptr_t)entry));
    json_t *const b = keep_json(json_copy((json_t *)(uintptr_t)simulated));
    json_object_del(a, "planner_seconds");
    json_object_del(b, "planner_seconds");
    if (!json_equal(a, b))
        fail_msg("compare and simulate differ:\n%s\n%s", dump_json(a), dump_json(b));
}

static void assert_sorted(const json_t *entries)
{
    for (size_t i = 1; i < json_array_size(entries); i++) {
        const json_t *const one = json_array_get(entries, i - 1), *const next =
                                                                      json_array_get(entries, i);
        if (!feasible(next))
            continue;
        assert_true(feasible(one));
        assert_true(number(one, "samples_per_second") >= number(next, "samples_per_second"));
    }
}

static void test_fields(void **state)
{
    (void)state;
    const char *const table = table_of("fields.json", 1000);
    const json_t *const answer = PRINTED("compare", "--cost", table);
    const json_t *const entries = json_object_get(answer, "entries");
    const json_t *const list = PRINTED("simulate", "--cost", table, "--strategy", "all");
    assert_int_equal(json_object_size(answer), 3);
    assert_int_equal(json_array_size(entries), json_array_size(list));
    assert_every_strategy(list);
    assert_every_strategy(entries);
    assert_sorted(entries);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const one = json_array_get(list, i);
        assert_as_simulated(find_entry(entries, string(one, "strategy"), string(one, "devices")),
                            one);
    }
    const json_t *const chosen = json_object_get(answer, "recommended");
    if (!json_equal(chosen,
                    find_entry(entries, string(chosen, "strategy"), string(chosen, "devices"))))
        fail_msg("not one of the entries:\n%s", dump_json(chosen));
    assert_holds("reason", string(answer, "reason"), string(chosen, "strategy"));
    assert_holds("reason", string(answer, "reason"), "no device needs more than");
}

/* The fastest first; strategies and devices as asked. */
static void test_choice(void **state)
{
    (void)state;
    const char *const table = table_of("choice.json", 1000);
    const json_t *const answer =
        PRINTED("compare", "--cost", table, "--strategy", "gpipe,single,gpipe", "--bp-only");
    const json_t *const entries = json_object_get(answer, "entries");
    assert_int_equal(json_array_size(entries), 2);
    find_entry(entries, "gpipe", "bp-only");
    find_entry(entries, "single", "bp-only");
    const json_t *const one = PRINTED("compare", "--cost", table, "--strategy", "single");
    assert_holds("reason", string(one, "reason"), "single on gpu0 alone: nothing else");
    struct process refused = RUN("compare", "--cost", table, "--strategy", "gpip");
    ASSERT_REFUSED(&refused, 2, "gpip", "gpipe");
    refused = RUN("compare");
    assert_int_equal(refused.status, 2);
    assert_holds("usage", refused.err, "--cost");
}

/* Recommendations */

static const json_t *worked(const char *probes)
{
    return PRINTED("compare", "--cost", example("worked-hybridop.json"), "--probes", probes);
}

/* 23 s, where the best system on the GPUs needs 24 and the untrained NPUs 19. */
static void test_hybridop_wins(void **state)
{
    (void)state;
    const json_t *const answer = worked("1"), *const chosen =
                                                  json_object_get(answer, "recommended");
    assert_string_equal(string(chosen, "strategy"), "hybridop");
    assert_string_equal(string(chosen, "devices"), "all");
    assert_near("seconds", number(chosen, "simulated_seconds"), 23, 1e-12);
    const char *const reason = string(answer, "reason");
    assert_holds("reason", reason, "hybridop with all 4 devices: 4 % more samples/s than");
    assert_holds("reason", reason, "on the 2 BP-capable devices");
    assert_holds("reason", reason, "the adapters of npu0, npu1 learn from estimates");
    assert_holds("reason", reason, "frozen with all 4 devices has 21 % more samples/s");
    assert_holds("reason", reason, "leaves the adapters of npu0, npu1 untrained");
    const json_t *const fastest = json_array_get(json_object_get(answer, "entries"), 0);
    assert_string_equal(string(fastest, "strategy"), "frozen");
}

/* With three probes the NPUs no longer pay. */
static void test_gpus_win(void **state)
{
    (void)state;
    const json_t *const answer = PRINTED("compare", "--cost", example("worked-hybridop.json"),
                                         "--probes", "3", "--devices", "all");
    const json_t *const chosen = json_object_get(answer, "recommended");
    assert_near("seconds", number(chosen, "simulated_seconds"), 24, 1e-12);
    assert_string_equal(string(chosen, "devices"), "bp-only");
    const char *const reason = string(answer, "reason");
    assert_holds("reason", reason, "on the 2 BP-capable devices");
    assert_holds("reason", reason,
                 "the best with BP-free devices, hybridop with all 4 devices, has 33 % fewer");
    assert_holds("reason", reason, "untrained");
}

/* Untrained adapters are recommended only where there is no choice, and it is said. */
static void test_untrained(void **state)
{
    (void)state;
    const json_t *const answer = PRINTED("compare", "--cost", example("worked-hybridop.json"),
                                         "--strategy", "frozen", "--devices", "all");
    assert_string_equal(string(json_object_get(answer, "recommended"), "devices"), "bp-only");
    const char *const only = table_of("only.json", 185);
    const json_t *const yardstick = PRINTED("compare", "--cost", only, "--strategy", "frozen");
    assert_string_equal(string(json_object_get(yardstick, "recommended"), "devices"), "all");
    assert_holds("reason", string(yardstick, "reason"), "nothing that trains every adapter fits");
    assert_holds("reason", string(yardstick, "reason"), "the adapters of npu0 untrained");
    const json_t *const trained = PRINTED("compare", "--cost", only);
    assert_string_equal(string(json_object_get(trained, "recommended"), "strategy"), "hybridop");
}

static void test_nothing_fits(void **state)
{
    (void)state;
    const char *const table = table_of("small.json", 80);
    const struct process json = RUN("compare", "--cost", table, "--json");
    const json_t *const answer = parse(json.out);
    ASSERT_REFUSED(&json, 1, "fits");
    assert_true(json_is_null(json_object_get(answer, "recommended")));
    assert_holds("reason", string(answer, "reason"), "none of");
    const json_t *const entries = json_object_get(answer, "entries");
    assert_every_strategy(entries);
    for (size_t i = 0; i < json_array_size(entries); i++) {
        const json_t *const entry = json_array_get(entries, i);
        assert_false(feasible(entry));
        assert_true(strlen(string(entry, "reason")) > 0);
    }
    const struct process people = RUN("compare", "--cost", table);
    ASSERT_REFUSED(&people, 1, "fits");
    if (strstr(people.out, "recommended"))
        fail_msg("something is recommended:\n%s", people.out);
}

/* Output */

static void test_table(void **state)
{
    (void)state;
    const char *const trace = scratch("compared.json");
    const struct process done =
        RUN("compare", "--cost", example("worked-hybridop.json"), "--trace", trace);
    assert_success(&done);
    for (size_t i = 0; i < CONTRACT; i++)
        assert_holds("table", done.out, contract[i]);
    assert_holds("table", done.out, "recommended: hybridop with all 4 devices");
    const char *const fastest = strstr(done.out, "\nfrozen"), *const slowest =
                                                                  strstr(done.out, "\nsingle");
    assert_true(fastest && slowest && fastest < slowest);
    assert_holds("trace", read_text(trace), "npu0");
    const struct process again = RUN("compare", "--cost", example("worked-hybridop.json"));
    assert_string_equal(again.out, done.out);
    const struct process help = RUN("help");
    assert_holds("help", help.out, "  compare ");
}

/* From a job, of which only the shapes of its model are read. */
static void test_job(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){0});
    const char *const rows = write_rows("rows.jsonl", 16, 6, 10, 64);
    const char *const job = write_job("job.yaml", model, rows, NULL);
    const char *const cluster = text("cluster=%s", write_cluster("NB", 1, NULL));
    const json_t *const answer = PRINTED("compare", job, "--set", cluster);
    assert_every_strategy(json_object_get(answer, "entries"));
    assert_true(feasible(json_object_get(answer, "recommended")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_hybridop_wins), cmocka_unit_test(test_gpus_win),
        cmocka_unit_test(test_untrained),     cmocka_unit_test(test_nothing_fits),
        cmocka_unit_test(test_table),         cmocka_unit_test(test_job),
    };
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
