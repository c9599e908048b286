/* Executors whose parts hand rows over inside a device, to other devices, or both at once: they
 * compute what one part computes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "runtime/executor.h"
#include "schedule/lists.h"

static struct hop_transport transport;

enum { SEQUENCES = 5, PARTS = 6, RANKS = 3, MICRO_BATCHES = 2 };

static struct hop_part stage(int32_t stage, int32_t lo, int32_t hi, double sample_lo,
                             double sample_hi)
{
    return (struct hop_part){.stage = stage,
                             .lo = lo,
                             .hi = hi,
                             .sample_lo = sample_lo,
                             .sample_hi = sample_hi,
                             .tensor_hi = 1,
                             .micro_hi = 1};
}

static struct hop_executor_config config_of(const struct support_batch *b, int32_t device,
                                            const int32_t *rank_of,
                                            struct hop_batch_limits *part_limits)
{
    for (int32_t p = 0; p < PARTS; p++)
        part_limits[p] = support_limits(b);
    return (struct hop_executor_config){.model = support_tiny_config(),
                                        .lora = support_all_targets(2, 4),
                                        .dtype = HOP_F32,
                                        .limits = support_limits(b),
                                        .part_limits = part_limits,
                                        .device = device,
                                        .backend = "reference",
                                        .bp = true,
                                        .threads = 1,
                                        .rank_of = rank_of,
                                        .window = 1};
}

static void random_batch(struct support_batch *b)
{
    static const int32_t lengths[SEQUENCES] = {4, 7, 3, 9, 5};
    support_batch_random(b, support_tiny_config().vocabulary, lengths, SEQUENCES);
}

/* The label log-probabilities of an evaluation pass. */
static void evaluate(const struct hop_weights *weights, const struct support_batch *b,
                     struct hop_part *parts, int32_t count, float *scores)
{
    struct hop_error err = {0};
    struct hop_batch_limits part_limits[PARTS];
    const int32_t rank_of[] = {0};
    struct hop_executor *executor = NULL;
    struct hop_schedule schedule;
    struct hop_pass pass;
    const struct hop_executor_config config = config_of(b, 0, rank_of, part_limits);
    const struct hop_plan plan = {.strategy = "test",
                                  .blocks = config.model.blocks,
                                  .devices = 1,
                                  .micro_batches = 1,
                                  .parts = parts,
                                  .part_count = count};
    assert_ok(hop_schedule_evaluation(&plan, 1, &schedule, &err));
    assert_ok(
        hop_executor_create(&config, &plan, &schedule, 1, weights, &transport, &executor, &err));
    assert_ok(hop_executor_run(executor, 0, 0, &b->batch, &pass, &err));
    assert_int_equal(pass.losses, 1);
    memcpy(scores, pass.scores, (size_t)b->batch.labels * sizeof *scores);
    hop_executor_free(executor);
    hop_schedule_free(&schedule);
}

static void test_replicas_of_one_device(void **state)
{
    (void)state;
    struct hop_error err = {0};
    static struct support_batch b;
    const struct hop_model_config model = support_tiny_config();
    struct hop_weights *weights = NULL;
    float whole[SUPPORT_TOKENS], shared[SUPPORT_TOKENS] = {0};
    random_batch(&b);
    assert_ok(hop_weights_random(&model, 3, HOP_F32, &weights, &err));
    struct hop_part line[] = {stage(0, 0, model.blocks, 0, 1)};
    /* Two, three and one parts, which cut the rows differently. */
    struct hop_part many[PARTS] = {stage(0, 0, 1, 0, 0.25), stage(0, 0, 1, 0.25, 1),
                                   stage(1, 1, 2, 0, 0.5),  stage(1, 1, 2, 0.5, 0.75),
                                   stage(1, 1, 2, 0.75, 1), stage(2, 2, model.blocks, 0, 1)};
    evaluate(weights, &b, line, 1, whole);
    evaluate(weights, &b, many, PARTS, shared);
    const double error = support_error(shared, whole, (size_t)b.batch.labels);
    print_message("%d labels differ by %.2e\n", b.batch.labels, error);
    assert_true(error < 1e-6);
    /* One part in front of three with the head. */
    struct hop_part heads[] = {stage(0, 0, 1, 0, 1), stage(1, 1, model.blocks, 0, 0.25),
                               stage(1, 1, model.blocks, 0.25, 0.375),
                               stage(1, 1, model.blocks, 0.375, 1)};
    memset(shared, 0, sizeof shared);
    evaluate(weights, &b, heads, 4, shared);
    assert_true(support_error(shared, whole, (size_t)b.batch.labels) < 1e-6);
    hop_weights_free(weights);
}

/* ---- several ranks ---- */

/* The first device has parts of both stages: its first one hands rows to the second one and to the
 * third device, its second one gives gradients back beside the third device's. */
static const struct hop_plan *mixed_plan(void)
{
    static struct hop_part parts[4];
    static const int32_t devices[] = {0, 1, 0, 2};
    static struct hop_plan plan = {
        .strategy = "test", .devices = RANKS, .micro_batches = MICRO_BATCHES, .part_count = 4};
    plan.blocks = support_tiny_config().blocks;
    parts[0] = stage(0, 0, 1, 0, 0.75);
    parts[1] = stage(0, 0, 1, 0.75, 1);
    parts[2] = stage(1, 1, plan.blocks, 0, 0.25);
    parts[3] = stage(1, 1, plan.blocks, 0.25, 1);
    for (int32_t p = 0; p < 4; p++) {
        parts[p].device = devices[p];
        parts[p].gradient = HOP_GRADIENT_BACKPROP;
    }
    plan.parts = parts;
    return &plan;
}

static const struct hop_plan *whole_plan(int32_t device)
{
    static struct hop_part part;
    static struct hop_plan plan = {.strategy = "test",
                                   .devices = RANKS,
                                   .micro_batches = MICRO_BATCHES,
                                   .parts = &part,
                                   .part_count = 1};
    plan.blocks = support_tiny_config().blocks;
    part = stage(0, 0, plan.blocks, 0, 1);
    part.device = device;
    part.gradient = HOP_GRADIENT_BACKPROP;
    return &plan;
}

/* Micro-batch after micro-batch, forward through the stages and back. */
static struct hop_schedule in_order(const struct hop_plan *plan)
{
    struct hop_slot slots[2 * MICRO_BATCHES * PARTS];
    struct hop_schedule schedule = {0};
    struct hop_error err = {0};
    int32_t n = 0;
    for (int32_t m = 0; m < MICRO_BATCHES; m++)
        for (int32_t p = 0; p < plan->part_count; p++) {
            const struct hop_task task = {.part = p, .micro_batch = m};
            slots[n] = (struct hop_slot){task, 4 * m + plan->parts[p].stage};
            slots[n++].task.kind = HOP_FORWARD;
            slots[n] = (struct hop_slot){task, 4 * m + 3 - plan->parts[p].stage};
            slots[n++].task.kind = HOP_BACKWARD;
        }
    assert_ok(hop_schedule_from_slots(plan, MICRO_BATCHES, slots, n, &schedule, &err));
    return schedule;
}

/* Squares of the gradients of a pass with these adapters; one number a factor. */
static int32_t train(const struct hop_plan *plan, const struct hop_weights *weights,
                     const struct support_batch *b, const float *adapters, double *squares)
{
    struct hop_error err = {0};
    struct hop_batch_limits part_limits[PARTS];
    static const int32_t rank_of[RANKS] = {0, 1, 2};
    struct hop_batch batches[MICRO_BATCHES] = {b->batch, b->batch};
    struct hop_executor *executor = NULL;
    struct hop_pass pass;
    struct hop_schedule schedule = in_order(plan);
    const struct hop_executor_config config = config_of(b, transport.rank, rank_of, part_limits);
    batches[1].micro_batch = 1;
    assert_ok(
        hop_executor_create(&config, plan, &schedule, 1, weights, &transport, &executor, &err));
    float *const state = calloc(hop_executor_state_count(executor), sizeof *state), *to = state;
    for (int32_t p = 0; state && p < plan->part_count; p++) {
        const struct hop_part *const part = &plan->parts[p];
        const size_t begin = (size_t)hop_lora_parameters(&config.model, &config.lora, 0, part->lo);
        const size_t n =
            (size_t)hop_lora_parameters(&config.model, &config.lora, part->lo, part->hi);
        if (part->device != transport.rank)
            continue;
        memcpy(to, adapters + begin, n * sizeof *to);
        to += 3 * n;
    }
    assert_ok(hop_executor_state_set(executor, state, &err));
    assert_ok(hop_executor_run(executor, 0, 1, batches, &pass, &err));
    memcpy(squares, pass.square, (size_t)pass.squares * sizeof *squares);
    free(state);
    hop_executor_free(executor);
    hop_schedule_free(&schedule);
    return pass.squares;
}

static void test_rank(void **state)
{
    (void)state;
    static struct support_batch b;
    static float adapters[1 << 16];
    static double whole[256], mixed[256];
    struct hop_error err = {0};
    struct hop_weights *weights = NULL;
    const struct hop_model_config model = support_tiny_config();
    const struct hop_lora_config lora = support_all_targets(2, 4);
    random_batch(&b);
    assert_ok(hop_weights_random(&model, 3, HOP_F32, &weights, &err));
    for (size_t i = 0; i < sizeof adapters / sizeof *adapters; i++)
        adapters[i] = 0.1f * (float)((int)(i * 7919 % 101) - 50) / 50;
    train(whole_plan(transport.rank), weights, &b, adapters, whole);
    const int32_t n = train(mixed_plan(), weights, &b, adapters, mixed);
    /* Device 0 has all blocks, 1 the first, 2 the others. */
    const size_t first = transport.rank == 2 ? hop_lora_factors(&lora, 0, 1) : 0;
    assert_int_equal(n, transport.rank == 1 ? hop_lora_factors(&lora, 0, 1)
                                            : hop_lora_factors(&lora, 0, model.blocks) - first);
    for (int32_t i = 0; i < n; i++) {
        assert_true(whole[first + (size_t)i] > 0);
        assert_close(mixed[i], whole[first + (size_t)i], 1e-4);
    }
    hop_weights_free(weights);
}

/* This program again, as three ranks. */
static void test_inside_and_between_devices(void **state)
{
    char command[4096];
    const char *const chosen = getenv("HYBRIDOP_MPIEXEC");
    snprintf(command, sizeof command, "%s -n %d %s ranks", chosen ? chosen : HOP_MPIEXEC, RANKS,
             (const char *)*state);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMPI_MCA_rmaps_base_oversubscribe", "1", 1);
    assert_int_equal(system(command), 0);
}

static int set_up(void **state)
{
    (void)state;
    struct hop_error err = {0};
    assert_ok(hop_transport_open(&transport, &err));
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    hop_transport_close(&transport);
    return 0;
}

/* The ranks are started before this process is one itself. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replicas_of_one_device),
    };
    const struct CMUnitTest ranks[] = {
        cmocka_unit_test(test_rank),
    };
    const struct CMUnitTest between[] = {
        cmocka_unit_test_prestate(test_inside_and_between_devices, argv[0]),
    };
    if (argc > 1)
        return cmocka_run_group_tests(ranks, set_up, tear_down);
    const int failed = cmocka_run_group_tests(between, NULL, NULL);
    return failed + cmocka_run_group_tests(tests, set_up, tear_down);
}
