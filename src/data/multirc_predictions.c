#include <stdlib.h>

#include <jansson.h>

#include "base/memory.h"
#include "base/string.h"
#include "data/json_need.h"
#include "data/multirc_file.h"
#include "data/predictions.h"
#include "io/json.h"

struct question {
    size_t first, count;  /* its answers, in truth */
    const json_t *scores; /* predicted, or NULL */
    size_t prediction;    /* which one says so */
};

/* Questions are found by "passage==question", as in the official script. */
struct scoring {
    const char *data, *path; /* path: of the predictions */
    struct question *questions;
    size_t count, capacity;
    bool *truth;
    size_t answers, truth_capacity;
    json_t *by_position, *by_idx; /* key to index in questions */
    struct hop_string key, place;
};

/* ---- the data ---- */

static hop_status set_key(json_t *map, const char *key, size_t index, struct hop_error *err)
{
    if (json_object_set_new(map, key, json_integer((json_int_t)index)))
        return hop_fail(err, HOP_MEMORY, "out of memory for the questions' keys");
    return HOP_OK;
}

static hop_status name_question(struct scoring *s, const struct hop_multirc_question *q,
                                struct hop_error *err)
{
    if (!q->passage_id)
        return hop_fail(err, HOP_INPUT,
                        "%s: the row has no integer \"idx\", by which predictions name a passage",
                        q->place);
    HOP_TRY(hop_place(&s->key, err, "%s==%zu", q->passage_id, q->position));
    if (json_object_get(s->by_position, s->key.data))
        return hop_fail(err, HOP_INPUT, "%s: the passage \"%.200s\" is there twice", q->place,
                        q->passage_id);
    HOP_TRY(set_key(s->by_position, s->key.data, s->count, err));
    if (q->idx < 0)
        return HOP_OK;
    HOP_TRY(hop_place(&s->key, err, "%s==%lld", q->passage_id, (long long)q->idx));
    return set_key(s->by_idx, s->key.data, s->count, err);
}

static hop_status keep_question(void *context, const struct hop_multirc_question *q, bool *more,
                                struct hop_error *err)
{
    struct scoring *const s = context;
    const size_t needed = s->answers + q->answer_count;
    (void)more;
    HOP_TRY(name_question(s, q, err));
    HOP_TRY(hop_grow(&s->questions, &s->capacity, s->count + 1, sizeof *s->questions, err));
    HOP_TRY(hop_grow(&s->truth, &s->truth_capacity, needed, sizeof *s->truth, err));
    s->questions[s->count++] = (struct question){.first = s->answers, .count = q->answer_count};
    for (size_t i = 0; i < q->answer_count; i++)
        s->truth[s->answers++] = q->answers[i].right;
    return HOP_OK;
}

/* ---- the predictions ---- */

/* An id may be a string or an integer. */
static hop_status append_id(struct scoring *s, const json_t *prediction, const char *name,
                            struct hop_error *err)
{
    const json_t *const id = json_object_get(prediction, name);
    if (json_is_integer(id))
        return hop_string_printf(&s->key, err, "%lld", (long long)json_integer_value(id));
    if (json_is_string(id))
        return hop_string_printf(&s->key, err, "%s", json_string_value(id));
    return hop_fail(err, HOP_INPUT, "%s: \"%s\" is missing or neither a string nor an integer",
                    s->place.data, name);
}

/* Leaves the key of prediction i in s->key and its place in s->place. */
static hop_status find_key(struct scoring *s, const json_t *prediction, size_t i,
                           struct hop_error *err)
{
    HOP_TRY(hop_place(&s->place, err, "%s: [%zu]", s->path, i));
    s->key.length = 0;
    HOP_TRY(append_id(s, prediction, "pid", err));
    HOP_TRY(hop_string_append(&s->key, "==", 2, err));
    return append_id(s, prediction, "qid", err);
}

/* qid means what fits more of the predictions; the official meaning where both fit as well. */
static hop_status choose_map(struct scoring *s, const json_t *list, const json_t **map,
                             struct hop_error *err)
{
    size_t by_position = 0, by_idx = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        HOP_TRY(find_key(s, json_array_get(list, i), i, err));
        by_position += json_object_get(s->by_position, s->key.data) != NULL;
        by_idx += json_object_get(s->by_idx, s->key.data) != NULL;
    }
    *map = by_idx > by_position ? s->by_idx : s->by_position;
    return HOP_OK;
}

static hop_status check_scores(const struct scoring *s, const json_t *scores, struct hop_error *err)
{
    bool value;
    for (size_t i = 0; i < json_array_size(scores); i++)
        if (!hop_read_truth(json_array_get(scores, i), &value))
            return hop_fail(err, HOP_INPUT,
                            "%s: scores[%zu] must be 0 or 1: whether the answer is right",
                            s->place.data, i);
    return HOP_OK;
}

static hop_status assign(struct scoring *s, struct question *q, const json_t *scores, size_t i,
                         struct hop_error *err)
{
    if (q->scores)
        return hop_fail(err, HOP_INPUT, "%s: the question \"%.200s\" is predicted at [%zu] already",
                        s->place.data, s->key.data, q->prediction);
    if (json_array_size(scores) != q->count)
        return hop_fail(err, HOP_INPUT,
                        "%s: %zu scores, but the question \"%.200s\" has %zu answers",
                        s->place.data, json_array_size(scores), s->key.data, q->count);
    q->scores = scores;
    q->prediction = i;
    return HOP_OK;
}

static hop_status assign_all(struct scoring *s, const json_t *list, size_t *unknown,
                             struct hop_error *err)
{
    const json_t *map = NULL, *scores = NULL;
    HOP_TRY(choose_map(s, list, &map, err));
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *const prediction = json_array_get(list, i);
        HOP_TRY(find_key(s, prediction, i, err));
        HOP_TRY(hop_need_list(prediction, "scores", s->place.data, &scores, err));
        HOP_TRY(check_scores(s, scores, err));
        const json_t *const index = json_object_get(map, s->key.data);
        *unknown += !index;
        if (index)
            HOP_TRY(assign(s, &s->questions[json_integer_value(index)], scores, i, err));
    }
    return HOP_OK;
}

/* ---- the scores ---- */

static struct hop_multirc_scores score(const struct scoring *s)
{
    struct hop_multirc_tally tally = {0};
    for (size_t k = 0; k < s->count; k++) {
        const struct question *const q = &s->questions[k];
        struct hop_multirc_counts counts = {0};
        for (size_t i = 0; q->scores && i < q->count; i++) {
            bool predicted = false;
            hop_read_truth(json_array_get(q->scores, i), &predicted);
            hop_multirc_count(&counts, s->truth[q->first + i], predicted);
        }
        if (q->scores)
            hop_multirc_add(&tally, &counts);
    }
    return hop_multirc_finish(&tally);
}

static hop_status score_list(struct scoring *s, const json_t *list, struct hop_multirc_scores *out,
                             struct hop_prediction_counts *counts, struct hop_error *err)
{
    size_t unknown = 0;
    if (!json_is_array(list))
        return hop_fail(err, HOP_INPUT,
                        "%s: predictions must be one list, [{\"pid\", \"qid\", \"scores\"}, ...]",
                        s->path);
    HOP_TRY(assign_all(s, list, &unknown, err));
    const struct hop_multirc_scores scores = score(s);
    if (scores.questions == 0)
        return hop_fail(err, HOP_INPUT,
                        "%s: none of the %zu predictions belongs to a question of %s; \"pid\" is "
                        "the passage's \"id\" (SuperGLUE: \"idx\"), \"qid\" the question's "
                        "position in it, from 0",
                        s->path, json_array_size(list), s->data);
    *out = scores;
    *counts = (struct hop_prediction_counts){
        .questions = s->count, .missing = s->count - scores.questions, .unknown = unknown};
    return HOP_OK;
}

hop_status hop_multirc_score_files(const char *data, const char *predictions,
                                   struct hop_multirc_scores *out,
                                   struct hop_prediction_counts *counts, struct hop_error *err)
{
    struct scoring s = {
        .data = data, .path = predictions, .by_position = json_object(), .by_idx = json_object()};
    json_t *list = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_multirc_read(data, keep_question, &s, err));
    HOP_TRY_DONE(hop_json_load(predictions, &list, err));
    HOP_TRY_DONE(score_list(&s, list, out, counts, err));
done:
    json_decref(list);
    json_decref(s.by_position);
    json_decref(s.by_idx);
    hop_string_free(&s.key);
    hop_string_free(&s.place);
    free(s.questions);
    free(s.truth);
    return status;
}
