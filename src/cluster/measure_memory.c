/* What stages hold in memory, against what the size functions say. */
#include <math.h>
#include <stdlib.h>

#include "cluster/measure_fit.h"
#include "cluster/measure_internal.h"

const char *const hop_memory_term_names[HOP_MEMORY_TERMS] = {
    "frozen weights", "adapters, gradients, optimizer", "kept for backward", "the rest"};

/* Sizes of a stage beside its number of blocks: with adapters twice as large, trainable and frozen
 * parameters tell apart, and with more slots what is kept. */
static const struct {
    int32_t slots, rank_factor;
} variants[] = {{0, 1}, {0, 2}, {1, 1}, {2, 1}};
enum { VARIANTS = sizeof variants / sizeof *variants };

static double estimate(const struct hop_stage_config *config, size_t trainable)
{
    const struct hop_stage_bytes bytes = hop_stage_bytes(config);
    const double moments = 2.0 * (double)trainable * sizeof(float);
    return (double)bytes.weights + (double)bytes.parameters + moments +
           (double)config->slots * (double)bytes.kept + (double)bytes.scratch;
}

/* A few tokens through the stage bring all mapped weights into memory. */
static hop_status touch(const struct hop__bench *bench, const struct hop__subject *subject,
                        struct hop_error *err)
{
    int32_t zero[1] = {0}, offset[2] = {0, 1};
    const struct hop_batch batch = {
        .sequences = 1, .tokens = 1, .ids = zero, .position = zero, .offset = offset};
    return hop_stage_forward(subject->stage, &batch, -1, bench->input, bench->output,
                             bench->logprob, err);
}

static hop_status open_weights(const struct hop_measure_request *request, int32_t blocks,
                               struct hop_weights **out, struct hop_error *err)
{
    if (request->directory)
        return hop__weights_blocks(request, blocks, out, err);
    return hop__weights_empty(request, blocks, out, err);
}

/* Bytes of weights, stage and optimizer together. */
static hop_status hold(const struct hop__bench *bench, const struct hop_stage_config *config,
                       struct hop_measured_stage *out, struct hop_error *err)
{
    struct hop_weights *weights = NULL;
    struct hop__subject subject = {0};
    const double heap = hop__heap_bytes(), file = hop__file_bytes();
    hop_status status;
    HOP_TRY_DONE(open_weights(bench->request, config->hi, &weights, err));
    HOP_TRY_DONE(hop__subject_open(bench, weights, config, &subject, err));
    HOP_TRY_DONE(touch(bench, &subject, err));
    out->held = hop__heap_bytes() - heap;
    if (bench->request->directory)
        out->held += hop__file_bytes() - file;
    out->estimate = estimate(config, hop_stage_parameters(subject.stage)->total);
done:
    hop__subject_close(&subject);
    hop_weights_free(weights);
    return status;
}

static hop_status hold_all(const struct hop__bench *bench, struct hop_measurement *m,
                           struct hop_error *err)
{
    struct hop_measured_memory *const memory = &m->memory;
    for (int32_t s = 0; s < m->stage_count; s++)
        for (int v = 0; v < VARIANTS; v++) {
            if (variants[v].slots > 0 && !bench->bp)
                continue;
            struct hop_stage_config config =
                hop__subject_config(&m->request, m->stage_blocks[s], false, false);
            config.limits = hop__limits(&m->request, hop_measured_chosen(m)->rows);
            config.slots = variants[v].slots;
            config.lora.rank *= variants[v].rank_factor;
            struct hop_measured_stage *const stage = &memory->stages[memory->count];
            *stage = (struct hop_measured_stage){
                .blocks = m->stage_blocks[s], .slots = config.slots, .rank = config.lora.rank};
            HOP_TRY(hold(bench, &config, stage, err));
            memory->count++;
        }
    return HOP_OK;
}

/* Columns of the fit: frozen, trainable, frozen * slots, a constant, and one more constant for what
 * a stage with slots needs once. The kept columns are missing on BP-free devices. */
enum { FROZEN, TRAINABLE, ONCE, KEPT, ONCE_BACKWARD, COLUMNS };

static int fill_row(const struct hop_measurement *m, const struct hop_measured_stage *stage,
                    double *row)
{
    struct hop_lora_config lora = m->request.lora;
    lora.rank = stage->rank;
    const double frozen = stage->blocks * (double)hop_model_block_parameters(&m->request.model);
    const double trainable =
        stage->blocks * (double)hop_lora_block_parameters(&m->request.model, &lora);
    row[FROZEN] = frozen;
    row[TRAINABLE] = trainable;
    row[ONCE] = 1;
    if (!m->bp)
        return KEPT;
    row[KEPT] = frozen * stage->slots;
    row[ONCE_BACKWARD] = stage->slots > 0;
    return COLUMNS;
}

/* The bytes of each term in the largest stage. */
static void split(const struct hop_measurement *m, const double *c, double term[HOP_MEMORY_TERMS])
{
    double row[COLUMNS];
    const int columns = fill_row(m, &m->memory.stages[m->memory.count - 1], row);
    for (int t = 0; t < HOP_MEMORY_TERMS; t++)
        term[t] = 0;
    for (int k = 0; k < columns; k++) {
        static const enum hop_memory_term term_of[COLUMNS] = {
            [FROZEN] = HOP_FROZEN, [TRAINABLE] = HOP_TRAINABLE, [ONCE] = HOP_REST,
            [KEPT] = HOP_KEPT,     [ONCE_BACKWARD] = HOP_REST,
        };
        term[term_of[k]] += c[k] * row[k];
    }
}

static hop_status fit(struct hop_measurement *m, struct hop_error *err)
{
    struct hop_measured_memory *const memory = &m->memory;
    double x[HOP_MEASURE_MEMORY * COLUMNS], held[HOP_MEASURE_MEMORY], said[HOP_MEASURE_MEMORY];
    double c[COLUMNS] = {0}, e[COLUMNS] = {0};
    double held_term[HOP_MEMORY_TERMS], said_term[HOP_MEMORY_TERMS];
    const size_t columns = m->bp ? COLUMNS : KEPT, rows = (size_t)memory->count;
    for (size_t r = 0; r < rows; r++) {
        fill_row(m, &memory->stages[r], x + r * columns);
        held[r] = memory->stages[r].held;
        said[r] = memory->stages[r].estimate;
    }
    HOP_TRY(hop_fit_linear(rows, columns, x, held, c, &memory->r2, err));
    HOP_TRY(hop_fit_linear(rows, columns, x, said, e, NULL, err));
    split(m, c, held_term);
    split(m, e, said_term);
    for (int t = 0; t < HOP_MEMORY_TERMS; t++)
        memory->term[t] =
            (struct hop_measured_bytes){.held = held_term[t], .estimate = said_term[t]};
    memory->lambda_1 = c[FROZEN];
    memory->lambda_23 = c[TRAINABLE];
    memory->lambda_4 = c[KEPT];
    return HOP_OK;
}

hop_status hop__measure_memory(const struct hop__bench *bench, struct hop_measurement *m,
                               struct hop_error *err)
{
    struct hop_measured_memory *const memory = &m->memory;
    HOP_TRY(hold_all(bench, m, err));
    if (m->stage_count > 1)
        return fit(m, err);
    memory->lambda_1 = memory->lambda_23 = memory->lambda_4 = memory->r2 = NAN;
    for (int t = 0; t < HOP_MEMORY_TERMS; t++)
        memory->term[t] = (struct hop_measured_bytes){.held = NAN, .estimate = NAN};
    return HOP_OK;
}
