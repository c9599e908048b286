/* What tests of readers share: a scratch folder, the test data, and checks of failures. */
#ifndef HOP_TESTS_SUPPORT_FILES_H
#define HOP_TESTS_SUPPORT_FILES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

/* The path of `name` in a folder that is removed when the program ends. Valid until the end. */
const char *hop_test_path(const char *name);
/* Writes the file and returns its path. */
const char *hop_test_write(const char *name, const void *bytes, size_t n);
const char *hop_test_write_text(const char *name, const char *text);
/* The path of a file below $HYBRIDOP_TESTDATA, or below ../shared/testdata of the source tree.
 * Prints a reason and returns NULL when it is missing, so that the test can skip(). */
const char *hop_test_data(const char *name);

/* Fails the test unless status is HOP_OK. */
void hop_test_ok(hop_status status, const struct hop_error *err, const char *file, int line);
/* Fails the test unless status is `expected` and the message is one line that holds `part`. */
void hop_test_refused(hop_status status, hop_status expected, const struct hop_error *err,
                      const char *part, const char *file, int line);

/* cmocka compares floats only. */
void hop_test_near(double found, double expected, double tolerance, const char *file, int line);

#define ASSERT_OK(expression) hop_test_ok((expression), &err, __FILE__, __LINE__)
#define ASSERT_REFUSED(expression, expected, part)                                                 \
    hop_test_refused((expression), (expected), &err, (part), __FILE__, __LINE__)
#define ASSERT_NEAR(found, expected, tolerance)                                                    \
    hop_test_near((found), (expected), (tolerance), __FILE__, __LINE__)

#endif
