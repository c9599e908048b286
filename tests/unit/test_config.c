/* config.json: published models, defaults, old and new spellings, every RoPE scaling against
 * formulas of its own, and what must be refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"

static struct hop_error err;

static hop_status parse(const char *text, struct hop_model_config *out)
{
    json_t *object = NULL;
    err = (struct hop_error){0};
    assert_ok(hop_json_parse(text, strlen(text), "config.json", &object, &err));
    const hop_status status = hop_model_config_parse(object, "config.json", out, &err);
    json_decref(object);
    return status;
}

static void load_real(const char *name, struct hop_model_config *out)
{
    json_t *const object = support_json(support_data(name));
    assert_ok(hop_model_config_parse(object, name, out, &err));
    json_decref(object);
}

static void test_real_files(void **state)
{
    (void)state;
    struct hop_model_config c;
    load_real("formats/configs/Llama-3.2-1B.config.json", &c);
    assert_int_equal(c.head_dim, 64);
    assert_int_equal(c.kv_heads, 8);
    assert_true(c.tied);
    assert_int_equal(c.rope_scaling, HOP_ROPE_LLAMA3);
    assert_int_equal(c.rope_original, 8192);
    assert_int_equal(hop_model_parameters(&c), 1235814400);
    load_real("formats/configs/Llama-3.2-3B.config.json", &c);
    assert_int_equal(hop_model_parameters(&c), 3212749824);
    load_real("formats/configs/Llama-3.1-8B.config.json", &c);
    assert_int_equal(hop_model_parameters(&c), 8030261248);
    assert_int_equal(c.head_dim, 128);
    assert_false(c.tied);
}

static void check_frequencies(const char *name, const json_t *all)
{
    struct hop_model_config c;
    char path[128];
    snprintf(path, sizeof path, "formats/configs/%s.config.json", name);
    load_real(path, &c);
    const json_t *list = json_object_get(all, name);
    if (json_is_object(list))
        list = json_object_get(list, "inv_freq");
    assert_int_equal(json_array_size(list), (size_t)c.head_dim / 2);
    for (int32_t j = 0; j < c.head_dim / 2; j++) {
        const double expected = json_number_value(json_array_get(list, (size_t)j));
        assert_close(hop_model_rope_frequency(&c, 0, j) / expected, 1, 1e-12);
    }
}

static void test_llama3_rope(void **state)
{
    (void)state;
    json_t *const all = support_json(support_data("formats/configs/llama3_rope_inv_freq.json"));
    check_frequencies("Llama-3.2-1B", all);
    check_frequencies("Llama-3.2-3B", all);
    check_frequencies("Llama-3.1-8B", all);
    json_decref(all);
}

static void test_defaults(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{}", &c));
    assert_int_equal(c.hidden, 4096);
    assert_int_equal(c.intermediate, 11008);
    assert_int_equal(c.blocks, 32);
    assert_int_equal(c.kv_heads, 32);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.vocabulary, 32000);
    assert_int_equal(c.max_positions, 2048);
    assert_close(c.norm_eps, 1e-6, 1e-12);
    assert_close(c.rope_theta, 10000, 0);
    assert_int_equal(c.bos, 1);
    assert_int_equal(c.eos_count, 1);
    assert_int_equal(c.eos[0], 2);
    assert_false(c.tied);
}

static void test_rope_spellings(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 4, "
                    "\"rope_theta\": 5e5}, \"dtype\": \"bfloat16\"}",
                    &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_LINEAR);
    assert_close(c.rope_theta, 5e5, 0);
    assert_close(hop_model_rope_frequency(&c, 0, 0), 0.25, 1e-15);
    assert_ok(parse("{\"rope_theta\": 7, \"rope_scaling\": {\"type\": \"llama3\", \"factor\": 8, "
                    "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                    "\"original_max_position_embeddings\": 8192}}",
                    &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_LLAMA3);
    assert_close(c.rope_theta, 7, 0);
    assert_ok(parse("{\"rope_scaling\": {\"rope_type\": \"default\"}}", &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_PLAIN);
    assert_ok(parse("{\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 3}, "
                    "\"rope_theta\": 7, \"rope_scaling\": null}",
                    &c));
    assert_int_equal(c.rope_scaling, HOP_ROPE_PLAIN);
    assert_close(c.rope_theta, 3, 0);
}

static void test_rope_refused(void **state)
{
    (void)state;
    static const struct {
        const char *scaling, *part;
        hop_status status;
    } cases[] = {
        {"{\"type\": \"longrope\", \"factor\": 2}", "longrope", HOP_UNSUPPORTED},
        {"{\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor", HOP_INPUT},
        {"{\"type\": \"linear\"}", "factor", HOP_INPUT},
        {"{\"type\": \"dynamic\"}", "factor", HOP_INPUT},
        {"{\"type\": \"dynamic\", \"factor\": 0.5}", "factor", HOP_INPUT},
        {"{\"type\": \"yarn\"}", "factor", HOP_INPUT},
        {"{\"type\": \"yarn\", \"factor\": 2, \"beta_slow\": 40}", "beta_fast", HOP_INPUT},
        {"{\"type\": \"yarn\", \"factor\": 2, \"attention_factor\": -1}", "attention_factor",
         HOP_INPUT},
        {"{\"type\": \"yarn\", \"factor\": 2, \"original_max_position_embeddings\": 0}",
         "original_max_position_embeddings", HOP_INPUT},
        {"{\"type\": \"linear\", \"factor\": \"two\"}", "factor", HOP_INPUT},
        {"{\"type\": \"linear\", \"factor\": -1}", "factor", HOP_INPUT},
        {"{\"partial_rotary_factor\": 0.5}", "partial_rotary_factor", HOP_UNSUPPORTED},
        {"{\"full_attention\": {\"rope_type\": \"default\"}}", "full_attention", HOP_UNSUPPORTED},
        {"[1]", "rotary", HOP_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct hop_model_config c;
        char text[256];
        snprintf(text, sizeof text, "{\"rope_scaling\": %s}", cases[i].scaling);
        assert_fails(parse(text, &c), cases[i].status, cases[i].part);
    }
}

/* Frequencies and attention factors from the published formulas, written down a second time: angles
 * per position as wavelengths, ramps by counting rotations. */
struct expected {
    double frequency[256], attention;
};

static struct expected plain(double theta, int dim)
{
    struct expected e = {.attention = 1};
    for (int j = 0; j < dim / 2; j++)
        e.frequency[j] = exp(-log(theta) * 2 * j / dim);
    return e;
}

static struct expected dynamic_ntk(double theta, int dim, double factor, double original,
                                   double length)
{
    const double used = fmax(length, original);
    const double alpha = factor * used / original - factor + 1;
    return plain(theta * exp(log(alpha) * dim / (dim - 2)), dim);
}

/* The index whose wavelength fits `rotations` times into the context: solves
 * original / (2 pi theta^(2 i / dim)) = rotations. */
static double index_of(double theta, int dim, double original, double rotations)
{
    return log(original / (2 * acos(-1)) / rotations) / log(theta) * dim / 2;
}

static struct expected yarn(double theta, int dim, double factor, double original, double fast,
                            double slow, bool whole)
{
    struct expected e = plain(theta, dim);
    double low = index_of(theta, dim, original, fast);
    double high = index_of(theta, dim, original, slow);
    if (whole) {
        low = floor(low);
        high = ceil(high);
    }
    low = low < 0 ? 0 : low;
    high = high > dim - 1 ? dim - 1 : high;
    for (int j = 0; j < dim / 2; j++) {
        const double at = (j - low) / (high > low ? high - low : 0.001);
        const double interpolated = at < 0 ? 0 : at > 1 ? 1 : at;
        e.frequency[j] *= interpolated / factor + 1 - interpolated;
    }
    e.attention = 1 + log(factor) / 10;
    return e;
}

static void check_rope(const struct hop_model_config *c, int32_t length, const struct expected *e)
{
    enum { FIRST = 5, N = 40 };
    const int32_t half = c->head_dim / 2;
    float *const table = malloc(2 * N * (size_t)half * sizeof *table);
    assert_non_null(table);
    hop_model_rope(c, length, FIRST, N, table, table + N * half);
    for (int32_t j = 0; j < half; j++) {
        assert_close(hop_model_rope_frequency(c, length, j) / e->frequency[j], 1, 1e-12);
        for (int32_t i = 0; i < N; i++) {
            const double angle = (FIRST + i) * e->frequency[j];
            assert_close(table[i * half + j], e->attention * cos(angle), 1e-6);
            assert_close(table[(N + i) * half + j], e->attention * sin(angle), 1e-6);
        }
    }
    free(table);
}

static void test_linear_rope(void **state)
{
    (void)state;
    struct hop_model_config c;
    struct expected e = plain(10000, 128);
    assert_ok(parse("{}", &c));
    check_rope(&c, 0, &e);
    check_rope(&c, 100000, &e);
    for (int j = 0; j < 64; j++)
        e.frequency[j] /= 2.5;
    assert_ok(parse("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}}", &c));
    check_rope(&c, 0, &e);
    check_rope(&c, 100000, &e);
}

static void test_dynamic_rope(void **state)
{
    (void)state;
    struct hop_model_config c;
    static const int32_t lengths[] = {0, 1, 2047, 2048, 2049, 4096, 16384};
    assert_ok(parse("{\"rope_theta\": 5000, \"head_dim\": 96, \"max_position_embeddings\": 2048, "
                    "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4.0}}",
                    &c));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const struct expected e = dynamic_ntk(5000, 96, 4, 2048, lengths[i]);
        assert_int_equal(hop_model_rope_stretches(&c, lengths[i]), lengths[i] > 2048);
        check_rope(&c, lengths[i], &e);
    }
    /* Up to the original context it is plain, then the slowest frequency falls by the stretch. */
    const struct expected e = plain(5000, 96);
    check_rope(&c, 2048, &e);
    assert_close(hop_model_rope_frequency(&c, 8192, 47) / e.frequency[47], 1.0 / 13, 1e-12);
    assert_close(hop_model_rope_frequency(&c, 8192, 0), 1, 0);
}

static void test_yarn_rope(void **state)
{
    (void)state;
    struct hop_model_config c;
    struct expected e;
    assert_ok(parse("{\"max_position_embeddings\": 65536, \"rope_parameters\": {\"rope_type\": "
                    "\"yarn\", \"factor\": 16, \"original_max_position_embeddings\": 4096}}",
                    &c));
    e = yarn(10000, 128, 16, 4096, 32, 1, true);
    check_rope(&c, 0, &e);
    check_rope(&c, 65536, &e);
    /* Known from the paper's Llama-2 setting: the ramp runs from index 20 to 46. */
    const struct expected flat = plain(10000, 128);
    assert_close(hop_model_rope_frequency(&c, 0, 20) / flat.frequency[20], 1, 1e-12);
    assert_true(hop_model_rope_frequency(&c, 0, 21) < 0.99 * flat.frequency[21]);
    assert_true(hop_model_rope_frequency(&c, 0, 45) > 1.01 * flat.frequency[45] / 16);
    assert_close(hop_model_rope_frequency(&c, 0, 46) * 16 / flat.frequency[46], 1, 1e-12);
    assert_close(c.rope_attention, 1.2772588722239782, 1e-15);
    assert_ok(parse("{\"rope_theta\": 1e6, \"max_position_embeddings\": 131072, \"head_dim\": 64, "
                    "\"rope_scaling\": {\"type\": \"yarn\", \"original_max_position_embeddings\": "
                    "32768, \"beta_fast\": 20, \"beta_slow\": 2, \"truncate\": false, "
                    "\"attention_factor\": 0.75}}",
                    &c));
    e = yarn(1e6, 64, 4, 32768, 20, 2, false);
    e.attention = 0.75;
    check_rope(&c, 0, &e);
    assert_ok(parse("{\"max_position_embeddings\": 4096, \"rope_scaling\": {\"type\": \"yarn\", "
                    "\"factor\": 40, \"mscale\": 1.0, \"mscale_all_dim\": 0.5}}",
                    &c));
    e = yarn(10000, 128, 40, 4096, 32, 1, true);
    e.attention = (0.1 * log(40) + 1) / (0.05 * log(40) + 1);
    check_rope(&c, 0, &e);
    /* A ramp that would end behind the last frequency. */
    assert_ok(parse("{\"rope_theta\": 100, \"head_dim\": 16, \"max_position_embeddings\": 100000, "
                    "\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 4}}",
                    &c));
    e = yarn(100, 16, 4, 100000, 32, 1, true);
    check_rope(&c, 0, &e);
    assert_true(hop_model_rope_frequency(&c, 0, 7) > 1.01 * pow(100, -7.0 / 8) / 4);
    /* A ramp that is a step. */
    assert_ok(
        parse("{\"max_position_embeddings\": 16, \"head_dim\": 8, \"rope_scaling\": {\"type\": "
              "\"yarn\", \"factor\": 2, \"beta_fast\": 1000, \"beta_slow\": 100}}",
              &c));
    for (int32_t j = 0; j < 4; j++)
        assert_true(isfinite(hop_model_rope_frequency(&c, 0, j)));
}

/* Frequencies fall with the index, and no scaling raises one or lowers it below 1/factor. */
static void test_rope_bounds(void **state)
{
    (void)state;
    static const char *const scalings[] = {
        "{\"type\": \"linear\", \"factor\": 8}", "{\"type\": \"dynamic\", \"factor\": 8}",
        "{\"type\": \"yarn\", \"factor\": 8}",
        "{\"type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, \"high_freq_factor\": 4, "
        "\"original_max_position_embeddings\": 2048}"};
    for (size_t i = 0; i < sizeof scalings / sizeof *scalings; i++) {
        struct hop_model_config c;
        char text[256];
        const struct expected e = plain(10000, 128);
        snprintf(text, sizeof text, "{\"rope_scaling\": %s}", scalings[i]);
        assert_ok(parse(text, &c));
        for (int32_t j = 0; j < 64; j++) {
            const double scaled = hop_model_rope_frequency(&c, 2048, j) / e.frequency[j];
            assert_true(scaled < 1 + 1e-12 && scaled > 1.0 / 8 - 1e-12);
            if (j > 0)
                assert_true(hop_model_rope_frequency(&c, 2048, j) <
                            hop_model_rope_frequency(&c, 2048, j - 1));
        }
    }
}

#define LLAMA3(factor)                                                                             \
    "\"rope_theta\": 500000.0, \"rope_scaling\": {\"factor\": " #factor                            \
    ", \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, "                                      \
    "\"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}, "                     \
    "\"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-05, \"vocab_size\": 128256, "       \
    "\"bos_token_id\": 128000, \"eos_token_id\": [128001, 128008, 128009], "

/* Published models and their published numbers of parameters. */
static void test_published(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t parameters;
        int32_t head_dim, kv_heads;
        bool tied;
    } models[] = {
        {"{" LLAMA3(32.0) "\"hidden_size\": 2048, \"intermediate_size\": 8192, "
                          "\"num_hidden_layers\": 16, \"num_attention_heads\": 32, "
                          "\"num_key_value_heads\": 8, "
                          "\"head_dim\": 64, \"tie_word_embeddings\": true, \"torch_dtype\": "
                          "\"bfloat16\"}",
         1235814400, 64, 8, true},
        {"{" LLAMA3(32.0) "\"hidden_size\": 3072, \"intermediate_size\": 8192, "
                          "\"num_hidden_layers\": 28, \"num_attention_heads\": 24, "
                          "\"num_key_value_heads\": 8, "
                          "\"head_dim\": 128, \"tie_word_embeddings\": true}",
         3212749824, 128, 8, true},
        {"{" LLAMA3(
             8.0) "\"hidden_size\": 4096, \"intermediate_size\": 14336, "
                  "\"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
                  "\"num_key_value_heads\": 8, "
                  "\"tie_word_embeddings\": false, \"pretraining_tp\": 1, \"use_cache\": true}",
         8030261248, 128, 8, false},
        {"{\"architectures\": [\"LlamaForCausalLM\"], \"hidden_size\": 4096, "
         "\"intermediate_size\": 11008, \"num_hidden_layers\": 32, \"num_attention_heads\": 32, "
         "\"max_position_embeddings\": 4096, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
         "\"vocab_size\": 32000, \"pad_token_id\": 0, \"torch_dtype\": \"float16\"}",
         6738415616, 128, 32, false},
        {"{\"hidden_size\": 2048, \"intermediate_size\": 5632, \"num_hidden_layers\": 22, "
         "\"num_attention_heads\": 32, \"num_key_value_heads\": 4, \"vocab_size\": 32000, "
         "\"rms_norm_eps\": 1e-05, \"max_position_embeddings\": 2048}",
         1100048384, 64, 4, false},
        {"{\"hidden_size\": 576, \"intermediate_size\": 1536, \"num_hidden_layers\": 30, "
         "\"num_attention_heads\": 9, \"num_key_value_heads\": 3, \"vocab_size\": 49152, "
         "\"rope_theta\": 100000, \"tie_word_embeddings\": true, \"max_position_embeddings\": "
         "8192, "
         "\"bos_token_id\": 0, \"eos_token_id\": 0, \"is_llama_config\": true, "
         "\"rope_interleaved\": false, \"rms_norm_eps\": 1e-05}",
         134515008, 64, 3, true},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct hop_model_config c;
        assert_ok(parse(models[i].text, &c));
        assert_true(hop_model_parameters(&c) == models[i].parameters);
        assert_int_equal(c.head_dim, models[i].head_dim);
        assert_int_equal(c.kv_heads, models[i].kv_heads);
        assert_int_equal(c.tied, models[i].tied);
    }
}

static void test_biases(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{}", &c));
    const int64_t none = hop_model_block_parameters(&c);
    assert_false(hop_target_biased(&c, HOP_Q_PROJ) || hop_target_biased(&c, HOP_DOWN_PROJ));
    assert_ok(parse("{\"attention_bias\": true}", &c));
    assert_true(hop_target_biased(&c, HOP_Q_PROJ) && hop_target_biased(&c, HOP_O_PROJ));
    assert_false(hop_target_biased(&c, HOP_GATE_PROJ));
    assert_int_equal(hop_model_block_parameters(&c) - none, 4 * 4096);
    assert_ok(parse("{\"mlp_bias\": true}", &c));
    assert_false(hop_target_biased(&c, HOP_O_PROJ));
    assert_true(hop_target_biased(&c, HOP_GATE_PROJ) && hop_target_biased(&c, HOP_DOWN_PROJ));
    assert_int_equal(hop_model_block_parameters(&c) - none, 2 * 11008 + 4096);
    assert_fails(parse("{\"mlp_bias\": 1}", &c), HOP_INPUT, "mlp_bias");
}

/* Width of the heads apart from hidden / heads, and fields that say null. */
static void test_head_dim(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{\"hidden_size\": 100, \"num_attention_heads\": 3, \"head_dim\": 20, "
                    "\"num_key_value_heads\": 1}",
                    &c));
    assert_int_equal(hop_target_out(&c, HOP_Q_PROJ), 60);
    assert_int_equal(hop_target_in(&c, HOP_O_PROJ), 60);
    assert_int_equal(hop_target_out(&c, HOP_V_PROJ), 20);
    assert_ok(parse("{\"head_dim\": null, \"num_key_value_heads\": null, \"rope_scaling\": null, "
                    "\"rope_parameters\": null, \"attention_bias\": null}",
                    &c));
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.kv_heads, 32);
}

static void test_tokens(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_ok(parse("{\"eos_token_id\": [5, 6, 7], \"bos_token_id\": null}", &c));
    assert_int_equal(c.eos_count, 3);
    assert_int_equal(c.eos[2], 7);
    assert_int_equal(c.bos, -1);
    assert_ok(parse("{\"eos_token_id\": null}", &c));
    assert_int_equal(c.eos_count, 0);
    assert_fails(parse("{\"eos_token_id\": 32000}", &c), HOP_INPUT, "eos_token_id");
}

static void test_refused(void **state)
{
    (void)state;
    struct hop_model_config c;
    assert_fails(parse("{\"rope_interleaved\": true}", &c), HOP_UNSUPPORTED, "rope_interleaved");
    assert_fails(parse("{\"architectures\": [\"LlamaForSequenceClassification\"]}", &c),
                 HOP_UNSUPPORTED, "LlamaForSequenceClassification");
    assert_fails(parse("{\"hidden_act\": \"gelu\"}", &c), HOP_UNSUPPORTED, "gelu");
    assert_fails(parse("{\"model_type\": \"mistral\"}", &c), HOP_UNSUPPORTED, "mistral");
    assert_fails(parse("{\"quantization_config\": {}}", &c), HOP_UNSUPPORTED, "quantization");
    assert_fails(parse("{\"hidden_size\": 0}", &c), HOP_INPUT, "hidden_size");
    assert_fails(parse("{\"hidden_size\": 99999999}", &c), HOP_INPUT, "hidden_size");
    assert_fails(parse("{\"hidden_size\": 100, \"num_attention_heads\": 3}", &c), HOP_INPUT,
                 "head_dim");
    assert_fails(parse("{\"num_key_value_heads\": 5}", &c), HOP_INPUT, "num_key_value_heads");
    assert_fails(parse("{\"head_dim\": 7}", &c), HOP_INPUT, "head_dim");
    assert_fails(parse("{\"vocab_size\": \"x\"}", &c), HOP_INPUT, "vocab_size");
    assert_fails(parse("[]", &c), HOP_INPUT, "config.json");
}

static void test_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{}", "{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.5}, \"bos_token_id\": null}",
        "{\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 3}, \"attention_bias\": true}",
        "{\"rope_scaling\": {\"type\": \"yarn\", \"factor\": 3, \"beta_fast\": 30, \"truncate\": "
        "false, \"original_max_position_embeddings\": 1000}, \"mlp_bias\": true}",
        "{\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1, "
        "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192, "
        "\"rope_theta\": 500000}, \"eos_token_id\": [3, 4], \"tie_word_embeddings\": true}"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hop_model_config first, second;
        memset(&first, 0, sizeof first);
        memset(&second, 0, sizeof second);
        assert_ok(parse(texts[i], &first));
        json_t *const object = hop_model_config_json(&first);
        assert_non_null(object);
        assert_ok(hop_model_config_parse(object, "copy", &second, &err));
        assert_int_equal(first.eos_count, second.eos_count);
        assert_memory_equal(first.eos, second.eos, sizeof first.eos);
        assert_int_equal(first.bos, second.bos);
        assert_int_equal(first.tied, second.tied);
        assert_int_equal(first.attention_bias, second.attention_bias);
        assert_int_equal(first.mlp_bias, second.mlp_bias);
        assert_close(first.norm_eps, second.norm_eps, 0);
        assert_close(first.rope_attention, second.rope_attention, 0);
        for (int32_t j = 0; j < first.head_dim / 2; j++)
            assert_close(hop_model_rope_frequency(&first, 5000, j),
                         hop_model_rope_frequency(&second, 5000, j), 0);
        json_decref(object);
    }
}

static void test_generation_eos(void **state)
{
    (void)state;
    char folder[64], path[128];
    struct hop_model_config c;
    support_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(hop_file_write(path, "{}", 2, &err));
    assert_ok(hop_model_config_load(folder, &c, &err));
    assert_int_equal(c.eos[0], 2);
    static const char generation[] = "{\"eos_token_id\": [9, 8]}";
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    assert_ok(hop_file_write(path, generation, strlen(generation), &err));
    assert_ok(hop_model_config_load(folder, &c, &err));
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos[0], 9);
    /* Those of config.json stay in front. */
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_ok(hop_file_write(path, "{\"eos_token_id\": 8}", 19, &err));
    assert_ok(hop_model_config_load(folder, &c, &err));
    assert_int_equal(c.eos_count, 2);
    assert_int_equal(c.eos[0], 8);
    assert_int_equal(c.eos[1], 9);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    assert_ok(hop_file_write(path, "{\"eos_token_id\": 32000}", 23, &err));
    assert_fails(hop_model_config_load(folder, &c, &err), HOP_INPUT, path);
    support_folder_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_real_files),   cmocka_unit_test(test_llama3_rope),
        cmocka_unit_test(test_defaults),     cmocka_unit_test(test_rope_spellings),
        cmocka_unit_test(test_rope_refused), cmocka_unit_test(test_linear_rope),
        cmocka_unit_test(test_dynamic_rope), cmocka_unit_test(test_yarn_rope),
        cmocka_unit_test(test_rope_bounds),  cmocka_unit_test(test_published),
        cmocka_unit_test(test_biases),       cmocka_unit_test(test_head_dim),
        cmocka_unit_test(test_tokens),       cmocka_unit_test(test_refused),
        cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_generation_eos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
