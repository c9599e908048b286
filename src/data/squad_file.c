#include "data/squad_file.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/string.h"
#include "data/json_need.h"
#include "io/json.h"

typedef hop_status use_function(void *context, const struct hop_squad_question *question,
                                bool *more, struct hop_error *err);

struct reader {
    use_function *use;
    void *context;
    bool more;
    size_t questions; /* read so far */
    struct hop_string article_place, paragraph_place, place;
    const char **golds;
    size_t capacity; /* of golds */
    struct hop_squad_question question;
};

static hop_status read_golds(struct reader *r, const json_t *qa, struct hop_error *err)
{
    struct hop_squad_question *const q = &r->question;
    char where[640];
    HOP_TRY(hop_need_list(qa, "answers", r->place.data, &q->answers, err));
    q->gold_count = json_array_size(q->answers);
    if (q->gold_count == 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: \"answers\" is empty; in SQuAD v1.1 every question has an answer, and "
                        "version 2 is not supported: leave such questions out",
                        r->place.data);
    HOP_TRY(hop_grow(&r->golds, &r->capacity, q->gold_count, sizeof *r->golds, err));
    for (size_t i = 0; i < q->gold_count; i++) {
        snprintf(where, sizeof where, "%.500s.answers[%zu]", r->place.data, i);
        HOP_TRY(hop_need_string(json_array_get(q->answers, i), "text", where, &r->golds[i], err));
    }
    q->golds = r->golds;
    return HOP_OK;
}

static hop_status read_question(struct reader *r, const json_t *qa, size_t i, struct hop_error *err)
{
    struct hop_squad_question *const q = &r->question;
    HOP_TRY(hop_place(&r->place, err, "%s.qas[%zu]", r->paragraph_place.data, i));
    HOP_TRY(hop_need_string(qa, "id", r->place.data, &q->id, err));
    HOP_TRY(read_golds(r, qa, err));
    q->qa = qa;
    q->place = r->place.data;
    r->questions++;
    return r->use(r->context, q, &r->more, err);
}

static hop_status read_paragraph(struct reader *r, const json_t *paragraph, size_t i,
                                 struct hop_error *err)
{
    const json_t *list = NULL;
    HOP_TRY(hop_place(&r->paragraph_place, err, "%s.paragraphs[%zu]", r->article_place.data, i));
    HOP_TRY(hop_need_list(paragraph, "qas", r->paragraph_place.data, &list, err));
    r->question.paragraph = paragraph;
    r->question.paragraph_place = r->paragraph_place.data;
    for (size_t k = 0; k < json_array_size(list) && r->more; k++)
        HOP_TRY(read_question(r, json_array_get(list, k), k, err));
    return HOP_OK;
}

static hop_status read_article(struct reader *r, const char *path, const json_t *article, size_t i,
                               struct hop_error *err)
{
    const json_t *list = NULL;
    HOP_TRY(hop_place(&r->article_place, err, "%s: data[%zu]", path, i));
    HOP_TRY(hop_need_list(article, "paragraphs", r->article_place.data, &list, err));
    r->question.article = article;
    r->question.article_place = r->article_place.data;
    for (size_t k = 0; k < json_array_size(list) && r->more; k++)
        HOP_TRY(read_paragraph(r, json_array_get(list, k), k, err));
    return HOP_OK;
}

static hop_status read_articles(struct reader *r, const char *path, const json_t *file,
                                struct hop_error *err)
{
    const json_t *list = NULL;
    HOP_TRY(hop_need_list(file, "data", path, &list, err));
    for (size_t i = 0; i < json_array_size(list) && r->more; i++)
        HOP_TRY(read_article(r, path, json_array_get(list, i), i, err));
    if (r->questions == 0)
        return hop_fail(err, HOP_INPUT, "%s: the file has no question", path);
    return HOP_OK;
}

hop_status hop_squad_read(const char *path, use_function *use, void *context, struct hop_error *err)
{
    struct reader r = {.use = use, .context = context, .more = true};
    json_t *file = NULL;
    HOP_TRY(hop_json_load(path, &file, err));
    const hop_status status = read_articles(&r, path, file, err);
    json_decref(file);
    hop_string_free(&r.article_place);
    hop_string_free(&r.paragraph_place);
    hop_string_free(&r.place);
    free(r.golds);
    return status;
}
