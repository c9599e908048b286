/* A model of the size people fine-tune: what a rank holds is what it uses, and nothing is copied.
 */
#include "support_large.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"

#define MIB ((int64_t)1 << 20)

enum { RUN_LIMIT = 240 };

/* LLaMA-3.2-1B. */
static struct hop_model_config llama_1b(void)
{
    return (struct hop_model_config){.hidden = 2048,
                                     .intermediate = 8192,
                                     .blocks = 16,
                                     .heads = 32,
                                     .kv_heads = 8,
                                     .head_dim = 64,
                                     .vocabulary = 128256,
                                     .max_positions = 131072,
                                     .norm_eps = 1e-5f,
                                     .rope_theta = 500000,
                                     .rope_scaling = HOP_ROPE_LLAMA3,
                                     .rope_factor = 32,
                                     .rope_low = 1,
                                     .rope_high = 4,
                                     .rope_original = 8192,
                                     .tied = true,
                                     .bos = 128000,
                                     .eos = {128001},
                                     .eos_count = 1};
}

static void skip_unless(const char *what, int64_t there, int64_t needed)
{
    if (there >= needed)
        return;
    print_message("skip: %lld MiB of %s are free, %lld MiB are needed\n", (long long)(there / MIB),
                  what, (long long)(needed / MIB));
    skip();
}

/* The most that each rank held while the program ran. */
static void watch(struct process *process, int ranks, struct resident *most)
{
    pid_t pid[4] = {0};
    const double end = hop_clock_now() + RUN_LIMIT;
    for (int r = 0; r < ranks; r++) {
        pid[r] = find_rank(process, r);
        most[r] = (struct resident){0};
        if (!pid[r])
            fail_msg("rank %d was not found: %s", r, read_text(process->err_path));
    }
    while (!wait_program(process, 0.02)) {
        for (int r = 0; r < ranks; r++) {
            struct resident now;
            if (!read_resident(pid[r], &now))
                continue;
            most[r].highest = now.highest > most[r].highest ? now.highest : most[r].highest;
            most[r].files = now.files > most[r].files ? now.files : most[r].files;
            most[r].own = now.own > most[r].own ? now.own : most[r].own;
        }
        if (hop_clock_now() > end) {
            kill_tree(process);
            fail_msg("still running after %d s", RUN_LIMIT);
        }
    }
}

static void check_resident(int rank, const struct resident *most, int64_t used)
{
    print_message(
        "rank %d: %lld MiB at the highest, %lld MiB of files (%lld MiB used), %lld MiB of "
        "its own\n",
        rank, (long long)(most->highest / MIB), (long long)(most->files / MIB),
        (long long)(used / MIB), (long long)(most->own / MIB));
    /* Programs and their libraries are files too. */
    assert_true(most->files < used + 160 * MIB);
    assert_true(most->files > used / 2);
    assert_true(most->own < 256 * MIB);
    assert_true(most->highest < used + 416 * MIB);
}

static void test_one_step(void **state)
{
    (void)state;
#ifdef __SANITIZE_ADDRESS__
    print_message("skip: a sanitizer's own memory hides what the program holds\n");
    skip();
#endif
    const struct hop_model_config config = llama_1b();
    const int64_t bytes = 2 * hop_model_parameters(&config);
    skip_unless("disk", free_disk(), 2 * bytes);
    skip_unless("memory", free_memory(), 2 * bytes);
    const double started = hop_clock_now();
    const char *const model = write_generated("llama", &config, HOP_BF16, 1000 * MIB, 1);
    print_message("%lld MiB written in %.1f s\n", (long long)(bytes / MIB),
                  hop_clock_now() - started);
    const char *const rows = write_rows("large.jsonl", 2, 12, 16, 1000);
    const char *const job = write_job("large.yaml", model, rows, NULL);
    const char *const run = scratch("large-run");
    struct process process =
        START(job, run, text("cluster=%s", write_cluster("BB", 1, NULL)), "train.max_steps=1",
              "train.batch_size=2", "train.micro_batch=1", "plan.blocks={gpu0: 8, gpu1: 8}");
    struct resident most[2];
    watch(&process, 2, most);
    assert_success(&process);
    print_message("the run took %.1f s\n", process.seconds);
    /* Rank 0 looks up a few rows of the table, rank 1 multiplies by all of it. */
    const int64_t half = 2 * 8 * hop_model_block_parameters(&config);
    check_resident(0, &most[0], half);
    check_resident(1, &most[1], half + 2 * hop_model_embed_parameters(&config));
    const json_t *const line = step_line(read_metrics(run), 1);
    print_message("loss %.3f\n", number(line, "loss"));
    assert_true(number(line, "loss") > 1 && number(line, "loss") < 100);
    assert_true(number(line, "grad_norm") > 0);
}

static int tear_down(void **state)
{
    (void)state;
    assert_all_gone(5);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_step)};
    return cmocka_run_group_tests(tests, NULL, tear_down);
}
