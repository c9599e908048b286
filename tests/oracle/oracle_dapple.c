#include "oracle.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "strategy/dapple_authors.h"

/* The authors' program lists the best of its plans. */
enum { LISTED = 6 };

struct answers {
    struct hop_dapple_answer *items;
    int32_t count;
};

static void free_answers(struct answers *answers)
{
    for (int32_t i = 0; i < answers->count; i++)
        hop_dapple_answer_free(&answers->items[i]);
    free(answers->items);
}

/* "8,16": two machines of 8 devices. */
static hop_status parse_machines(const char *text, struct hop_card_machines *out,
                                 struct hop_error *err)
{
    int32_t before = 0;
    HOP_TRY(hop_calloc(&out->ends, HOP_CARDS_MOST, sizeof *out->ends, err));
    for (const char *at = text;; at++) {
        char word[16];
        const size_t length = strcspn(at, ",");
        snprintf(word, sizeof word, "%.*s", (int)length, at);
        HOP_TRY(
            oracle_integer(word, "SEPS", before + 1, HOP_CARDS_MOST, &out->ends[out->count], err));
        before = out->ends[out->count++];
        at += length;
        if (!*at)
            break;
    }
    if (before < 2)
        return hop_fail(err, HOP_INPUT, "SEPS: '%s' is one GPU; at least 2 are needed", text);
    return HOP_OK;
}

/* Shortest digits that read back the same. */
static void print_number(double value)
{
    char digits[32];
    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value)
            break;
    }
    fputs(digits, stdout);
}

static void print_stages(const struct hop_dapple_answer *answer)
{
    printf("stages [");
    for (int32_t i = 0; i < answer->count; i++) {
        const struct hop_dapple_block *const stage = &answer->stages[i];
        printf("%s(%d, %d, %d, {", i ? ", " : "", stage->lo, stage->hi, stage->width);
        const char *comma = "";
        for (int32_t d = 0; d < HOP_CARDS_MOST; d++)
            if (stage->cards & hop_card(d)) {
                printf("%s%d", comma, d);
                comma = ", ";
            }
        printf("})");
    }
    printf("]\n");
}

static hop_status add_pipelines(const struct hop_dapple_question *question, int32_t width,
                                bool straight, struct answers *answers, struct hop_error *err)
{
    HOP_TRY(hop_dapple_pipelines(question, width, straight, &answers->items[answers->count], err));
    answers->count++;
    return HOP_OK;
}

/* In the order of the authors' program. */
static hop_status plan_all(const struct hop_dapple_question *question, struct answers *answers,
                           struct hop_error *err)
{
    const int32_t gpus = hop_cards_total(question->machines);
    HOP_TRY(hop_calloc(&answers->items, (size_t)gpus + 3, sizeof *answers->items, err));
    for (int32_t width = 2; width <= gpus; width++)
        HOP_TRY(add_pipelines(question, width, false, answers, err));
    if (gpus > 2 && gpus % 2 == 0)
        HOP_TRY(add_pipelines(question, 2, true, answers, err));
    HOP_TRY(add_pipelines(question, gpus, true, answers, err));
    HOP_TRY(hop_dapple_bipartition(question, &answers->items[answers->count], err));
    answers->count++;
    return HOP_OK;
}

/* Best first; equal ones stay in their order. */
static void sort_answers(struct answers *answers)
{
    for (int32_t i = 1; i < answers->count; i++) {
        const struct hop_dapple_answer answer = answers->items[i];
        int32_t at = i;
        for (; at > 0 && answers->items[at - 1].speedup < answer.speedup; at--)
            answers->items[at] = answers->items[at - 1];
        answers->items[at] = answer;
    }
}

static hop_status print_all(const struct hop_dapple_question *question, struct hop_error *err)
{
    struct answers answers = {0};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(plan_all(question, &answers, err));
    sort_answers(&answers);
    printf("dp_speedup ");
    print_number(hop_dapple_parallel_speedup(question));
    putchar('\n');
    for (int32_t i = 0; i < answers.count && i < LISTED; i++) {
        printf("speedup %.6f rp %d ", answers.items[i].speedup, answers.items[i].pipelines);
        print_stages(&answers.items[i]);
    }
done:
    free_answers(&answers);
    return status;
}

static hop_status print_bipartition(const struct hop_dapple_question *question,
                                    struct hop_error *err)
{
    struct hop_dapple_answer answer;
    HOP_TRY(hop_dapple_bipartition(question, &answer, err));
    printf("dp_speedup ");
    print_number(hop_dapple_parallel_speedup(question));
    printf("\nbipartition speedup ");
    print_number(answer.speedup);
    putchar(' ');
    print_stages(&answer);
    hop_dapple_answer_free(&answer);
    return HOP_OK;
}

hop_status oracle_dapple(int argc, char **argv, struct hop_error *err)
{
    const bool two = argc == 6 && strcmp(argv[5], "bi") == 0;
    if (argc != 5 && !two)
        return oracle_usage("dapple FILE PROFILE_BATCH GLOBAL_BATCH MICRO_BATCH SEPS [bi]", err);
    struct hop_dapple_profile profile = {0};
    struct hop_card_machines machines = {0};
    struct hop_dapple_question question = {.profile = &profile, .machines = &machines};
    int32_t profile_batch;
    hop_status status = HOP_OK;
    HOP_TRY(oracle_integer(argv[1], "PROFILE_BATCH", 1, INT32_MAX, &profile_batch, err));
    HOP_TRY(oracle_integer(argv[2], "GLOBAL_BATCH", 1, INT32_MAX, &question.global_batch, err));
    HOP_TRY(oracle_integer(argv[3], "MICRO_BATCH", 1, INT32_MAX, &question.micro_batch, err));
    HOP_TRY_DONE(parse_machines(argv[4], &machines, err));
    HOP_TRY_DONE(hop_dapple_profile_load(argv[0], &profile, err));
    hop_dapple_profile_scale(&profile, profile_batch, question.global_batch);
    HOP_TRY_DONE(two ? print_bipartition(&question, err) : print_all(&question, err));
done:
    hop_dapple_profile_free(&profile);
    free(machines.ends);
    return status;
}
