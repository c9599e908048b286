#include "support_files.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/string.h"
#include "io/csv.h"

static struct hop_error err;

/* Rows as "line|field|field;". */
static hop_status collect(void *context, const struct hop_csv_row *row, struct hop_error *e)
{
    struct hop_string *const text = context;
    HOP_TRY(hop_string_printf(text, e, "%zu", row->line));
    for (size_t i = 0; i < row->count; i++) {
        assert_int_equal(strlen(row->fields[i]), row->lengths[i]);
        HOP_TRY(hop_string_printf(text, e, "|%s", row->fields[i]));
    }
    return hop_string_append(text, ";", 1, e);
}

static void test_rows(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rows;
    } cases[] = {
        {"", ""},
        {"\n\r\n  \n", ""},
        {"a,b\nc,d", "1|a|b;2|c|d;"},
        {"a,b\r\nc,d\r\n", "1|a|b;2|c|d;"},
        {"a,b\rc,d\r", "1|a|b;2|c|d;"},
        {"a,b\r\rc,d\n\re,f", "1|a|b;3|c|d;5|e|f;"},
        {"\"x\ry\",1\rz,2\r", "1|x\ry|1;3|z|2;"},
        {"\"x\r\ry\",1\n\"z\r\",2", "1|x\r\ry|1;4|z\r|2;"},
        {"\xef\xbb\xbf\"a\",b\n", "1|a|b;"},
        {"\n\n\"a\"\n\n\"b\"\n", "3|a;5|b;"},
        {"\"x\ny\",1\nz,2\n", "1|x\ny|1;3|z|2;"},
        {"\"x\r\n\r\ny\",1\r\nz,2\r\n", "1|x\r\n\r\ny|1;4|z|2;"},
        {"\"say \"\"hi\"\"\",\"\",\n", "1|say \"hi\"||;"},
        {"\"oil\\pipeline, #36;\"\n", "1|oil\\pipeline, #36;;"},
        {" a , \" b \" \n", "1|a| b ;"},
        {"\"\n\n\"\nx\n", "1|\n\n;4|x;"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_string rows = {0};
        const char *const path = hop_test_write_text("rows.csv", cases[i].text);
        ASSERT_OK(hop_csv_read(path, collect, &rows, &err));
        assert_string_equal(hop_string_text(&rows), cases[i].rows);
        hop_string_free(&rows);
    }
}

static void test_malformed(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t length;
        const char *part;
    } cases[] = {
        {"a,b\n\"c,d\ne,f\n", 0, "bad.csv:2: broken quoting in the row that starts at line 2"},
        {"a\n\nb \"x\" c\n", 0, "bad.csv:3: broken quoting"},
        {"a\r\rb \"x\" c\r", 0, "bad.csv:3: broken quoting"},
        {"a,b\r\"c,d\re,f\r", 0, "bad.csv:2: broken quoting in the row that starts at line 2"},
        {"\"a\nb\"x\n", 0, "bad.csv:2: broken quoting in the row that starts at line 1"},
        {"\"a\"\"\n", 0, "bad.csv:1: broken quoting"},
        {"a,b\nc,\0d\n", 9, "bad.csv:2: a NUL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_string rows = {0};
        const size_t n = cases[i].length ? cases[i].length : strlen(cases[i].text);
        const char *const path = hop_test_write("bad.csv", cases[i].text, n);
        ASSERT_REFUSED(hop_csv_read(path, collect, &rows, &err), HOP_INPUT, cases[i].part);
        hop_string_free(&rows);
    }
}

static hop_status refuse_second(void *context, const struct hop_csv_row *row, struct hop_error *e)
{
    ++*(int *)context;
    return row->line == 2 ? hop_fail(e, HOP_INPUT, "row refused") : HOP_OK;
}

static void test_callback_stops(void **state)
{
    (void)state;
    int calls = 0;
    const char *const path = hop_test_write_text("stop.csv", "a\nb\nc\nd\n");
    ASSERT_REFUSED(hop_csv_read(path, refuse_second, &calls, &err), HOP_INPUT, "row refused");
    assert_int_equal(calls, 2);
}

static void test_open_quote_does_not_swallow_a_large_file(void **state)
{
    (void)state;
    const size_t n = (size_t)5 << 20;
    char *const text = malloc(n);
    struct hop_string rows = {0};
    memset(text, 'x', n);
    text[0] = '"';
    for (size_t i = 99; i < n; i += 100)
        text[i] = '\n';
    const char *const path = hop_test_write("open.csv", text, n);
    ASSERT_REFUSED(hop_csv_read(path, collect, &rows, &err), HOP_INPUT, "open.csv:1: the row");
    free(text);
    hop_string_free(&rows);
}

static hop_status count_three(void *context, const struct hop_csv_row *row, struct hop_error *e)
{
    (void)e;
    assert_int_equal(row->count, 3);
    ++*(int *)context;
    return HOP_OK;
}

static void test_ag_news_file(void **state)
{
    (void)state;
    int rows = 0;
    const char *const path = hop_test_data("agnews/test.csv");
    if (!path)
        skip();
    ASSERT_OK(hop_csv_read(path, count_three, &rows, &err));
    assert_int_equal(rows, 7600);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_malformed),
        cmocka_unit_test(test_callback_stops),
        cmocka_unit_test(test_open_quote_does_not_swallow_a_large_file),
        cmocka_unit_test(test_ag_news_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
