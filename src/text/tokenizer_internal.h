/* Inside of the tokenizer.
 *
 * Text flows as a list of pieces over one buffer: split at added tokens, normalized, split by the
 * pre-tokenizer, then each piece becomes ids. A component of tokenizer.json that is a Sequence is
 * flattened at load time, so that every stage is a plain array of steps. Everything a step needs is
 * checked when the file is read; afterwards only memory and the text itself can fail. */
#ifndef HOP_TEXT_TOKENIZER_INTERNAL_H
#define HOP_TEXT_TOKENIZER_INTERNAL_H

#include <jansson.h>

#include "text/tokenizer.h"

/* ---- pieces.c ---- */

struct hop_piece {
    size_t begin, end; /* in the buffer */
    int32_t id;        /* of an added token, or -1 for text still to be split */
    bool first;        /* starts where the whole text starts (Metaspace asks) */
};

struct hop_pieces {
    struct hop_string text;
    struct hop_piece *items;
    size_t count, capacity;
};

hop_status hop_pieces_add(struct hop_pieces *pieces, struct hop_piece piece, struct hop_error *err);
void hop_pieces_clear(struct hop_pieces *pieces);
void hop_pieces_swap(struct hop_pieces *a, struct hop_pieces *b);
void hop_pieces_free(struct hop_pieces *pieces);

/* Appends the new form of text[0..n) to out. */
typedef hop_status (*hop_rewrite)(const void *step, const char *text, size_t n, bool first,
                                  struct hop_string *out, struct hop_error *err);
/* Rewrites every piece that is not an added token; empty results are dropped. */
hop_status hop_pieces_rewrite(struct hop_pieces *pieces, struct hop_pieces *scratch,
                              hop_rewrite rewrite, const void *step, struct hop_error *err);

/* Adds the parts of `piece`, whose text is text[0..n), to out with offsets in the same buffer. */
typedef hop_status (*hop_divide)(const void *step, const char *text, struct hop_piece piece,
                                 struct hop_pieces *out, struct hop_error *err);
/* Splits every piece that is not an added token; the buffer stays. */
hop_status hop_pieces_divide(struct hop_pieces *pieces, struct hop_pieces *scratch,
                             hop_divide divide, const void *step, struct hop_error *err);

/* ---- utf8.c ---- */

/* Length of the valid UTF-8 at the start of text: n when all of it is. */
size_t hop_utf8_valid_prefix(const char *text, size_t n);
/* Decodes one character of valid, non-empty text and returns its length. */
size_t hop_utf8_decode(const char *text, int32_t *codepoint);
size_t hop_utf8_encode(int32_t codepoint, char out[4]);
/* Start of the last character of valid text[0..n), n > 0. */
size_t hop_utf8_last(const char *text, size_t n);
/* First place of a short, non-empty string in text, or NULL. Reads no further than it must, unlike
 * memmem() under AddressSanitizer, which looks at the whole text every time. */
const char *hop_utf8_find(const char *text, size_t n, const char *wanted, size_t m);
/* Appends bytes with every maximal invalid part replaced by U+FFFD. */
hop_status hop_utf8_append_lossy(struct hop_string *out, const char *bytes, size_t n,
                                 struct hop_error *err);
/* Unicode White_Space. */
bool hop_utf8_is_space(int32_t codepoint);
/* Letters, marks, digits, connectors and joiners: what \w means in regular expressions. */
bool hop_utf8_is_word(int32_t codepoint);

/* ---- byte_level.c: the printable character that stands for a byte in byte-level vocabularies ----
 */

int32_t hop_byte_to_codepoint(unsigned char byte);
/* -1 when the character stands for no byte. */
int hop_codepoint_to_byte(int32_t codepoint);

/* ---- component.c ---- */

struct hop_component {
    json_t *json;
    const char *type;
    const char *section; /* "normalizer", ... */
    const char *path;    /* of tokenizer.json */
};

typedef hop_status (*hop_component_reader)(const struct hop_component *component, void *context,
                                           struct hop_error *err);
/* Calls `read` for root[section] and, through `list_key`, for every member of a Sequence, in order.
 * Nothing is called when the section is absent or null. */
hop_status hop_component_walk(json_t *root, const char *path, const char *section,
                              const char *list_key, hop_component_reader read, void *context,
                              struct hop_error *err);
hop_status hop_component_unsupported(const struct hop_component *component, struct hop_error *err);
/* "section.type: key ..." in one HOP_INPUT message. */
hop_status hop_component_bad(const struct hop_component *component, const char *key,
                             const char *expected, struct hop_error *err);
/* A required string; *out points into the component. */
hop_status hop_component_text(const struct hop_component *component, const char *key,
                              const char **out, struct hop_error *err);

/* ---- pattern.c: a literal or a regular expression in Oniguruma's spelling, run by PCRE2 ---- */

struct hop_pattern;

/* From {"String": ...} or {"Regex": ...} under `key`. */
hop_status hop_pattern_read(const struct hop_component *component, const char *key,
                            struct hop_pattern **out, struct hop_error *err);
hop_status hop_pattern_literal(const char *text, struct hop_pattern **out, struct hop_error *err);
hop_status hop_pattern_regex(const char *text, const char *path, struct hop_pattern **out,
                             struct hop_error *err);
void hop_pattern_free(struct hop_pattern *pattern);

struct hop_matches {
    const struct hop_pattern *pattern;
    const char *text; /* valid UTF-8 */
    size_t length;
    size_t from;       /* where the next search starts; 0 at first */
    bool matched;      /* an earlier match ended at `from` */
    size_t begin, end; /* of the current match */
};

/* Steps to the next match; *found is false after the last. */
hop_status hop_matches_next(struct hop_matches *matches, bool *found, struct hop_error *err);
/* Appends text[0..n) with every match replaced. */
hop_status hop_pattern_replace(const struct hop_pattern *pattern, const char *replacement,
                               const char *text, size_t n, struct hop_string *out,
                               struct hop_error *err);

/* ---- vocabulary.c ---- */

enum { HOP_TOKEN_ID_LIMIT = 1 << 22 }; /* memory grows with the largest id */

struct hop_token {
    uint32_t offset, length;      /* of the content in the text buffer */
    uint32_t shown, shown_length; /* of what decoders start from */
    bool present, special;
};

struct hop_vocabulary_slot {
    uint32_t hash;
    int32_t id; /* -1 when free */
};

struct hop_vocabulary {
    struct hop_string text;
    struct hop_token *tokens; /* by id, with gaps */
    size_t count, capacity;   /* count = largest id + 1 */
    struct hop_vocabulary_slot *slots;
    size_t slot_count, used; /* slot_count is a power of two */
};

uint32_t hop_hash_bytes(const char *text, size_t n);
hop_status hop_vocabulary_add(struct hop_vocabulary *vocabulary, const char *content, size_t n,
                              int64_t id, const char *path, struct hop_error *err);
/* Sets what decoding shows for a token other than its content. */
hop_status hop_vocabulary_show(struct hop_vocabulary *vocabulary, int32_t id, const char *text,
                               size_t n, const char *path, struct hop_error *err);
/* -1 when there is none. */
int32_t hop_vocabulary_find(const struct hop_vocabulary *vocabulary, const char *content, size_t n);
/* NULL when there is no token of that id. */
const struct hop_token *hop_vocabulary_token(const struct hop_vocabulary *vocabulary, int32_t id);
void hop_vocabulary_free(struct hop_vocabulary *vocabulary);

/* ---- normalize.c ---- */

struct hop_normalizer_step;

struct hop_normalizer {
    struct hop_normalizer_step *steps;
    size_t count, capacity;
};

hop_status hop_normalizer_read(json_t *root, const char *path, struct hop_normalizer *out,
                               struct hop_error *err);
hop_status hop_normalizer_apply(const struct hop_normalizer *normalizer, struct hop_pieces *pieces,
                                struct hop_pieces *scratch, struct hop_error *err);
void hop_normalizer_free(struct hop_normalizer *normalizer);

/* ---- added_tokens.c ---- */

struct hop_added_token {
    char *content; /* what is searched for: normalized where the token says so */
    size_t length;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
};

/* Sorted by content; start[b]..start[b + 1] are those whose first byte is b. */
struct hop_added_set {
    struct hop_added_token *items;
    size_t count, capacity;
    size_t start[257];
};

struct hop_added_tokens {
    struct hop_added_set raw;        /* searched for in the text as it comes */
    struct hop_added_set normalized; /* searched for after the normalizer */
};

/* Also enters the tokens into the vocabulary. */
hop_status hop_added_tokens_read(json_t *root, const char *path,
                                 const struct hop_normalizer *normalizer,
                                 struct hop_vocabulary *vocabulary, struct hop_added_tokens *out,
                                 struct hop_error *err);
/* `plain` leaves special tokens in the text. */
hop_status hop_added_set_divide(const struct hop_added_set *set, bool plain,
                                struct hop_pieces *pieces, struct hop_pieces *scratch,
                                struct hop_error *err);
/* NULL when no added token has that id. */
const struct hop_added_token *hop_added_tokens_find(const struct hop_added_tokens *added,
                                                    int32_t id);
void hop_added_tokens_free(struct hop_added_tokens *added);

/* ---- pretokenize.c ---- */

struct hop_pretokenizer_step;

struct hop_pretokenizer {
    struct hop_pretokenizer_step *steps;
    size_t count, capacity;
};

hop_status hop_pretokenizer_read(json_t *root, const char *path, struct hop_pretokenizer *out,
                                 struct hop_error *err);
hop_status hop_pretokenizer_apply(const struct hop_pretokenizer *pretokenizer,
                                  struct hop_pieces *pieces, struct hop_pieces *scratch,
                                  struct hop_error *err);
void hop_pretokenizer_free(struct hop_pretokenizer *pretokenizer);

/* ---- word_cache.c: pieces seen before and their ids ---- */

enum { HOP_WORD_CACHE_MAX_LENGTH = 64 }; /* bytes of a piece worth remembering */

struct hop_word_cache {
    struct hop_word_slot *slots;
    size_t used;
    struct hop_string keys;
    struct hop_ids ids;
};

hop_status hop_word_cache_init(struct hop_word_cache *cache, struct hop_error *err);
/* NULL when unknown; valid until the next put. */
const int32_t *hop_word_cache_get(const struct hop_word_cache *cache, const char *word, size_t n,
                                  size_t *count);
hop_status hop_word_cache_put(struct hop_word_cache *cache, const char *word, size_t n,
                              const int32_t *ids, size_t count, struct hop_error *err);
void hop_word_cache_free(struct hop_word_cache *cache);

/* ---- bpe.c ---- */

enum { HOP_BPE_SHORT = 0x800 }; /* characters of one or two bytes */

struct hop_bpe {
    const struct hop_vocabulary *vocabulary;
    struct hop_merge *merges; /* open addressing */
    size_t merge_slots;       /* a power of two */
    int32_t bytes[256];       /* ids of <0x00>..<0xFF>, -1 where absent */
    int32_t characters[HOP_BPE_SHORT];
    int32_t unknown; /* -1 without unk_token */
    bool unknown_missing, fuse_unknown, byte_fallback, ignore_merges;
    bool cuts_at_marks; /* no merge reaches across the start of a word */

    struct hop_symbol *symbols; /* of the word being merged */
    size_t symbol_count, symbol_capacity;
    uint64_t *heap;
    size_t heap_count, heap_capacity;
    struct hop_word_cache cache;
};

/* Reads root["model"], entering its tokens into the vocabulary, which must stay where it is. */
hop_status hop_bpe_read(json_t *root, const char *path, struct hop_vocabulary *vocabulary,
                        struct hop_bpe *out, struct hop_error *err);
/* Appends the ids of one piece (valid UTF-8, not empty). */
hop_status hop_bpe_encode(struct hop_bpe *bpe, const char *word, size_t n, struct hop_ids *out,
                          struct hop_error *err);
void hop_bpe_free(struct hop_bpe *bpe);

/* ---- postprocess.c ---- */

struct hop_template {
    struct hop_ids before, after; /* the text's own ids */
};

hop_status hop_template_read(json_t *root, const char *path,
                             const struct hop_vocabulary *vocabulary, struct hop_template *out,
                             struct hop_error *err);
void hop_template_free(struct hop_template *post);

/* ---- decode.c ---- */

struct hop_decoder_step;

struct hop_decoder {
    struct hop_decoder_step *steps;
    size_t count, capacity;
};

hop_status hop_decoder_read(json_t *root, const char *path, struct hop_decoder *out,
                            struct hop_error *err);
/* `tokens` holds one piece a token and is used up; the text is appended to out. */
hop_status hop_decoder_apply(const struct hop_decoder *decoder, struct hop_pieces *tokens,
                             struct hop_string *out, struct hop_error *err);
void hop_decoder_free(struct hop_decoder *decoder);

#endif
