/* `hybridop inspect` for people. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"

static long long integer(const json_t *object, const char *key)
{
    return (long long)json_integer_value(json_object_get(object, key));
}

static double real(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *string(const json_t *object, const char *key)
{
    const char *const text = json_string_value(json_object_get(object, key));
    return text ? text : "unknown";
}

static bool is_set(const json_t *object, const char *key)
{
    return json_is_true(json_object_get(object, key));
}

static const char *amount(double bytes, char text[32])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++)
        bytes /= 1024;
    snprintf(text, 32, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return text;
}

static void print_list(const char *title, const json_t *list)
{
    size_t i;
    const json_t *entry;
    json_array_foreach(list, i, entry)
        printf("%-16s%s\n", i ? "" : title, json_string_value(entry));
}

static void print_tokens(const json_t *config)
{
    size_t i;
    const json_t *id;
    const json_t *const bos = json_object_get(config, "bos_token_id");
    printf("%-16sbegin ", "tokens");
    if (json_is_integer(bos))
        printf("%lld", (long long)json_integer_value(bos));
    else
        printf("none");
    printf(", end");
    json_array_foreach(json_object_get(config, "eos_token_id"), i, id)
        printf(" %lld", (long long)json_integer_value(id));
    if (i == 0)
        printf(" none");
    printf("\n");
}

static void print_rope(const json_t *found)
{
    const json_t *const rope = json_object_get(found, "rope");
    const json_t *const scaling = json_object_get(json_object_get(found, "config"), "rope_scaling");
    const char *key;
    json_t *value;
    printf("%-16s%s, theta %g", "RoPE", string(rope, "type"), real(rope, "theta"));
    json_object_foreach((json_t *)(uintptr_t)scaling, key, value)
    {
        if (json_is_number(value))
            printf(", %s %g", key, json_number_value(value));
    }
    printf("\n");
}

static void print_config(const json_t *found)
{
    const json_t *const config = json_object_get(found, "config");
    const bool attention = is_set(config, "attention_bias"), mlp = is_set(config, "mlp_bias");
    printf("%-16s%lld, hidden %lld, feed-forward %lld\n", "blocks",
           integer(config, "num_hidden_layers"), integer(config, "hidden_size"),
           integer(config, "intermediate_size"));
    printf("%-16s%lld of width %lld, %lld for keys and values\n", "heads",
           integer(config, "num_attention_heads"), integer(config, "head_dim"),
           integer(config, "num_key_value_heads"));
    printf("%-16s%lld, %s head\n", "vocabulary", integer(config, "vocab_size"),
           is_set(found, "tied") ? "tied" : "separate");
    printf("%-16s%lld\n", "positions", integer(config, "max_position_embeddings"));
    print_rope(found);
    printf("%-16s%s%s%s\n", "biases", attention ? "attention" : "", attention && mlp ? ", " : "",
           mlp         ? "feed-forward"
           : attention ? ""
                       : "none");
    printf("%-16s%g\n", "norm epsilon", real(config, "rms_norm_eps"));
    print_tokens(config);
}

static void print_parameters(const json_t *parameters)
{
    printf("\n%-16s%lld\n", "parameters", integer(parameters, "total"));
    printf("  %-14s%lld\n", "embedding", integer(parameters, "embedding"));
    printf("  %-14s%lld, times %lld\n", "block", integer(parameters, "block"),
           integer(parameters, "blocks"));
    printf("  %-14s%lld\n", "final norm", integer(parameters, "final_norm"));
    printf("  %-14s%lld\n", "head", integer(parameters, "head"));
}

static void print_weights(const json_t *weights)
{
    char text[32];
    const char *key;
    json_t *value;
    size_t i;
    const json_t *file;
    if (json_is_null(weights))
        return;
    if (json_object_get(weights, "problem")) {
        printf("\n%-16scannot be used\n", "weights");
        return;
    }
    printf("\n%-16s%lld tensors, %s:", "weights", integer(weights, "tensors"),
           amount(real(weights, "bytes"), text));
    json_object_foreach(json_object_get(weights, "dtypes"), key, value)
        printf(" %s %s", amount(json_number_value(value), text), key);
    printf("\n");
    json_array_foreach(json_object_get(weights, "files"), i, file)
        printf("  %s  %s\n", string(file, "name"), amount(real(file, "bytes"), text));
}

static void print_memory(const json_t *memory)
{
    char text[32];
    printf("\n%-16sin %s\n", "memory a block", string(memory, "dtype"));
    printf("  %-14s%s\n", "frozen", amount(real(memory, "frozen"), text));
    printf("  %-14s%s of rank %lld on q_proj and v_proj, with gradients and moments\n", "adapters",
           amount(real(memory, "adapters"), text), integer(memory, "rank"));
    printf("  %-14s%s a token in flight\n", "activations",
           amount(real(memory, "kept_per_token"), text));
}

static void print_text(const json_t *found)
{
    const json_t *const tokenizer = json_object_get(found, "tokenizer");
    const json_t *const template = json_object_get(found, "chat_template");
    printf("\n");
    if (json_object_get(tokenizer, "problem"))
        printf("%-16s%s; cannot be used: %s\n", "tokenizer", string(tokenizer, "kind"),
               string(tokenizer, "problem"));
    else if (json_is_object(tokenizer))
        printf("%-16s%s, %lld tokens\n", "tokenizer", string(tokenizer, "kind"),
               integer(tokenizer, "vocabulary"));
    if (json_is_object(template))
        printf("%-16s%s, in %s\n", "chat template", string(template, "family"),
               string(template, "file"));
    else
        printf("%-16snone\n", "chat template");
}

static void print_targets(const json_t *targets)
{
    size_t i;
    const json_t *name;
    printf("%-16s", "targets");
    json_array_foreach(targets, i, name) printf("%s%s", i ? ", " : "", json_string_value(name));
    printf("%s\n", json_is_string(targets) ? json_string_value(targets) : "");
}

static void print_adapter(const json_t *found)
{
    printf("%s: %s adapter\n\n", string(found, "directory"), string(found, "peft_type"));
    printf("%-16s%lld, alpha %g\n", "rank", integer(found, "rank"), real(found, "alpha"));
    print_targets(json_object_get(found, "targets"));
    printf("%-16s%s\n", "base model", string(found, "base"));
    if (json_is_integer(json_object_get(found, "tensors")))
        printf("%-16s%lld in %lld tensors\n", "parameters", integer(found, "parameters"),
               integer(found, "tensors"));
}

void hop_inspect_print(const json_t *found)
{
    if (strcmp(string(found, "kind"), "adapter") == 0) {
        print_adapter(found);
    } else {
        printf("%s: LLaMA\n\n", string(found, "directory"));
        print_config(found);
        print_parameters(json_object_get(found, "parameters"));
        print_weights(json_object_get(found, "weights"));
        print_memory(json_object_get(found, "memory_per_block"));
        print_text(found);
    }
    print_list("missing", json_object_get(found, "missing"));
    print_list("note", json_object_get(found, "notes"));
}
