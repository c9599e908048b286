/* Plans drawn at random, of uneven stages, rows, heads and micro-batches, have the gradients of one
 * device. */
#include "support.h"

enum { BLOCKS = 6, HEADS = 4, DEVICES = 4, PLANS = 10, STEPS = 2 };

static uint64_t state_of_draws = 0x9e3779b97f4a7c15u;

/* In [low, high]. */
static int draw(int low, int high)
{
    state_of_draws ^= state_of_draws << 13;
    state_of_draws ^= state_of_draws >> 7;
    state_of_draws ^= state_of_draws << 17;
    return low + (int)(state_of_draws % (uint64_t)(high - low + 1));
}

/* The parts of one stage on devices [first, first + count): whole, or cut in quarters of its rows
 * or heads. */
static const char *stage_parts(const char *parts, const char *where, int first, int count)
{
    const char *const share = draw(0, 1) ? "sample_share" : "tensor";
    int begin = 0;
    for (int i = 0; i < count; i++) {
        const int end = i == count - 1 ? HEADS : draw(begin + 1, HEADS - (count - 1 - i));
        parts =
            text("%s%s{\"device\": \"gpu%d\", %s, \"%s\": [%g, %g]}", parts, parts[0] ? ", " : "",
                 first + i, where, share, (double)begin / HEADS, (double)end / HEADS);
        begin = end;
    }
    return parts;
}

/* One pipeline on devices [first, first + count), for a share of the micro-batches. */
static const char *pipeline_parts(const char *parts, int pipeline, int first, int count,
                                  const char *micro_share)
{
    int device = first, block = 0;
    for (int stage = 0; device < first + count; stage++) {
        const int left = first + count - device, here = draw(1, left);
        const int after = left - here;
        const int end = after == 0 ? BLOCKS : draw(block + 1, BLOCKS - after);
        parts = stage_parts(parts,
                            text("\"pipeline\": %d, \"stage\": %d, \"blocks\": [%d, %d], "
                                 "\"micro_share\": %s",
                                 pipeline, stage, block, end, micro_share),
                            device, here);
        device += here;
        block = end;
    }
    return parts;
}

static const char *random_plan(int number)
{
    const char *parts = "";
    if (draw(0, 2) == 0) {
        const int cut = draw(1, DEVICES - 1);
        parts = pipeline_parts(parts, 0, 0, cut, "[0, 0.5]");
        parts = pipeline_parts(parts, 1, cut, DEVICES - cut, "[0.5, 1]");
    } else
        parts = pipeline_parts(parts, 0, 0, DEVICES, "[0, 1]");
    return write_text(text("plan-%d.json", number),
                      "{\"strategy\": \"gpipe\", \"micro_batches\": 4, \"micro_batch_samples\": 4, "
                      "\"parts\": [%s]}\n",
                      parts);
}

static const char *run_of(const char *job, const char *name, const char *cluster, const char *plan)
{
    const char *const run = scratch("%s", name);
    const struct process done =
        TRAIN(job, run, cluster, plan, text("train.max_steps=%d", STEPS), "train.batch_size=16",
              "train.micro_batch=4", "train.learning_rate=0.001", "train.dtype=f32");
    assert_success(&done);
    return run;
}

static void test_random_plans(void **state)
{
    (void)state;
    const char *const model =
        write_model("model", (struct model){.blocks = BLOCKS, .hidden = 32, .vocabulary = 64});
    const char *const job =
        write_job("job.yaml", model, write_rows("rows.jsonl", 32, 6, 20, 64), NULL);
    const char *const single =
        run_of(job, "single", text("cluster=%s", write_cluster("B", 1, "")), "strategy=single");
    const char *const cluster = text("cluster=%s", write_cluster("BBBB", 1, ""));
    for (int i = 0; i < PLANS; i++) {
        const char *const plan = random_plan(i);
        print_message("%s", read_text(plan));
        const char *const run = run_of(job, text("run-%d", i), cluster, text("plan.file=%s", plan));
        ASSERT_SAME_LINES(run, single, 1e-5, "loss", "grad_norm");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_plans)};
    return cmocka_run_group_tests_name("random plans", tests, NULL, NULL);
}
