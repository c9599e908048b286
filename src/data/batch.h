/* Micro-batches: rows packed one after the other without padding, and the order rows are visited
 * in. */
#ifndef HOP_DATA_BATCH_H
#define HOP_DATA_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/dataset.h"

/* One micro-batch. Sequence s is tokens offset[s] .. offset[s+1) of ids. Label j says that the
 * hidden state of token row[j] should predict id[j]; rows ascend and may repeat (several candidates
 * scored at one position). */
struct hop_batch {
    int32_t sequences, tokens, labels;
    int32_t *ids;        /* (tokens) */
    int32_t *position;   /* (tokens): position inside its sequence */
    int32_t *offset;     /* (sequences + 1) */
    int32_t *label_row;  /* (labels) */
    int32_t *label_id;   /* (labels) */
    int64_t label_total; /* label tokens of the whole mini-batch: the divisor of the loss */
    int32_t micro_batch; /* index inside the mini-batch */
};

/* Largest sizes a batch may have; what buffers are allocated for. */
struct hop_batch_limits {
    int32_t sequences, tokens, labels;
};

/* Storage for one batch inside the limits (one allocation, freed by hop_batch_free). */
hop_status hop_batch_create(const struct hop_batch_limits *limits, struct hop_batch *out,
                            struct hop_error *err);
void hop_batch_free(struct hop_batch *batch);

/* Label tokens of rows[0..n): over the rows of a mini-batch, its label_total. */
int64_t hop_batch_label_count(const struct hop_dataset *dataset, const uint32_t *rows, size_t n);

/* Packs rows rows[0..n) of the dataset for training into `out` (from hop_batch_create), as if they
 * were a whole mini-batch: label_total = labels and micro_batch = 0, which callers overwrite. */
void hop_batch_pack(const struct hop_dataset *dataset, const uint32_t *rows, size_t n,
                    struct hop_batch *out);

/* Flat form for sending: int32 words, at most hop_batch_words() of them. Positions are rebuilt by
 * the receiver. */
size_t hop_batch_words(const struct hop_batch_limits *limits);
size_t hop_batch_encode(const struct hop_batch *batch, int32_t *words);
/* Checks every count and index against the limits and the vocabulary; what does not fit is
 * HOP_INPUT. `out` is from hop_batch_create with these limits. */
hop_status hop_batch_decode(const int32_t *words, size_t n, const struct hop_batch_limits *limits,
                            int32_t vocabulary, struct hop_batch *out, struct hop_error *err);

/* Visits a dataset in mini-batches, epoch after epoch. The order of epoch e is a function of (seed,
 * e) only, so a resumed run sees the same rows. */
struct hop_loader {
    const struct hop_dataset *dataset;
    uint32_t *order;
    size_t batch_size, micro_batch_size;
    uint64_t seed;
    bool shuffle;
    int64_t steps_per_epoch;
    int64_t epoch; /* that `order` belongs to; -1 at first */
    struct hop_batch_limits limits;
};

hop_status hop_loader_create(const struct hop_dataset *dataset, size_t batch_size,
                             size_t micro_batch_size, uint64_t seed, bool shuffle,
                             struct hop_loader *out, struct hop_error *err);
void hop_loader_free(struct hop_loader *loader);
/* Limits that hold for every micro-batch of every epoch, whatever the order. */
struct hop_batch_limits hop_loader_limits(const struct hop_loader *loader);
/* Rows of mini-batch `step` (from 0, over all epochs): *rows points into the loader, valid until
 * the next call. Returns their number; micro-batch m holds rows [m*micro_batch_size, ...). */
size_t hop_loader_rows(struct hop_loader *loader, int64_t step, const uint32_t **rows);

#endif
