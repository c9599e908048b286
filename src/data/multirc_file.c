#include "data/multirc_file.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "data/json_need.h"
#include "data/jsonl_lines.h"
#include "io/json.h"

typedef hop_status use_function(void *context, const struct hop_multirc_question *question,
                                bool *more, struct hop_error *err);

struct reader {
    const char *path;
    use_function *use;
    void *context;
    bool more;
    const char *truth_key; /* "label" or "isAnswer" */
    struct hop_string passage_place, place, id, text;
    struct hop_multirc_answer *answers;
    size_t capacity; /* of answers */
    struct hop_multirc_question question;
};

/* ---- one passage ---- */

static hop_status read_answer(struct reader *r, const json_t *answer, size_t i,
                              struct hop_error *err)
{
    struct hop_multirc_answer *const out = &r->answers[i];
    char where[640];
    snprintf(where, sizeof where, "%.500s.answers[%zu]", r->place.data, i);
    HOP_TRY(hop_need_string(answer, "text", where, &out->text, err));
    if (!hop_read_truth(json_object_get(answer, r->truth_key), &out->right))
        return hop_fail(err, HOP_INPUT,
                        "%s: \"%s\" is missing or not 0, 1, true or false; a test set without it "
                        "cannot be used",
                        where, r->truth_key);
    return HOP_OK;
}

static hop_status read_answers(struct reader *r, const json_t *question, struct hop_error *err)
{
    const json_t *list = NULL;
    HOP_TRY(hop_need_list(question, "answers", r->place.data, &list, err));
    const size_t n = json_array_size(list);
    if (n == 0)
        return hop_fail(err, HOP_INPUT, "%s: \"answers\" is empty", r->place.data);
    HOP_TRY(hop_grow(&r->answers, &r->capacity, n, sizeof *r->answers, err));
    for (size_t i = 0; i < n; i++)
        HOP_TRY(read_answer(r, json_array_get(list, i), i, err));
    r->question.answers = r->answers;
    r->question.answer_count = n;
    return HOP_OK;
}

static hop_status read_question(struct reader *r, const json_t *question, struct hop_error *err)
{
    struct hop_multirc_question *const q = &r->question;
    HOP_TRY(hop_place(&r->place, err, "%s.questions[%zu]", r->passage_place.data, q->position));
    HOP_TRY(hop_need_string(question, "question", r->place.data, &q->question, err));
    HOP_TRY(read_answers(r, question, err));
    const json_t *const idx = json_object_get(question, "idx");
    q->idx = json_is_integer(idx) ? json_integer_value(idx) : -1;
    q->place = r->place.data;
    return r->use(r->context, q, &r->more, err);
}

/* The text is in r->text, the id in r->question. */
static hop_status read_questions(struct reader *r, const json_t *passage, struct hop_error *err)
{
    const json_t *list = NULL;
    HOP_TRY(hop_need_list(passage, "questions", r->passage_place.data, &list, err));
    r->question.passage = hop_string_text(&r->text);
    for (size_t i = 0; i < json_array_size(list) && r->more; i++) {
        r->question.position = i;
        HOP_TRY(read_question(r, json_array_get(list, i), err));
    }
    return HOP_OK;
}

/* ---- SuperGLUE ---- */

static hop_status read_row(void *context, const struct hop_jsonl_line *line, bool *more,
                           struct hop_error *err)
{
    struct reader *const r = context;
    const json_t *passage = NULL, *const idx = json_object_get(line->row, "idx");
    const char *text = NULL;
    HOP_TRY(hop_need_object(line->row, "passage", line->where, &passage, err));
    HOP_TRY(hop_place(&r->passage_place, err, "%s: passage", line->where));
    HOP_TRY(hop_need_string(passage, "text", r->passage_place.data, &text, err));
    r->text.length = 0;
    HOP_TRY(hop_string_append(&r->text, text, strlen(text), err));
    HOP_TRY(hop_place(&r->id, err, "%" JSON_INTEGER_FORMAT, json_integer_value(idx)));
    r->question.passage_id = json_is_integer(idx) ? r->id.data : NULL;
    HOP_TRY(read_questions(r, passage, err));
    *more = r->more;
    return HOP_OK;
}

/* ---- the original ---- */

/* Bytes of a mark that begins at text; what stands for it is stored. */
static size_t mark_length(const char *text, const char **instead)
{
    static const char sentence[] = "<b>Sent ", end[] = ": </b>", line_break[] = "<br>";
    *instead = " ";
    if (strncmp(text, line_break, sizeof line_break - 1) == 0)
        return sizeof line_break - 1;
    *instead = "";
    if (strncmp(text, sentence, sizeof sentence - 1) != 0)
        return 0;
    size_t n = sizeof sentence - 1;
    while (isdigit((unsigned char)text[n]))
        n++;
    return strncmp(text + n, end, sizeof end - 1) == 0 ? n + sizeof end - 1 : 0;
}

static hop_status remove_marks(const char *text, struct hop_string *out, struct hop_error *err)
{
    out->length = 0;
    while (*text) {
        const char *instead;
        const size_t mark = mark_length(text, &instead);
        const size_t plain = mark ? 0 : 1 + strcspn(text + 1, "<");
        HOP_TRY(hop_string_append(out, mark ? instead : text, mark ? strlen(instead) : plain, err));
        text += mark + plain;
    }
    return HOP_OK;
}

static hop_status read_item(struct reader *r, const json_t *item, size_t i, struct hop_error *err)
{
    const json_t *paragraph = NULL;
    const char *text = NULL;
    HOP_TRY(hop_place(&r->passage_place, err, "%s: data[%zu]", r->path, i));
    HOP_TRY(hop_need_object(item, "paragraph", r->passage_place.data, &paragraph, err));
    HOP_TRY(hop_need_string(item, "id", r->passage_place.data, &r->question.passage_id, err));
    HOP_TRY(hop_place(&r->passage_place, err, "%s: data[%zu].paragraph", r->path, i));
    HOP_TRY(hop_need_string(paragraph, "text", r->passage_place.data, &text, err));
    HOP_TRY(remove_marks(text, &r->text, err));
    return read_questions(r, paragraph, err);
}

static hop_status read_original(struct reader *r, struct hop_error *err)
{
    json_t *file = NULL;
    const json_t *list = NULL;
    hop_status status;
    HOP_TRY(hop_json_load(r->path, &file, err));
    if (!json_is_array(json_object_get(file, "data"))) {
        status = hop_fail(err, HOP_INPUT,
                          "%s: neither SuperGLUE's MultiRC (JSON lines with \"passage\") nor the "
                          "original (JSON with a list \"data\")",
                          r->path);
        goto done;
    }
    HOP_TRY_DONE(hop_need_list(file, "data", r->path, &list, err));
    for (size_t i = 0; i < json_array_size(list) && r->more; i++)
        HOP_TRY_DONE(read_item(r, json_array_get(list, i), i, err));
done:
    json_decref(file);
    return status;
}

/* ---- which it is ---- */

static hop_status look(void *context, const struct hop_jsonl_line *line, bool *more,
                       struct hop_error *err)
{
    (void)err;
    *(bool *)context = json_object_get(line->row, "data") == NULL;
    *more = false;
    return HOP_OK;
}

/* A first line that is no JSON object belongs to a JSON file written over several lines, or is
 * broken, which reading it as one reports. */
static bool is_lines(const char *path)
{
    struct hop_error ignored = {0};
    bool found = false;
    return hop_jsonl_read(path, look, &found, &ignored) == HOP_OK && found;
}

hop_status hop_multirc_read(const char *path, use_function *use, void *context,
                            struct hop_error *err)
{
    struct reader r = {.path = path, .use = use, .context = context, .more = true};
    hop_status status;
    if (is_lines(path)) {
        r.truth_key = "label";
        status = hop_jsonl_read(path, read_row, &r, err);
    } else {
        r.truth_key = "isAnswer";
        status = read_original(&r, err);
    }
    hop_string_free(&r.passage_place);
    hop_string_free(&r.place);
    hop_string_free(&r.id);
    hop_string_free(&r.text);
    free(r.answers);
    return status;
}
