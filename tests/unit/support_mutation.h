/* Damages a valid file a few thousand times, always in the same way, and reads it: each must be
 * read or refused with one line, never crash. */
#ifndef HOP_TESTS_SUPPORT_MUTATION_H
#define HOP_TESTS_SUPPORT_MUTATION_H

#include <stddef.h>

#include "base/error.h"

enum { HOP_TEST_MUTATION_SIZE = 2048 };

/* bytes (n), n <= HOP_TEST_MUTATION_SIZE, must be read; at least one damaged form must not.
 * read leaves its failures in err. */
void hop_test_mutate(const char *name, const void *bytes, size_t n,
                     hop_status (*read)(const char *path), const struct hop_error *err);
void hop_test_mutate_text(const char *name, const char *text, hop_status (*read)(const char *path),
                          const struct hop_error *err);

#endif
