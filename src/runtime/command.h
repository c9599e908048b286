/* The messages of a run after setup: commands with their micro-batches, and reports of passes. */
#ifndef HOP_RUNTIME_COMMAND_H
#define HOP_RUNTIME_COMMAND_H

#include "runtime/session.h"

/* A command in its flat form. */
struct hop_command_message {
    enum hop_command kind;
    int32_t schedule; /* TRAIN, EVALUATE, DECODE: index of the schedule */
    int64_t step;
    int32_t batches; /* micro-batches that follow, in session->batches; with DECODE also past and
                        place of their sequences */
};

/* int32 words a command can have at most in this session. */
size_t hop_command_words(const struct hop_session *session);
/* Encodes the message and session->batches[0..batches), past and place. Returns the words used. */
size_t hop_command_encode(const struct hop_session *session,
                          const struct hop_command_message *message, int32_t *words);
/* Decodes into *message and session->batches, past and place. */
hop_status hop_command_decode(struct hop_session *session, const int32_t *words, size_t n,
                              struct hop_command_message *message, struct hop_error *err);

/* Doubles a report of one pass can have at most in this session. */
size_t hop_report_limit(const struct hop_session *session);
size_t hop_report_encode(const struct hop_pass *pass, double *report);
/* Points pass's arrays into report, of which at most `limit` doubles were received. */
hop_status hop_report_decode(const double *report, struct hop_pass *pass, size_t limit,
                             struct hop_error *err);

#endif
