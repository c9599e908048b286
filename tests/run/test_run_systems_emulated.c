/* Emulated devices take the time that the simulator predicts of replicas, several pipelines and
 * tensor shards. */
#include "support.h"

#include "strategy/strategy.h"

enum { DEVICES = 4, BLOCKS = 10 };

static const char *job, *cluster;

/* Boards with figures that make tasks of milliseconds out of a small model; the first two are twice
 * as fast. */
static int set_up(void **state)
{
    (void)state;
    const char *lines = "network: {bandwidth: 20Mbps, latency: 0.3ms}\ndevices:\n";
    for (int d = 0; d < DEVICES; d++)
        lines = text("%s  - {name: gpu%d, bp: true, backend: %s, threads: 1, rate: %s, emulate: "
                     "true, time_scale: 20}\n",
                     lines, d, backend(), d < 2 ? "2e-3" : "1e-3");
    cluster = text("cluster=%s", write_text("boards.yaml", "%s", lines));
    const char *const model = write_model("model", (struct model){.blocks = BLOCKS});
    job = write_job("job.yaml", model, write_rows("rows.jsonl", 32, 32, 32, 64), NULL);
    return 0;
}

/* `parts` is the list of a plan file. */
static void compare(const char *strategy, const char *name, const char *parts)
{
    const struct hop_strategy *found;
    struct hop_error err = {0};
    if (hop_strategy_find(strategy, &found, &err) != HOP_OK) {
        print_message("%s\n", err.message);
        skip();
    }
    const char *const run = scratch("%s", name);
    const char *const plan = write_text(text("%s.json", name),
                                        "{\"strategy\": \"%s\", \"micro_batches\": 4, "
                                        "\"micro_batch_samples\": 4, \"parts\": [%s]}\n",
                                        strategy, parts);
    const struct process done =
        TRAIN(job, run, cluster, text("plan.file=%s", plan), text("strategy=%s", strategy),
              "train.max_steps=4", "data.max_length=32", "train.batch_size=16",
              "train.micro_batch=4", "train.learning_rate=0.001");
    assert_success(&done);
    const double predicted = predicted_seconds(run), measured = median_seconds(run);
    const json_t *const summary = read_json(text("%s/summary.json", run));
    print_message("%s: a step takes %.1f ms, simulated %.1f ms: %+.2f %%; %g tasks were late\n",
                  name, 1e3 * measured, 1e3 * predicted, 100 * (measured / predicted - 1),
                  number(json_object_get(summary, "emulation"), "late_tasks"));
    assert_near("seconds of a step", measured, predicted, 0.05);
    assert_predicted_tasks(run, 3, 0.03);
}

/* Two fast boards share the rows 3 to 1, then two slow ones 1 to 3. */
static void test_replicas(void **state)
{
    (void)state;
    compare("gpipe", "replicas",
            "{\"device\": \"gpu0\", \"stage\": 0, \"blocks\": [0, 6], \"samples\": [0, 3]},"
            "{\"device\": \"gpu1\", \"stage\": 0, \"blocks\": [0, 6], \"samples\": [3, 4]},"
            "{\"device\": \"gpu2\", \"stage\": 1, \"blocks\": [6, 10], \"samples\": [0, 1]},"
            "{\"device\": \"gpu3\", \"stage\": 1, \"blocks\": [6, 10], \"samples\": [1, 4]}");
}

/* Groups with different cuts, whose blocks are added up in three reductions. */
static void test_groups(void **state)
{
    (void)state;
    compare("gpipe", "groups",
            "{\"device\": \"gpu0\", \"pipeline\": 0, \"stage\": 0, \"blocks\": [0, 7], "
            "\"micro_share\": [0, 0.5]},"
            "{\"device\": \"gpu2\", \"pipeline\": 0, \"stage\": 1, \"blocks\": [7, 10], "
            "\"micro_share\": [0, 0.5]},"
            "{\"device\": \"gpu3\", \"pipeline\": 1, \"stage\": 0, \"blocks\": [0, 4], "
            "\"micro_share\": [0.5, 1]},"
            "{\"device\": \"gpu1\", \"pipeline\": 1, \"stage\": 1, \"blocks\": [4, 10], "
            "\"micro_share\": [0.5, 1]}");
}

/* Both directions, two parts a board. */
static void test_both_directions(void **state)
{
    (void)state;
    static const int cut[] = {0, 3, 6, 8, 10};
    const char *parts = "";
    for (int i = 0; i < 2 * DEVICES; i++) {
        const int pipeline = i / DEVICES, stage = i % DEVICES;
        parts = text("%s%s{\"device\": \"gpu%d\", \"pipeline\": %d, \"stage\": %d, \"blocks\": "
                     "[%d, %d], \"micro_share\": [%g, %g]}",
                     parts, i ? "," : "", pipeline ? DEVICES - 1 - stage : stage, pipeline, stage,
                     cut[stage], cut[stage + 1], pipeline ? 0.5 : 0.0, pipeline ? 1.0 : 0.5);
    }
    compare("chimera", "directions", parts);
}

/* Behind a whole stage, a fast and a slow board share the tensors 2 to 1 and meet in every task. */
static void test_shards(void **state)
{
    (void)state;
    compare("gpipe", "shards",
            "{\"device\": \"gpu1\", \"stage\": 0, \"blocks\": [0, 8]},"
            "{\"device\": \"gpu0\", \"stage\": 1, \"blocks\": [8, 10], \"tensor\": [0, 0.7]},"
            "{\"device\": \"gpu2\", \"stage\": 1, \"blocks\": [8, 10], \"tensor\": [0.7, 1]}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replicas),
                                       cmocka_unit_test(test_groups), cmocka_unit_test(test_shards),
                                       cmocka_unit_test(test_both_directions)};
    return cmocka_run_group_tests(tests, set_up, NULL);
}
