/* The candidate answers of a label task and the exact text each has in the data. Internal to
 * src/data. */
#ifndef HOP_DATA_DATASET_LABELS_H
#define HOP_DATA_DATASET_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* Zero-initialised is the set of no label. */
struct hop_label_set {
    char **names; /* as the user writes them, spaces around them removed */
    char **forms; /* the completion first found for each, spaces included; NULL until then */
    size_t count;
};

hop_status hop_label_set_create(const char *const *names, size_t count, struct hop_label_set *out,
                                struct hop_error *err);
void hop_label_set_free(struct hop_label_set *set);

/* *index = the label that the completion is, spaces around it aside, or -1. Remembers the form. */
hop_status hop_label_set_match(struct hop_label_set *set, const char *completion, size_t length,
                               int32_t *index, struct hop_error *err);
/* Gives labels that no row had the surrounding spaces of those that some row had. */
hop_status hop_label_set_complete(struct hop_label_set *set, struct hop_error *err);

#endif
