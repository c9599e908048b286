/* A row as text, with what is trained on told apart. */
#ifndef HOP_CLI_DATA_VIEW_H
#define HOP_CLI_DATA_VIEW_H

#include <stdbool.h>
#include <stdio.h>

#include <jansson.h>

#include "data/dataset.h"

/* Writes a row to a terminal or a file: control characters as \xNN, so that data cannot command the
 * terminal; long parts without their middle. Trained parts are green where `color`, else between
 * U+27E6 and U+27E7. Ids that the tokenizer does not know, and rows without a tokenizer, are shown
 * as numbers. */
hop_status hop_data_view_print(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                               bool color, FILE *to, struct hop_error *err);
/* {"tokens", "label_tokens", "parts": [{"trained", "tokens", "text"}]}, nothing left out. */
hop_status hop_data_view_json(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                              json_t **out, struct hop_error *err);

#endif
