/* SQuAD v1.1 files, question by question:
 *   {"data": [{"title", "paragraphs": [{"context", "qas": [{"id", "question",
 *                                                 "answers": [{"text", "answer_start"}]}]}]}]}
 * Internal to src/data. */
#ifndef HOP_DATA_SQUAD_FILE_H
#define HOP_DATA_SQUAD_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include <jansson.h>

#include "base/error.h"

/* Everything is valid during the call only. Scoring needs ids and golds only, so the rest may be
 * missing: hop_need_string() on the objects demands it. */
struct hop_squad_question {
    const char *place;           /* "file: data[0].paragraphs[2].qas[1]" */
    const char *article_place;   /* of "title" */
    const char *paragraph_place; /* of "context" */
    const char *id;
    const json_t *article, *paragraph, *qa;
    const json_t *answers;    /* objects with a string "text", at least one */
    const char *const *golds; /* (gold_count) */
    size_t gold_count;
};

/* Calls `use` for each question until it clears *more or fails. The file is held in memory
 * (hop_json_load's limits). A file without a question is HOP_INPUT. */
hop_status hop_squad_read(const char *path,
                          hop_status (*use)(void *context,
                                            const struct hop_squad_question *question, bool *more,
                                            struct hop_error *err),
                          void *context, struct hop_error *err);

#endif
