#include "text/chat_internal.h"

#include <stdint.h>

#include "text/tokenizer_internal.h"

/* Python counts four separators that are not Unicode White_Space. */
static bool is_space(int32_t codepoint)
{
    return hop_utf8_is_space(codepoint) || (codepoint >= 0x1c && codepoint <= 0x1f);
}

void hop_chat_strip(const char *text, size_t *begin, size_t *end)
{
    int32_t codepoint;
    while (*begin < *end) {
        const size_t n = hop_utf8_decode(text + *begin, &codepoint);
        if (!is_space(codepoint))
            break;
        *begin += n;
    }
    while (*end > *begin) {
        const size_t last = hop_utf8_last(text, *end);
        hop_utf8_decode(text + last, &codepoint);
        if (!is_space(codepoint))
            break;
        *end = last;
    }
}

static hop_status append(struct hop_chat_writer *w, int32_t id, bool labelled,
                         struct hop_error *err)
{
    HOP_TRY(hop_ids_append(w->ids, id, err));
    return hop_ids_append(w->labels, labelled ? id : w->ignored, err);
}

/* How many tokens from `at` on come before the label. A token that reaches across its start belongs
 * to it. */
static hop_status count_unlabelled(struct hop_chat_writer *w, const char *text, size_t n, size_t at,
                                   size_t *out, struct hop_error *err)
{
    size_t same = 0;
    w->part.count = 0;
    HOP_TRY(hop_tokenizer_encode_plain(w->tokenizer, text, n, &w->part, err));
    while (same < w->part.count && at + same < w->ids->count &&
           w->part.data[same] == w->ids->data[at + same])
        same++;
    *out = same;
    return HOP_OK;
}

static hop_status label_run(struct hop_chat_writer *w, const char *text, size_t masked, size_t n,
                            size_t at, struct hop_error *err)
{
    size_t unlabelled = w->ids->count - at;
    if (masked == 0)
        unlabelled = 0;
    else if (masked < n)
        HOP_TRY(count_unlabelled(w, text, masked, at, &unlabelled, err));
    for (size_t i = at; i < w->ids->count; i++)
        HOP_TRY(hop_ids_append(w->labels, i < at + unlabelled ? w->ignored : w->ids->data[i], err));
    return HOP_OK;
}

/* Encodes the run; `strip` says that the token behind it takes the white space before it. */
static hop_status flush(struct hop_chat_writer *w, bool strip, struct hop_error *err)
{
    const char *const text = hop_string_text(&w->run);
    size_t begin = 0, end = w->run.length;
    const size_t at = w->ids->count, from = w->labels_from;
    size_t stripped_begin = begin, stripped_end = end;
    hop_chat_strip(text, &stripped_begin, &stripped_end);
    if (w->strip)
        begin = stripped_begin;
    if (strip)
        end = stripped_end > begin ? stripped_end : begin;
    const size_t masked = from < begin ? 0 : from > end ? end - begin : from - begin;
    w->run.length = 0;
    w->labels_from = SIZE_MAX;
    if (begin == end)
        return HOP_OK;
    HOP_TRY(hop_tokenizer_encode_plain(w->tokenizer, text + begin, end - begin, w->ids, err));
    return label_run(w, text + begin, masked, end - begin, at, err);
}

hop_status hop_chat_put_text(struct hop_chat_writer *w, const char *text, size_t n, bool labelled,
                             struct hop_error *err)
{
    if (labelled && w->labels_from == SIZE_MAX)
        w->labels_from = w->run.length;
    return hop_string_append(&w->run, text, n, err);
}

hop_status hop_chat_put_token(struct hop_chat_writer *w, struct hop_chat_token token, bool labelled,
                              struct hop_error *err)
{
    HOP_TRY(flush(w, token.strips.before, err));
    w->strip = token.strips.behind;
    return append(w, token.id, labelled, err);
}

hop_status hop_chat_finish(struct hop_chat_writer *w, struct hop_error *err)
{
    return flush(w, false, err);
}

void hop_chat_writer_free(struct hop_chat_writer *w)
{
    hop_string_free(&w->run);
    hop_ids_free(&w->part);
}
