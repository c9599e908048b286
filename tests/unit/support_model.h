/* Helpers of the model and training tests: reference data, small random models, hand-made batches.
 */
#ifndef SUPPORT_MODEL_H
#define SUPPORT_MODEL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>

#include "data/batch.h"
#include "model/stage.h"

#define assert_ok(expression)                                                                      \
    do {                                                                                           \
        struct hop_error *const assert_ok_err = &err;                                              \
        const hop_status assert_ok_status = (expression);                                          \
        if (assert_ok_status != HOP_OK)                                                            \
            fail_msg("%s: %s", #expression, assert_ok_err->message);                               \
    } while (0)

/* The expression must give `status`, and the message must contain every text. */
#define assert_fails(expression, expected, text)                                                   \
    do {                                                                                           \
        const hop_status assert_fails_status = (expression);                                       \
        assert_int_equal(assert_fails_status, expected);                                           \
        if (!strstr(err.message, text))                                                            \
            fail_msg("\"%s\" is not in: %s", text, err.message);                                   \
    } while (0)

#define assert_close(actual, expected, tolerance)                                                  \
    support_close((actual), (expected), (tolerance), #actual, __FILE__, __LINE__)
void support_close(double actual, double expected, double tolerance, const char *what,
                   const char *file, int line);

/* A path below $HYBRIDOP_TESTDATA or ../shared/testdata; skips the test with a reason when absent.
 */
const char *support_data(const char *relative);
json_t *support_json(const char *path);

/* A fresh folder below /tmp, removed by support_folder_remove(). */
void support_folder(char *path, size_t size);
void support_folder_remove(const char *path);

/* || a - b || / || b || */
double support_error(const float *a, const float *b, size_t n);
double support_norm(const float *a, size_t n);
/* -sum of log-probabilities / divisor, in double. */
double support_loss(const float *logprob, size_t n, double divisor);

enum { SUPPORT_TOKENS = 1024, SUPPORT_SEQUENCES = 16 };
struct support_batch {
    struct hop_batch batch;
    int32_t ids[SUPPORT_TOKENS], position[SUPPORT_TOKENS], offset[SUPPORT_SEQUENCES + 1];
    int32_t label_row[SUPPORT_TOKENS], label_id[SUPPORT_TOKENS];
};
void support_batch_begin(struct support_batch *b);
/* labels as in Hugging Face (-100 ignored, position i predicts labels[i+1]); NULL: every next
 * token. */
void support_batch_add(struct support_batch *b, const int32_t *ids, const int32_t *labels,
                       int32_t n);
/* Random sequences of the given lengths, every third position labelled and some twice. */
void support_batch_random(struct support_batch *b, int32_t vocabulary, const int32_t *lengths,
                          int32_t count);
struct hop_batch_limits support_limits(const struct support_batch *b);

/* Two heads of four in one kv head, three blocks, odd sizes. */
struct hop_model_config support_tiny_config(void);
struct hop_lora_config support_all_targets(int32_t rank, double alpha);

/* A backend, weights and one stage over them. */
struct support_stage {
    struct hop_ops ops;
    struct hop_backend *backend;
    struct hop_stage *stage;
};
void support_stage_open(struct support_stage *s, const struct hop_ops *ops,
                        const struct hop_weights *weights, const struct hop_stage_config *config);
void support_stage_close(struct support_stage *s);
/* Adapter values, A and B, uniform in +-size. */
void support_random_adapters(struct support_stage *s, uint64_t seed, float size);

#endif
