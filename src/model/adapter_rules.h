/* Which modules an adapter_config.json adapts, and with what rank and alpha: PEFT's matching rules.
 *
 *     target_modules     a list: a module whose name is an entry, or ends with "." and an entry;
 *                        a string: a regular expression for the whole name, or "all-linear"
 *     layers_to_transform, layers_pattern   of those found by the end of their names, the ones in
 *                        these blocks: the number behind the pattern (any name) before the last
 *     exclude_modules    list or regular expression like target_modules; wins over it
 *     rank_pattern, alpha_pattern   the value of the first key that, as a regular expression,
 *                        matches the whole name or its end behind a "."; else r, lora_alpha */
#ifndef HOP_MODEL_ADAPTER_RULES_H
#define HOP_MODEL_ADAPTER_RULES_H

#include <jansson.h>

#include "base/error.h"
#include "model/lora.h"

/* Applies the rules of a parsed adapter_config.json to the modules of a model; lora->rank, alpha
 * and rslora are the ones of the file already. Fills targets and, where modules differ, the tables.
 * HOP_UNSUPPORTED when a module without adapters here (lm_head, embed_tokens) is matched, or none
 * is. `where` names the file in messages. */
hop_status hop_adapter_rules_apply(const json_t *object, const char *where,
                                   const struct hop_model_config *model,
                                   struct hop_lora_config *lora, struct hop_error *err);

#endif
