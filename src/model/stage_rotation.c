/* Rotation tables of a call. Sequences share one table by position, except where the length of a
 * sequence decides its frequencies: then every token gets a row of its own. */
#include "model/stage_internal.h"

static int32_t past_of(const struct hop__run *run, int32_t s)
{
    return run->past ? run->past[s] : 0;
}

/* How long sequence s is in the end. */
static int32_t length_of(const struct hop__run *run, int32_t s)
{
    return past_of(run, s) + run->q_offset[s + 1] - run->q_offset[s] + run->future;
}

static bool any_stretches(const struct hop_stage *stage, const struct hop__run *run)
{
    for (int32_t s = 0; s < run->sequences; s++)
        if (hop_model_rope_stretches(&stage->config.model, length_of(run, s)))
            return true;
    return false;
}

/* One row a token, sequence after sequence. */
static void fill(const struct hop_stage *stage, const struct hop__run *run, size_t tokens,
                 float *cosine, float *sine)
{
    const struct hop_model_config *const model = &stage->config.model;
    const size_t half = (size_t)model->head_dim / 2;
    for (int32_t s = 0; (size_t)run->q_offset[s] < tokens; s++) {
        const size_t at = (size_t)run->q_offset[s] * half;
        hop_model_rope(model, length_of(run, s), past_of(run, s),
                       run->q_offset[s + 1] - run->q_offset[s], cosine + at, sine + at);
    }
}

/* Copies of a micro-batch share the rows of its tokens. */
static void point_at_rows(struct hop_stage *stage, size_t tokens, struct hop__run *run)
{
    int32_t *const position = hop__index(stage, stage->layout.index.position);
    for (size_t row = 0; row < run->rows; row++)
        position[row] = (int32_t)(row % tokens);
    run->position = position;
}

hop_status hop__stage_rotation(struct hop_stage *stage, size_t tokens, struct hop__run *run,
                               struct hop_error *err)
{
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    void *const cosine = hop__scratch(stage, scratch->long_cosine);
    void *const sine = hop__scratch(stage, scratch->long_sine);
    const size_t n = tokens * (size_t)stage->config.model.head_dim / 2;
    run->cosine = hop__scratch(stage, scratch->cosine);
    run->sine = hop__scratch(stage, scratch->sine);
    if (!any_stretches(stage, run))
        return HOP_OK;
    run->cosine = cosine;
    run->sine = sine;
    point_at_rows(stage, tokens, run);
    if (stage->ops->host_memory) {
        fill(stage, run, tokens, cosine, sine);
        return HOP_OK;
    }
    fill(stage, run, tokens, stage->rotation, stage->rotation + n);
    HOP_TRY(stage->ops->write(stage->backend, cosine, stage->rotation, n * sizeof(float), err));
    return stage->ops->write(stage->backend, sine, stage->rotation + n, n * sizeof(float), err);
}
