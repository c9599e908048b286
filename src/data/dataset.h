/* Data files read, tokenized and masked: what training and evaluation iterate over.
 *
 * Labels follow Hugging Face: labels[i] belongs to ids[i] and is -100 where no loss counts;
 * position i predicts labels[i + 1]. labels[0] therefore never counts. */
#ifndef HOP_DATA_DATASET_H
#define HOP_DATA_DATASET_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "text/tokenizer.h"

enum { HOP_LABEL_IGNORED = -100 };

struct hop_example {
    int32_t *ids;    /* (length) */
    int32_t *labels; /* (length), in the block of ids */
    int32_t length;
    int32_t prompt_length; /* tokens before the first label token that counts */
    int32_t answer;        /* index of the right label of a label task, or -1 */
    int32_t group;         /* the question it is one answer to, in [0, group_count), or -1 */
};

/* What a free answer is measured against. */
struct hop_reference {
    char *id;     /* of the question */
    char **golds; /* (count): right answers */
    size_t count;
};

struct hop_dataset {
    struct hop_example *examples;
    size_t count;
    int64_t tokens, label_tokens;
    size_t rows;      /* read from the file */
    size_t unlabeled; /* rows left out because no label token was left after masking and cutting */
    size_t truncated; /* rows cut to max_length and kept */
    int32_t longest;
    /* Label tasks only: each candidate answer as tokens. */
    struct hop_ids *label_ids;
    char **label_names;
    size_t label_count;
    /* Tasks that judge several answers to a question, each an example: how many questions there
     * are. The examples of a question stand together. */
    size_t group_count;
    struct hop_reference *references; /* (count) in tasks with free answers, else NULL */
};

enum hop_data_task {
    HOP_TASK_JSONL,
    HOP_TASK_AG_NEWS,
    HOP_TASK_MULTIRC,
    HOP_TASK_SQUAD,
    HOP_TASK_COUNT
};
extern const char *const hop_task_names[]; /* NULL-terminated, as in the job file */

struct hop_dataset_options {
    enum hop_data_task task;
    /* Longer rows are cut: the prompt from the left, keeping BOS and the answer; then the answer at
     * its end. 0: no limit. */
    int32_t max_length;
    int32_t vocabulary; /* of the model: a larger id is HOP_INPUT naming file and line; 0: any */
    int32_t eos;        /* appended to completions; -1: none */
    /* Candidate answers of a jsonl label task ({"completion": …} equal to one of them); may be
     * empty. */
    const char *const *labels;
    size_t label_count;
    size_t limit; /* rows to read at most; 0: all. multirc reads whole questions only */
};

/* Reads path by the task's reader (one file a task: src/data/task_NAME.c). Errors name file:line,
 * or the file and the place in its JSON. A file without a usable row is HOP_INPUT. tokenizer may be
 * NULL where every row holds tokens. */
hop_status hop_dataset_load(const char *path, struct hop_tokenizer *tokenizer,
                            const struct hop_dataset_options *options, struct hop_dataset **out,
                            struct hop_error *err);
void hop_dataset_free(struct hop_dataset *dataset);

#endif
