/* AccPar's published planner: layers, levels, hierarchies, integer shares. */
#include "support_files.h"

#include <math.h>
#include <stdio.h>

#include "strategy/accpar_shares.h"
#include "strategy/accpar_tree.h"
#include "support_schedule.h"

static double uniform(uint64_t *state, double lo, double hi)
{
    return lo + (hi - lo) * (double)(support_random(state) >> 11) / 9007199254740992.0;
}

static struct hop_accpar_layer random_layer(uint64_t *state)
{
    return (struct hop_accpar_layer){.batch = support_between(state, 1, 64),
                                     .in = support_between(state, 1, 300),
                                     .out = support_between(state, 1, 300),
                                     .kernel = support_between(state, 1, 9),
                                     .in_map = support_between(state, 1, 20),
                                     .out_map = support_between(state, 1, 20)};
}

static void random_groups(uint64_t *state, struct hop_accpar_group *groups)
{
    for (int g = 0; g < 2; g++) {
        groups[g].speed = support_between(state, 0, 4) ? uniform(state, 1, 1000) : INFINITY;
        groups[g].bandwidth = uniform(state, 0.1, 10);
    }
}

/* Layers */

static const struct hop_accpar_layer connected = {
    .batch = 4, .in = 10, .out = 3, .kernel = 1, .in_map = 1, .out_map = 1};
static const struct hop_accpar_layer convolution = {
    .batch = 2, .in = 3, .out = 5, .kernel = 9, .in_map = 16, .out_map = 4};

static void test_sizes(void **state)
{
    (void)state;
    assert_true(hop_accpar_input(&convolution) == 2 * 3 * 16);
    assert_true(hop_accpar_output(&convolution) == 2 * 5 * 4);
    assert_true(hop_accpar_weights(&convolution) == 3 * 5 * 9);
    assert_true(hop_accpar_intra(&convolution, HOP_ACCPAR_I) == 135);
    assert_true(hop_accpar_intra(&convolution, HOP_ACCPAR_II) == 40);
    assert_true(hop_accpar_intra(&convolution, HOP_ACCPAR_III) == 96);
    assert_true(hop_accpar_work(&connected) == 12 * 19 + 40 * 5 + 30 * 7);
    assert_true(hop_accpar_work(&convolution) == 40 * 53 + 96 * 89 + 135 * 15);
}

/* Rows are the type before, columns this one. F and E have 40 elements each; alpha is 1/4. */
static void test_exchanges(void **state)
{
    (void)state;
    const double corner = 0.25 * 0.75 * 80, other = 0.75 * 40;
    const double inter[3][3] = {{0, corner, other}, {other, other, 0}, {corner, 0, other}};
    const double across[3][3] = {{0, other, corner}, {corner, other, 0}, {other, 0, other}};
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++) {
            const enum hop_accpar_type before = (enum hop_accpar_type)a;
            const enum hop_accpar_type type = (enum hop_accpar_type)b;
            assert_true(hop_accpar_inter(&connected, before, type, 0.25) == inter[a][b]);
            assert_true(hop_accpar_across(&connected, before, type, 0.25) == across[a][b]);
        }
}

/* Shares */

/* Without communication the work is shared in proportion to the speeds. */
static void test_share_by_speed(void **state)
{
    (void)state;
    const struct hop_accpar_group groups[2] = {{30, INFINITY}, {10, INFINITY}};
    for (int t = 0; t < HOP_ACCPAR_TYPES; t++) {
        const struct hop_accpar_step step = {&connected, (enum hop_accpar_type)t, -1, -1};
        ASSERT_NEAR(hop_accpar_solve_share(&step, groups), 0.75, 1e-14);
    }
}

/* A cost by hand: type III behind II exchanges E only, 40 elements; the work is 638.
 *     638 a / 10 + 40 / 4 = 638 (1 - a) / 20 + 40 / 1 */
static void test_share_with_communication(void **state)
{
    (void)state;
    const struct hop_accpar_group groups[2] = {{10, 4}, {20, 1}};
    const struct hop_accpar_step step = {&connected, HOP_ACCPAR_III, HOP_ACCPAR_II, -1};
    ASSERT_NEAR(hop_accpar_solve_share(&step, groups), (31.9 + 30) / (63.8 + 31.9), 1e-14);
}

/* Where communication outweighs any work, one group takes nothing of it. */
static void test_share_at_the_end(void **state)
{
    (void)state;
    const struct hop_accpar_group groups[2] = {{1000, 0.001}, {1000, 1000}};
    const struct hop_accpar_step step = {&connected, HOP_ACCPAR_I, -1, -1};
    assert_true(hop_accpar_solve_share(&step, groups) == 0);
}

static double later(const struct hop_accpar_step *step, const struct hop_accpar_group *groups,
                    double alpha)
{
    return fmax(hop_accpar_step_seconds(step, &groups[0], alpha),
                hop_accpar_step_seconds(step, &groups[1], 1 - alpha));
}

/* Either both groups end together, or an end of [0, 1] is at least as good as the other. */
static void test_shares_solve(void **state)
{
    (void)state;
    uint64_t random = 11;
    int32_t inside = 0;
    for (int trial = 0; trial < 2000; trial++) {
        const struct hop_accpar_layer layer = random_layer(&random);
        struct hop_accpar_group groups[2];
        random_groups(&random, groups);
        const struct hop_accpar_step step = {
            &layer, (enum hop_accpar_type)support_between(&random, 0, 2),
            support_between(&random, -1, 2), support_between(&random, -1, 2)};
        const double alpha = hop_accpar_solve_share(&step, groups);
        const double first = hop_accpar_step_seconds(&step, &groups[0], alpha);
        const double second = hop_accpar_step_seconds(&step, &groups[1], 1 - alpha);
        assert_true(alpha >= 0 && alpha <= 1);
        if (alpha > 0 && alpha < 1) {
            ASSERT_NEAR(first, second, 1e-9 * (first + second));
            inside++;
        } else {
            assert_true(later(&step, groups, alpha) <= later(&step, groups, 1 - alpha));
        }
    }
    assert_true(inside > 500);
}

/* Levels */

enum { MOST = 6 };

struct problem {
    struct hop_accpar_layer layers[MOST];
    struct hop_accpar_group groups[2];
    struct hop_accpar_rules rules;
    int32_t n;
};

static double evaluate(const struct problem *problem, const enum hop_accpar_type *types)
{
    double sum = 0;
    for (int32_t l = 0; l < problem->n; l++) {
        struct hop_accpar_step step = {&problem->layers[l], types[l], -1, -1};
        const int32_t shortcut = problem->layers[l].shortcut;
        if (l > 0)
            step.before = (int32_t)types[l - 1];
        if (shortcut && !(problem->rules.free_after_i && step.before == HOP_ACCPAR_I))
            step.from = (int32_t)types[l - shortcut];
        const double alpha = isnan(problem->rules.share)
                                 ? hop_accpar_solve_share(&step, problem->groups)
                                 : problem->rules.share;
        sum += later(&step, problem->groups, alpha);
    }
    return sum;
}

static double brute_force(const struct problem *problem)
{
    double best = INFINITY;
    int32_t ways = 1;
    for (int32_t l = 0; l < problem->n; l++)
        ways *= problem->rules.types;
    for (int32_t way = 0; way < ways; way++) {
        enum hop_accpar_type types[MOST];
        int32_t rest = way;
        for (int32_t l = 0; l < problem->n; l++, rest /= problem->rules.types)
            types[l] = (enum hop_accpar_type)(rest % problem->rules.types);
        best = fmin(best, evaluate(problem, types));
    }
    return best;
}

static struct problem random_problem(uint64_t *random)
{
    struct problem problem = {.n = support_between(random, 1, MOST)};
    for (int32_t l = 0; l < problem.n; l++)
        problem.layers[l] = random_layer(random);
    random_groups(random, problem.groups);
    problem.rules = hop_accpar_rules();
    problem.rules.types = support_between(random, 1, HOP_ACCPAR_TYPES);
    if (support_between(random, 0, 1))
        problem.rules.share = uniform(random, 0, 1);
    return problem;
}

static double solve(const struct problem *problem, enum hop_accpar_type *types)
{
    struct hop_error err = {0};
    double shares[MOST], seconds = NAN;
    ASSERT_OK(hop_accpar_level(problem->layers, problem->n, problem->groups, &problem->rules, types,
                               shares, &seconds, &err));
    return seconds;
}

static void test_level_is_optimal(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (int trial = 0; trial < 500; trial++) {
        const struct problem problem = random_problem(&random);
        enum hop_accpar_type types[MOST];
        const double best = brute_force(&problem), found = solve(&problem, types);
        ASSERT_NEAR(found, best, 1e-12 * best);
        ASSERT_NEAR(evaluate(&problem, types), best, 1e-12 * best);
    }
}

/* Its seconds are those of its types, and no better than possible. */
static void test_shortcuts_count(void **state)
{
    (void)state;
    uint64_t random = 4;
    int32_t optimal = 0;
    for (int trial = 0; trial < 300; trial++) {
        struct problem problem = random_problem(&random);
        enum hop_accpar_type types[MOST];
        problem.rules.free_after_i = support_between(&random, 0, 1);
        for (int32_t l = 2; l < problem.n; l += 2)
            problem.layers[l].shortcut = 2;
        const double best = brute_force(&problem), found = solve(&problem, types);
        ASSERT_NEAR(found, evaluate(&problem, types), 1e-12 * found);
        assert_true(found >= best * (1 - 1e-12));
        optimal += found <= best * (1 + 1e-12);
    }
    assert_true(optimal > 150);
}

/* HyPar, and whoever asks for it, plans as if there were none. */
static void test_shortcuts_do_not_count(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int trial = 0; trial < 100; trial++) {
        struct problem problem = random_problem(&random), plain = problem;
        enum hop_accpar_type types[MOST];
        for (int32_t l = 1; l < problem.n; l++)
            problem.layers[l].shortcut = 1;
        problem.rules.shortcuts = false;
        assert_true(solve(&problem, types) == solve(&plain, types));
    }
    assert_false(hop_accpar_released_rules(2).shortcuts);
}

static void test_ties_take_the_lowest_type(void **state)
{
    (void)state;
    const struct problem problem = {.layers = {{1, 1, 1, 1, 1, 1, 0}, {1, 1, 1, 1, 1, 1, 0}},
                                    .groups = {{INFINITY, INFINITY}, {INFINITY, INFINITY}},
                                    .rules = {.types = HOP_ACCPAR_TYPES, .share = 0.5},
                                    .n = 2};
    enum hop_accpar_type types[MOST];
    assert_true(solve(&problem, types) == 0);
    assert_int_equal(types[0], HOP_ACCPAR_I);
    assert_int_equal(types[1], HOP_ACCPAR_I);
}

static void test_level_refuses(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_accpar_layer layer = connected;
    struct hop_accpar_rules rules = hop_accpar_rules();
    struct hop_accpar_group groups[2] = {{1, 1}, {1, 0}};
    enum hop_accpar_type type;
    double share, seconds;
#define LEVEL(n) hop_accpar_level(&layer, n, groups, &rules, &type, &share, &seconds, &err)
    ASSERT_REFUSED(LEVEL(1), HOP_INPUT, "group 1 has speed 1 and bandwidth 0");
    groups[1].bandwidth = 1;
    ASSERT_REFUSED(LEVEL(0), HOP_INPUT, "0 layers");
    layer.shortcut = 1;
    ASSERT_REFUSED(LEVEL(1), HOP_INPUT, "a shortcut of 1 layers ends at layer 0");
    layer.shortcut = 0;
    layer.in = NAN;
    ASSERT_REFUSED(LEVEL(1), HOP_INPUT, "layer 0 has a size");
    layer.in = 1;
    rules.types = 4;
    ASSERT_REFUSED(LEVEL(1), HOP_INPUT, "4 types");
    rules.types = 3;
    rules.share = 1.5;
    ASSERT_REFUSED(LEVEL(1), HOP_INPUT, "a share of 1.5");
#undef LEVEL
}

/* The released program */

enum { NETWORK = 11 };

/* batch, in, out, kernel, in_map, out_map */
static const struct hop_accpar_layer alexnet[] = {{512, 3, 96, 121, 224 * 224, 55 * 55, 0},
                                                  {512, 96, 256, 25, 55 * 55, 27 * 27, 0},
                                                  {512, 256, 384, 9, 27 * 27, 13 * 13, 0},
                                                  {512, 384, 384, 9, 13 * 13, 13 * 13, 0},
                                                  {512, 384, 256, 9, 13 * 13, 6 * 6, 0},
                                                  {512, 9216, 4096, 1, 1, 1, 0},
                                                  {512, 4096, 4096, 1, 1, 1, 0},
                                                  {512, 4096, 1000, 1, 1, 1, 0}};
static const struct hop_accpar_layer vgg11[] = {{512, 3, 64, 9, 224 * 224, 112 * 112, 0},
                                                {512, 64, 128, 9, 112 * 112, 56 * 56, 0},
                                                {512, 128, 256, 9, 56 * 56, 56 * 56, 0},
                                                {512, 256, 256, 9, 56 * 56, 28 * 28, 0},
                                                {512, 256, 512, 9, 28 * 28, 28 * 28, 0},
                                                {512, 512, 512, 9, 28 * 28, 14 * 14, 0},
                                                {512, 512, 512, 9, 14 * 14, 14 * 14, 0},
                                                {512, 512, 512, 9, 14 * 14, 7 * 7, 0},
                                                {512, 25088, 4096, 1, 1, 1, 0},
                                                {512, 4096, 4096, 1, 1, 1, 0},
                                                {512, 4096, 1000, 1, 1, 1, 0}};

/* The types of one level after the other, as digits; levels without text are not compared. */
static void check_released(const struct hop_accpar_layer *network, int32_t n, int32_t type_count,
                           const char *const *expected)
{
    struct hop_error err = {0};
    struct hop_accpar_layer layers[NETWORK];
    enum hop_accpar_type types[NETWORK];
    const struct hop_accpar_rules rules = hop_accpar_released_rules(type_count);
    double shares[NETWORK], seconds;
    memcpy(layers, network, (size_t)n * sizeof *layers);
    for (int32_t h = 0; h < 7; h++) {
        char text[NETWORK + 1] = "";
        ASSERT_OK(hop_accpar_level(layers, n, hop_accpar_equal_groups, &rules, types, shares,
                                   &seconds, &err));
        for (int32_t l = 0; l < n; l++) {
            text[l] = (char)('0' + (int)types[l]);
            layers[l] = hop_accpar_cut(&layers[l], types[l], shares[l]);
        }
        if (expected[h])
            assert_string_equal(text, expected[h]);
    }
}

static void test_released_program(void **state)
{
    (void)state;
    static const char *const alexnet_rows[] = {"00000121", "00000211", "00000121", "00000212",
                                               "00000121", "00021212", "00001121"};
    static const char *const alexnet_hypar[] = {"00000111", "00000111", "00000111", "00000100",
                                                "00000111", "00001000", "00011111"};
    static const char *const vgg11_rows[7] = {[0] = "00000000121", [6] = "00002112121"};
    check_released(alexnet, 8, HOP_ACCPAR_TYPES, alexnet_rows);
    check_released(alexnet, 8, 2, alexnet_hypar);
    check_released(vgg11, 11, HOP_ACCPAR_TYPES, vgg11_rows);
}

/* Hierarchies */

static void test_bisection_order(void **state)
{
    (void)state;
    struct hop_accpar_device devices[] = {{0, true, 0},  {1, false, 1}, {2, true, 2},
                                          {3, false, 1}, {4, true, 0},  {5, false, 3}};
    const int32_t order[] = {1, 3, 5, 0, 4, 2};
    hop_accpar_sort(devices, 6);
    for (int i = 0; i < 6; i++)
        assert_int_equal(devices[i].device, order[i]);
    assert_int_equal(hop_accpar_middle(devices, 0, 6), 3);
    assert_int_equal(hop_accpar_middle(devices, 0, 3), 2);
    assert_int_equal(hop_accpar_middle(devices, 0, 2), 1);
    assert_int_equal(hop_accpar_middle(devices, 3, 6), 5);
}

static double volume(const struct hop_accpar_layer *layer)
{
    return layer->batch * layer->in * layer->out;
}

/* Every multiplication of every layer is done by exactly one accelerator. */
static void check_cover(const struct hop_accpar_tree *tree, const struct hop_accpar_layer *layers,
                        int32_t accelerators)
{
    for (int32_t l = 0; l < tree->layers; l++) {
        double sum = 0;
        for (int32_t a = 0; a < accelerators; a++)
            sum += volume(&tree->parts[a * tree->layers + l]);
        ASSERT_NEAR(sum, volume(&layers[l]), 1e-9 * volume(&layers[l]));
    }
}

/* Two slow and two fast ones: the slow ones are split from the fast ones, by hand as level 0 of
 * sums; then each pair in halves, because its two are equal. */
static void test_two_levels(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_accpar_tree tree;
    const struct hop_accpar_device devices[] = {
        {0, false, 0}, {1, false, 0}, {2, true, 1}, {3, true, 1}};
    const struct hop_accpar_group groups[] = {{1e9, 1e6}, {1e9, 1e6}, {4e9, 2e6}, {4e9, 2e6}};
    const struct hop_accpar_group sums[] = {{2e9, 2e6}, {8e9, 4e6}};
    const struct hop_accpar_rules rules = hop_accpar_rules();
    enum hop_accpar_type types[NETWORK];
    double shares[NETWORK], seconds;
    ASSERT_OK(hop_accpar_tree_create(alexnet, 8, devices, groups, 4, &rules, &tree, &err));
    ASSERT_OK(hop_accpar_level(alexnet, 8, sums, &rules, types, shares, &seconds, &err));
    assert_int_equal(tree.count, 3);
    assert_int_equal(tree.splits[0].middle, 2);
    assert_int_equal(tree.splits[1].hi, 2);
    assert_int_equal(tree.splits[2].lo, 2);
    assert_true(tree.splits[0].seconds == seconds);
    for (int32_t l = 0; l < 8; l++) {
        assert_int_equal(tree.splits[0].types[l], types[l]);
        assert_true(tree.splits[0].shares[l] == shares[l]);
        for (int32_t s = 1; s < 3; s++)
            ASSERT_NEAR(tree.splits[s].shares[l], 0.5, 1e-12);
    }
    check_cover(&tree, alexnet, 4);
    hop_accpar_tree_free(&tree);
    hop_accpar_tree_free(&tree);
}

/* With equal accelerators and the released rules all splits of a depth are the released level. */
static void test_tree_of_equals(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_accpar_tree tree;
    struct hop_accpar_device devices[8] = {0};
    struct hop_accpar_group groups[8];
    static const char *const rows[] = {"00000121", "00000211", "00000121"};
    const struct hop_accpar_rules rules = hop_accpar_released_rules(HOP_ACCPAR_TYPES);
    for (int32_t i = 0; i < 8; i++) {
        devices[i].device = i;
        groups[i] = hop_accpar_equal_groups[0];
    }
    ASSERT_OK(hop_accpar_tree_create(alexnet, 8, devices, groups, 8, &rules, &tree, &err));
    assert_int_equal(tree.count, 7);
    for (int32_t s = 0; s < tree.count; s++)
        for (int32_t l = 0; l < 8; l++)
            assert_int_equal(tree.splits[s].types[l], rows[tree.splits[s].depth][l] - '0');
    check_cover(&tree, alexnet, 8);
    hop_accpar_tree_free(&tree);
}

static void test_tree_covers(void **state)
{
    (void)state;
    struct hop_error err = {0};
    uint64_t random = 8;
    const struct hop_accpar_rules rules = hop_accpar_rules();
    for (int trial = 0; trial < 100; trial++) {
        const struct problem problem = random_problem(&random);
        const int32_t n = support_between(&random, 1, 7);
        struct hop_accpar_device devices[7];
        struct hop_accpar_group groups[7];
        struct hop_accpar_tree tree;
        for (int32_t i = 0; i < n; i++) {
            const bool bp = support_between(&random, 0, 1);
            devices[i] = (struct hop_accpar_device){i, bp, support_between(&random, 0, 2)};
            groups[i] = (struct hop_accpar_group){uniform(&random, 1, 100), uniform(&random, 1, 9)};
        }
        hop_accpar_sort(devices, n);
        ASSERT_OK(hop_accpar_tree_create(problem.layers, problem.n, devices, groups, n, &rules,
                                         &tree, &err));
        assert_int_equal(tree.count, n - 1);
        check_cover(&tree, problem.layers, n);
        hop_accpar_tree_free(&tree);
    }
    struct hop_accpar_tree none;
    ASSERT_REFUSED(hop_accpar_tree_create(alexnet, 8, NULL, NULL, 0, &rules, &none, &err),
                   HOP_INPUT, "0 accelerators");
}

/* Integer shares */

static void test_deal_by_hand(void **state)
{
    (void)state;
    const double rates[] = {1, 3, 3, 1};
    const int32_t free_caps[] = {99, 99, 99, 99}, tight[] = {99, 2, 99, 99}, none[] = {1, 2, 3, 0};
    int32_t units[4];
    assert_true(hop_accpar_deal(rates, free_caps, 4, 8, 0, units));
    assert_memory_equal(units, ((int32_t[]){1, 3, 3, 1}), sizeof units);
    assert_true(hop_accpar_deal(rates, free_caps, 4, 10, 0, units)); /* 1.25, 3.75, 3.75, 1.25 */
    assert_memory_equal(units, ((int32_t[]){1, 4, 4, 1}), sizeof units);
    assert_true(hop_accpar_deal(rates, tight, 4, 12, 0, units)); /* 2, 2, 6, 2 */
    assert_memory_equal(units, ((int32_t[]){2, 2, 6, 2}), sizeof units);
    assert_true(hop_accpar_deal(rates, none, 4, 6, 0, units));
    assert_memory_equal(units, ((int32_t[]){1, 2, 3, 0}), sizeof units);
    assert_false(hop_accpar_deal(rates, none, 4, 7, 0, units));
    assert_false(hop_accpar_deal(rates, none, 4, 6, 1, units));
    assert_false(hop_accpar_deal(rates, free_caps, 4, 3, 1, units));
}

/* Sums, bounds, and that nobody has a unit more than another would have with one more, up to the
 * rounding of both. */
static void test_deal_is_proportional(void **state)
{
    (void)state;
    uint64_t random = 21;
    int32_t dealt = 0;
    for (int trial = 0; trial < 2000; trial++) {
        const int32_t n = support_between(&random, 1, 10),
                      total = support_between(&random, 1, 1024);
        const int32_t least = support_between(&random, 0, 1);
        double rates[10];
        int32_t caps[10], units[10], sum = 0;
        for (int32_t i = 0; i < n; i++) {
            rates[i] = uniform(&random, 0.01, 1);
            caps[i] = support_between(&random, 0, total);
        }
        if (!hop_accpar_deal(rates, caps, n, total, least, units))
            continue;
        dealt++;
        for (int32_t i = 0; i < n; i++) {
            sum += units[i];
            assert_true(units[i] >= least && units[i] <= caps[i]);
            for (int32_t k = 0; k < n; k++)
                if (units[i] > least && units[k] < caps[k])
                    assert_true((units[i] - 1) / rates[i] <= (units[k] + 1) / rates[k]);
        }
        assert_int_equal(sum, total);
    }
    assert_true(dealt > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_share_by_speed),
        cmocka_unit_test(test_share_with_communication),
        cmocka_unit_test(test_share_at_the_end),
        cmocka_unit_test(test_shares_solve),
        cmocka_unit_test(test_level_is_optimal),
        cmocka_unit_test(test_shortcuts_count),
        cmocka_unit_test(test_shortcuts_do_not_count),
        cmocka_unit_test(test_ties_take_the_lowest_type),
        cmocka_unit_test(test_level_refuses),
        cmocka_unit_test(test_released_program),
        cmocka_unit_test(test_bisection_order),
        cmocka_unit_test(test_two_levels),
        cmocka_unit_test(test_tree_of_equals),
        cmocka_unit_test(test_tree_covers),
        cmocka_unit_test(test_deal_by_hand),
        cmocka_unit_test(test_deal_is_proportional),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
