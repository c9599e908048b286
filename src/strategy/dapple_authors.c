#include "strategy/dapple_authors.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

/* Bytes a second. */
static const double inside_machine = 25e9, between_machines = 3e9, point_to_point = 1e9;
/* Seconds below this are those of no run of layers. */
static const double undefined = -0.5;

void hop_dapple_answer_free(struct hop_dapple_answer *answer)
{
    if (!answer)
        return;
    free(answer->stages);
    *answer = (struct hop_dapple_answer){0};
}

double hop_dapple_all_reduce(const struct hop_card_machines *machines, hop_cards cards,
                             double bytes)
{
    const int32_t count = hop_cards_count(cards);
    if (count < 2)
        return 0;
    const double factor = (double)(count - 1) / count;
    const double volume = bytes * 2.0 * factor;
    if (hop_cards_cross(machines, cards))
        return volume / between_machines;
    return volume / inside_machine / (double)(count / 2);
}

double hop_dapple_all_to_all(const struct hop_card_machines *machines, hop_cards from, hop_cards to,
                             double bytes)
{
    if (hop_cards_cross(machines, to))
        return bytes / (hop_cards_cross(machines, from | to) ? between_machines : inside_machine);
    const int32_t away = hop_cards_away(machines, from, to);
    if (away == 0)
        return bytes / inside_machine;
    return bytes / hop_cards_count(from) * away / point_to_point;
}

double hop_dapple_parallel_speedup(const struct hop_dapple_question *question)
{
    const struct hop_dapple_profile *const profile = question->profile;
    const double seconds = hop_dapple_seconds(profile);
    const int32_t gpus = hop_cards_total(question->machines);
    const double bytes = hop_dapple_at(profile, profile->parameters, 0, profile->layers - 1);
    return seconds / (seconds / gpus +
                      hop_dapple_all_reduce(question->machines, hop_cards_first(gpus), bytes));
}

/* T of the answer's stages with that longest block of the whole batch, as a speedup. */
static double speedup_of(const struct hop_dapple_question *question,
                         const struct hop_dapple_answer *answer, double longest)
{
    const struct hop_dapple_profile *const profile = question->profile;
    const double total = hop_dapple_seconds(profile);
    const int32_t pipelines = answer->pipelines;
    const int32_t micro_batches = question->global_batch / pipelines / question->micro_batch;
    if (micro_batches == 0)
        return 0;
    const double block = longest / micro_batches;
    double seconds = block * (micro_batches - 1) + total / pipelines / micro_batches;
    for (int32_t i = 0; i + 1 < answer->count; i++) {
        const struct hop_dapple_block *const stage = &answer->stages[i];
        seconds +=
            hop_dapple_all_to_all(question->machines, stage->cards, stage[1].cards,
                                  profile->output[stage->hi - 1] / pipelines / micro_batches);
    }
    double late = 0;
    for (int32_t i = 0; i < answer->count; i++) {
        const struct hop_dapple_block *const stage = &answer->stages[i];
        const double bytes = hop_dapple_at(profile, profile->parameters, stage->lo, stage->hi);
        late =
            fmax(late, hop_dapple_all_reduce(question->machines, stage->cards, bytes) - i * block);
    }
    return total / (seconds + late);
}

/* The best way to have put layers [0, j] on that many GPUs of a pipeline and these cards. */
struct cell {
    hop_cards occupied, cards; /* of all stages; of the last one */
    hop_cards before;          /* occupied without the last stage */
    double longest;
    int32_t cut, used; /* last layer of the stage before, or -1; GPUs of a pipeline it has */
    int32_t width;     /* of the last stage */
};

struct cells {
    struct cell *items; /* ascending by `occupied` */
    size_t count, capacity;
    struct cell best; /* of all */
    bool any;
};

/* Where stages of so many GPUs a pipeline can go. */
struct move {
    hop_cards occupied;
    int32_t width;
    size_t first, count;
};

struct search {
    const struct hop_dapple_question *question;
    int32_t layers, width, pipelines;
    bool straight;
    struct cells *table; /* (layers, width) */
    struct move *moves;  /* ascending by occupied, width */
    size_t move_count, move_capacity;
    struct hop_cards_list places;
};

static struct cells *cells_at(const struct search *search, int32_t j, int32_t m)
{
    return &search->table[(size_t)j * (size_t)search->width + (size_t)m];
}

static void free_search(struct search *search)
{
    for (size_t i = 0; search->table && i < (size_t)search->layers * (size_t)search->width; i++)
        free(search->table[i].items);
    free(search->table);
    free(search->moves);
    free(search->places.items);
}

/* The first cell that is not below. */
static size_t find_cell(const struct cells *cells, hop_cards occupied)
{
    size_t low = 0, high = cells->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (cells->items[middle].occupied < occupied)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Keeps the cell if it is the first of its cards or better. */
static hop_status offer_cell(struct cells *cells, const struct cell *cell, struct hop_error *err)
{
    const size_t at = find_cell(cells, cell->occupied);
    if (at < cells->count && cells->items[at].occupied == cell->occupied) {
        if (cell->longest < cells->items[at].longest)
            cells->items[at] = *cell;
        return HOP_OK;
    }
    HOP_TRY(hop_grow(&cells->items, &cells->capacity, cells->count + 1, sizeof *cells->items, err));
    for (size_t i = cells->count++; i > at; i--)
        cells->items[i] = cells->items[i - 1];
    cells->items[at] = *cell;
    return HOP_OK;
}

static void offer_best(struct cells *cells, const struct cell *cell)
{
    if (!cells->any || cell->longest < cells->best.longest)
        cells->best = *cell;
    cells->any = true;
}

/* Layers [0, j] as one stage. */
static hop_status begin_cells(struct search *search, struct hop_error *err)
{
    const struct hop_dapple_profile *const profile = search->question->profile;
    const int32_t most = search->straight ? 1 : search->width;
    for (int32_t j = 0; j < search->layers; j++)
        for (int32_t m = 0; m < most; m++) {
            const double seconds = hop_dapple_at(profile, profile->compute, 0, j);
            const hop_cards cards = hop_cards_place(search->question->machines, 0,
                                                    (m + 1) * search->pipelines, HOP_CARDS_FRESH);
            const struct cell cell = {.occupied = cards,
                                      .cards = cards,
                                      .longest = seconds / (m + 1) / search->pipelines,
                                      .cut = -1,
                                      .width = m + 1};
            offer_best(cells_at(search, j, m), &cell);
            HOP_TRY(offer_cell(cells_at(search, j, m), &cell, err));
        }
    return HOP_OK;
}

static int compare_move(const struct move *move, hop_cards occupied, int32_t width)
{
    if (move->occupied != occupied)
        return move->occupied < occupied ? -1 : 1;
    return move->width < width ? -1 : move->width > width;
}

static hop_status find_move(struct search *search, hop_cards occupied, int32_t width,
                            struct move *out, struct hop_error *err)
{
    size_t low = 0, high = search->move_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_move(&search->moves[middle], occupied, width) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low < search->move_count && compare_move(&search->moves[low], occupied, width) == 0) {
        *out = search->moves[low];
        return HOP_OK;
    }
    struct move move = {occupied, width, search->places.count, 0};
    HOP_TRY(hop_cards_rounds(search->question->machines, occupied, width, search->pipelines,
                             &search->places, err));
    move.count = search->places.count - move.first;
    HOP_TRY(hop_grow(&search->moves, &search->move_capacity, search->move_count + 1,
                     sizeof *search->moves, err));
    for (size_t i = search->move_count++; i > low; i--)
        search->moves[i] = search->moves[i - 1];
    search->moves[low] = *out = move;
    return HOP_OK;
}

/* A stage of layers (k, j] on `width` GPUs a pipeline behind every way to have placed [0, k]. */
static hop_status extend(struct search *search, int32_t k, int32_t j, int32_t m, int32_t width,
                         struct hop_error *err)
{
    const struct hop_dapple_profile *const profile = search->question->profile;
    const struct cells *const from = cells_at(search, k, m - width);
    struct cells *const to = cells_at(search, j, m);
    const double compute = hop_dapple_at(profile, profile->compute, k + 1, j);
    if (compute < undefined)
        return HOP_OK;
    const double seconds = compute / (width * search->pipelines);
    for (size_t i = 0; i < from->count; i++) {
        const struct cell *const cell = &from->items[i];
        struct move move;
        HOP_TRY(find_move(search, cell->occupied, width, &move, err));
        for (size_t p = 0; p < move.count; p++) {
            const hop_cards cards = search->places.items[move.first + p];
            const double transfer = hop_dapple_all_to_all(search->question->machines, cell->cards,
                                                          cards, 2.0 * profile->output[k]);
            const struct cell next = {.occupied = cell->occupied | cards,
                                      .cards = cards,
                                      .before = cell->occupied,
                                      .longest = fmax(fmax(cell->longest, seconds), transfer),
                                      .cut = k,
                                      .used = m - width,
                                      .width = width};
            offer_best(to, &next);
            HOP_TRY(offer_cell(to, &next, err));
        }
    }
    return HOP_OK;
}

static hop_status fill_cells(struct search *search, struct hop_error *err)
{
    const struct hop_dapple_profile *const profile = search->question->profile;
    for (int32_t m = 1; m < search->width; m++)
        for (int32_t j = 1; j < search->layers; j++)
            for (int32_t i = profile->first[j]; i < profile->first[j + 1]; i++) {
                const int32_t k = profile->predecessors[i];
                for (int32_t width = 1; k < j && width <= (search->straight ? 1 : m); width++)
                    HOP_TRY(extend(search, k, j, m, width, err));
            }
    return HOP_OK;
}

static int32_t count_stages(const struct search *search, const struct cell *cell)
{
    int32_t count = 1;
    while (cell->cut >= 0) {
        const struct cells *const cells = cells_at(search, cell->cut, cell->used);
        cell = &cells->items[find_cell(cells, cell->before)];
        count++;
    }
    return count;
}

/* Back from the last stage. */
static hop_status trace(const struct search *search, struct hop_dapple_answer *answer,
                        struct hop_error *err)
{
    const struct cell *cell = &cells_at(search, search->layers - 1, search->width - 1)->best;
    int32_t end = search->layers - 1;
    answer->count = count_stages(search, cell);
    HOP_TRY(hop_calloc(&answer->stages, (size_t)answer->count, sizeof *answer->stages, err));
    for (int32_t i = answer->count - 1; i >= 0; i--) {
        answer->stages[i] = (struct hop_dapple_block){cell->cut + 1, end, cell->width, cell->cards};
        end = cell->cut + 1;
        if (i > 0) {
            const struct cells *const cells = cells_at(search, cell->cut, cell->used);
            cell = &cells->items[find_cell(cells, cell->before)];
        }
    }
    return HOP_OK;
}

/* Only pipelines that use every GPU can have more stages: the program takes the sets of others for
 * its placeholder. */
static bool one_stage_only(const struct search *search)
{
    return search->width * search->pipelines < hop_cards_total(search->question->machines);
}

hop_status hop_dapple_pipelines(const struct hop_dapple_question *question, int32_t width,
                                bool straight, struct hop_dapple_answer *out, struct hop_error *err)
{
    const int32_t gpus = hop_cards_total(question->machines);
    struct search search = {.question = question,
                            .layers = question->profile->layers,
                            .width = width,
                            .pipelines = gpus / width,
                            .straight = straight};
    struct hop_dapple_answer answer = {.pipelines = search.pipelines};
    hop_status status = HOP_OK;
    HOP_TRY_DONE(hop_calloc(&search.table, (size_t)search.layers * (size_t)width,
                            sizeof *search.table, err));
    HOP_TRY_DONE(begin_cells(&search, err));
    if (!one_stage_only(&search))
        HOP_TRY_DONE(fill_cells(&search, err));
    const struct cells *const last = cells_at(&search, search.layers - 1, width - 1);
    if (!last->any) {
        status = hop_fail(err, HOP_INFEASIBLE, "dapple: %d layers make no %d stages", search.layers,
                          width);
        goto done;
    }
    HOP_TRY_DONE(trace(&search, &answer, err));
    answer.speedup = speedup_of(question, &answer, last->best.longest);
    *out = answer;
    answer.stages = NULL;
done:
    free(answer.stages);
    free_search(&search);
    return status;
}

static void try_two(const struct hop_dapple_question *question, int32_t cut, hop_cards first,
                    hop_cards second, struct hop_dapple_answer *best)
{
    const struct hop_dapple_profile *const profile = question->profile;
    const int32_t layers = profile->layers;
    const int32_t widths[] = {hop_cards_count(first), hop_cards_count(second)};
    struct hop_dapple_block stages[] = {{0, cut + 1, widths[0], first},
                                        {cut + 1, layers - 1, widths[1], second}};
    struct hop_dapple_answer answer = {.pipelines = 1, .count = 2, .stages = stages};
    const double compute =
        fmax(hop_dapple_at(profile, profile->compute, 0, cut) / widths[0],
             hop_dapple_at(profile, profile->compute, cut + 1, layers - 1) / widths[1]);
    const double transfer =
        hop_dapple_all_to_all(question->machines, first, second, profile->output[cut]);
    answer.speedup = speedup_of(question, &answer, fmax(compute, transfer));
    if (best->stages[0].width > 0 && answer.speedup <= best->speedup)
        return;
    best->speedup = answer.speedup;
    best->stages[0] = stages[0];
    best->stages[1] = stages[1];
}

static void try_cut(const struct hop_dapple_question *question, int32_t cut,
                    struct hop_dapple_answer *best)
{
    const int32_t gpus = hop_cards_total(question->machines);
    for (int32_t width = 1; width < gpus; width++) {
        hop_cards first[HOP_CARD_POLICIES], second[HOP_CARD_POLICIES];
        const int32_t firsts = hop_cards_next(question->machines, 0, width, first);
        for (int32_t i = 0; i < firsts; i++) {
            const int32_t seconds =
                hop_cards_next(question->machines, first[i], gpus - width, second);
            for (int32_t j = 0; j < seconds; j++)
                try_two(question, cut, first[i], second[j], best);
        }
    }
}

hop_status hop_dapple_bipartition(const struct hop_dapple_question *question,
                                  struct hop_dapple_answer *out, struct hop_error *err)
{
    const int32_t layers = question->profile->layers;
    if (layers < 2)
        return hop_fail(err, HOP_INFEASIBLE, "dapple: %d layer makes no two stages", layers);
    struct hop_dapple_answer best = {.pipelines = 1, .count = 2};
    HOP_TRY(hop_calloc(&best.stages, 2, sizeof *best.stages, err));
    for (int32_t cut = 0; cut + 1 < layers; cut++)
        try_cut(question, cut, &best);
    *out = best;
    return HOP_OK;
}
