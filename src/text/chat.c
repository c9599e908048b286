#include "text/chat.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "text/chat_internal.h"
#include "text/tokenizer_internal.h"

const char *const hop_chat_names[] = {[HOP_CHAT_AUTO] = "auto",
                                      [HOP_CHAT_LLAMA2] = "llama-2",
                                      [HOP_CHAT_LLAMA3] = "llama-3",
                                      [HOP_CHAT_CHATML] = "chatml",
                                      [HOP_CHAT_FAMILIES] = NULL};

const char *const hop_chat_role_names[] = {[HOP_CHAT_SYSTEM] = "system",
                                           [HOP_CHAT_USER] = "user",
                                           [HOP_CHAT_ASSISTANT] = "assistant",
                                           [HOP_CHAT_ROLES] = NULL};

struct hop_chat {
    struct hop_tokenizer *tokenizer;
    struct hop_chat_template template;
    struct hop_chat_token bos;         /* where template.starts_with_bos */
    struct hop_chat_token open, close; /* around a role; close: llama-3 only */
    struct hop_chat_token end;         /* of a turn */
    struct hop_error problem;          /* why there is no template */
};

/* ---- loading ---- */

static hop_status find_token(struct hop_chat *chat, const char *content, struct hop_chat_token *out,
                             struct hop_error *err)
{
    const int32_t id = hop_tokenizer_id(chat->tokenizer, content);
    if (id < 0)
        return hop_fail(err, HOP_INPUT,
                        "the model's tokenizer has no token %s, which the %s template needs; set "
                        "data.chat_template to the template that the model knows",
                        content, hop_chat_names[chat->template.family]);
    *out = (struct hop_chat_token){.id = id, .strips = hop_tokenizer_sides(chat->tokenizer, id)};
    return HOP_OK;
}

static const char *text_or(const struct hop_string *text, const char *fallback)
{
    return text->length ? hop_string_text(text) : fallback;
}

static hop_status find_tokens(struct hop_chat *chat, struct hop_error *err)
{
    const struct hop_chat_template *const t = &chat->template;
    const bool llama2 = t->family == HOP_CHAT_LLAMA2;
    if (t->starts_with_bos)
        HOP_TRY(find_token(chat, text_or(&t->bos, llama2 ? "<s>" : "<|begin_of_text|>"), &chat->bos,
                           err));
    if (llama2)
        return find_token(chat, text_or(&t->eos, "</s>"), &chat->end, err);
    if (t->family == HOP_CHAT_CHATML) {
        HOP_TRY(find_token(chat, "<|im_start|>", &chat->open, err));
        return find_token(chat, "<|im_end|>", &chat->end, err);
    }
    HOP_TRY(find_token(chat, "<|start_header_id|>", &chat->open, err));
    HOP_TRY(find_token(chat, "<|end_header_id|>", &chat->close, err));
    return find_token(chat, "<|eot_id|>", &chat->end, err);
}

static hop_status prepare(struct hop_chat *chat, const char *directory, enum hop_chat_family family,
                          struct hop_error *err)
{
    HOP_TRY(hop_chat_template_read(directory, family, &chat->template, err));
    return find_tokens(chat, err);
}

hop_status hop_chat_load(const char *directory, enum hop_chat_family family,
                         struct hop_tokenizer *tokenizer, struct hop_chat **out,
                         struct hop_error *err)
{
    struct hop_chat *chat;
    HOP_TRY(hop_calloc(&chat, 1, sizeof *chat, err));
    chat->tokenizer = tokenizer;
    if (prepare(chat, directory, family, &chat->problem) == HOP_MEMORY) {
        *err = chat->problem;
        hop_chat_free(chat);
        return HOP_MEMORY;
    }
    *out = chat;
    return HOP_OK;
}

void hop_chat_free(struct hop_chat *chat)
{
    if (!chat)
        return;
    hop_chat_template_free(&chat->template);
    free(chat);
}

enum hop_chat_family hop_chat_family(const struct hop_chat *chat)
{
    return chat->problem.status == HOP_OK ? chat->template.family : HOP_CHAT_AUTO;
}

int32_t hop_chat_end(const struct hop_chat *chat)
{
    return chat->problem.status == HOP_OK ? chat->end.id : -1;
}

/* ---- writing ---- */

static hop_status put(struct hop_chat_writer *w, const char *text, struct hop_error *err)
{
    return hop_chat_put_text(w, text, strlen(text), false, err);
}

static hop_status put_stripped(struct hop_chat_writer *w, const struct hop_chat_message *message,
                               bool labelled, struct hop_error *err)
{
    size_t begin = 0, end = message->length;
    hop_chat_strip(message->content, &begin, &end);
    return hop_chat_put_text(w, message->content + begin, end - begin, labelled, err);
}

/* ---- llama-2 ---- */

static hop_status check_turns(const struct hop_chat_message *messages, size_t count,
                              struct hop_error *err)
{
    const size_t first = messages[0].role == HOP_CHAT_SYSTEM;
    for (size_t i = first; i < count; i++) {
        const enum hop_chat_role expected = (i - first) % 2 ? HOP_CHAT_ASSISTANT : HOP_CHAT_USER;
        if (messages[i].role != expected)
            return hop_fail(err, HOP_INPUT,
                            "messages[%zu]: the role is %s where %s is expected; after an optional "
                            "system message, user and assistant must alternate",
                            i, hop_chat_role_names[messages[i].role],
                            hop_chat_role_names[expected]);
    }
    if (first == count)
        return hop_fail(err, HOP_INPUT,
                        "messages: a system message alone is no conversation; add what the user "
                        "and the assistant say");
    return HOP_OK;
}

/* The template strips the two together: what stands before the user's text is kept. */
static hop_status put_with_system(struct hop_chat_writer *w, const struct hop_chat_message *system,
                                  const struct hop_chat_message *user, struct hop_error *err)
{
    struct hop_string text = {0};
    size_t begin = 0;
    hop_status status;
    HOP_TRY_DONE(hop_string_printf(&text, err, "<<SYS>>\n"));
    HOP_TRY_DONE(hop_string_append(&text, system->content, system->length, err));
    HOP_TRY_DONE(hop_string_printf(&text, err, "\n<</SYS>>\n\n"));
    HOP_TRY_DONE(hop_string_append(&text, user->content, user->length, err));
    size_t end = text.length;
    hop_chat_strip(text.data, &begin, &end);
    HOP_TRY_DONE(hop_chat_put_text(w, text.data, end, false, err));
done:
    hop_string_free(&text);
    return status;
}

static hop_status put_question(struct hop_chat *chat, struct hop_chat_writer *w,
                               const struct hop_chat_message *system,
                               const struct hop_chat_message *user, struct hop_error *err)
{
    if (chat->template.starts_with_bos)
        HOP_TRY(hop_chat_put_token(w, chat->bos, false, err));
    HOP_TRY(put(w, "[INST] ", err));
    if (system)
        HOP_TRY(put_with_system(w, system, user, err));
    else
        HOP_TRY(put_stripped(w, user, false, err));
    return put(w, " [/INST]", err);
}

/* The spaces around an answer are the template's, but the model has to say them. */
static hop_status put_answer(struct hop_chat *chat, struct hop_chat_writer *w,
                             const struct hop_chat_message *message, struct hop_error *err)
{
    HOP_TRY(hop_chat_put_text(w, " ", 1, true, err));
    HOP_TRY(put_stripped(w, message, true, err));
    HOP_TRY(hop_chat_put_text(w, " ", 1, true, err));
    return hop_chat_put_token(w, chat->end, true, err);
}

static hop_status write_llama2(struct hop_chat *chat, struct hop_chat_writer *w,
                               const struct hop_chat_message *messages, size_t count,
                               struct hop_error *err)
{
    HOP_TRY(check_turns(messages, count, err));
    const size_t first = messages[0].role == HOP_CHAT_SYSTEM;
    for (size_t i = first; i < count; i++) {
        const struct hop_chat_message *const system = first && i == 1 ? messages : NULL;
        if (messages[i].role == HOP_CHAT_USER)
            HOP_TRY(put_question(chat, w, system, &messages[i], err));
        else
            HOP_TRY(put_answer(chat, w, &messages[i], err));
    }
    return HOP_OK;
}

/* ---- llama-3 ---- */

static hop_status put_header(struct hop_chat *chat, struct hop_chat_writer *w,
                             enum hop_chat_role role, struct hop_error *err)
{
    HOP_TRY(hop_chat_put_token(w, chat->open, false, err));
    HOP_TRY(put(w, hop_chat_role_names[role], err));
    HOP_TRY(hop_chat_put_token(w, chat->close, false, err));
    return put(w, "\n\n", err);
}

static hop_status put_llama3(struct hop_chat *chat, struct hop_chat_writer *w,
                             const struct hop_chat_message *message, struct hop_error *err)
{
    const bool labelled = message->role == HOP_CHAT_ASSISTANT;
    HOP_TRY(put_header(chat, w, message->role, err));
    HOP_TRY(put_stripped(w, message, labelled, err));
    return hop_chat_put_token(w, chat->end, labelled, err);
}

/* Llama 3.1 and later say two dates in every conversation. The second is the day of the call where
 * the reference can tell it; here it is the day the template falls back to, so that a file always
 * gives the same tokens. */
static hop_status put_dated_system(struct hop_chat *chat, struct hop_chat_writer *w,
                                   const struct hop_chat_message *system, struct hop_error *err)
{
    HOP_TRY(put_header(chat, w, HOP_CHAT_SYSTEM, err));
    HOP_TRY(put(w, "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", err));
    if (system)
        HOP_TRY(put_stripped(w, system, false, err));
    return hop_chat_put_token(w, chat->end, false, err);
}

static hop_status write_llama3(struct hop_chat *chat, struct hop_chat_writer *w,
                               const struct hop_chat_message *messages, size_t count,
                               struct hop_error *err)
{
    size_t first = 0;
    if (chat->template.starts_with_bos)
        HOP_TRY(hop_chat_put_token(w, chat->bos, false, err));
    if (chat->template.dated) {
        first = messages[0].role == HOP_CHAT_SYSTEM;
        HOP_TRY(put_dated_system(chat, w, first ? messages : NULL, err));
    }
    for (size_t i = first; i < count; i++)
        HOP_TRY(put_llama3(chat, w, &messages[i], err));
    return HOP_OK;
}

/* ---- chatml ---- */

static hop_status put_chatml(struct hop_chat *chat, struct hop_chat_writer *w,
                             const struct hop_chat_message *message, struct hop_error *err)
{
    const bool labelled = message->role == HOP_CHAT_ASSISTANT;
    HOP_TRY(hop_chat_put_token(w, chat->open, false, err));
    HOP_TRY(put(w, hop_chat_role_names[message->role], err));
    HOP_TRY(put(w, "\n", err));
    HOP_TRY(hop_chat_put_text(w, message->content, message->length, labelled, err));
    HOP_TRY(hop_chat_put_token(w, chat->end, labelled, err));
    return put(w, "\n", err);
}

static hop_status write_chatml(struct hop_chat *chat, struct hop_chat_writer *w,
                               const struct hop_chat_message *messages, size_t count,
                               struct hop_error *err)
{
    const struct hop_string *const system = &chat->template.default_system;
    if (chat->template.starts_with_bos)
        HOP_TRY(hop_chat_put_token(w, chat->bos, false, err));
    if (system->length && messages[0].role != HOP_CHAT_SYSTEM) {
        const struct hop_chat_message message = {
            .role = HOP_CHAT_SYSTEM, .content = system->data, .length = system->length};
        HOP_TRY(put_chatml(chat, w, &message, err));
    }
    for (size_t i = 0; i < count; i++)
        HOP_TRY(put_chatml(chat, w, &messages[i], err));
    return HOP_OK;
}

/* ---- a conversation ---- */

static hop_status check_messages(const struct hop_chat_message *messages, size_t count,
                                 struct hop_error *err)
{
    if (count == 0)
        return hop_fail(err, HOP_INPUT,
                        "messages: the conversation is empty; add what the user and the assistant "
                        "say");
    for (size_t i = 0; i < count; i++) {
        const size_t valid = hop_utf8_valid_prefix(messages[i].content, messages[i].length);
        if (valid < messages[i].length)
            return hop_fail(err, HOP_INPUT,
                            "messages[%zu]: byte %zu of the content is not UTF-8; convert it to "
                            "UTF-8",
                            i, valid + 1);
    }
    return HOP_OK;
}

static hop_status write_messages(struct hop_chat *chat, struct hop_chat_writer *w,
                                 const struct hop_chat_message *messages, size_t count,
                                 struct hop_error *err)
{
    static hop_status (*const writers[])(struct hop_chat *, struct hop_chat_writer *,
                                         const struct hop_chat_message *, size_t,
                                         struct hop_error *) = {[HOP_CHAT_LLAMA2] = write_llama2,
                                                                [HOP_CHAT_LLAMA3] = write_llama3,
                                                                [HOP_CHAT_CHATML] = write_chatml};
    HOP_TRY(writers[chat->template.family](chat, w, messages, count, err));
    return hop_chat_finish(w, err);
}

hop_status hop_chat_encode(struct hop_chat *chat, const struct hop_chat_message *messages,
                           size_t count, int32_t ignored, struct hop_ids *ids,
                           struct hop_ids *labels, struct hop_error *err)
{
    const size_t id_count = ids->count, label_count = labels->count;
    struct hop_chat_writer writer = {.tokenizer = chat->tokenizer,
                                     .ignored = ignored,
                                     .ids = ids,
                                     .labels = labels,
                                     .labels_from = SIZE_MAX};
    if (chat->problem.status != HOP_OK) {
        *err = chat->problem;
        return err->status;
    }
    HOP_TRY(check_messages(messages, count, err));
    const hop_status status = write_messages(chat, &writer, messages, count, err);
    hop_chat_writer_free(&writer);
    if (status != HOP_OK) {
        ids->count = id_count;
        labels->count = label_count;
    }
    return status;
}
