#include "data/dataset.h"

#include <stdlib.h>

#include "data/tasks.h"

const char *const hop_task_names[] = {[HOP_TASK_JSONL] = "jsonl",
                                      [HOP_TASK_AG_NEWS] = "ag_news",
                                      [HOP_TASK_MULTIRC] = "multirc",
                                      [HOP_TASK_SQUAD] = "squad",
                                      [HOP_TASK_COUNT] = NULL};

static hop_status (*const readers[])(struct hop_builder *, struct hop_error *) = {
    [HOP_TASK_JSONL] = hop_task_jsonl_read,
    [HOP_TASK_AG_NEWS] = hop_task_ag_news_read,
    [HOP_TASK_MULTIRC] = hop_task_multirc_read,
    [HOP_TASK_SQUAD] = hop_task_squad_read};

hop_status hop_dataset_load(const char *path, struct hop_tokenizer *tokenizer,
                            const struct hop_dataset_options *options, struct hop_dataset **out,
                            struct hop_error *err)
{
    struct hop_builder builder;
    hop_status status;
    HOP_TRY(hop_builder_init(&builder, path, tokenizer, options, err));
    HOP_TRY_DONE(readers[options->task](&builder, err));
    HOP_TRY_DONE(hop_builder_finish(&builder, out, err));
done:
    hop_builder_free(&builder);
    return status;
}

static void free_reference(struct hop_reference *reference)
{
    for (size_t i = 0; i < reference->count; i++)
        free(reference->golds[i]);
    free(reference->golds);
    free(reference->id);
}

void hop_dataset_free(struct hop_dataset *dataset)
{
    if (!dataset)
        return;
    for (size_t i = 0; i < dataset->count; i++)
        free(dataset->examples[i].ids);
    for (size_t i = 0; dataset->references && i < dataset->count; i++)
        free_reference(&dataset->references[i]);
    for (size_t i = 0; i < dataset->label_count; i++) {
        hop_ids_free(&dataset->label_ids[i]);
        if (dataset->label_names)
            free(dataset->label_names[i]);
    }
    free(dataset->label_ids);
    free(dataset->label_names);
    free(dataset->references);
    free(dataset->examples);
    free(dataset);
}
