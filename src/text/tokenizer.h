/* tokenizer.json of LLaMA-family models: byte-level BPE (GPT-2, Llama 3) and SentencePiece-style
 * BPE (Llama 2). A component the file names and this reader does not know is an error that names
 * it. */
#ifndef HOP_TEXT_TOKENIZER_H
#define HOP_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/string.h"

/* A growable list of token ids; zero-initialised is empty. */
struct hop_ids {
    int32_t *data;
    size_t count, capacity;
};

void hop_ids_free(struct hop_ids *ids);
hop_status hop_ids_append(struct hop_ids *ids, int32_t id, struct hop_error *err);

struct hop_tokenizer;

/* Reads directory/tokenizer.json. */
hop_status hop_tokenizer_load(const char *directory, struct hop_tokenizer **out,
                              struct hop_error *err);
void hop_tokenizer_free(struct hop_tokenizer *tokenizer);

/* Appends the ids of text (UTF-8; invalid bytes are HOP_INPUT). add_special applies the
 * post-processor (BOS and the like). Not thread-safe on one tokenizer. */
hop_status hop_tokenizer_encode(struct hop_tokenizer *tokenizer, const char *text, size_t length,
                                bool add_special, struct hop_ids *out, struct hop_error *err);
/* Appends the ids of text that stands behind another token and may come from anybody: a string that
 * spells a special token stays text. Added tokens that are not special are found as above, and
 * nothing is put around the text. */
hop_status hop_tokenizer_encode_plain(struct hop_tokenizer *tokenizer, const char *text,
                                      size_t length, struct hop_ids *out, struct hop_error *err);
/* Appends the text of ids. Ids outside the vocabulary are HOP_INPUT. Bytes that are not valid UTF-8
 * become U+FFFD as in the reference. */
hop_status hop_tokenizer_decode(const struct hop_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                bool skip_special, struct hop_string *out, struct hop_error *err);

/* One more than the largest id. */
int32_t hop_tokenizer_vocabulary(const struct hop_tokenizer *tokenizer);
/* The id of a token by its exact content, or -1. */
int32_t hop_tokenizer_id(const struct hop_tokenizer *tokenizer, const char *content);

/* Whether an added token swallows the white space before it, and behind it; false for others. */
struct hop_token_sides {
    bool before, behind;
};
struct hop_token_sides hop_tokenizer_sides(const struct hop_tokenizer *tokenizer, int32_t id);

#endif
