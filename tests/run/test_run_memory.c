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

static void compare(const char *run, int devices)
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
        assert_near(text("planned memory of %s", name), planned, held, 0.03);
    }
}

static void check(const char *name, const char *devices, struct model model, const char *targets,
                  const char *dtype)
{
    const char *const run = scratch("%s", name);
    const char *const job = write_job(text("%s.yaml", name), write_model(name, model), full_rows(),
                                      text("cluster: %s", write_cluster(devices, 1, "")));
    const struct process process =
        TRAIN(job, run, text("data.max_length=%d", TOKENS), text("lora.targets=%s", targets),
              text("train.dtype=%s", dtype), "train.max_steps=2", "zo.probes=2");
    assert_success(&process);
    compare(run, (int)strlen(devices));
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f32),
        cmocka_unit_test(test_bf16_all_targets),
        cmocka_unit_test(test_only_gpus),
    };
    return cmocka_run_group_tests_name("memory of a run", tests, NULL, NULL);
}
