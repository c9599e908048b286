/* Adapters as PEFT knows them: which modules a configuration adapts, files read and written. */
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"
#include "model/adapter.h"

static struct hop_error err;

static void write_config(const char *folder, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    assert_ok(hop_file_write(path, text, strlen(text), &err));
}

static hop_status read_config(const char *text, struct hop_lora_config *out)
{
    const struct hop_model_config model = support_tiny_config();
    char folder[64];
    support_folder(folder, sizeof folder);
    write_config(folder, text);
    const hop_status status = hop_adapter_config(folder, &model, out, &err);
    support_folder_remove(folder);
    return status;
}

/* Rules: what PEFT's check_target_module_exists() and get_pattern_key() give for the seven
 * projections of three blocks. Ranks are digits, a point stands for no adapter; scales are those of
 * the adapted modules in order. */
static const struct {
    const char *text, *ranks[3];
    double scales[12];
} rule_cases[] = {
    {"{\"target_modules\": [\"q_proj\", \"v_proj\"], \"r\": 4, \"lora_alpha\": 6}",
     {"4.4....", "4.4....", "4.4...."},
     {1.5, 1.5, 1.5, 1.5, 1.5, 1.5}},
    {"{\"target_modules\": [\"self_attn.q_proj\", \"mlp.up_proj\"]}",
     {"8....8.", "8....8.", "8....8."},
     {1, 1, 1, 1, 1, 1}},
    {"{\"target_modules\": \".*\\\\.(q|down)_proj\", \"r\": 4, \"lora_alpha\": 4}",
     {"4.....4", "4.....4", "4.....4"},
     {1, 1, 1, 1, 1, 1}},
    {"{\"target_modules\": \"model\\\\.layers\\\\.[02]\\\\.self_attn\\\\.(k|v)_proj\"}",
     {".88....", ".......", ".88...."},
     {1, 1, 1, 1}},
    {"{\"target_modules\": [\"q_proj\", \"c_attn\"], \"layers_to_transform\": 1}",
     {".......", "8......", "......."},
     {1}},
    {"{\"target_modules\": [\"q_proj\", \"model.layers.0.mlp.up_proj\"], \"layers_to_transform\": "
     "[0, 2]}",
     {"8....8.", ".......", "8......"},
     {1, 1, 1}},
    {"{\"target_modules\": [\"q_proj\", \"o_proj\"], \"layers_to_transform\": [1, 2], "
     "\"layers_pattern\": \"layers\"}",
     {".......", "8..8...", "8..8..."},
     {1, 1, 1, 1}},
    {"{\"target_modules\": [\"q_proj\", \"o_proj\"], \"layers_to_transform\": [1], "
     "\"layers_pattern\": [\"h\", \"layers\"]}",
     {".......", "8..8...", "......."},
     {1, 1}},
    {"{\"target_modules\": [\"q_proj\", \"o_proj\"], \"exclude_modules\": "
     "[\"layers.1.self_attn.q_proj\", \"model.layers.2.self_attn.o_proj\"]}",
     {"8..8...", "...8...", "8......"},
     {1, 1, 1, 1}},
    {"{\"target_modules\": \"all-linear\", \"exclude_modules\": \".*mlp.*\"}",
     {"8888...", "8888...", "8888..."},
     {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
    {"{\"target_modules\": [\"q_proj\", \"v_proj\"], \"r\": 8, \"lora_alpha\": 16, "
     "\"rank_pattern\": {\"q_proj\": 2}, \"alpha_pattern\": {\"v_proj\": 4}}",
     {"2.8....", "2.8....", "2.8...."},
     {8, 0.5, 8, 0.5, 8, 0.5}},
    {"{\"target_modules\": [\"q_proj\", \"v_proj\"], \"r\": 8, \"lora_alpha\": 16, "
     "\"rank_pattern\": {\"model.layers.1.self_attn.q_proj\": 4, \"q_proj\": 2, \"layers.2.*\": "
     "6}}",
     {"2.8....", "4.8....", "2.6...."},
     {8, 2, 4, 2, 8, 16.0 / 6}},
    {"{\"target_modules\": [\"q_proj\", \"v_proj\"], \"r\": 8, \"rank_pattern\": {\"proj\": 2, "
     "\"^q_proj\": 3, \"self_attn.v_proj\": 5, \"[01].self_attn.q_proj\": 1}, \"alpha_pattern\": "
     "{\"layers.(0|2).self_attn.[qv]_proj\": 3.5}, \"use_rslora\": true}",
     {"1.5....", "1.5....", "8.5...."},
     {3.5, 1.56524758425, 8, 3.577708764, 1.237436867076, 1.56524758425}},
    {"{\"target_modules\": [\"q_proj\"], \"r\": 3, \"rank_pattern\": "
     "{\"^model.layers.0.self_attn.q_proj\": 7, \"layers.0.self_attn.q_proj\": 6}}",
     {"7......", "3......", "3......"},
     {8.0 / 7, 8.0 / 3, 8.0 / 3}},
    {"{\"target_modules\": [\"up_proj\"], \"r\": 3, \"rank_pattern\": null, \"alpha_pattern\": {}, "
     "\"layers_to_transform\": [], \"layers_pattern\": \"\", \"exclude_modules\": []}",
     {".....3.", ".....3.", ".....3."},
     {8.0 / 3, 8.0 / 3, 8.0 / 3}},
};

static void check_rules(size_t i, const struct hop_lora_config *lora)
{
    size_t n = 0;
    for (int32_t block = 0; block < 3; block++) {
        for (enum hop_target target = 0; target < HOP_TARGETS; target++) {
            const char digit = rule_cases[i].ranks[block][target];
            const int32_t rank = digit == '.' ? 0 : digit - '0';
            if (hop_lora_rank(lora, block, target) != rank)
                fail_msg("%s: %s of block %d has rank %d, expected %d", rule_cases[i].text,
                         hop_target_names[target], block, hop_lora_rank(lora, block, target), rank);
            const double scale = rank ? rule_cases[i].scales[n++] : 0;
            assert_close(hop_lora_scale(lora, block, target), scale, 1e-9);
        }
    }
}

static void test_rules(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) {
        struct hop_lora_config lora;
        assert_ok(read_config(rule_cases[i].text, &lora));
        check_rules(i, &lora);
    }
}

/* The common case stays the common case, and what all modules share needs no table. */
static void test_uniform(void **state)
{
    (void)state;
    struct hop_lora_config lora;
    assert_ok(read_config("{\"target_modules\": \"all-linear\", \"r\": 2, \"lora_alpha\": 5, "
                          "\"use_rslora\": true, \"rank_pattern\": {\"c_attn\": 9}}",
                          &lora));
    assert_int_equal(lora.blocks, 0);
    assert_int_equal(hop_lora_adapted(&lora), 7);
    assert_close(hop_lora_scale(&lora, 1000, HOP_UP_PROJ), 5 / sqrt(2), 1e-12);
    assert_ok(read_config("{\"target_modules\": [\"q_proj\"]}", &lora));
    assert_int_equal(lora.rank, 8);
    assert_close(hop_lora_scale(&lora, 0, HOP_Q_PROJ), 1, 0);
    assert_int_equal(hop_lora_rank(&lora, 0, HOP_K_PROJ), 0);
}

static void test_refused_configs(void **state)
{
    (void)state;
    struct hop_lora_config lora;
    static const struct {
        const char *text, *word;
        hop_status status;
    } cases[] = {
        {"{\"target_modules\": [\"q_proj\", \"lm_head\"]}", "lm_head", HOP_UNSUPPORTED},
        {"{\"target_modules\": [\"q_proj\", \"embed_tokens\"]}", "embed_tokens", HOP_UNSUPPORTED},
        {"{\"target_modules\": \".*\"}", "lm_head", HOP_UNSUPPORTED},
        {"{\"target_modules\": \"(q_proj\"}", "regular expression", HOP_INPUT},
        {"{\"target_modules\": \"q_proj\"}", "matches no projection", HOP_UNSUPPORTED},
        {"{\"target_modules\": \"((.*)*)*[A-Z]\"}", "too long", HOP_UNSUPPORTED},
        {"{\"target_modules\": [3]}", "target_modules", HOP_INPUT},
        {"{}", "target_modules", HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": \"1\"}",
         "layers_to_transform", HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": 1, \"layers_pattern\": 3}",
         "layers_pattern", HOP_INPUT},
        {"{\"target_modules\": \".*q_proj\", \"layers_to_transform\": 1}", "layers_to_transform",
         HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"layers_to_transform\": 7}", "matches no projection",
         HOP_UNSUPPORTED},
        {"{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"q_proj\": 2.5}}", "rank_pattern",
         HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"q_proj\": 4096}}", "rank_pattern",
         HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"q_proj\": \"4\"}}",
         "rank_pattern", HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"alpha_pattern\": [1]}", "alpha_pattern", HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"use_rslora\": 1}", "use_rslora", HOP_INPUT},
        {"{\"target_modules\": [\"q_proj\"], \"trainable_token_indices\": [1]}",
         "trainable_token_indices", HOP_UNSUPPORTED},
        {"{\"target_modules\": [\"q_proj\"], \"lora_bias\": true}", "lora_bias", HOP_UNSUPPORTED},
        {"{\"target_modules\": [\"q_proj\"], \"fan_in_fan_out\": true}", "fan_in_fan_out",
         HOP_UNSUPPORTED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails(read_config(cases[i].text, &lora), cases[i].status, cases[i].word);
    assert_ok(read_config("{\"target_modules\": [\"q_proj\"], \"use_new_thing\": true}", &lora));
}

/* More blocks than the table holds: fine while all are alike. */
static void test_deep_model(void **state)
{
    (void)state;
    struct hop_model_config model = support_tiny_config();
    struct hop_lora_config lora;
    char folder[64];
    model.blocks = HOP_LORA_BLOCKS + 2;
    support_folder(folder, sizeof folder);
    write_config(folder, "{\"target_modules\": [\"q_proj\"], \"rank_pattern\": {\"k_proj\": 3}}");
    assert_ok(hop_adapter_config(folder, &model, &lora, &err));
    assert_int_equal(hop_lora_rank(&lora, HOP_LORA_BLOCKS + 1, HOP_Q_PROJ), 8);
    write_config(folder, "{\"target_modules\": [\"q_proj\"], \"rank_pattern\": "
                         "{\"layers.129.self_attn.q_proj\": 3}}");
    assert_fails(hop_adapter_config(folder, &model, &lora, &err), HOP_UNSUPPORTED, "130");
    support_folder_remove(folder);
}

/* A small independent reader of safetensors and of PEFT's rules */

struct file {
    unsigned char *bytes;
    size_t size, data; /* data: where the byte buffer begins */
    json_t *header;
};

static void file_open(struct file *file, const char *folder)
{
    char path[128];
    json_error_t reason;
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    FILE *const stream = fopen(path, "rb");
    assert_non_null(stream);
    file->bytes = malloc(1 << 20);
    assert_non_null(file->bytes);
    file->size = fread(file->bytes, 1, 1 << 20, stream);
    fclose(stream);
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--)
        n = n << 8 | file->bytes[i];
    assert_int_equal(n % 8, 0);
    file->data = 8 + (size_t)n;
    file->header = json_loadb((const char *)file->bytes + 8, (size_t)n, 0, &reason);
    assert_non_null(file->header);
}

static void file_close(struct file *file)
{
    json_decref(file->header);
    free(file->bytes);
}

static json_int_t pair_value(const json_t *entry, const char *key, size_t i)
{
    return json_integer_value(json_array_get(json_object_get(entry, key), i));
}

/* The reference writer's order: metadata first, then names in byte order, data one after the
 * other to the end of the file. */
static void check_order(const struct file *file)
{
    const char *key, *before = NULL;
    json_t *entry;
    json_int_t end = 0;
    json_object_foreach(file->header, key, entry)
    {
        if (!before) {
            assert_string_equal(key, "__metadata__");
            assert_string_equal(json_string_value(json_object_get(entry, "format")), "pt");
            assert_int_equal(json_object_size(entry), 1);
            before = "";
            continue;
        }
        assert_true(strcmp(before, key) < 0);
        assert_string_equal(json_string_value(json_object_get(entry, "dtype")), "F32");
        assert_int_equal(pair_value(entry, "data_offsets", 0), end);
        end = pair_value(entry, "data_offsets", 1);
        before = key;
    }
    assert_int_equal(file->data + (size_t)end, file->size);
}

static bool posix_match(const char *key, const char *name)
{
    char text[256];
    regex_t compiled;
    snprintf(text, sizeof text, "^(.*\\.)?(%s)$", key);
    assert_int_equal(regcomp(&compiled, text, REG_EXTENDED | REG_NOSUB), 0);
    const bool matched = regexec(&compiled, name, 0, NULL, 0) == 0;
    regfree(&compiled);
    return matched;
}

static double pattern_value(const json_t *config, const char *pattern, const char *common,
                            const char *name)
{
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(config, pattern), key, value)
    {
        if (posix_match(key, name))
            return json_number_value(value);
    }
    return json_number_value(json_object_get(config, common));
}

static bool is_target(const json_t *config, const char *name)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(config, "target_modules"), i, entry)
    {
        const char *const text = json_string_value(entry);
        const size_t n = strlen(name), m = strlen(text);
        if (strcmp(text, name) == 0 ||
            (n > m && name[n - m - 1] == '.' && strcmp(name + n - m, text) == 0))
            return true;
    }
    return false;
}

static const float *tensor_of(const struct file *file, const char *module, char factor,
                              int64_t rows, int64_t columns)
{
    char name[160];
    snprintf(name, sizeof name, "base_model.model.%s.lora_%c.weight", module, factor);
    const json_t *const entry = json_object_get(file->header, name);
    if (!entry)
        fail_msg("%s is missing", name);
    assert_int_equal(json_array_size(json_object_get(entry, "shape")), 2);
    assert_int_equal(pair_value(entry, "shape", 0), rows);
    assert_int_equal(pair_value(entry, "shape", 1), columns);
    return (const float *)(const void *)(file->bytes + file->data +
                                         pair_value(entry, "data_offsets", 0));
}

static const float *parameter_of(const struct hop_parameters *p, int32_t block,
                                 enum hop_target target, enum hop_factor factor)
{
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].block == block && p->items[i].target == target &&
            p->items[i].factor == factor)
            return p->values + p->items[i].offset;
    fail_msg("%s of block %d has no parameters", hop_target_names[target], block);
    return NULL;
}

/* A saved adapter, and what it was saved from. */
struct saved {
    struct file file;
    json_t *config;
    const struct hop_model_config *model;
    const struct hop_lora_config *lora;
    const struct hop_parameters *parameters;
};

static void check_scale(const struct saved *saved, const char *name, double r, int32_t block,
                        enum hop_target target)
{
    const double alpha = pattern_value(saved->config, "alpha_pattern", "lora_alpha", name);
    const bool rslora = json_is_true(json_object_get(saved->config, "use_rslora"));
    assert_close(alpha / (rslora ? sqrt(r) : r), hop_lora_scale(saved->lora, block, target), 1e-12);
}

/* False where PEFT adapts nothing. */
static bool check_saved_module(const struct saved *saved, int32_t block, enum hop_target target)
{
    const int64_t in = hop_target_in(saved->model, target);
    const int64_t out = hop_target_out(saved->model, target);
    char name[HOP_TENSOR_NAME];
    snprintf(name, sizeof name, "model.layers.%d.%s", block, hop_target_paths[target]);
    if (!is_target(saved->config, name)) {
        assert_int_equal(hop_lora_rank(saved->lora, block, target), 0);
        return false;
    }
    const double rank = pattern_value(saved->config, "rank_pattern", "r", name);
    const int64_t r = (int64_t)rank;
    check_scale(saved, name, rank, block, target);
    assert_memory_equal(tensor_of(&saved->file, name, 'A', r, in),
                        parameter_of(saved->parameters, block, target, HOP_LORA_A),
                        (size_t)(r * in) * sizeof(float));
    assert_memory_equal(tensor_of(&saved->file, name, 'B', out, r),
                        parameter_of(saved->parameters, block, target, HOP_LORA_B),
                        (size_t)(r * out) * sizeof(float));
    return true;
}

/* What PEFT would build from the configuration and fill from the file is what was saved. */
static void check_as_peft(const char *folder, const struct hop_model_config *model,
                          const struct hop_lora_config *lora, const struct hop_parameters *p)
{
    struct saved saved = {.model = model, .lora = lora, .parameters = p};
    char path[128];
    size_t modules = 0;
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    saved.config = json_load_file(path, 0, NULL);
    assert_non_null(saved.config);
    file_open(&saved.file, folder);
    check_order(&saved.file);
    for (int32_t block = 0; block < model->blocks; block++)
        for (enum hop_target target = 0; target < HOP_TARGETS; target++)
            modules += check_saved_module(&saved, block, target);
    assert_int_equal(json_object_size(saved.file.header), 1 + 2 * modules);
    file_close(&saved.file);
    json_decref(saved.config);
}

static void fill(struct hop_parameters *p)
{
    for (size_t i = 0; i < p->total; i++)
        p->values[i] = sinf((float)i) * 0.5f;
}

/* Every configuration above survives: saved, read as PEFT does, read by ourselves. */
static void test_saved_as_peft_reads(void **state)
{
    (void)state;
    const struct hop_model_config model = support_tiny_config();
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) {
        struct hop_lora_config lora, read;
        struct hop_parameters p, loaded;
        int32_t block;
        enum hop_target target;
        char folder[64];
        assert_ok(read_config(rule_cases[i].text, &lora));
        assert_ok(hop_parameters_create(&model, &lora, 0, 3, &p, &err));
        fill(&p);
        support_folder(folder, sizeof folder);
        assert_ok(hop_adapter_save(folder, &lora, &p, "some/base", &err));
        check_as_peft(folder, &model, &lora, &p);
        assert_ok(hop_adapter_config(folder, &model, &read, &err));
        assert_false(hop_lora_difference(&lora, &read, 3, &block, &target));
        assert_ok(hop_parameters_create(&model, &read, 0, 3, &loaded, &err));
        assert_ok(hop_adapter_load(folder, &model, &read, &loaded, &err));
        assert_int_equal(loaded.total, p.total);
        assert_memory_equal(loaded.values, p.values, p.total * sizeof(float));
        hop_parameters_free(&p);
        hop_parameters_free(&loaded);
        support_folder_remove(folder);
    }
}

/* Old versions of PEFT fail on keys they do not know: only what is needed is written. */
static void test_minimal_config(void **state)
{
    (void)state;
    static const char expected[] =
        "{\n  \"base_model_name_or_path\": null,\n  \"bias\": \"none\",\n  \"fan_in_fan_out\": "
        "false,\n  \"inference_mode\": true,\n  \"init_lora_weights\": true,\n  \"lora_alpha\": "
        "16,\n  \"lora_dropout\": 0.0,\n  \"peft_type\": \"LORA\",\n  \"r\": 8,\n  "
        "\"target_modules\": [\n    \"q_proj\",\n    \"down_proj\"\n  ],\n  \"task_type\": "
        "\"CAUSAL_LM\"\n}\n";
    struct hop_lora_config lora = {.rank = 8, .alpha = 16};
    struct hop_map map;
    char folder[64], path[128];
    lora.targets[HOP_Q_PROJ] = lora.targets[HOP_DOWN_PROJ] = true;
    support_folder(folder, sizeof folder);
    assert_ok(hop_adapter_config_save(folder, &lora, NULL, &err));
    snprintf(path, sizeof path, "%s/adapter_config.json", folder);
    assert_ok(hop_map_open(path, &map, &err));
    assert_int_equal(map.size, sizeof expected - 1);
    assert_memory_equal(map.data, expected, map.size);
    hop_map_close(&map);
    support_folder_remove(folder);
}

/* Files in other spellings */

enum { MANY = 8 };
struct tensors {
    struct hop_tensor_source items[MANY];
    char names[MANY][160];
    float values[MANY][128];
    uint16_t halves[MANY][128];
    size_t count;
};

static void add_tensor(struct tensors *t, const char *name, enum hop_dtype dtype, int64_t rows,
                       int64_t columns)
{
    const size_t n = t->count++, elements = (size_t)(rows * columns);
    assert_true(n < MANY && elements <= 128);
    for (size_t i = 0; i < elements; i++)
        t->values[n][i] = (float)i * 0.25f - 4;
    hop_convert(t->halves[n], dtype, t->values[n], HOP_F32, dtype == HOP_F32 ? 0 : elements);
    snprintf(t->names[n], sizeof t->names[n], "%s", name);
    t->items[n] = (struct hop_tensor_source){.name = t->names[n],
                                             .dtype = dtype,
                                             .rank = 2,
                                             .shape = {rows, columns},
                                             .data = dtype == HOP_F32 ? (void *)t->values[n]
                                                                      : (void *)t->halves[n]};
}

#define Q0 "base_model.model.model.layers.0.self_attn.q_proj."

static hop_status load_tensors(const struct tensors *t, struct hop_parameters *p)
{
    struct hop_model_config model = support_tiny_config();
    struct hop_lora_config lora = {.rank = 2, .alpha = 2};
    char folder[64], path[128];
    model.blocks = 1;
    lora.targets[HOP_Q_PROJ] = true;
    support_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_ok(hop_safetensors_write(path, t->items, t->count, &err));
    assert_ok(hop_parameters_create(&model, &lora, 0, 1, p, &err));
    const hop_status status = hop_adapter_load(folder, &model, &lora, p, &err);
    if (status != HOP_OK)
        hop_parameters_free(p);
    support_folder_remove(folder);
    return status;
}

/* F16 and BF16 tensors, and names of a raw state dict. */
static void test_other_spellings(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {Q0 "lora_A.weight", Q0 "lora_B.weight"},
        {Q0 "lora_A.default.weight", Q0 "lora_B.default.weight"}};
    for (size_t spelling = 0; spelling < 2; spelling++) {
        for (enum hop_dtype dtype = HOP_F32; dtype < HOP_DTYPE_OTHER; dtype++) {
            struct tensors t = {0};
            struct hop_parameters p;
            add_tensor(&t, names[spelling][0], dtype, 2, 24);
            add_tensor(&t, names[spelling][1], dtype, 24, 2);
            assert_ok(load_tensors(&t, &p));
            assert_memory_equal(p.values, t.values[0], 48 * sizeof(float));
            assert_memory_equal(p.values + 48, t.values[1], 48 * sizeof(float));
            hop_parameters_free(&p);
        }
    }
}

static void test_unexpected_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *name, *words[2];
        hop_status status;
    } cases[] = {
        {"base_model.model.lm_head.lora_A.weight",
         {"lm_head.lora_A", "plain LoRA"},
         HOP_UNSUPPORTED},
        {"base_model.model.model.embed_tokens.lora_embedding_A",
         {"lora_embedding_A", "plain LoRA"},
         HOP_UNSUPPORTED},
        {Q0 "lora_magnitude_vector.weight",
         {"lora_magnitude_vector", "plain LoRA"},
         HOP_UNSUPPORTED},
        {Q0 "lora_B.bias", {"lora_B.bias", "plain LoRA"}, HOP_UNSUPPORTED},
        {"base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight",
         {"layers.1.self_attn.q_proj.lora_A.weight", "this tensor"},
         HOP_INPUT},
        {"base_model.model.model.layers.0.self_attn.k_proj.lora_A.weight",
         {"layers.0.self_attn.k_proj.lora_A.weight", "1 blocks"},
         HOP_INPUT},
        {"layers.0.self_attn.q_proj.lora_A.weight",
         {": layers.0.self_attn.q_proj.lora_A.weight", "this tensor"},
         HOP_INPUT},
        {Q0 "lora_A.default.weight", {"lora_A.default.weight", "this tensor"}, HOP_INPUT},
        {Q0 "lora_A.other.weight", {"lora_A.other.weight", "this tensor"}, HOP_INPUT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tensors t = {0};
        struct hop_parameters p;
        add_tensor(&t, Q0 "lora_A.weight", HOP_F32, 2, 24);
        add_tensor(&t, Q0 "lora_B.weight", HOP_F32, 24, 2);
        add_tensor(&t, cases[i].name, HOP_F32, 2, 24);
        assert_fails(load_tensors(&t, &p), cases[i].status, cases[i].words[0]);
        assert_fails(cases[i].status, cases[i].status, cases[i].words[1]);
    }
}

/* Of many, the first are named and the rest counted; one that is missing is named. */
static void test_many_and_missing(void **state)
{
    (void)state;
    struct tensors t = {0};
    struct hop_parameters p;
    char name[160];
    add_tensor(&t, Q0 "lora_A.weight", HOP_F32, 2, 24);
    assert_fails(load_tensors(&t, &p), HOP_INPUT, "q_proj.lora_B.weight is missing");
    add_tensor(&t, Q0 "lora_B.weight", HOP_F32, 24, 2);
    for (int i = 1; i < 6; i++) {
        snprintf(name, sizeof name,
                 "base_model.model.model.layers.%d.self_attn.q_proj.lora_A.weight", i);
        add_tensor(&t, name, HOP_F32, 2, 24);
    }
    assert_fails(load_tensors(&t, &p), HOP_INPUT, "layers.1.");
    assert_fails(HOP_INPUT, HOP_INPUT, "layers.3.");
    assert_fails(HOP_INPUT, HOP_INPUT, "and 2 more");
}

static void test_pickled(void **state)
{
    (void)state;
    struct hop_safetensors *set;
    char folder[64], path[128];
    support_folder(folder, sizeof folder);
    assert_fails(hop_adapter_open(folder, &set, &err), HOP_INPUT, "adapter_model.safetensors");
    snprintf(path, sizeof path, "%s/adapter_model.bin", folder);
    assert_ok(hop_file_write(path, "PK", 2, &err));
    assert_fails(hop_adapter_open(folder, &set, &err), HOP_UNSUPPORTED, "adapter_model.bin");
    support_folder_remove(folder);
}

/* The configuration in the setup message */

static void test_message(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rule_cases / sizeof *rule_cases; i++) {
        struct hop_lora_config lora, read;
        assert_ok(read_config(rule_cases[i].text, &lora));
        json_t *const object = hop_lora_json(&lora);
        assert_non_null(object);
        assert_ok(hop_lora_parse(object, "message", &read, &err));
        check_rules(i, &read);
        assert_int_equal(read.rslora, lora.rslora);
        assert_int_equal(read.rank, lora.rank);
        json_decref(object);
    }
    struct hop_lora_config read;
    json_t *const bad = json_pack("{s:i, s:f, s:[s], s:[[[i, f]]]}", "rank", 2, "alpha", 1.0,
                                  "targets", "q_proj", "modules", 5000, 1.0);
    assert_fails(hop_lora_parse(bad, "message", &read, &err), HOP_INPUT, "modules");
    json_decref(bad);
}

/* Stages whose modules differ */

static void open_patterned(struct hop_lora_config *lora, struct hop_model_config *model)
{
    *model = support_tiny_config();
    assert_ok(read_config("{\"target_modules\": [\"q_proj\", \"k_proj\", \"o_proj\", "
                          "\"model.layers.1.mlp.up_proj\", \"model.layers.2.mlp.down_proj\"], "
                          "\"exclude_modules\": [\"layers.1.self_attn.k_proj\"], \"r\": 3, "
                          "\"lora_alpha\": 6, \"use_rslora\": true, \"rank_pattern\": "
                          "{\"o_proj\": 2, \"layers.2.self_attn.q_proj\": 5}, \"alpha_pattern\": "
                          "{\"layers.[12].*\": 4}}",
                          lora));
}

static struct hop_stage_config stage_config(const struct hop_model_config *model,
                                            const struct hop_lora_config *lora,
                                            const struct support_batch *b)
{
    return (struct hop_stage_config){.model = *model,
                                     .lora = *lora,
                                     .hi = model->blocks,
                                     .embed = true,
                                     .head = true,
                                     .gradient = HOP_GRADIENT_BACKPROP,
                                     .limits = support_limits(b),
                                     .slots = 1};
}

static double loss_of(struct support_stage *s, const struct support_batch *b, int32_t slot)
{
    float logprob[SUPPORT_TOKENS];
    assert_ok(hop_stage_adapters_changed(s->stage, &err));
    assert_ok(hop_stage_forward(s->stage, &b->batch, slot, NULL, NULL, logprob, &err));
    return support_loss(logprob, (size_t)b->batch.labels, (double)b->batch.label_total);
}

/* Along a random direction of each factor, the slope of the loss is the gradient's. */
static void check_slopes(struct support_stage *s, const struct support_batch *b)
{
    struct hop_parameters *const p = hop_stage_parameters(s->stage);
    const float step = 2e-3f;
    for (size_t i = 0; i < p->count; i++) {
        const struct hop_parameter *const item = &p->items[i];
        float *const values = p->values + item->offset;
        double expected = 0, norm = 0;
        for (size_t k = 0; k < item->count; k++) {
            expected += (double)p->gradients[item->offset + k] * (double)cosf((float)(3 * k));
            norm += pow((double)p->gradients[item->offset + k], 2);
            values[k] += step * cosf((float)(3 * k));
        }
        const double above = loss_of(s, b, -1);
        for (size_t k = 0; k < item->count; k++)
            values[k] -= 2 * step * cosf((float)(3 * k));
        const double below = loss_of(s, b, -1);
        for (size_t k = 0; k < item->count; k++)
            values[k] += step * cosf((float)(3 * k));
        const double slope = (above - below) / (2 * (double)step);
        assert_true(norm > 0);
        assert_close(slope, expected, 2e-3 * sqrt(norm * (double)item->count));
    }
}

static void test_stage_gradients(void **state)
{
    (void)state;
    static const int32_t lengths[] = {9, 4, 14};
    static struct support_batch b;
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    struct support_stage s;
    open_patterned(&lora, &model);
    support_batch_random(&b, model.vocabulary, lengths, 3);
    assert_ok(hop_weights_random(&model, 11, HOP_F32, &weights, &err));
    const struct hop_stage_config config = stage_config(&model, &lora, &b);
    for (const char *const *name = (const char *const[]){"reference", "cpu", NULL}; *name; name++) {
        const struct hop_ops *const ops = hop_backend_find(*name);
        if (!ops)
            continue;
        support_stage_open(&s, ops, weights, &config);
        support_random_adapters(&s, 3, 0.3f);
        const struct hop_parameters *const p = hop_stage_parameters(s.stage);
        assert_int_equal(p->total, hop_lora_parameters(&model, &lora, 0, 3));
        assert_int_equal(hop_stage_bytes(&config).parameters, 2 * p->total * sizeof(float));
        loss_of(&s, &b, 0);
        assert_ok(hop_stage_backward(s.stage, &b.batch, 0, NULL, NULL, &err));
        check_slopes(&s, &b);
        support_stage_close(&s);
    }
    hop_weights_free(weights);
}

/* Blocks are priced as the largest: never less than what a part of real blocks takes. */
static void test_widened(void **state)
{
    (void)state;
    static const int32_t lengths[] = {5};
    static struct support_batch b;
    struct hop_model_config model;
    struct hop_lora_config lora;
    open_patterned(&lora, &model);
    support_batch_random(&b, model.vocabulary, lengths, 1);
    struct hop_stage_config wide = stage_config(&model, &lora, &b);
    wide.lora = hop_lora_widened(&lora);
    for (int32_t block = 0; block < 3; block++) {
        struct hop_stage_config real = stage_config(&model, &lora, &b);
        real.lo = wide.lo = block;
        real.hi = wide.hi = block + 1;
        assert_true(hop_stage_bytes(&real).parameters <= hop_stage_bytes(&wide).parameters);
        assert_int_equal(hop_lora_block_parameters(&model, &lora),
                         hop_lora_parameters(&model, &wide.lora, block, block + 1));
    }
}

/* PEFT's own adapter gives PyTorch's logits after the last token of the first row. */
static void check_logits(const char *adapter, const json_t *oracle, const char *key)
{
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_weights *weights;
    struct support_stage s;
    float logits[512];
    int32_t ids[SUPPORT_TOKENS], n = 0;
    size_t i;
    json_t *id;
    char directory[512], folder[512];
    const json_t *const row = json_array_get(json_object_get(oracle, "batch"), 0);
    json_array_foreach(json_object_get(row, "input_ids"), i, id) ids[n++] =
        (int32_t)json_integer_value(id);
    snprintf(directory, sizeof directory, "%s", support_data("models/stories260K"));
    snprintf(folder, sizeof folder, "%s", support_data(adapter));
    assert_ok(hop_model_config_load(directory, &model, &err));
    assert_ok(hop_weights_open(directory, &model, &weights, &err));
    assert_ok(hop_adapter_config(folder, &model, &lora, &err));
    const struct hop_stage_config config = {.model = model,
                                            .lora = lora,
                                            .hi = model.blocks,
                                            .embed = true,
                                            .head = true,
                                            .limits = {1, n, 1},
                                            .cache = n};
    support_stage_open(&s, hop_backend_find("reference"), weights, &config);
    assert_ok(hop_adapter_load(folder, &model, &lora, hop_stage_parameters(s.stage), &err));
    assert_ok(hop_stage_adapters_changed(s.stage, &err));
    assert_ok(hop_stage_decode(s.stage, ids, n, 0, logits, &err));
    const json_t *const expected = json_object_get(oracle, key);
    assert_int_equal(json_array_size(expected), 512);
    for (i = 0; i < 512; i++)
        assert_close((double)logits[i], json_number_value(json_array_get(expected, i)), 2e-4);
    support_stage_close(&s);
    hop_weights_free(weights);
}

static void test_oracle_logits(void **state)
{
    (void)state;
    json_t *const oracle = support_json(support_data("lora/oracle.json"));
    check_logits("lora/init", oracle, "logits_step0_seq0_last");
    check_logits("lora/final", oracle, "logits_final_seq0_last");
    json_decref(oracle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_refused_configs),
        cmocka_unit_test(test_deep_model),
        cmocka_unit_test(test_saved_as_peft_reads),
        cmocka_unit_test(test_minimal_config),
        cmocka_unit_test(test_other_spellings),
        cmocka_unit_test(test_unexpected_tensors),
        cmocka_unit_test(test_many_and_missing),
        cmocka_unit_test(test_pickled),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_stage_gradients),
        cmocka_unit_test(test_widened),
        cmocka_unit_test(test_oracle_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
