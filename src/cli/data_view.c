#include "cli/data_view.h"

#include <string.h>

#include "base/string.h"

/* Tokens begin .. end of a row, all trained or all not. */
struct part {
    int32_t begin, end;
    bool trained;
};

/* The first label never counts: nothing stands before it. */
static bool is_trained(const struct hop_example *row, int32_t i)
{
    return i > 0 && row->labels[i] != HOP_LABEL_IGNORED;
}

static bool next_part(const struct hop_example *row, struct part *part)
{
    if (part->end == row->length)
        return false;
    part->begin = part->end;
    part->trained = is_trained(row, part->begin);
    while (part->end < row->length && is_trained(row, part->end) == part->trained)
        part->end++;
    return true;
}

static hop_status append_numbers(const struct hop_example *row, int32_t begin, int32_t end,
                                 struct hop_string *out, struct hop_error *err)
{
    for (int32_t i = begin; i < end; i++)
        HOP_TRY(hop_string_printf(out, err, "%s%d", i > begin ? " " : "", row->ids[i]));
    return HOP_OK;
}

/* What the tokens add to the text of those before them: a decoder treats the start of a text in its
 * own way. */
static hop_status append_decoded(const struct hop_example *row,
                                 const struct hop_tokenizer *tokenizer, struct part part,
                                 struct hop_string *out, struct hop_error *err)
{
    struct hop_string before = {0}, all = {0};
    size_t same = 0;
    hop_status status;
    HOP_TRY_DONE(
        hop_tokenizer_decode(tokenizer, row->ids, (size_t)part.begin, false, &before, err));
    HOP_TRY_DONE(hop_tokenizer_decode(tokenizer, row->ids, (size_t)part.end, false, &all, err));
    while (same < before.length && same < all.length && before.data[same] == all.data[same])
        same++;
    /* A character of several tokens may be cut here: it belongs to the part that ends it. */
    while (same > 0 && same < all.length && ((unsigned char)all.data[same] & 0xc0) == 0x80)
        same--;
    HOP_TRY_DONE(hop_string_append(out, hop_string_text(&all) + same, all.length - same, err));
done:
    hop_string_free(&before);
    hop_string_free(&all);
    return status;
}

static hop_status append_part(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                              struct part part, struct hop_string *out, struct hop_error *err)
{
    if (tokenizer) {
        const hop_status status = append_decoded(row, tokenizer, part, out, err);
        if (status != HOP_INPUT)
            return status;
    }
    return append_numbers(row, part.begin, part.end, out, err);
}

/* ---- for people ---- */

enum { SHOWN_HEAD = 600, SHOWN_TAIL = 200 };

static bool is_control(unsigned char byte)
{
    return (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
}

/* U+0080..U+009F command terminals too. */
static bool is_late_control(const char *text, size_t n)
{
    return n > 1 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0;
}

static void print_visible(const char *text, size_t n, FILE *to)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char byte = (unsigned char)text[i];
        if (is_late_control(text + i, n - i))
            fprintf(to, "\\x%02x", (unsigned char)text[++i]);
        else if (is_control(byte))
            fprintf(to, "\\x%02x", byte);
        else if (byte == '\n')
            fputs("\n    ", to);
        else
            fputc(byte, to);
    }
}

static bool continues(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

static void print_shortened(const struct hop_string *text, FILE *to)
{
    size_t head = SHOWN_HEAD, tail = text->length - SHOWN_TAIL;
    if (text->length <= SHOWN_HEAD + SHOWN_TAIL) {
        print_visible(hop_string_text(text), text->length, to);
        return;
    }
    while (head > 0 && continues(text->data[head]))
        head--;
    while (tail < text->length && continues(text->data[tail]))
        tail++;
    print_visible(text->data, head, to);
    fprintf(to, " … %zu bytes … ", tail - head);
    print_visible(text->data + tail, text->length - tail, to);
}

static void print_part(const struct hop_string *text, bool trained, bool color, FILE *to)
{
    const char *const begin = trained ? color ? "\033[32m" : "⟦" : color ? "\033[2m" : "";
    const char *const end = color ? "\033[0m" : trained ? "⟧" : "";
    fputs(begin, to);
    print_shortened(text, to);
    fputs(end, to);
}

hop_status hop_data_view_print(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                               bool color, FILE *to, struct hop_error *err)
{
    struct part part = {0};
    struct hop_string text = {0};
    hop_status status = HOP_OK;
    fputs("    ", to);
    while (status == HOP_OK && next_part(row, &part)) {
        text.length = 0;
        status = append_part(row, tokenizer, part, &text, err);
        if (status == HOP_OK)
            print_part(&text, part.trained, color, to);
    }
    fputc('\n', to);
    hop_string_free(&text);
    return status;
}

/* ---- for programs ---- */

static hop_status parts_json(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                             json_t *list, int32_t *trained, struct hop_error *err)
{
    struct part part = {0};
    struct hop_string text = {0};
    hop_status status = HOP_OK;
    while (status == HOP_OK && next_part(row, &part)) {
        text.length = 0;
        status = append_part(row, tokenizer, part, &text, err);
        const int32_t tokens = part.end - part.begin;
        *trained += part.trained ? tokens : 0;
        if (status == HOP_OK)
            json_array_append_new(list, json_pack("{s:b, s:i, s:s%}", "trained", (int)part.trained,
                                                  "tokens", (int)tokens, "text",
                                                  hop_string_text(&text), text.length));
    }
    hop_string_free(&text);
    return status;
}

hop_status hop_data_view_json(const struct hop_example *row, const struct hop_tokenizer *tokenizer,
                              json_t **out, struct hop_error *err)
{
    json_t *const parts = json_array();
    int32_t trained = 0;
    const hop_status status = parts_json(row, tokenizer, parts, &trained, err);
    if (status != HOP_OK) {
        json_decref(parts);
        return status;
    }
    *out = json_pack("{s:i, s:i, s:o}", "tokens", (int)row->length, "label_tokens", (int)trained,
                     "parts", parts);
    return *out ? HOP_OK : hop_fail(err, HOP_MEMORY, "out of memory for a row as JSON");
}
