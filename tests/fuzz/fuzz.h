/* What the fuzz targets share. A target is one file with LLVMFuzzerTestOneInput(): it reads hostile
 * bytes the way the program does, and aborts where a promise of the reader is broken. Linked with
 * replay.c it reads a stored corpus; with libFuzzer it looks for new inputs. */
#ifndef HOP_TESTS_FUZZ_H
#define HOP_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/tokenizer.h"

/* 0: the input may be kept. Calls abort() where the code under test is wrong. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Aborts with the text of a promise that was broken. */
#define HOP_FUZZ_EXPECT(promise)                                                                   \
    do {                                                                                           \
        if (!(promise))                                                                            \
            hop_fuzz_broken(#promise, __FILE__, __LINE__);                                         \
    } while (0)
_Noreturn void hop_fuzz_broken(const char *promise, const char *file, int line);

/* Whether a reader succeeded. It must otherwise refuse with one line, as bad input or as something
 * not supported. */
bool hop_fuzz_read(hop_status status, const struct hop_error *err);
/* Of calls that may not fail. */
void hop_fuzz_ok(hop_status status, const struct hop_error *err);

/* A scratch folder, removed when the program ends; and the path of a file written there, valid
 * until the next call. */
const char *hop_fuzz_folder(void);
const char *hop_fuzz_write(const char *name, const void *bytes, size_t n);

/* Inputs of several files are separated by NUL bytes. The last part takes what is left. */
struct hop_fuzz_part {
    const uint8_t *data;
    size_t size;
};
struct hop_fuzz_part hop_fuzz_next(struct hop_fuzz_part *rest);

/* The words of a message, as aligned as a receive buffer is. Caller frees. */
int32_t *hop_fuzz_words(const uint8_t *data, size_t size, size_t *count);

/* Loaded once, from the bundled model; kept until the end. */
struct hop_tokenizer *hop_fuzz_tokenizer(void);

#endif
