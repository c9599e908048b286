/* The rows of a job's data files, read as training reads them. */
#ifndef HOP_RUNTIME_ROWS_H
#define HOP_RUNTIME_ROWS_H

#include "data/dataset.h"
#include "model/config.h"
#include "runtime/job.h"
#include "text/chat.h"
#include "text/tokenizer.h"

/* What turns text into tokens. Both are NULL where the model has no tokenizer, which rows of tokens
 * do not need. Zero-initialised is empty. */
struct hop_row_source {
    struct hop_tokenizer *tokenizer;
    struct hop_chat *chat;
};

hop_status hop_row_source_open(const struct hop_job *job, struct hop_row_source *out,
                               struct hop_error *err);
void hop_row_source_close(struct hop_row_source *source);

/* The rows of a file as job and model want them; limit 0: all. */
hop_status hop_row_source_read(const struct hop_row_source *source, const struct hop_job *job,
                               const struct hop_model_config *model, const char *path,
                               int64_t limit, struct hop_dataset **out, struct hop_error *err);

#endif
