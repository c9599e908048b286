#include <jansson.h>

#include "data/predictions.h"
#include "data/squad_file.h"
#include "io/json.h"

struct scoring {
    json_t *predictions;
    json_t *known; /* the ids of the data, as keys */
    struct hop_squad_tally tally;
};

static hop_status check_predictions(const char *path, json_t *predictions, struct hop_error *err)
{
    json_t *value;
    const char *id;
    if (!json_is_object(predictions))
        return hop_fail(err, HOP_INPUT,
                        "%s: predictions must be one object, {\"question id\": \"answer\", ...}",
                        path);
    json_object_foreach(predictions, id, value)
    {
        if (!json_is_string(value))
            return hop_fail(err, HOP_INPUT, "%s: the answer of \"%.64s\" must be a string", path,
                            id);
    }
    return HOP_OK;
}

static hop_status score_question(void *context, const struct hop_squad_question *q, bool *more,
                                 struct hop_error *err)
{
    struct scoring *const s = context;
    const char *const answer = json_string_value(json_object_get(s->predictions, q->id));
    (void)more;
    if (json_object_set_new(s->known, q->id, json_true()))
        return hop_fail(err, HOP_MEMORY, "out of memory for the question ids");
    return hop_squad_add(&s->tally, answer, q->golds, q->gold_count, err);
}

static size_t count_unknown(const struct scoring *s)
{
    json_t *value;
    const char *id;
    size_t unknown = 0;
    json_object_foreach(s->predictions, id, value) unknown += json_object_get(s->known, id) == NULL;
    return unknown;
}

hop_status hop_squad_score_files(const char *data, const char *predictions,
                                 struct hop_squad_scores *out, struct hop_prediction_counts *counts,
                                 struct hop_error *err)
{
    struct scoring scoring = {.known = json_object()};
    json_t *file = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_json_load(predictions, &file, err));
    HOP_TRY_DONE(check_predictions(predictions, file, err));
    scoring.predictions = file;
    HOP_TRY_DONE(hop_squad_read(data, score_question, &scoring, err));
    *out = hop_squad_finish(&scoring.tally);
    *counts = (struct hop_prediction_counts){
        .questions = out->questions, .missing = out->missing, .unknown = count_unknown(&scoring)};
done:
    json_decref(file);
    json_decref(scoring.known);
    return status;
}
