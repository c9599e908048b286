/* Collected adapters: each block once, and copies that differ are found. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/block_state.h"

enum { COUNT = 50 };

struct copy {
    float values[COUNT], exp_avg[COUNT], exp_avg_sq[COUNT];
};

static void fill(struct copy *copy)
{
    for (int i = 0; i < COUNT; i++) {
        copy->values[i] = 0.25f * (float)(i - 20);
        copy->exp_avg[i] = 1e-3f * (float)(i * i);
        copy->exp_avg_sq[i] = 1e-6f * (float)i;
    }
}

static struct hop_block_state state_of(struct copy *copy)
{
    return (struct hop_block_state){copy->values, copy->exp_avg, copy->exp_avg_sq, COUNT};
}

/* One bit anywhere, and equal numbers at other places. */
static void test_checksum(void **unused)
{
    (void)unused;
    static struct copy a, b;
    const struct hop_block_state left = state_of(&a), right = state_of(&b);
    fill(&a);
    fill(&b);
    assert_true(hop_block_checksum(&left) == hop_block_checksum(&right));
    float *const arrays[] = {b.values, b.exp_avg, b.exp_avg_sq};
    for (int k = 0; k < 3; k++)
        for (int i = 0; i < COUNT; i++) {
            uint32_t bits;
            fill(&b);
            memcpy(&bits, &arrays[k][i], sizeof bits);
            bits ^= 1;
            memcpy(&arrays[k][i], &bits, sizeof bits);
            assert_false(hop_block_checksum(&left) == hop_block_checksum(&right));
        }
    fill(&b);
    b.values[3] = a.values[4];
    b.values[4] = a.values[3];
    assert_false(hop_block_checksum(&left) == hop_block_checksum(&right));
}

static void test_put_and_take(void **unused)
{
    (void)unused;
    static struct copy a, b;
    static float wire[3 * COUNT];
    const struct hop_block_state from = state_of(&a), to = state_of(&b);
    fill(&a);
    assert_int_equal(hop_block_put(&from, wire), 3 * COUNT);
    assert_int_equal(hop_block_take(&to, wire), 3 * COUNT);
    assert_memory_equal(&a, &b, sizeof a);
}

/* The first part that holds a block sends it, the others a checksum. */
static void test_senders(void **unused)
{
    (void)unused;
    struct hop_part parts[] = {{.lo = 0, .hi = 2},
                               {.stage = 1, .lo = 2, .hi = 4},
                               {.pipeline = 1, .lo = 0, .hi = 3},
                               {.pipeline = 1, .stage = 1, .lo = 3, .hi = 4}};
    const struct hop_plan plan = {.blocks = 4, .parts = parts, .part_count = 4};
    static const int32_t sender[] = {0, 0, 1, 1};
    for (int32_t block = 0; block < 4; block++)
        for (int32_t p = 0; p < 4; p++) {
            if (block < parts[p].lo || block >= parts[p].hi)
                continue;
            const bool sends = p == sender[block];
            assert_int_equal(hop_block_is_sent_by(&plan, block, p), sends);
            assert_int_equal(hop_block_floats(&plan, block, p, COUNT), sends ? 3 * COUNT : 2);
            assert_int_equal(hop_block_floats(&plan, block, p, 0), 0);
        }
}

/* All shards of the first gang that holds a block send their slices, whole copies and other gangs
 * checksums. */
static void test_shards(void **unused)
{
    (void)unused;
    struct hop_part parts[] = {
        {.sample_hi = 0.5, .tensor_hi = 0.5, .hi = 4},
        {.sample_lo = 0.5, .sample_hi = 1, .tensor_hi = 1, .hi = 4},
        {.sample_hi = 0.5, .tensor_lo = 0.5, .tensor_hi = 1, .hi = 4},
        {.pipeline = 1, .sample_hi = 1, .tensor_hi = 0.5, .hi = 4},
        {.pipeline = 1, .sample_hi = 1, .tensor_lo = 0.5, .tensor_hi = 1, .hi = 4}};
    const struct hop_plan plan = {.blocks = 4, .parts = parts, .part_count = 5};
    static const bool sends[] = {true, false, true, false, false};
    for (int32_t block = 0; block < 4; block++)
        for (int32_t p = 0; p < 5; p++)
            assert_int_equal(hop_block_is_sent_by(&plan, block, p), sends[p]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_put_and_take),
        cmocka_unit_test(test_senders),
        cmocka_unit_test(test_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
