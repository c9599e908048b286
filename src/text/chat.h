/* Conversations as token ids: the chat template families of LLaMA models.
 *
 * A model's own template (a Jinja program) is never run. It is recognised by its content as one of
 * three families, whose official templates are written out here:
 *
 * llama-2  BOS [INST] <<SYS>>\n system \n<</SYS>>\n\n user [/INST] answer EOS, BOS for every turn
 * llama-3  BOS, then <|start_header_id|> role <|end_header_id|>\n\n content <|eot_id|>
 * chatml   <|im_start|> role \n content <|im_end|> \n
 *
 * The ids are those of Hugging Face's apply_chat_template() with one difference: what a message
 * says is plain text, so that "</s>" in it is four characters and not the end of the row. */
#ifndef HOP_TEXT_CHAT_H
#define HOP_TEXT_CHAT_H

#include <stddef.h>

#include "base/error.h"
#include "text/tokenizer.h"

enum hop_chat_family {
    HOP_CHAT_AUTO, /* the family of the model's own template */
    HOP_CHAT_LLAMA2,
    HOP_CHAT_LLAMA3,
    HOP_CHAT_CHATML,
    HOP_CHAT_FAMILIES
};
/* As in the job file; NULL-terminated. */
extern const char *const hop_chat_names[HOP_CHAT_FAMILIES + 1];

enum hop_chat_role { HOP_CHAT_SYSTEM, HOP_CHAT_USER, HOP_CHAT_ASSISTANT, HOP_CHAT_ROLES };
/* "system", "user", "assistant", NULL. */
extern const char *const hop_chat_role_names[HOP_CHAT_ROLES + 1];

struct hop_chat_message {
    enum hop_chat_role role;
    const char *content; /* UTF-8 */
    size_t length;
};

struct hop_chat;

/* Reads the template in directory/chat_template.jinja or tokenizer_config.json, and from the latter
 * the names of BOS and EOS. A family other than HOP_CHAT_AUTO is taken instead of the model's own.
 * What is wrong with the template is not an error here but one of hop_chat_encode(): most data has
 * no conversations. The tokenizer must outlive the result. */
hop_status hop_chat_load(const char *directory, enum hop_chat_family family,
                         struct hop_tokenizer *tokenizer, struct hop_chat **out,
                         struct hop_error *err);
void hop_chat_free(struct hop_chat *chat);

/* Appends the ids of a conversation, and to `labels` as many labels: the id itself where the
 * assistant speaks (content and what ends its turn), `ignored` elsewhere. A template that cannot be
 * used, an order of roles that the template refuses, or a text that is not UTF-8 is HOP_INPUT. */
hop_status hop_chat_encode(struct hop_chat *chat, const struct hop_chat_message *messages,
                           size_t count, int32_t ignored, struct hop_ids *ids,
                           struct hop_ids *labels, struct hop_error *err);

/* HOP_CHAT_AUTO when hop_chat_encode() would fail. */
enum hop_chat_family hop_chat_family(const struct hop_chat *chat);
/* The token that ends an assistant's turn, or -1. */
int32_t hop_chat_end(const struct hop_chat *chat);

#endif
