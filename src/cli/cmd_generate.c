/* hybridop generate: text from a model, with or without an adapter, on this machine. */
#include <argp.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "cli/commands.h"
#include "cluster/cluster.h"
#include "model/adapter.h"
#include "model/stage.h"
#include "ops/ops.h"
#include "text/tokenizer.h"

struct options {
    const char *model, *adapter, *prompt, *backend;
    int32_t max_tokens;
    double temperature;
    uint64_t seed;
};

/* A model that is being asked. */
struct generator {
    const struct options *options;
    struct hop_model_config config;
    struct hop_weights *weights;
    struct hop_tokenizer *tokenizer;
    const struct hop_ops *ops;
    struct hop_backend *backend;
    struct hop_stage *stage;
    struct hop_ids ids;        /* prompt and what was generated */
    struct hop_string printed; /* text of ids so far */
    float *logits;
};

static bool parse_int(const char *text, int64_t low, int64_t high, int64_t *out)
{
    char *end;
    const long long value = strtoll(text, &end, 10);
    *out = value;
    return *text && !*end && value >= low && value <= high;
}

static error_t parse(int key, char *value, struct argp_state *state)
{
    struct options *const options = state->input;
    int64_t number = 0;
    char *end;
    switch (key) {
    case 'm':
        options->model = value;
        return 0;
    case 'a':
        options->adapter = value;
        return 0;
    case 'p':
        options->prompt = value;
        return 0;
    case 'b':
        options->backend = value;
        return 0;
    case 'n':
        if (!parse_int(value, 1, 1 << 20, &number))
            argp_error(state, "--max-tokens %s: expected a number from 1", value);
        options->max_tokens = (int32_t)number;
        return 0;
    case 's':
        if (!parse_int(value, 0, INT64_MAX, &number))
            argp_error(state, "--seed %s: expected a number from 0", value);
        options->seed = (uint64_t)number;
        return 0;
    case 't':
        options->temperature = strtod(value, &end);
        if (!*value || *end || !(options->temperature >= 0))
            argp_error(state, "--temperature %s: expected a number from 0", value);
        return 0;
    case ARGP_KEY_END:
        if (!options->model)
            argp_error(state, "--model is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* Loading */

static hop_status encode_prompt(struct generator *g, struct hop_error *err)
{
    HOP_TRY(hop_tokenizer_encode(g->tokenizer, g->options->prompt, strlen(g->options->prompt), true,
                                 &g->ids, err));
    if (g->ids.count == 0 && g->config.bos >= 0)
        HOP_TRY(hop_ids_append(&g->ids, g->config.bos, err));
    if (g->ids.count == 0)
        return hop_fail(err, HOP_INPUT, "the prompt has no tokens; give one with -p");
    for (size_t i = 0; i < g->ids.count; i++)
        if (g->ids.data[i] >= g->config.vocabulary)
            return hop_fail(err, HOP_INPUT,
                            "%s: token %d of the prompt is beyond the model's vocabulary of %d",
                            g->options->model, g->ids.data[i], g->config.vocabulary);
    return hop_tokenizer_decode(g->tokenizer, g->ids.data, g->ids.count, true, &g->printed, err);
}

static hop_status adapter_config(const struct generator *g, struct hop_lora_config *lora,
                                 struct hop_error *err)
{
    *lora = (struct hop_lora_config){.rank = 1, .alpha = 1};
    if (!g->options->adapter)
        return HOP_OK;
    HOP_TRY(hop_adapter_warn(g->options->adapter, err));
    return hop_adapter_config(g->options->adapter, &g->config, lora, err);
}

static hop_status create_stage(struct generator *g, struct hop_error *err)
{
    struct hop_lora_config lora;
    HOP_TRY(adapter_config(g, &lora, err));
    const int32_t positions = (int32_t)g->ids.count + g->options->max_tokens;
    const struct hop_stage_config config = {
        .model = g->config,
        .lora = lora,
        .dtype = hop_weights_native_dtype(g->weights),
        .hi = g->config.blocks,
        .embed = true,
        .head = true,
        .gradient = HOP_GRADIENT_NONE,
        .limits = {.sequences = 1, .tokens = (int32_t)g->ids.count, .labels = 1},
        .cache = positions};
    HOP_TRY(hop_stage_create(g->ops, g->backend, g->weights, &config, &g->stage, err));
    if (!g->options->adapter)
        return HOP_OK;
    HOP_TRY(hop_adapter_load(g->options->adapter, &g->config, &lora, hop_stage_parameters(g->stage),
                             err));
    return hop_stage_adapters_changed(g->stage, err);
}

static hop_status note_unused(const struct generator *g, struct hop_error *err)
{
    struct hop_string note = {0};
    const hop_status status = hop_weights_unused_note(g->weights, &g->config, &note, err);
    if (status == HOP_OK && note.length)
        hop_note("%s: %s", g->options->model, note.data);
    hop_string_free(&note);
    return status;
}

static hop_status load(struct generator *g, struct hop_error *err)
{
    g->ops = hop_backend_find(g->options->backend);
    if (!g->ops)
        return hop_fail(err, HOP_INPUT,
                        "--backend %s: not part of this build; see `hybridop devices`",
                        g->options->backend);
    HOP_TRY(hop_model_config_load(g->options->model, &g->config, err));
    HOP_TRY(hop_weights_open(g->options->model, &g->config, &g->weights, err));
    HOP_TRY(note_unused(g, err));
    HOP_TRY(hop_tokenizer_load(g->options->model, &g->tokenizer, err));
    HOP_TRY(g->ops->open(hop_machine_cores(), &g->backend, err));
    HOP_TRY(encode_prompt(g, err));
    HOP_TRY(hop_calloc(&g->logits, (size_t)g->config.vocabulary, sizeof(float), err));
    return create_stage(g, err);
}

static void unload(struct generator *g)
{
    hop_stage_free(g->stage);
    if (g->backend)
        g->ops->close(g->backend);
    hop_weights_free(g->weights);
    hop_tokenizer_free(g->tokenizer);
    hop_ids_free(&g->ids);
    hop_string_free(&g->printed);
    free(g->logits);
}

/* Generating */

/* Draws from softmax(logits / temperature); `step` keys the random number. */
static int32_t sample(const struct generator *g, uint32_t step)
{
    const int32_t n = g->config.vocabulary;
    const struct hop_random_key key = {
        .seed = g->options->seed, .domain = HOP_RANDOM_SAMPLE, .step = step};
    const double top = (double)g->logits[hop_likeliest(g->logits, n)];
    double total = 0, sum = 0;
    float uniform;
    for (int32_t i = 0; i < n; i++)
        total += exp(((double)g->logits[i] - top) / g->options->temperature);
    hop_random_uniform(&key, 0, 1, &uniform);
    for (int32_t i = 0; i < n; i++) {
        sum += exp(((double)g->logits[i] - top) / g->options->temperature);
        if (sum > (double)uniform * total)
            return i;
    }
    return n - 1;
}

static bool is_end(const struct hop_model_config *config, int32_t id)
{
    for (int32_t i = 0; i < config->eos_count; i++)
        if (config->eos[i] == id)
            return true;
    return false;
}

/* An unfinished UTF-8 sequence decodes to U+FFFD until its last byte is there: such an end waits.
 */
static bool ends_unfinished(const struct hop_string *text)
{
    return text->length >= 3 && memcmp(text->data + text->length - 3, "\xEF\xBF\xBD", 3) == 0;
}

/* Prints what the newest tokens add to the text. */
static hop_status print_new(struct generator *g, bool last, struct hop_error *err)
{
    struct hop_string text = {0};
    const hop_status status =
        hop_tokenizer_decode(g->tokenizer, g->ids.data, g->ids.count, true, &text, err);
    if (status == HOP_OK && text.length > g->printed.length && (last || !ends_unfinished(&text))) {
        fwrite(text.data + g->printed.length, 1, text.length - g->printed.length, stdout);
        fflush(stdout);
        hop_string_free(&g->printed);
        g->printed = text;
        return HOP_OK;
    }
    hop_string_free(&text);
    return status;
}

static hop_status generate(struct generator *g, struct hop_error *err)
{
    int32_t past = 0, n = (int32_t)g->ids.count;
    for (int32_t i = 0; i < g->options->max_tokens; i++) {
        HOP_TRY(hop_stage_decode(g->stage, g->ids.data + past, n, past, g->logits, err));
        past += n;
        n = 1;
        if (!isfinite(g->logits[hop_likeliest(g->logits, g->config.vocabulary)]))
            return hop_fail(err, HOP_NUMERIC, "the logits after token %d are not finite", past);
        const int32_t id = g->options->temperature > 0
                               ? sample(g, (uint32_t)i)
                               : hop_likeliest(g->logits, g->config.vocabulary);
        if (is_end(&g->config, id))
            break;
        HOP_TRY(hop_ids_append(&g->ids, id, err));
        HOP_TRY(print_new(g, false, err));
    }
    return print_new(g, true, err);
}

/* Rotary positions have no end, but the model saw none beyond its own: allowed, and told. */
static void warn_of_length(const struct generator *g)
{
    if (g->ids.count > (size_t)g->config.max_positions)
        hop_warn("prompt and continuation have %zu tokens, more than the model's "
                 "max_position_embeddings %d; what stands beyond is less reliable",
                 g->ids.count, g->config.max_positions);
}

static hop_status run(void *options, struct hop_error *err)
{
    struct generator g = {.options = options};
    hop_status status = load(&g, err);
    if (status == HOP_OK)
        status = generate(&g, err);
    /* The continuation only: a line break is for a prompt that follows on a terminal. */
    if (status == HOP_OK && isatty(STDOUT_FILENO))
        printf("\n");
    if (status == HOP_OK)
        warn_of_length(&g);
    unload(&g);
    return status;
}

int hop_cmd_generate(int argc, char **argv)
{
    static const struct argp_option known[] = {
        {"model", 'm', "DIR", 0, "Hugging Face folder", 0},
        {"adapter", 'a', "DIR", 0, "PEFT adapter folder", 0},
        {"prompt", 'p', "TEXT", 0, "Text to continue (default: empty)", 0},
        {"max-tokens", 'n', "N", 0, "Tokens to generate at most (default 128)", 0},
        {"temperature", 't', "T", 0, "0 takes the likeliest token (default), 1 samples", 0},
        {"seed", 's', "N", 0, "Seed of sampling (default 42)", 0},
        {"backend", 'b', "NAME", 0, "Numeric backend (default cpu)", 0},
        {0}};
    static const struct argp argp = {
        .options = known, .parser = parse, .doc = "Prints the model's continuation of a prompt."};
    struct options options = {.prompt = "", .backend = "cpu", .max_tokens = 128, .seed = 42};
    return hop_command(&argp, argc, argv, &options, run);
}
