/* The folder of a merged model: written aside, then renamed; and the files copied into it. Internal
 * to src/model. */
#ifndef HOP_MODEL_MERGE_FOLDER_H
#define HOP_MODEL_MERGE_FOLDER_H

#include "base/dtype.h"
#include "base/error.h"

/* HOP_INPUT when the output exists and is not an empty folder. */
hop_status hop__merge_check_output(const char *output, struct hop_error *err);
/* Creates output + ".tmp"; *aside = its malloc'ed path. */
hop_status hop__merge_folder_begin(const char *output, char **aside, struct hop_error *err);
hop_status hop__merge_folder_commit(const char *aside, const char *output, struct hop_error *err);
/* Removes the folder and the files in it; NULL is fine. */
void hop__merge_folder_discard(const char *aside);

/* config.json, generation_config.json, the tokenizer's files and licences, as far as they are
 * there, byte for byte; with a dtype, config.json says that one. */
hop_status hop__merge_copy_files(const char *model, const char *directory,
                                 const enum hop_dtype *dtype, struct hop_error *err);

#endif
