/* MultiRC files, question by question: SuperGLUE's JSON Lines,
 *   {"idx", "passage": {"text", "questions": [{"idx", "question", "answers": [{"text",
 * "label"}]}]}} a passage a line, and the original JSON,
 *   {"data": [{"id", "paragraph": {"text", "questions": [{"question",
 *                                                         "answers": [{"text", "isAnswer"}]}]}}]}
 * whose text has sentence marks, which are taken out: then both hold the same strings. The first
 * line tells which it is. Internal to src/data. */
#ifndef HOP_DATA_MULTIRC_FILE_H
#define HOP_DATA_MULTIRC_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct hop_multirc_answer {
    const char *text;
    bool right;
};

/* Everything is valid during the call only. */
struct hop_multirc_question {
    const char *place;      /* "file:12: passage.questions[3]" or "file: data[0].paragraph..." */
    const char *passage_id; /* the original's "id", SuperGLUE's "idx" as text; NULL when absent */
    size_t position;        /* in its passage, from 0 */
    int64_t idx;            /* SuperGLUE's number of the question; -1 when absent */
    const char *passage, *question;
    const struct hop_multirc_answer *answers; /* (answer_count), at least one */
    size_t answer_count;
};

/* Calls `use` for each question until it clears *more or fails. The original JSON is held in memory
 * as a whole (hop_json_load's limits), JSON Lines a line at a time. */
hop_status hop_multirc_read(const char *path,
                            hop_status (*use)(void *context,
                                              const struct hop_multirc_question *question,
                                              bool *more, struct hop_error *err),
                            void *context, struct hop_error *err);

#endif
