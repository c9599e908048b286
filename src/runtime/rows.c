#include "runtime/rows.h"

#include <stdlib.h>

#include "io/file.h"

hop_status hop_row_source_open(const struct hop_job *job, struct hop_row_source *out,
                               struct hop_error *err)
{
    struct hop_row_source source = {0};
    char *path = NULL;
    hop_status status;
    HOP_TRY_DONE(hop_path_join(job->model, "tokenizer.json", &path, err));
    if (hop_file_exists(path)) {
        HOP_TRY_DONE(hop_tokenizer_load(job->model, &source.tokenizer, err));
        HOP_TRY_DONE(hop_chat_load(job->model, (enum hop_chat_family)job->data.chat_template,
                                   source.tokenizer, &source.chat, err));
    }
    *out = source;
    source = (struct hop_row_source){0};
done:
    hop_row_source_close(&source);
    free(path);
    return status;
}

void hop_row_source_close(struct hop_row_source *source)
{
    if (!source)
        return;
    hop_chat_free(source->chat);
    hop_tokenizer_free(source->tokenizer);
    *source = (struct hop_row_source){0};
}

hop_status hop_row_source_read(const struct hop_row_source *source, const struct hop_job *job,
                               const struct hop_model_config *model, const char *path,
                               int64_t limit, struct hop_dataset **out, struct hop_error *err)
{
    const struct hop_dataset_options options = {.task = (enum hop_data_task)job->data.task,
                                                .max_length = (int32_t)job->data.max_length,
                                                .vocabulary = model->vocabulary,
                                                .eos = model->eos_count > 0 ? model->eos[0] : -1,
                                                .labels =
                                                    (const char *const *)job->data.labels.items,
                                                .label_count = job->data.labels.count,
                                                .chat = source->chat,
                                                .limit = (size_t)limit};
    return hop_dataset_load(path, source->tokenizer, &options, out, err);
}
