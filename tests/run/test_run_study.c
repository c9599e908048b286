/* `hybridop study`: variants and seeds of a small job, side by side. */
#include "support.h"

#include <string.h>

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

static const json_t *outcome(const json_t *study, const char *variant)
{
    size_t i;
    const json_t *item;
    json_array_foreach(json_object_get(study, "outcomes"), i,
                       item) if (strcmp(json_string_value(json_object_get(item, "variant")),
                                        variant) == 0) return item;
    fail_msg("no outcome of %s", variant);
    return NULL;
}

static double mean(const json_t *item, const char *key)
{
    return number(json_object_get(item, key), "mean");
}

/* A job file of its own, for write_job() has no evaluation rows. */
static const char *study_job(const char *rows, const char *model)
{
    return write_text("study.yaml",
                      "model: %s\n"
                      "data: {task: jsonl, train: %s, eval: %s, max_length: 16}\n"
                      "lora: {rank: 2, alpha: 4}\n"
                      "train: {batch_size: 4, micro_batch: 2, max_steps: 4, eval_every: 2,\n"
                      "        save_every: 0, learning_rate: 1.0e-2, dtype: f32}\n"
                      "strategy: single\n"
                      "cluster: {devices: [{name: gpu0, backend: %s, threads: 1}]}\n"
                      "output: unset\n",
                      model, rows, rows, backend());
}

static void compares_variants(void **state)
{
    (void)state;
    const char *const model = write_model("model", (struct model){.seed = 3});
    const char *const rows = write_rows("rows.jsonl", 16, 6, 12, 64);
    const char *const job = study_job(rows, model), *const out = scratch("out");
    const char *const variants =
        write_text("variants.yaml", "still: {train.learning_rate: 1.0e-12}\n"
                                    "learns: {tune: {train.learning_rate: [1.0e-12, 1.0e-2]}}\n");
    const struct process done =
        run_program(240, (const char *const[]){"study", job, "-o", out, "--variants", variants,
                                               "--seeds", "1,2", "--metric", "loss", "--between",
                                               "still,learns", "--clock", "measured", NULL});
    assert_success(&done);
    assert_holds("the table", done.out, "learns");
    const json_t *const study = read_json(text("%s/study.json", out));
    const json_t *const still = outcome(study, "still"), *const learns = outcome(study, "learns");
    assert_string_equal(json_string_value(json_array_get(json_object_get(learns, "chosen"), 0)),
                        "train.learning_rate=0.01");
    assert_true(mean(learns, "eval_loss") < mean(still, "eval_loss"));
    assert_near("share", number(learns, "share"), 1, 1e-12);
    assert_int_equal(json_array_size(json_object_get(json_object_get(learns, "training"), "mean")),
                     4);
    /* The numbers are those of the runs. */
    const double first = number(
        json_object_get(read_json(text("%s/runs/learns/seed-1/summary.json", out)), "eval_after"),
        "loss");
    const double second = number(
        json_object_get(read_json(text("%s/runs/learns/seed-2/summary.json", out)), "eval_after"),
        "loss");
    assert_near("eval loss", mean(learns, "eval_loss"), (first + second) / 2, 1e-12);
    assert_holds("the page", read_text(text("%s/study.html", out)), "<svg");

    /* Nothing runs again. */
    const struct process again =
        run_program(60, (const char *const[]){"study", job, "-o", out, "--variants", variants,
                                              "--seeds", "1,2", "--metric", "loss", "--between",
                                              "still,learns", "--clock", "measured", NULL});
    assert_success(&again);
    assert_null(strstr(again.err, "done:"));
    assert_string_equal(again.out, done.out);
}

static void refuses_what_is_no_job(void **state)
{
    (void)state;
    const char *const model = write_model("model2", (struct model){.seed = 3});
    const char *const job = study_job(write_rows("rows2.jsonl", 4, 6, 12, 64), model);
    const char *const out = scratch("none");
    struct process process = RUN("study", job, "-o", out, "--axis", "train.learning_rat=1,2");
    ASSERT_REFUSED(&process, 2, "variant 'job train.learning_rat=1'", "learning_rate");
    process = RUN("study", job, "-o", out, "--between", "job,nobody");
    ASSERT_REFUSED(&process, 2, "nobody");
    process = RUN("study", job, "-o", out, "--seeds", "one");
    ASSERT_REFUSED(&process, 2, "--seeds");
    assert_false(file_exists(text("%s/runs", out)));
}

/* A run that fails is named, and what it printed can be read. */
static void names_a_run_that_fails(void **state)
{
    (void)state;
    const char *const model = write_model("model3", (struct model){.seed = 3});
    const char *const job = study_job(scratch("missing.jsonl"), model);
    const char *const out = scratch("failed");
    const struct process process = RUN("study", job, "-o", out, "--seeds", "7");
    ASSERT_REFUSED(&process, 1, "runs/job/seed-7", "log.txt");
    assert_holds("the log", read_text(text("%s/runs/job/seed-7/log.txt", out)), "missing.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(compares_variants, tear_down),
        cmocka_unit_test_teardown(refuses_what_is_no_job, tear_down),
        cmocka_unit_test_teardown(names_a_run_that_fails, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
