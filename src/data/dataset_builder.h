/* Collects rows into a dataset: tokenizes, masks, cuts, checks and counts them. Internal to
 * src/data; the task readers call it. */
#ifndef HOP_DATA_DATASET_BUILDER_H
#define HOP_DATA_DATASET_BUILDER_H

#include <stdbool.h>

#include "data/dataset.h"
#include "data/dataset_labels.h"

struct hop_builder {
    const char *path; /* for messages */
    struct hop_tokenizer *tokenizer;
    const struct hop_dataset_options *options;
    struct hop_dataset *dataset;
    size_t capacity;            /* of dataset->examples */
    size_t reference_capacity;  /* of dataset->references */
    struct hop_ids bos;         /* what the post-processor puts in front of a text */
    struct hop_ids ids, labels; /* the row being built */
    struct hop_string where;    /* of that row, for messages */
    const char *answer_space;   /* what a template puts between a prompt and its answer */
    struct hop_label_set candidates;
    size_t longest_answer; /* tokens of the longest candidate with EOS; 0 without candidates */
};

/* A row as a task reader found it. */
struct hop_pair {
    size_t line;
    const char *place; /* "file: data[3]..." where a file is no list of lines; NULL: line says it */
    const char *prompt, *completion;
    size_t prompt_length, completion_length;
    size_t question_length; /* bytes at the prompt's end that a cut spares: what is asked about the
                               text before it; 0: a cut takes the prompt's beginning */
};

hop_status hop_builder_init(struct hop_builder *builder, const char *path,
                            struct hop_tokenizer *tokenizer,
                            const struct hop_dataset_options *options, struct hop_error *err);
void hop_builder_free(struct hop_builder *builder);

/* The candidate answers of a label task; before the first row. */
hop_status hop_builder_set_labels(struct hop_builder *builder, const char *const *names,
                                  size_t count, struct hop_error *err);

/* Enough rows were read. */
bool hop_builder_full(const struct hop_builder *builder);

/* BOS + prompt, completion, EOS; completion and EOS are labelled. */
hop_status hop_builder_add_pair(struct hop_builder *builder, const struct hop_pair *pair,
                                struct hop_error *err);
/* BOS + text + EOS, all labelled. */
hop_status hop_builder_add_text(struct hop_builder *builder, size_t line, const char *text,
                                size_t length, struct hop_error *err);
/* The tokens in builder->ids and builder->labels, filled by the caller. */
hop_status hop_builder_add_tokens(struct hop_builder *builder, size_t line, struct hop_error *err);

/* Moves the finished dataset, with the candidates' tokens, to *out. */
hop_status hop_builder_finish(struct hop_builder *builder, struct hop_dataset **out,
                              struct hop_error *err);

#endif
