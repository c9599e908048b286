/* Quantities as people read them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "report/quantity.h"

static void test_seconds(void **state)
{
    (void)state;
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0 s"},           {23, "23 s"},       {0.0412, "41.2 ms"}, {0.9994, "999 ms"},
                 {0.9996, "1 s"},      {1.5e-6, "1.5 us"}, {3e-10, "0.3 ns"},   {99.96, "100 s"},
                 {12345.4, "12345 s"}, {0.0999, "99.9 ms"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(hop_quantity_seconds(cases[i].seconds).text, cases[i].text);
    assert_string_equal(hop_quantity_seconds(NAN).text, "-");
    assert_string_equal(hop_quantity_seconds(INFINITY).text, "-");
}

static void test_bytes(void **state)
{
    (void)state;
    static const struct {
        double bytes;
        const char *text;
    } cases[] = {{0, "0 B"},
                 {1023, "1023 B"},
                 {1024, "1 KiB"},
                 {1536.0 * 1024, "1.5 MiB"},
                 {7.0 * (1 << 30), "7 GiB"},
                 {250.25 * (1 << 20), "250 MiB"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(hop_quantity_bytes(cases[i].bytes).text, cases[i].text);
    assert_string_equal(hop_quantity_bytes(INFINITY).text, "-");
}

static void test_numbers(void **state)
{
    (void)state;
    assert_string_equal(hop_quantity_count(0).text, "0");
    assert_string_equal(hop_quantity_count(999999).text, "999999");
    assert_string_equal(hop_quantity_count(1e6).text, "1 M");
    assert_string_equal(hop_quantity_count(3.21e9).text, "3.21 G");
    assert_string_equal(hop_quantity_number(0.1739).text, "0.174");
    assert_string_equal(hop_quantity_number(1234.4).text, "1234");
    assert_string_equal(hop_quantity_number(NAN).text, "-");
    /* Two of them in one call do not share their text. */
    const struct hop_quantity a = hop_quantity_number(1), b = hop_quantity_number(2);
    assert_string_equal(a.text, "1");
    assert_string_equal(b.text, "2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
