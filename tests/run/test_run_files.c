/* Model files: types, shards, and weights that are streamed instead of mapped. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static const char *rows;

static int set_up(void **state)
{
    (void)state;
    rows = write_rows("rows.jsonl", 21, 6, 14, 64);
    return 0;
}

static const char *train_on(const char *name, struct model model, const char *extra)
{
    const char *const folder = write_model(text("model-%s", name), model);
    const char *const job = write_job(text("%s.yaml", name), folder, rows, NULL);
    const char *const run = scratch("run-%s", name);
    const struct process done = TRAIN(job, run, text("cluster=%s", write_cluster("NBB", 1, extra)));
    assert_success(&done);
    return run;
}

/* The same numbers in one file, in shards, mapped or streamed give the same adapter. */
static void test_same_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct model model;
    } cases[] = {
        {"f32", {.dtype = HOP_F32}},
        {"bf16", {.dtype = HOP_BF16, .untied = true}},
        {"f16", {.dtype = HOP_F16}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model sharded = cases[i].model;
        sharded.shards = 3;
        const char *const mapped = train_on(cases[i].name, cases[i].model, NULL);
        const char *const streamed =
            train_on(text("%s-streamed", cases[i].name), cases[i].model, "share_files: false");
        const char *const shards =
            train_on(text("%s-shards", cases[i].name), sharded, i ? "share_files: false" : NULL);
        assert_same_adapter(streamed, mapped);
        assert_same_adapter(shards, mapped);
        ASSERT_SAME_LINES(streamed, mapped, 0, "loss", "grad_norm", "zo_g_mean");
    }
}

/* Does the second rank have the model file mapped while it runs? */
static bool maps_model(const char *run, const char *extra)
{
    const char *const job =
        write_job("maps.yaml", write_model("maps", (struct model){0}), rows, NULL);
    struct process process = START(job, run, "train.max_steps=1000000",
                                   text("cluster=%s", write_cluster("NB", 1, extra)));
    while (!file_exists(text("%s/metrics.jsonl", run)))
        if (wait_program(&process, 20e-3))
            fail_msg("ended with status %d\n%s", process.status, process.err);
    const pid_t pid = find_rank(&process, 1);
    FILE *const maps = fopen(text("/proc/%d/maps", pid), "r");
    char line[4096];
    bool found = false;
    while (maps && fgets(line, sizeof line, maps))
        found = found || strstr(line, "maps/model.safetensors");
    if (maps)
        fclose(maps);
    kill_tree(&process);
    assert_all_gone(10);
    return found;
}

static void test_mapping(void **state)
{
    (void)state;
    if (!maps_model(scratch("mapping"), NULL))
        fail_msg("a rank on the same machine does not map the model file");
    if (maps_model(scratch("streaming"), "share_files: false"))
        fail_msg("with share_files: false a rank maps the model file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_numbers),
        cmocka_unit_test(test_mapping),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
