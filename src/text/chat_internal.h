/* Inside of the chat templates. */
#ifndef HOP_TEXT_CHAT_INTERNAL_H
#define HOP_TEXT_CHAT_INTERNAL_H

#include <stdbool.h>

#include "base/string.h"
#include "text/chat.h"

/* ---- chat_template.c: what the model's files say ---- */

struct hop_chat_template {
    enum hop_chat_family family;
    bool starts_with_bos;
    bool dated;                       /* llama-3: a system header with dates */
    struct hop_string default_system; /* chatml: for conversations without one; may be empty */
    struct hop_string bos, eos;       /* content of the tokens; empty: not said */
};

/* Fills what the folder's files say. With HOP_CHAT_AUTO an unknown or missing template is
 * HOP_INPUT; another family is taken as it is, in its official form. */
hop_status hop_chat_template_read(const char *directory, enum hop_chat_family family,
                                  struct hop_chat_template *out, struct hop_error *err);
void hop_chat_template_free(struct hop_chat_template *from);

/* ---- chat_writer.c: ids and labels, part by part ---- */

struct hop_chat_token {
    int32_t id;
    struct hop_token_sides strips; /* what the token takes of the text around it */
};

/* Text between two special tokens is collected and encoded as a whole, for tokens may reach across
 * the parts it is made of. */
struct hop_chat_writer {
    struct hop_tokenizer *tokenizer;
    int32_t ignored;
    struct hop_ids *ids, *labels;
    struct hop_string run;
    size_t labels_from; /* byte of the run; SIZE_MAX: none is labelled */
    bool strip;         /* the token before the run takes the white space behind it */
    struct hop_ids part;
};

/* Within a run, what follows a labelled text is labelled too. */
hop_status hop_chat_put_text(struct hop_chat_writer *writer, const char *text, size_t n,
                             bool labelled, struct hop_error *err);
hop_status hop_chat_put_token(struct hop_chat_writer *writer, struct hop_chat_token token,
                              bool labelled, struct hop_error *err);
/* Encodes what is left. */
hop_status hop_chat_finish(struct hop_chat_writer *writer, struct hop_error *err);
void hop_chat_writer_free(struct hop_chat_writer *writer);

/* Moves begin and end of UTF-8 text inwards over what Python's str.strip() removes. */
void hop_chat_strip(const char *text, size_t *begin, size_t *end);

#endif
