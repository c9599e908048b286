/* Status codes and the caller-owned error object.
 *
 * Every function that can fail on input, peers, files or memory returns hop_status and takes a
 * `struct hop_error *` (never NULL) as its last argument. The lowest level writes the message once:
 * what, where (file, row, tensor, key), expected and found, remedy. Upper levels only prefix
 * context with hop_wrap(). Outputs are written only on success. Library code never exits or aborts.
 */
#ifndef HOP_BASE_ERROR_H
#define HOP_BASE_ERROR_H

/* name, text, exit status of the program */
#define HOP_STATUS_MAP(X)                                                                          \
    X(OK, "success", 0)                                                                            \
    X(INPUT, "bad input", 2)                                                                       \
    X(UNSUPPORTED, "not supported", 2)                                                             \
    X(INFEASIBLE, "does not fit", 1)                                                               \
    X(MEMORY, "out of memory", 1)                                                                  \
    X(IO, "input/output error", 1)                                                                 \
    X(PEER, "a peer failed", 1)                                                                    \
    X(NUMERIC, "number is not finite", 1)                                                          \
    X(INTERNAL, "internal error", 1)

typedef enum {
#define HOP_STATUS_ENUM(name, text, code) HOP_##name,
    HOP_STATUS_MAP(HOP_STATUS_ENUM)
#undef HOP_STATUS_ENUM
} hop_status;

struct hop_error {
    hop_status status;
    char message[1024]; /* one line, no trailing newline; empty while status is HOP_OK */
};

#if defined(__GNUC__)
#define HOP_PRINTF(f, a) __attribute__((format(printf, f, a)))
#else
#define HOP_PRINTF(f, a)
#endif

/* Fills err and returns status, so that `return hop_fail(err, HOP_INPUT, "...")` reads well. */
hop_status hop_fail(struct hop_error *err, hop_status status, const char *format, ...)
    HOP_PRINTF(3, 4);

/* Puts "context: " before the message; keeps and returns the status. */
hop_status hop_wrap(struct hop_error *err, const char *format, ...) HOP_PRINTF(2, 3);

const char *hop_status_text(hop_status status);
int hop_status_exit_code(hop_status status);

#define HOP_TRY(expression)                                                                        \
    do {                                                                                           \
        const hop_status hop_try_status = (expression);                                            \
        if (hop_try_status != HOP_OK)                                                              \
            return hop_try_status;                                                                 \
    } while (0)

/* Needs a local `hop_status status` and a label `done` that frees and returns status. */
#define HOP_TRY_DONE(expression)                                                                   \
    do {                                                                                           \
        status = (expression);                                                                     \
        if (status != HOP_OK)                                                                      \
            goto done;                                                                             \
    } while (0)

#endif
