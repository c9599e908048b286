/* Merged models: numbers, files, shards, and what is refused. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support_model.h"

#include "io/file.h"
#include "io/json.h"
#include "model/adapter.h"
#include "model/merge.h"

static struct hop_error err;

/* A random model and a random adapter for it in a folder of their own. */
struct fixture {
    struct hop_model_config model;
    struct hop_lora_config lora;
    struct hop_parameters adapter;
    char root[64], base[96], lora_folder[96], output[96];
};

static const char uniform[] = "{\"target_modules\": \"all-linear\", \"r\": 3, \"lora_alpha\": 6}";
static const char varied[] =
    "{\"target_modules\": [\"q_proj\", \"v_proj\", \"model.layers.1.mlp.down_proj\"], \"r\": 4, "
    "\"lora_alpha\": 4, \"use_rslora\": true, \"rank_pattern\": {\"v_proj\": 2}, "
    "\"alpha_pattern\": {\"layers.2.*\": 1.5}}";

static void write_text(const char *folder, const char *name, const char *text)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_ok(hop_file_write(path, text, strlen(text), &err));
}

static void write_config(const struct fixture *f)
{
    char path[192];
    json_t *const object = hop_model_config_json(&f->model);
    json_object_set_new(object, "torch_dtype", json_string("float32"));
    snprintf(path, sizeof path, "%s/config.json", f->base);
    assert_ok(hop_json_save(path, object, &err));
    json_decref(object);
}

/* The random model's tensors in `dtype`, and one no configuration asks for. */
static void write_weights(const struct fixture *f, enum hop_dtype dtype)
{
    static const unsigned char extra[] = {1, 2, 3, 4, 5, 6, 7, 8};
    struct hop_weights *weights;
    struct hop_tensor_want *wants;
    size_t count;
    char path[192];
    assert_ok(hop_weights_random(&f->model, 5, HOP_F32, &weights, &err));
    assert_ok(hop_weights_list(&f->model, 0, f->model.blocks, true, true, &wants, &count, &err));
    struct hop_tensor_source *const sources = calloc(count + 1, sizeof *sources);
    void **const data = calloc(count, sizeof *data);
    assert_true(sources && data);
    for (size_t i = 0; i < count; i++) {
        const struct hop_tensor *const tensor = hop_weights_find(weights, wants[i].name);
        data[i] = malloc(tensor->bytes);
        assert_non_null(data[i]);
        hop_convert(data[i], dtype, tensor->data, HOP_F32, tensor->bytes / sizeof(float));
        sources[i] = (struct hop_tensor_source){.name = wants[i].name,
                                                .dtype = dtype,
                                                .rank = wants[i].rank,
                                                .shape = {wants[i].shape[0], wants[i].shape[1]},
                                                .data = data[i]};
    }
    sources[count] = (struct hop_tensor_source){.name = "model.layers.0.position_ids",
                                                .dtype = HOP_DTYPE_OTHER,
                                                .dtype_text = "I64",
                                                .rank = 1,
                                                .shape = {1},
                                                .data = extra};
    snprintf(path, sizeof path, "%s/model.safetensors", f->base);
    assert_ok(hop_safetensors_write(path, sources, count + 1, &err));
    for (size_t i = 0; i < count; i++)
        free(data[i]);
    free(data);
    free(sources);
    free(wants);
    hop_weights_free(weights);
}

static void write_adapter(struct fixture *f, const char *config)
{
    assert_ok(hop_directory_create(f->lora_folder, &err));
    write_text(f->lora_folder, "adapter_config.json", config);
    assert_ok(hop_adapter_config(f->lora_folder, &f->model, &f->lora, &err));
    assert_ok(hop_parameters_create(&f->model, &f->lora, 0, f->model.blocks, &f->adapter, &err));
    for (size_t i = 0; i < f->adapter.total; i++)
        f->adapter.values[i] = 0.2f * sinf((float)(7 * i));
    assert_ok(hop_adapter_save(f->lora_folder, &f->lora, &f->adapter, NULL, &err));
}

static void open_fixture(struct fixture *f, enum hop_dtype dtype, bool tied, const char *adapter)
{
    *f = (struct fixture){.model = support_tiny_config()};
    f->model.tied = tied;
    support_folder(f->root, sizeof f->root);
    snprintf(f->base, sizeof f->base, "%s/base", f->root);
    snprintf(f->lora_folder, sizeof f->lora_folder, "%s/lora", f->root);
    snprintf(f->output, sizeof f->output, "%s/new/merged", f->root);
    assert_ok(hop_directory_create(f->base, &err));
    write_config(f);
    write_weights(f, dtype);
    write_text(f->base, "tokenizer.json", "{\"any\": \"text\"}");
    write_text(f->base, "generation_config.json", "{\"eos_token_id\": [2]}");
    write_text(f->base, "pytorch_model.bin", "not copied");
    write_adapter(f, adapter);
}

static void close_fixture(struct fixture *f)
{
    hop_parameters_free(&f->adapter);
    support_folder_remove(f->root);
}

static struct hop_merge plan_of(const struct fixture *f)
{
    return (struct hop_merge){.model = f->base,
                              .adapter = f->lora_folder,
                              .output = f->output,
                              .shard_bytes = 5000000000};
}

static hop_status merge(const struct fixture *f, struct hop_merge_result *result)
{
    const struct hop_merge plan = plan_of(f);
    return hop_merge(&plan, result, &err);
}

static bool exists(const char *folder, const char *name)
{
    char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return hop_file_exists(path);
}

static void assert_same_files(const char *a, const char *b, const char *name)
{
    char path[192];
    struct hop_map x, y;
    snprintf(path, sizeof path, "%s/%s", a, name);
    assert_ok(hop_map_open(path, &x, &err));
    snprintf(path, sizeof path, "%s/%s", b, name);
    assert_ok(hop_map_open(path, &y, &err));
    assert_int_equal(x.size, y.size);
    assert_memory_equal(x.data, y.data, x.size);
    hop_map_close(&x);
    hop_map_close(&y);
}

static float element(const struct hop_tensor *tensor, size_t i)
{
    float value;
    hop_convert(&value, HOP_F32, (const char *)tensor->data + i * hop_dtype_size(tensor->dtype),
                tensor->dtype, 1);
    return value;
}

static const float *factor_of(const struct fixture *f, int32_t block, enum hop_target target,
                              enum hop_factor factor)
{
    for (size_t i = 0; i < f->adapter.count; i++) {
        const struct hop_parameter *const item = &f->adapter.items[i];
        if (item->block == block && item->target == target && item->factor == factor)
            return f->adapter.values + item->offset;
    }
    return NULL;
}

/* Half a unit in the last place of the dtype, for a number like this. */
static double half_place(double value, enum hop_dtype dtype)
{
    static const int digits[] = {[HOP_F32] = 24, [HOP_BF16] = 8, [HOP_F16] = 11};
    const int lowest = dtype == HOP_F16 ? -14 : -126;
    const int exponent = fabs(value) > 0 ? ilogb(value) : lowest;
    return ldexp(1, (exponent > lowest ? exponent : lowest) - digits[dtype]);
}

/* Every element is W + scale * B A, rounded once. */
static void check_module(const struct fixture *f, const struct hop_tensor *before,
                         const struct hop_tensor *after, int32_t block, enum hop_target target)
{
    const float *const a = factor_of(f, block, target, HOP_LORA_A);
    const float *const b = factor_of(f, block, target, HOP_LORA_B);
    const size_t in = (size_t)before->shape[1];
    const size_t rank = (size_t)hop_lora_rank(&f->lora, block, target);
    const double scale = hop_lora_scale(&f->lora, block, target);
    size_t changed = 0;
    assert_true(a && b);
    for (size_t i = 0; i < (size_t)before->shape[0] * in; i++) {
        double sum = 0;
        for (size_t r = 0; r < rank; r++)
            sum += (double)b[i / in * rank + r] * (double)a[r * in + i % in];
        const double exact = (double)element(before, i) + scale * sum;
        const double found = (double)element(after, i);
        /* The sum is rounded to f32 before it is stored. */
        assert_close(found, exact,
                     half_place(exact, after->dtype) * (1 + 1e-9) + half_place(exact, HOP_F32));
        changed += fabs(found - (double)element(before, i)) > 0;
    }
    assert_true(changed > 0);
}

static bool find_module(const struct fixture *f, const char *name, int32_t *block,
                        enum hop_target *target)
{
    char spelled[HOP_TENSOR_NAME];
    for (*block = 0; *block < f->model.blocks; (*block)++) {
        for (*target = 0; *target < HOP_TARGETS; (*target)++) {
            hop_weight_name(*block, *target, spelled);
            if (strcmp(spelled, name) == 0)
                return hop_lora_rank(&f->lora, *block, *target) > 0;
        }
    }
    return false;
}

/* All tensors of the two folders: what the adapter covers is merged, the rest is the same bytes. */
static size_t check_tensors(const struct fixture *f, const char *output)
{
    struct hop_safetensors *before, *after;
    size_t merged = 0;
    assert_ok(hop_safetensors_open_folder(f->base, &before, &err));
    assert_ok(hop_safetensors_open_folder(output, &after, &err));
    assert_int_equal(hop_safetensors_count(before), hop_safetensors_count(after));
    for (size_t i = 0; i < hop_safetensors_count(before); i++) {
        const struct hop_tensor *const x = hop_safetensors_at(before, i);
        const struct hop_tensor *const y = hop_safetensors_at(after, i);
        int32_t block;
        enum hop_target target;
        assert_string_equal(x->name, y->name);
        assert_string_equal(x->dtype_text, y->dtype_text);
        assert_int_equal(x->bytes, y->bytes);
        if (find_module(f, x->name, &block, &target)) {
            check_module(f, x, y, block, target);
            merged++;
        } else {
            assert_memory_equal(x->data, y->data, x->bytes);
        }
    }
    hop_safetensors_close(before);
    hop_safetensors_close(after);
    return merged;
}

static void test_tensors(void **state)
{
    (void)state;
    for (enum hop_dtype dtype = HOP_F32; dtype < HOP_DTYPE_OTHER; dtype++) {
        for (int k = 0; k < 2; k++) {
            struct fixture f;
            struct hop_merge_result result;
            open_fixture(&f, dtype, k > 0, k ? varied : uniform);
            assert_ok(merge(&f, &result));
            assert_int_equal(result.files, 1);
            assert_int_equal(result.merged, k ? 7 : 21);
            assert_int_equal(check_tensors(&f, f.output), result.merged);
            assert_same_files(f.base, f.output, "config.json");
            assert_same_files(f.base, f.output, "tokenizer.json");
            assert_same_files(f.base, f.output, "generation_config.json");
            assert_false(exists(f.output, "pytorch_model.bin"));
            assert_false(exists(f.output, "adapter_config.json"));
            close_fixture(&f);
        }
    }
}

/* Log-probabilities of a model folder, with the adapter beside it or not, computed in f32. */
static void score(const struct fixture *f, const char *folder, bool adapter,
                  const struct support_batch *b, float *logprob)
{
    struct hop_model_config model;
    struct hop_weights *weights;
    struct support_stage s;
    assert_ok(hop_model_config_load(folder, &model, &err));
    assert_ok(hop_weights_open(folder, &model, &weights, &err));
    struct hop_stage_config config = {.model = model,
                                      .lora = {.rank = 1, .alpha = 1},
                                      .hi = model.blocks,
                                      .embed = true,
                                      .head = true,
                                      .limits = support_limits(b)};
    if (adapter)
        config.lora = f->lora;
    support_stage_open(&s, hop_backend_find("reference"), weights, &config);
    if (adapter)
        assert_ok(hop_adapter_load(f->lora_folder, &f->model, &f->lora,
                                   hop_stage_parameters(s.stage), &err));
    assert_ok(hop_stage_adapters_changed(s.stage, &err));
    assert_ok(hop_stage_forward(s.stage, &b->batch, -1, NULL, NULL, logprob, &err));
    support_stage_close(&s);
    hop_weights_free(weights);
}

/* The merged model answers as model and adapter do; in bf16 and f16 up to the rounding of its
 * weights, which is large beside the difference the adapter makes only in the last digits. */
static void test_logits(void **state)
{
    (void)state;
    static const int32_t lengths[] = {9, 4, 14};
    static const double bounds[] = {[HOP_F32] = 1e-5, [HOP_BF16] = 3e-2, [HOP_F16] = 4e-3};
    static struct support_batch b;
    for (enum hop_dtype dtype = HOP_F32; dtype < HOP_DTYPE_OTHER; dtype++) {
        struct fixture f;
        struct hop_merge_result result;
        float bare[SUPPORT_TOKENS], expected[SUPPORT_TOKENS], found[SUPPORT_TOKENS];
        double moved = 0;
        open_fixture(&f, dtype, dtype == HOP_BF16, dtype == HOP_F16 ? varied : uniform);
        support_batch_random(&b, f.model.vocabulary, lengths, 3);
        assert_ok(merge(&f, &result));
        score(&f, f.base, false, &b, bare);
        score(&f, f.base, true, &b, expected);
        score(&f, f.output, false, &b, found);
        for (int32_t i = 0; i < b.batch.labels; i++) {
            assert_close((double)found[i], (double)expected[i], bounds[dtype]);
            moved = fmax(moved, fabs((double)expected[i] - (double)bare[i]));
        }
        assert_true(moved > 10 * bounds[dtype]);
        close_fixture(&f);
    }
}

/* The same tensors whether in one file or in shards; the index is as Hugging Face writes it. */
static void test_shards(void **state)
{
    (void)state;
    enum { LIMIT = 12000 };
    struct fixture f;
    struct hop_merge_result result;
    struct hop_safetensors *set;
    struct stat info;
    char path[192];
    const char *key, *before = "";
    json_t *value;
    size_t total = 0;
    open_fixture(&f, HOP_F32, false, uniform);
    struct hop_merge plan = plan_of(&f);
    plan.shard_bytes = LIMIT;
    assert_ok(hop_merge(&plan, &result, &err));
    assert_true(result.files > 3);
    check_tensors(&f, f.output);
    assert_false(exists(f.output, "model.safetensors"));
    assert_ok(hop_safetensors_open_folder(f.output, &set, &err));
    assert_int_equal(hop_safetensors_files(set), result.files);
    for (size_t i = 0; i < hop_safetensors_count(set); i++)
        total += hop_safetensors_at(set, i)->bytes;
    hop_safetensors_close(set);
    for (size_t i = 1; i <= result.files; i++) {
        snprintf(path, sizeof path, "%s/model-%05zu-of-%05zu.safetensors", f.output, i,
                 result.files);
        assert_int_equal(stat(path, &info), 0);
        assert_true((size_t)info.st_size < LIMIT + 4096);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", f.output);
    json_t *const index = support_json(path);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(index, "metadata"), "total_size")),
        total);
    json_object_foreach(json_object_get(index, "weight_map"), key, value)
    {
        assert_true(strcmp(before, key) < 0);
        before = key;
    }
    json_decref(index);
    /* Shards merge as well: the output is a model like any other. */
    snprintf(f.base, sizeof f.base, "%s", f.output);
    snprintf(f.output, sizeof f.output, "%s/again", f.root);
    assert_ok(merge(&f, &result));
    assert_int_equal(result.files, 1);
    check_tensors(&f, f.output);
    close_fixture(&f);
}

/* A tensor larger than a shard has a file of its own; one byte less than all makes two. */
static void test_shard_sizes(void **state)
{
    (void)state;
    struct fixture f;
    struct hop_merge_result result;
    struct hop_safetensors *set;
    size_t total = 0;
    open_fixture(&f, HOP_BF16, true, uniform);
    assert_ok(hop_safetensors_open_folder(f.base, &set, &err));
    for (size_t i = 0; i < hop_safetensors_count(set); i++)
        total += hop_safetensors_at(set, i)->bytes;
    const size_t count = hop_safetensors_count(set);
    hop_safetensors_close(set);
    struct hop_merge plan = plan_of(&f);
    const struct {
        size_t bytes, files;
    } cases[] = {{total, 1}, {total - 1, 2}, {1, count}};
    for (size_t i = 0; i < 3; i++) {
        snprintf(f.output, sizeof f.output, "%s/out%zu", f.root, i);
        plan.shard_bytes = cases[i].bytes;
        assert_ok(hop_merge(&plan, &result, &err));
        assert_int_equal(result.files, cases[i].files);
        check_tensors(&f, f.output);
    }
    close_fixture(&f);
}

/* Every floating-point tensor in the dtype asked for, and config.json says so. */
static void test_conversion(void **state)
{
    (void)state;
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    for (enum hop_dtype dtype = HOP_F32; dtype < HOP_DTYPE_OTHER; dtype++) {
        struct fixture f;
        struct hop_merge_result result;
        struct hop_safetensors *before, *after;
        char path[192];
        open_fixture(&f, dtype == HOP_F32 ? HOP_BF16 : HOP_F32, false, uniform);
        struct hop_merge plan = plan_of(&f);
        plan.convert = true;
        plan.dtype = dtype;
        assert_ok(hop_merge(&plan, &result, &err));
        assert_ok(hop_safetensors_open_folder(f.base, &before, &err));
        assert_ok(hop_safetensors_open_folder(f.output, &after, &err));
        for (size_t i = 0; i < hop_safetensors_count(after); i++) {
            const struct hop_tensor *const x = hop_safetensors_at(before, i);
            const struct hop_tensor *const y = hop_safetensors_at(after, i);
            int32_t block;
            enum hop_target target;
            assert_int_equal(y->dtype, x->dtype == HOP_DTYPE_OTHER ? HOP_DTYPE_OTHER : dtype);
            if (x->dtype == HOP_DTYPE_OTHER)
                assert_memory_equal(y->data, x->data, x->bytes);
            else if (find_module(&f, x->name, &block, &target))
                check_module(&f, x, y, block, target);
            else
                for (size_t k = 0; k < x->bytes / hop_dtype_size(x->dtype); k++)
                    assert_close((double)element(y, k), (double)element(x, k),
                                 half_place((double)element(x, k), dtype));
        }
        hop_safetensors_close(before);
        hop_safetensors_close(after);
        snprintf(path, sizeof path, "%s/config.json", f.output);
        json_t *const config = support_json(path);
        assert_string_equal(json_string_value(json_object_get(config, "torch_dtype")),
                            names[dtype]);
        json_decref(config);
        close_fixture(&f);
    }
}

static void test_refused(void **state)
{
    (void)state;
    struct fixture f;
    struct hop_merge_result result;
    char aside[128], path[192];
    open_fixture(&f, HOP_F32, false, uniform);
    snprintf(aside, sizeof aside, "%s.tmp", f.output);
    /* Not empty: the model itself, for example. */
    struct hop_merge plan = plan_of(&f);
    plan.output = f.base;
    assert_fails(hop_merge(&plan, &result, &err), HOP_INPUT, "not empty");
    snprintf(path, sizeof path, "%s/config.json", f.base);
    plan.output = path;
    assert_fails(hop_merge(&plan, &result, &err), HOP_INPUT, "config.json");
    /* Left behind by an interrupted merge. */
    assert_ok(hop_directory_create(aside, &err));
    assert_fails(merge(&f, &result), HOP_INPUT, "merged.tmp");
    assert_int_equal(rmdir(aside), 0);
    /* Numbers f16 does not have: nothing is left. */
    for (size_t i = 0; i < f.adapter.total; i++)
        f.adapter.values[i] *= 5000;
    assert_ok(hop_adapter_save(f.lora_folder, &f.lora, &f.adapter, NULL, &err));
    plan = plan_of(&f);
    plan.convert = true;
    plan.dtype = HOP_F16;
    assert_fails(hop_merge(&plan, &result, &err), HOP_NUMERIC, "_proj.weight");
    assert_false(hop_file_exists(aside) || hop_file_exists(f.output));
    /* An adapter for a model with more blocks. */
    f.model.blocks = 2;
    write_config(&f);
    assert_fails(merge(&f, &result), HOP_INPUT, "layers.2.");
    assert_false(hop_file_exists(aside) || hop_file_exists(f.output));
    f.model.blocks = 4;
    write_config(&f);
    assert_fails(merge(&f, &result), HOP_INPUT, "layers.3.");
    close_fixture(&f);
}

/* An empty folder may be named; with and without a slash behind it. */
static void test_empty_output(void **state)
{
    (void)state;
    struct fixture f;
    struct hop_merge_result result;
    char output[128];
    open_fixture(&f, HOP_F32, true, uniform);
    assert_ok(hop_directory_create(f.output, &err));
    struct hop_merge plan = plan_of(&f);
    snprintf(output, sizeof output, "%s/", f.output);
    plan.output = output;
    assert_ok(hop_merge(&plan, &result, &err));
    check_tensors(&f, f.output);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),      cmocka_unit_test(test_logits),
        cmocka_unit_test(test_shards),       cmocka_unit_test(test_shard_sizes),
        cmocka_unit_test(test_conversion),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_empty_output),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
