/* The readers of the tasks, one file each. Internal to src/data. */
#ifndef HOP_DATA_TASKS_H
#define HOP_DATA_TASKS_H

#include "data/dataset_builder.h"

/* Adds the rows of builder->path until hop_builder_full(). */
hop_status hop_task_jsonl_read(struct hop_builder *builder, struct hop_error *err);
hop_status hop_task_ag_news_read(struct hop_builder *builder, struct hop_error *err);
hop_status hop_task_multirc_read(struct hop_builder *builder, struct hop_error *err);
hop_status hop_task_squad_read(struct hop_builder *builder, struct hop_error *err);

#endif
