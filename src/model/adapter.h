/* PEFT adapter folders: adapter_model.safetensors and adapter_config.json. */
#ifndef HOP_MODEL_ADAPTER_H
#define HOP_MODEL_ADAPTER_H

#include <stdbool.h>

#include "base/error.h"
#include "io/safetensors.h"
#include "model/lora.h"
#include "model/weights.h"

enum { HOP_MAX_RANK = 1024 };

/* Writes the folder, which is created. `base` (may be NULL) becomes base_model_name_or_path. */
hop_status hop_adapter_save(const char *directory, const struct hop_lora_config *lora,
                            const struct hop_parameters *parameters, const char *base,
                            struct hop_error *err);
hop_status hop_adapter_config_save(const char *directory, const struct hop_lora_config *lora,
                                   const char *base, struct hop_error *err);
/* rank, alpha, targets of a folder; HOP_UNSUPPORTED for what cannot be computed here (DoRA, rslora,
 * patterns, bias, modules_to_save), naming the key. */
hop_status hop_adapter_config(const char *directory, struct hop_lora_config *out,
                              struct hop_error *err);
/* Fills values of every parameter (a block range is fine). A missing key, a wrong shape or a key
 * that matches no block and projection of the model is HOP_INPUT with its name. */
hop_status hop_adapter_load(const char *directory, const struct hop_model_config *config,
                            struct hop_parameters *parameters, struct hop_error *err);

/* The tensors of a folder. */
hop_status hop_adapter_open(const char *directory, struct hop_safetensors **out,
                            struct hop_error *err);
/* Reads what hop_parameter_name() wrote: block, target, factor. */
bool hop_parameter_parse(const char *name, struct hop_parameter *out);
/* "q_proj" to HOP_Q_PROJ. */
bool hop_target_find(const char *name, size_t length, enum hop_target *out);

/* One tensor per parameter out of a flat array like parameters->values: `suffix` is put behind each
 * name
 * ("" for the adapter itself). Used for optimizer state as well. */
hop_status hop_parameters_write(const char *path, const struct hop_parameters *parameters,
                                const float *const *arrays, const char *const *suffixes,
                                size_t count, struct hop_error *err);
/* Checks shape and fills the flat array. */
hop_status hop_parameters_read(const struct hop_safetensors *set,
                               const struct hop_parameters *parameters, const char *suffix,
                               float *array, struct hop_error *err);

#endif
