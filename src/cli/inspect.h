/* What `hybridop inspect` finds in a folder, gathered as JSON: printed as it is with --json, as
 * text without. */
#ifndef HOP_CLI_INSPECT_H
#define HOP_CLI_INSPECT_H

#include <stdbool.h>

#include <jansson.h>

#include "base/error.h"

/* The folder of a model: {"kind": "model", "directory", "config" (as in config.json, defaults
 * filled in), "rope", "tied", "parameters", "weights" (null without), "memory_per_block",
 * "tokenizer", "chat_template", "missing": [file, ...], "notes": [text, ...]}. A config.json that
 * cannot be used is an error; weights and tokenizers that cannot be used become "problem" inside
 * their object. The caller json_decref()s *out. */
hop_status hop_inspect_model(const char *directory, json_t **out, struct hop_error *err);

/* The folder of an adapter: {"kind": "adapter", "directory", "peft_type", "rank", "alpha",
 * "targets", "base", "tensors", "parameters" (null without the file), "missing", "notes"}. Whether
 * it can be used depends on the model, and is not looked into. */
hop_status hop_inspect_adapter(const char *directory, json_t **out, struct hop_error *err);

/* {"kind", "vocabulary"} of tokenizer.json, perhaps "problem"; null without one. */
hop_status hop_inspect_tokenizer(const char *directory, json_t **out, struct hop_error *err);
/* {"file", "family"} of the chat template: "Llama-2", "Llama-3", "ChatML", "other"; null without
 * one. */
hop_status hop_inspect_chat_template(const char *directory, json_t **out, struct hop_error *err);

/* inspect_json.c: shared by the above. What `gather` adds to {"kind", "directory", "missing": [],
 * "notes": []}. */
hop_status hop_inspect_folder(const char *kind, const char *directory,
                              hop_status (*gather)(const char *directory, json_t *out,
                                                   struct hop_error *err),
                              json_t **out, struct hop_error *err);
/* put takes the reference to value; NULL (out of memory) is an
 * error. */
hop_status hop_inspect_put(json_t *object, const char *key, json_t *value, struct hop_error *err);
hop_status hop_inspect_append(json_t *object, const char *key, const char *text,
                              struct hop_error *err);
hop_status hop_inspect_has(const char *directory, const char *name, bool *out,
                           struct hop_error *err);
/* Parses directory/name; *out is NULL when there is none. */
hop_status hop_inspect_load(const char *directory, const char *name, json_t **out,
                            struct hop_error *err);

/* For people. */
void hop_inspect_print(const json_t *found);

#endif
