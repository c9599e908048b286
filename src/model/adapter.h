/* PEFT adapter folders: adapter_model.safetensors and adapter_config.json. */
#ifndef HOP_MODEL_ADAPTER_H
#define HOP_MODEL_ADAPTER_H

#include <stdbool.h>

#include "base/error.h"
#include "io/safetensors.h"
#include "model/lora.h"
#include "model/weights.h"

/* Writes the folder, which is created. `base` (may be NULL) becomes base_model_name_or_path. */
hop_status hop_adapter_save(const char *directory, const struct hop_lora_config *lora,
                            const struct hop_parameters *parameters, const char *base,
                            struct hop_error *err);
hop_status hop_adapter_config_save(const char *directory, const struct hop_lora_config *lora,
                                   const char *base, struct hop_error *err);
/* Rank, alpha and targets of a folder for a model, by PEFT's rules (adapter_rules.h); missing keys
 * get PEFT's defaults. HOP_UNSUPPORTED for what cannot be computed here (DoRA, biases,
 * modules_to_save, adapters of the embedding or the head, ...), naming the key. */
hop_status hop_adapter_config(const char *directory, const struct hop_model_config *model,
                              struct hop_lora_config *out, struct hop_error *err);
/* Warns of every key in that file that no version known here writes: hop_adapter_config() ignores
 * it. */
hop_status hop_adapter_warn(const char *directory, struct hop_error *err);
/* Fills values of every parameter (a block range is fine) from tensors of F32, BF16 or F16. A
 * missing key, a wrong shape or keys that match no adapted projection of the model are HOP_INPUT
 * with their names; keys of adapters not computed here are HOP_UNSUPPORTED. */
hop_status hop_adapter_load(const char *directory, const struct hop_model_config *model,
                            const struct hop_lora_config *lora, struct hop_parameters *parameters,
                            struct hop_error *err);

/* The tensors of a folder. */
hop_status hop_adapter_open(const char *directory, struct hop_safetensors **out,
                            struct hop_error *err);
/* Reads what hop_parameter_name() wrote: block, target, factor. Also names with the adapter's name
 * in them, as in a state dict: "...lora_A.default.weight". */
bool hop_parameter_parse(const char *name, struct hop_parameter *out);
/* One tensor per parameter out of a flat array like parameters->values: `suffix` is put behind each
 * name ("" for the adapter itself). Used for optimizer state as well. */
hop_status hop_parameters_write(const char *path, const struct hop_parameters *parameters,
                                const float *const *arrays, const char *const *suffixes,
                                size_t count, struct hop_error *err);
/* Checks shape and fills the flat array. */
hop_status hop_parameters_read(const struct hop_safetensors *set,
                               const struct hop_parameters *parameters, const char *suffix,
                               float *array, struct hop_error *err);

#endif
