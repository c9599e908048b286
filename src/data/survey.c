#include "data/survey.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* ---- lengths ---- */

static int compare_int(const void *a, const void *b)
{
    const int32_t left = *(const int32_t *)a, right = *(const int32_t *)b;
    return (left > right) - (left < right);
}

/* The nearest-rank percentile of ascending values. */
static int32_t percentile(const int32_t *values, size_t n, size_t percent)
{
    const size_t rank = (n * percent + 99) / 100;
    return values[rank ? rank - 1 : 0];
}

/* Bins of one width, as few tokens as hold the longest row. */
static void fill_bins(const int32_t *lengths, size_t n, struct hop_survey *out)
{
    const int32_t width = (out->longest + HOP_SURVEY_BINS - 1) / HOP_SURVEY_BINS;
    out->bin_count = (size_t)((out->longest + width - 1) / width);
    for (size_t b = 0; b < out->bin_count; b++) {
        const int32_t lo = (int32_t)b * width + 1;
        out->bins[b] = (struct hop_survey_bin){.lo = lo, .hi = lo + width - 1};
    }
    for (size_t i = 0; i < n; i++)
        out->bins[(lengths[i] - 1) / width].rows++;
}

static hop_status measure_lengths(const struct hop_dataset *d, struct hop_survey *out,
                                  struct hop_error *err)
{
    int32_t *lengths;
    double sum = 0;
    HOP_TRY(hop_calloc(&lengths, d->count, sizeof *lengths, err));
    for (size_t i = 0; i < d->count; i++) {
        lengths[i] = d->examples[i].whole;
        sum += lengths[i];
    }
    qsort(lengths, d->count, sizeof *lengths, compare_int);
    out->shortest = lengths[0];
    out->median = percentile(lengths, d->count, 50);
    out->p95 = percentile(lengths, d->count, 95);
    out->longest = lengths[d->count - 1];
    out->mean = sum / (double)d->count;
    fill_bins(lengths, d->count, out);
    free(lengths);
    return HOP_OK;
}

/* ---- tokens ---- */

static bool is_end(struct hop_survey_tokens tokens, int32_t id)
{
    for (size_t i = 0; i < tokens.end_count; i++)
        if (tokens.ends[i] == id)
            return true;
    return false;
}

/* A conversation may end behind its last label, with what the template puts there. */
static bool ends_trained(const struct hop_example *e, struct hop_survey_tokens tokens)
{
    int32_t last = e->length - 1;
    while (last > 0 && e->labels[last] == HOP_LABEL_IGNORED)
        last--;
    return last > 0 && is_end(tokens, e->labels[last]);
}

static void measure_row(const struct hop_example *e, struct hop_survey_tokens tokens,
                        struct hop_survey *out)
{
    bool inner = false;
    for (int32_t i = 0; i < e->length; i++) {
        const int32_t id = e->ids[i];
        out->least_id = id < out->least_id ? id : out->least_id;
        out->largest_id = id > out->largest_id ? id : out->largest_id;
        inner = inner || (i > 0 && tokens.bos >= 0 && id == tokens.bos);
    }
    const bool begins = tokens.bos >= 0 && e->ids[0] == tokens.bos;
    out->begin_with_bos += begins;
    out->begin_with_two += begins && e->length > 1 && e->ids[1] == tokens.bos;
    out->inner_bos += inner;
    out->trained_end += ends_trained(e, tokens);
}

hop_status hop_survey_take(const struct hop_dataset *d, struct hop_survey_tokens tokens,
                           struct hop_survey *out, struct hop_error *err)
{
    struct hop_survey survey = {.least_id = INT32_MAX};
    hop_status status;
    HOP_TRY_DONE(hop_calloc(&survey.label_rows, d->label_count, sizeof *survey.label_rows, err));
    HOP_TRY_DONE(measure_lengths(d, &survey, err));
    for (size_t i = 0; i < d->count; i++) {
        measure_row(&d->examples[i], tokens, &survey);
        if (d->examples[i].answer >= 0)
            survey.label_rows[d->examples[i].answer]++;
    }
    *out = survey;
    survey = (struct hop_survey){0};
done:
    hop_survey_free(&survey);
    return status;
}

void hop_survey_free(struct hop_survey *survey)
{
    if (!survey)
        return;
    free(survey->label_rows);
    *survey = (struct hop_survey){0};
}

/* ---- rows in both ---- */

struct key {
    uint64_t hash;
    const struct hop_example *row;
};

static struct key key_of(const struct hop_example *e)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (int32_t i = 0; i < e->length; i++)
        hash = (hash ^ (uint32_t)e->ids[i]) * 0x100000001b3u;
    return (struct key){hash, e};
}

static int compare_keys(const void *a, const void *b)
{
    const struct key *const left = a, *const right = b;
    return (left->hash > right->hash) - (left->hash < right->hash);
}

static bool same_row(const struct hop_example *a, const struct hop_example *b)
{
    return a->length == b->length &&
           memcmp(a->ids, b->ids, (size_t)a->length * sizeof *a->ids) == 0;
}

static bool contains(const struct key *keys, size_t n, struct key wanted)
{
    size_t low = 0, high = n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (keys[middle].hash < wanted.hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < n && keys[low].hash == wanted.hash; low++)
        if (same_row(keys[low].row, wanted.row))
            return true;
    return false;
}

hop_status hop_survey_overlap(const struct hop_dataset *train, const struct hop_dataset *eval,
                              size_t *rows, size_t *first, struct hop_error *err)
{
    struct key *keys;
    size_t found = 0;
    HOP_TRY(hop_calloc(&keys, train->count, sizeof *keys, err));
    for (size_t i = 0; i < train->count; i++)
        keys[i] = key_of(&train->examples[i]);
    qsort(keys, train->count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < eval->count; i++)
        if (contains(keys, train->count, key_of(&eval->examples[i])) && found++ == 0)
            *first = i;
    *rows = found;
    free(keys);
    return HOP_OK;
}
