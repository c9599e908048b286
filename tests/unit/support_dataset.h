/* What tests of tokenized rows share. */
#ifndef HOP_TESTS_SUPPORT_DATASET_H
#define HOP_TESTS_SUPPORT_DATASET_H

#include "data/dataset.h"
#include "text/tokenizer.h"

enum { HOP_TEST_EOS = 2 };

/* The tokenizer of the repository's own model, or of the public one of the test data; NULL (with a
 * reason) without both. */
struct hop_tokenizer *hop_test_tokenizer(void);

/* The example must be BOS + prompt, completion, HOP_TEST_EOS, with labels from the completion on.
 */
void hop_test_pair(struct hop_tokenizer *tokenizer, const struct hop_example *example,
                   const char *prompt, const char *completion);

#endif
