/* Final norm, head and loss, only at rows that carry a label: behind the last block, or at an exit.
 */
#include "model/stage_internal.h"

/* Distinct rows of one micro-batch into row[], and for each label which of them it is. */
static size_t distinct_rows(const struct hop_batch *batch, int32_t *row, int32_t *label_row)
{
    size_t n = 0;
    for (int32_t j = 0; j < batch->labels; j++) {
        if (n == 0 || row[n - 1] != batch->label_row[j])
            row[n++] = batch->label_row[j];
        label_row[j] = (int32_t)n - 1;
    }
    return n;
}

size_t hop__head_rows(struct hop_stage *stage, const struct hop_batch *batch, int32_t copies)
{
    const struct hop__index_layout *const index = &stage->layout.index;
    int32_t *const row = hop__index(stage, index->row);
    int32_t *const label_row = hop__index(stage, index->label_row);
    int32_t *const label_id = hop__index(stage, index->label_id);
    const int32_t n = (int32_t)distinct_rows(batch, row, label_row), labels = batch->labels;
    for (int32_t c = 0; c < copies; c++) {
        for (int32_t i = 0; i < n; i++)
            row[c * n + i] = c * batch->tokens + row[i];
        for (int32_t j = 0; j < labels; j++) {
            label_row[c * labels + j] = c * n + label_row[j];
            label_id[c * labels + j] = batch->label_id[j];
        }
    }
    return (size_t)n;
}

/* The labelled rows gathered, and normed. */
static hop_status gather_normed(struct hop_stage *stage, const void *h, size_t n, float *rstd,
                                struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const struct hop__scratch_layout *const scratch = &stage->layout.scratch;
    void *const gathered = hop__scratch(stage, scratch->normed);
    HOP_TRY(stage->ops->gather_forward(stage->backend, config->dtype, (int64_t)n,
                                       config->model.hidden, h,
                                       hop__index(stage, stage->layout.index.row), gathered, err));
    return stage->ops->rmsnorm_forward(
        stage->backend, config->dtype, (int64_t)n, config->model.hidden, gathered,
        stage->final_gain, config->model.norm_eps, hop__scratch(stage, scratch->work), rstd, err);
}

/* Gradient of the loss at the labelled rows, through the final norm, into the slot: it is small and
 * spares keeping the hidden states. */
static hop_status loss_and_gradient(struct hop_stage *stage, const struct hop_batch *batch,
                                    int32_t slot, size_t n, float *logprob, struct hop_error *err)
{
    const struct hop_stage_config *const config = &stage->config;
    const struct hop__stage_layout *const layout = &stage->layout;
    const void *const gathered = hop__scratch(stage, layout->scratch.normed);
    const void *const normed = hop__scratch(stage, layout->scratch.work);
    const float *const rstd = hop__scratch(stage, layout->scratch.rstd);
    void *const dnormed = hop__scratch(stage, layout->scratch.dnormed);
    void *const kept = hop__stage_kept_head(stage, slot);
    const float scale = 1 / (float)batch->label_total;
    HOP_TRY(stage->ops->loss_backward(
        stage->backend, config->dtype, (int64_t)n, normed, stage->head, batch->labels,
        hop__index(stage, layout->index.label_row), hop__index(stage, layout->index.label_id),
        scale, logprob, dnormed, err));
    HOP_TRY(hop__stage_zero(stage, kept, n * layout->hidden * layout->element, err));
    return stage->ops->rmsnorm_backward(stage->backend, config->dtype, (int64_t)n,
                                        config->model.hidden, gathered, stage->final_gain, rstd,
                                        dnormed, kept, err);
}

hop_status hop__head_forward(struct hop_stage *stage, const struct hop_batch *batch,
                             const struct hop__run *run, int32_t slot, const void *h,
                             float *logprob, struct hop_error *err)
{
    const struct hop__index_layout *const index = &stage->layout.index;
    if (batch->labels == 0)
        return HOP_OK;
    const int32_t copies = (int32_t)(run->rows / (size_t)batch->tokens);
    const size_t n = hop__head_rows(stage, batch, copies) * (size_t)copies;
    const bool keeps = slot >= 0 && hop__stage_keeps_loss(&stage->config);
    float *const rstd = keeps ? hop__scratch(stage, stage->layout.scratch.rstd) : NULL;
    HOP_TRY(gather_normed(stage, h, n, rstd, err));
    if (keeps)
        return loss_and_gradient(stage, batch, slot, n, logprob, err);
    return stage->ops->loss_forward(stage->backend, stage->config.dtype, (int64_t)n,
                                    hop__scratch(stage, stage->layout.scratch.work), stage->head,
                                    copies * batch->labels, hop__index(stage, index->label_row),
                                    hop__index(stage, index->label_id), logprob, err);
}
