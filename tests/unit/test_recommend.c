/* Which forecast is recommended: forecasts of made-up speeds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "report/recommend.h"

enum { DEVICES = 3, PARTS = 3, MOST = 4 };

/* npu0, gpu0, gpu1. */
static struct hop_cost_table cluster(void)
{
    struct hop_cost_table cost;
    struct hop_error err;
    assert_int_equal(hop_cost_create(3, DEVICES, &cost, &err), HOP_OK);
    static const char *const names[] = {"npu0", "gpu0", "gpu1"};
    for (int32_t d = 0; d < DEVICES; d++) {
        cost.devices[d].bp = d > 0;
        assert_int_equal(hop_string_copy(&cost.devices[d].name, names[d], &err), HOP_OK);
    }
    return cost;
}

struct made {
    struct hop_forecast forecasts[MOST];
    struct hop_part parts[MOST][PARTS];
    double memory[MOST][DEVICES];
    size_t count;
};

/* A letter a device, in order: z, b, n (not trained) for a block each, - for a device without. */
static void add(struct made *made, const char *strategy, const char *gradients, double rate)
{
    const size_t i = made->count++;
    struct hop_forecast *const forecast = &made->forecasts[i];
    *forecast = (struct hop_forecast){.feasible = rate > 0, .samples_per_second = rate};
    snprintf(forecast->plan.strategy, sizeof forecast->plan.strategy, "%s", strategy);
    forecast->plan.devices = DEVICES;
    forecast->plan.parts = made->parts[i];
    forecast->simulation.devices = DEVICES;
    forecast->simulation.makespan = 1 / rate;
    forecast->simulation.peak_memory = made->memory[i];
    for (int32_t d = 0; d < DEVICES; d++) {
        if (gradients[d] == '-')
            continue;
        made->parts[i][forecast->plan.part_count++] =
            (struct hop_part){.device = d,
                              .lo = d,
                              .hi = d + 1,
                              .gradient = gradients[d] == 'z'   ? HOP_GRADIENT_ZEROTH_ORDER
                                          : gradients[d] == 'b' ? HOP_GRADIENT_BACKPROP
                                                                : HOP_GRADIENT_NONE};
        made->memory[i][d] = (d + 1) * 1024.0;
        forecast->simulation.working++;
    }
}

/* Index of the recommended one, -1: none. */
static int recommended(const struct made *made, char *reason, size_t size)
{
    struct hop_cost_table cost = cluster();
    struct hop_string text = {0};
    struct hop_error err;
    const struct hop_forecast *chosen;
    assert_int_equal(hop_recommend(made->forecasts, made->count, &cost, &chosen, &text, &err),
                     HOP_OK);
    snprintf(reason, size, "%s", hop_string_text(&text));
    hop_string_free(&text);
    hop_cost_free(&cost);
    return chosen ? (int)(chosen - made->forecasts) : -1;
}

static void assert_recommended(const struct made *made, int expected, const char *expected_reason)
{
    char reason[1024];
    assert_int_equal(recommended(made, reason, sizeof reason), expected);
    assert_string_equal(reason, expected_reason);
}

static void faster_estimates_win(void **state)
{
    (void)state;
    struct made made = {0};
    add(&made, "exact", "-bb", 10);
    add(&made, "ours", "zbb", 10.2);
    add(&made, "idle", "nbb", 25);
    assert_recommended(&made, 1,
                       "ours with all 3 devices: 2 % more samples/s than exact on the 2 "
                       "BP-capable devices, and no device needs more than 3 KiB; the adapters of "
                       "npu0 learn from estimates; idle with all 3 devices has 2.5 times the "
                       "samples/s, but leaves the adapters of npu0 untrained");
}

/* Within 1 % exact gradients come before estimates, and fewer devices before more. */
static void ties_prefer_certainty(void **state)
{
    (void)state;
    struct made made = {0};
    add(&made, "ours", "zbb", 10.04);
    add(&made, "many", "bbb", 10.01);
    add(&made, "few", "-bb", 10);
    add(&made, "also", "-bb", 10.02);
    assert_recommended(&made, 2,
                       "few on the 2 BP-capable devices: as many samples/s as ours with all 3 "
                       "devices, and no device needs more than 3 KiB; the best with BP-free "
                       "devices, ours with all 3 devices, has as many samples/s");
    made.forecasts[0].samples_per_second = 10.2;
    char reason[1024];
    assert_int_equal(recommended(&made, reason, sizeof reason), 0);
}

/* Untrained adapters are no answer while there is another one, however slow. */
static void untrained_is_a_yardstick(void **state)
{
    (void)state;
    struct made made = {0};
    add(&made, "idle", "nbb", 25);
    add(&made, "slow", "b--", 5);
    add(&made, "huge", "-bb", 0);
    assert_recommended(&made, 1,
                       "slow on npu0 alone: nothing else that was tried fits and trains every "
                       "adapter, and no device needs more than 1 KiB; idle with all 3 devices has "
                       "5.0 times the samples/s, but leaves the adapters of npu0 untrained");
    made.forecasts[1].feasible = false;
    assert_recommended(&made, 0,
                       "idle with all 3 devices: nothing that trains every adapter fits; this "
                       "leaves the adapters of npu0 untrained");
    made.forecasts[0].feasible = false;
    assert_recommended(&made, -1, "");
}

/* A strategy that comes to the same plan is no rival. */
static void equal_plans_are_no_rivals(void **state)
{
    (void)state;
    struct made made = {0};
    add(&made, "ours", "-bb", 10);
    add(&made, "same", "-bb", 10);
    add(&made, "slower", "-b-", 8);
    assert_recommended(&made, 0,
                       "ours on the 2 BP-capable devices: 25 % more samples/s than slower on gpu0 "
                       "alone, and no device needs more than 3 KiB");
}

static void sorts_stably(void **state)
{
    (void)state;
    struct made made = {0};
    add(&made, "none", "-bb", 0);
    add(&made, "a", "-bb", 1);
    add(&made, "b", "-bb", 2);
    add(&made, "c", "-bb", 1);
    hop_forecasts_sort(made.forecasts, made.count);
    static const char *const order[] = {"b", "a", "c", "none"};
    for (size_t i = 0; i < made.count; i++)
        assert_string_equal(made.forecasts[i].plan.strategy, order[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faster_estimates_win),
        cmocka_unit_test(ties_prefer_certainty),
        cmocka_unit_test(untrained_is_a_yardstick),
        cmocka_unit_test(equal_plans_are_no_rivals),
        cmocka_unit_test(sorts_stably),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
