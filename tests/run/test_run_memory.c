/* What a part was planned to take is what it takes. The one thing the plan cannot know is that the
 * first part that runs backward sends no gradient on: its buffers for that are counted and not
 * there. They are small beside the weights of any model but the tiniest. */
#include "support.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 32, ROWS = 32 };

/* Rows of the full length with a label on every token: what the plan reckons with. */
static const char *full_rows(void)
{
    const char *lines = "";
    for (int row = 0; row < ROWS; row++) {
        const char *ids = "";
        for (int i = 0; i < TOKENS; i++)
            ids = text("%s%s%d", ids, i ? "," : "", (row + 3 * i) % 64);
        lines = text("%s{\"input_ids\":[%s],\"labels\":[%s]}\n", lines, ids, ids);
    }
    return write_text("full.jsonl", "%s", lines);
}

/* Nothing may hold more than planned; it may hold less by `slack`. */
static void compare(const char *run, int devices, double slack)
{
    const json_t *const summary = read_json(text("%s/summary.json", run));
    json_t *const memory = json_object_get(summary, "memory");
    const char *name;
    json_t *device;
    assert_int_equal((int)json_object_size(memory), devices);
    json_object_foreach(memory, name, device)
    {
        const double planned = number(device, "planned"), held = number(device, "held");
        print_message("%s: planned %.0f bytes, holds %.0f: %+.2f %%\n", name, planned, held,
                      100 * (planned / held - 1));
        assert_true(planned >= held);
        assert_near(text("planned memory of %s", name), planned, held, slack);
    }
}

static void check_with(const char *name, const char *devices, struct model model,
                       const char *targets, const char *dtype, double slack, const char *first,
                       const char *second)
{
    const char *const run = scratch("%s", name);
    const char *const job = write_job(text("%s.yaml", name), write_model(name, model), full_rows(),
                                      text("cluster: %s", write_cluster(devices, 1, "")));
    const struct process process =
        TRAIN(job, run, text("data.max_length=%d", TOKENS), text("lora.targets=%s", targets),
              text("train.dtype=%s", dtype), "train.max_steps=2", "zo.probes=2", first, second);
    assert_success(&process);
    compare(run, (int)strlen(devices), slack);
}

static void check(const char *name, const char *devices, struct model model, const char *targets,
                  const char *dtype)
{
    check_with(name, devices, model, targets, dtype, 0.03, NULL, NULL);
}

static void test_f32(void **state)
{
    (void)state;
    check("memory-f32", "NNBB", (struct model){.blocks = 9, .hidden = 256, .untied = true},
          "[q_proj,v_proj]", "f32");
}

static void test_bf16_all_targets(void **state)
{
    (void)state;
    check("memory-bf16", "NBB", (struct model){.blocks = 7, .hidden = 256, .dtype = HOP_BF16},
          "[q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj]", "bf16");
}

static void test_only_gpus(void **state)
{
    (void)state;
    check("memory-gpus", "BBB", (struct model){.blocks = 6, .hidden = 256}, "[q_proj,v_proj]",
          "f32");
}

/* What BP-free devices keep, send and hold differs with the estimator. With boundary the plan
 * cannot know that the first of them gets no tangents, and the last sends neither tangents nor a
 * gradient; with feedback, which of them get no gradient or send none. */
static void test_estimators(void **state)
{
    (void)state;
    static const struct {
        const char *name, *first, *second;
        double slack;
    } cases[] = {
        {"central", "zo.estimator=central", "zo.probe_batch=2", 0.03},
        {"per-sample", "zo.directions=per-sample", NULL, 0.03},
        {"boundary", "zo.estimator=boundary", "zo.probe_batch=2", 0.07},
        {"boundary-samples", "zo.estimator=boundary", "zo.directions=per-sample", 0.07},
        {"feedback", "zo.estimator=feedback", NULL, 0.07},
        {"feedback-all", "zo.estimator=feedback", "zo.feedback_blocks=0", 0.03},
        {"exit", "zo.early_exit=2", NULL, 0.03},
        {"exit-central", "zo.early_exit=3", "zo.estimator=central", 0.03},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        print_message("%s\n", cases[i].name);
        check_with(text("memory-%s", cases[i].name), "NNBB",
                   (struct model){.blocks = 9, .hidden = 256, .untied = i % 2},
                   "[q_proj,o_proj,down_proj]", "f32", cases[i].slack, cases[i].first,
                   cases[i].second);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16_all_targets),
        cmocka_unit_test(test_only_gpus),
        cmocka_unit_test(test_estimators),
    };
    return cmocka_run_group_tests_name("memory of a run", tests, NULL, NULL);
}
