#include "data/squad_metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/string.h"
#include "data/squad_normalize.h"

struct token {
    const char *text;
    size_t length;
};

/* A normal form and its tokens, sorted, so that two bags compare in one walk. */
struct bag {
    struct hop_string text;
    struct token *tokens;
    size_t count, capacity;
};

static void bag_free(struct bag *bag)
{
    hop_string_free(&bag->text);
    free(bag->tokens);
}

static int compare(const void *left, const void *right)
{
    const struct token *const a = left, *const b = right;
    const size_t shorter = a->length < b->length ? a->length : b->length;
    const int order = memcmp(a->text, b->text, shorter);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

static hop_status bag_fill(struct bag *bag, const char *text, struct hop_error *err)
{
    bag->count = 0;
    HOP_TRY(hop_squad_normalize(text, &bag->text, err));
    for (const char *at = bag->text.data; *at;) {
        const size_t length = strcspn(at, " ");
        HOP_TRY(hop_grow(&bag->tokens, &bag->capacity, bag->count + 1, sizeof *bag->tokens, err));
        bag->tokens[bag->count++] = (struct token){at, length};
        at += length + (at[length] == ' ');
    }
    if (bag->count)
        qsort(bag->tokens, bag->count, sizeof *bag->tokens, compare);
    return HOP_OK;
}

static size_t shared_tokens(const struct bag *a, const struct bag *b)
{
    size_t shared = 0;
    for (size_t i = 0, k = 0; i < a->count && k < b->count;) {
        const int order = compare(&a->tokens[i], &b->tokens[k]);
        shared += order == 0;
        i += order <= 0;
        k += order >= 0;
    }
    return shared;
}

static double f1(const struct bag *answer, const struct bag *gold)
{
    const double shared = (double)shared_tokens(answer, gold);
    if (shared == 0)
        return 0;
    const double precision = shared / (double)answer->count, recall = shared / (double)gold->count;
    return 2 * precision * recall / (precision + recall);
}

hop_status hop_squad_score(const char *answer, const char *const *golds, size_t count,
                           struct hop_squad_score *out, struct hop_error *err)
{
    struct bag mine = {0}, gold = {0};
    struct hop_squad_score best = {0};
    hop_status status;
    HOP_TRY_DONE(bag_fill(&mine, answer, err));
    for (size_t i = 0; i < count; i++) {
        HOP_TRY_DONE(bag_fill(&gold, golds[i], err));
        const double score = f1(&mine, &gold);
        best.f1 = score > best.f1 ? score : best.f1;
        best.exact = best.exact || strcmp(mine.text.data, gold.text.data) == 0;
    }
    *out = best;
done:
    bag_free(&mine);
    bag_free(&gold);
    return status;
}

hop_status hop_squad_add(struct hop_squad_tally *tally, const char *answer,
                         const char *const *golds, size_t count, struct hop_error *err)
{
    struct hop_squad_score score = {0};
    if (answer)
        HOP_TRY(hop_squad_score(answer, golds, count, &score, err));
    tally->questions++;
    tally->missing += !answer;
    tally->exact += score.exact;
    tally->f1 += score.f1;
    return HOP_OK;
}

struct hop_squad_scores hop_squad_finish(const struct hop_squad_tally *tally)
{
    const double n = (double)tally->questions;
    if (tally->questions == 0)
        return (struct hop_squad_scores){0};
    return (struct hop_squad_scores){.questions = tally->questions,
                                     .missing = tally->missing,
                                     .exact_match = 100.0 * (double)tally->exact / n,
                                     .f1 = 100.0 * tally->f1 / n};
}

hop_status hop_squad_dataset_scores(const struct hop_dataset *dataset, const char *const *answers,
                                    struct hop_squad_scores *out, struct hop_error *err)
{
    struct hop_squad_tally tally = {0};
    for (size_t e = 0; e < dataset->count; e++) {
        const struct hop_reference *const reference = &dataset->references[e];
        HOP_TRY(hop_squad_add(&tally, answers[e], (const char *const *)reference->golds,
                              reference->count, err));
    }
    *out = hop_squad_finish(&tally);
    return HOP_OK;
}
