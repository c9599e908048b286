#include "support_files.h"

#include "data/metrics.h"

static void test_hand_computed(void **state)
{
    (void)state;
    /* Label 0: right 2, predicted 3, true 3: F1 2/3. Label 1: 1, 2, 2: F1 1/2. Label 2: 0, 1, 1: 0.
     * Label 3 never comes: 0. */
    static const int32_t predicted[] = {0, 0, 0, 1, 1, 2};
    static const int32_t answer[] = {0, 0, 1, 1, 2, 0};
    const struct hop_label_scores s = hop_label_scores(predicted, answer, 6, 4);
    assert_int_equal(s.examples, 6);
    assert_int_equal(s.correct, 3);
    ASSERT_NEAR(s.accuracy, 0.5, 1e-15);
    ASSERT_NEAR(s.macro_f1, (2.0 / 3 + 0.5) / 4, 1e-15);
}

static void test_perfect_and_empty(void **state)
{
    (void)state;
    static const int32_t labels[] = {0, 1, 2};
    const struct hop_label_scores all = hop_label_scores(labels, labels, 3, 3);
    ASSERT_NEAR(all.accuracy, 1, 0);
    ASSERT_NEAR(all.macro_f1, 1, 1e-15);
    const struct hop_label_scores none = hop_label_scores(NULL, NULL, 0, 2);
    ASSERT_NEAR(none.accuracy, 0, 0);
    ASSERT_NEAR(none.macro_f1, 0, 0);
}

static void test_no_prediction_counts_as_wrong(void **state)
{
    (void)state;
    static const int32_t predicted[] = {-1, 1};
    static const int32_t answer[] = {0, 1};
    const struct hop_label_scores s = hop_label_scores(predicted, answer, 2, 2);
    ASSERT_NEAR(s.accuracy, 0.5, 0);
    ASSERT_NEAR(s.macro_f1, 0.5, 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hand_computed),
        cmocka_unit_test(test_perfect_and_empty),
        cmocka_unit_test(test_no_prediction_counts_as_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
