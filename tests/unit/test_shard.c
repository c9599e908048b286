/* Tensor-parallel shards against the whole stage. A gang runs in threads of this process; each
 * shard has a backend of its own, as ranks do. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

#include "support_model.h"

#include "base/dtype.h"
#include "base/memory.h"
#include "base/random.h"
#include "model/shard.h"
#include "train/clip.h"

enum { SHARDS = 4 };

static const struct hop_ops *backends[4];
static int backend_count;

/* --- which heads and columns --- */

static struct hop_model_config llama_1b(void)
{
    struct hop_model_config model = support_tiny_config();
    model.hidden = 2048;
    model.intermediate = 8192;
    model.heads = 32;
    model.kv_heads = 8;
    model.head_dim = 64;
    return model;
}

static void assert_range(struct hop_range range, int32_t lo, int32_t hi)
{
    assert_int_equal(range.lo, lo);
    assert_int_equal(range.hi, hi);
}

static void test_quanta(void **state)
{
    (void)state;
    struct hop_model_config model = llama_1b();
    struct hop_shard shard = {.lo = 0.3, .hi = 0.8};
    assert_range(hop_shard_heads(&model, &shard), 8, 24);
    assert_range(hop_shard_kv_heads(&model, &shard), 2, 6);
    assert_range(hop_shard_columns(&model, &shard), 38 * 64, 102 * 64);
    shard.cuts_groups = true;
    assert_range(hop_shard_heads(&model, &shard), 10, 26);
    assert_range(hop_shard_kv_heads(&model, &shard), 2, 7);
    model.intermediate = 172;
    assert_range(hop_shard_columns(&model, &shard), 52, 138);
    assert_true(hop_shard_gets_group(&model, 0.5, 0.625));
    assert_false(hop_shard_gets_group(&model, 0.5, 0.55));
    const struct hop_shard whole = {0}, all = {.hi = 1};
    assert_true(hop_shard_is_whole(&whole) && hop_shard_is_whole(&all));
    assert_range(hop_shard_heads(&model, &whole), 0, 32);
    assert_range(hop_shard_columns(&model, &whole), 0, 172);
}

/* Every cut of [0, 1) in two places, in hundredths: ranges meet and the sizes add up. */
static void check_tiles(const struct hop_model_config *model, bool cuts_groups)
{
    for (int a = 1; a < 99; a += 3) {
        for (int b = a + 1; b < 100; b += 7) {
            const double cut[] = {0, a / 100.0, b / 100.0, 1};
            int32_t head = 0, kv_head = 0, column = 0;
            for (int s = 0; s < 3; s++) {
                const struct hop_shard shard = {cut[s], cut[s + 1], cuts_groups};
                const struct hop_range heads = hop_shard_heads(model, &shard);
                const struct hop_range kv_heads = hop_shard_kv_heads(model, &shard);
                const struct hop_range columns = hop_shard_columns(model, &shard);
                assert_int_equal(heads.lo, head);
                assert_int_equal(columns.lo, column);
                assert_true(cuts_groups ? kv_heads.lo <= kv_head : kv_heads.lo == kv_head);
                head = heads.hi;
                kv_head = kv_heads.hi;
                column = columns.hi;
            }
            assert_int_equal(head, model->heads);
            assert_int_equal(kv_head, model->kv_heads);
            assert_int_equal(column, model->intermediate);
        }
    }
}

static void test_tiles(void **state)
{
    (void)state;
    struct hop_model_config model = llama_1b();
    for (int cuts = 0; cuts < 2; cuts++) {
        check_tiles(&model, cuts);
        model.intermediate = 8191;
        check_tiles(&model, cuts);
        model.intermediate = 45;
        model.heads = 6;
        model.kv_heads = 3;
        check_tiles(&model, cuts);
    }
}

/* --- a gang --- */

struct gang {
    int count;
    pthread_barrier_t barrier;
    void *values[SHARDS];
    double *sum;
    size_t room;
};

struct member {
    struct gang *gang;
    int index;
    struct hop_shard shard;
    struct support_stage s;
    /* of a run */
    const struct hop_batch *batch;
    const float *input, *doutput;
    bool decodes;
    float output[SUPPORT_TOKENS * 64], dinput[SUPPORT_TOKENS * 64]; /* room for either dtype */
    float logprob[SUPPORT_TOKENS];
    size_t exchanges, exchanged;
    hop_status status;
    struct hop_error err;
};

static float read_element(const void *values, enum hop_dtype dtype, size_t i)
{
    float value;
    hop_convert(&value, HOP_F32, (const char *)values + i * hop_dtype_size(dtype), dtype, 1);
    return value;
}

static void add_up(struct gang *gang, size_t count, enum hop_dtype dtype)
{
    for (size_t i = 0; i < count; i++) {
        gang->sum[i] = 0;
        for (int s = 0; s < gang->count; s++)
            gang->sum[i] += (double)read_element(gang->values[s], dtype, i);
    }
}

static hop_status reduce(void *context, void *values, size_t count, enum hop_dtype dtype,
                         struct hop_error *err)
{
    struct member *const member = context;
    struct gang *const gang = member->gang;
    member->exchanges++;
    member->exchanged += count;
    if (count > gang->room)
        return hop_fail(err, HOP_INTERNAL, "%zu elements", count);
    gang->values[member->index] = values;
    pthread_barrier_wait(&gang->barrier);
    if (member->index == 0)
        add_up(gang, count, dtype);
    pthread_barrier_wait(&gang->barrier);
    for (size_t i = 0; i < count; i++) {
        const float sum = (float)gang->sum[i];
        hop_convert((char *)values + i * hop_dtype_size(dtype), dtype, &sum, HOP_F32, 1);
    }
    pthread_barrier_wait(&gang->barrier);
    return HOP_OK;
}

static hop_status run_member(struct member *m)
{
    const struct hop_batch *const batch = m->batch;
    struct hop_error *const err = &m->err;
    if (m->decodes) {
        HOP_TRY(hop_stage_decode(m->s.stage, batch->ids, 5, 0, m->logprob, err));
        return hop_stage_decode(m->s.stage, batch->ids + 5, 3, 5, m->logprob, err);
    }
    hop_parameters_zero_gradients(hop_stage_parameters(m->s.stage));
    HOP_TRY(hop_stage_forward(m->s.stage, batch, 0, m->input, m->output, m->logprob, err));
    /* Not every shard passes the gradient of the input on. */
    return hop_stage_backward(m->s.stage, batch, 0, m->doutput, m->index % 2 ? NULL : m->dinput,
                              err);
}

static void *member_thread(void *argument)
{
    struct member *const member = argument;
    member->status = run_member(member);
    return NULL;
}

static void run_gang(struct member *members, struct gang *gang)
{
    pthread_t threads[SHARDS];
    for (int s = 0; s < gang->count; s++)
        assert_int_equal(pthread_create(&threads[s], NULL, member_thread, &members[s]), 0);
    for (int s = 0; s < gang->count; s++)
        pthread_join(threads[s], NULL);
    for (int s = 0; s < gang->count; s++)
        if (members[s].status != HOP_OK)
            fail_msg("shard %d: %s", s, members[s].err.message);
}

/* --- one model, cut in several ways --- */

struct model {
    struct hop_model_config config;
    struct hop_weights *weights;
    struct support_batch b;
};

static void model_open(struct model *m, const struct hop_model_config *config, bool biased)
{
    struct hop_error err = {0};
    static const int32_t lengths[] = {9, 4, 14};
    m->config = *config;
    m->config.attention_bias = m->config.mlp_bias = biased;
    assert_ok(hop_weights_random(&m->config, 11, HOP_F32, &m->weights, &err));
    support_batch_random(&m->b, m->config.vocabulary, lengths, 3);
}

static struct hop_model_config heads_and_columns(int32_t heads, int32_t kv_heads, int32_t columns)
{
    struct hop_model_config config = support_tiny_config();
    config.heads = heads;
    config.kv_heads = kv_heads;
    config.intermediate = columns;
    config.blocks = 2;
    return config;
}

struct cut {
    int count;
    double ends[SHARDS]; /* of the shares */
};

struct scene {
    const struct model *model;
    const struct hop_ops *ops;
    struct hop_stage_config config;
    struct gang gang;
    struct member *members; /* (SHARDS + 1), the last one whole */
    float *input, *doutput; /* (tokens, hidden) in the dtype of computation */
};

static bool cuts_groups(const struct hop_model_config *model, const struct cut *cut)
{
    for (int s = 0; s < cut->count; s++)
        if (!hop_shard_gets_group(model, s ? cut->ends[s - 1] : 0, cut->ends[s]))
            return true;
    return false;
}

static void open_member(struct scene *scene, int index, const struct hop_shard *shard)
{
    struct member *const member = &scene->members[index];
    struct hop_stage_config config = scene->config;
    *member = (struct member){.gang = &scene->gang,
                              .index = index,
                              .shard = *shard,
                              .batch = &scene->model->b.batch,
                              .input = scene->input,
                              .doutput = scene->doutput};
    config.shard = *shard;
    config.exchange = (struct hop_exchange){.reduce = reduce, .context = member};
    support_stage_open(&member->s, scene->ops, scene->model->weights, &config);
}

/* Gives the shard its slices of the whole stage's adapters. */
static void copy_adapters(struct scene *scene, struct member *member)
{
    struct hop_error err = {0};
    const struct hop_parameters *const whole = hop_stage_parameters(scene->members[SHARDS].s.stage);
    struct hop_parameters *const own = hop_stage_parameters(member->s.stage);
    const size_t n = hop_shard_take(&scene->model->config, &member->shard, whole, scene->config.lo,
                                    scene->config.hi, whole->values, own->values);
    assert_int_equal(n, own->total);
    assert_ok(hop_stage_adapters_changed(member->s.stage, &err));
}

static void *random_states(const struct scene *scene, uint64_t seed)
{
    const size_t n = (size_t)scene->model->b.batch.tokens * (size_t)scene->config.model.hidden;
    const struct hop_random_key key = {.seed = seed, .domain = HOP_RANDOM_INIT};
    float *const values = malloc(n * sizeof *values);
    void *const out = calloc(n, sizeof *values);
    assert_non_null(values);
    assert_non_null(out);
    hop_random_normal(&key, 0, n, values);
    hop_convert(out, scene->config.dtype, values, HOP_F32, n);
    free(values);
    return out;
}

static void scene_open(struct scene *scene, const struct model *model, const struct hop_ops *ops,
                       const struct hop_stage_config *config, const struct cut *cut)
{
    *scene = (struct scene){.model = model, .ops = ops, .config = *config};
    scene->gang.count = cut->count;
    scene->gang.room = (size_t)model->b.batch.tokens * (size_t)config->model.hidden;
    scene->gang.sum = calloc(scene->gang.room, sizeof *scene->gang.sum);
    scene->members = calloc(SHARDS + 1, sizeof *scene->members);
    assert_non_null(scene->gang.sum);
    assert_non_null(scene->members);
    pthread_barrier_init(&scene->gang.barrier, NULL, (unsigned)cut->count);
    scene->input = random_states(scene, 5);
    scene->doutput = random_states(scene, 6);
    open_member(scene, SHARDS, &(struct hop_shard){0});
    support_random_adapters(&scene->members[SHARDS].s, 3, 0.3f);
    for (int s = 0; s < cut->count; s++) {
        const struct hop_shard shard = {.lo = s ? cut->ends[s - 1] : 0,
                                        .hi = cut->ends[s],
                                        .cuts_groups = cuts_groups(&model->config, cut)};
        open_member(scene, s, &shard);
        copy_adapters(scene, &scene->members[s]);
    }
}

static void scene_close(struct scene *scene)
{
    for (int s = 0; s < scene->gang.count; s++)
        support_stage_close(&scene->members[s].s);
    support_stage_close(&scene->members[SHARDS].s);
    pthread_barrier_destroy(&scene->gang.barrier);
    free(scene->gang.sum);
    free(scene->members);
    free(scene->input);
    free(scene->doutput);
}

static void run_all(struct scene *scene, bool decodes)
{
    for (int s = 0; s <= SHARDS; s++)
        scene->members[s].decodes = decodes;
    run_gang(scene->members, &scene->gang);
    struct member *const whole = &scene->members[SHARDS];
    if (run_member(whole) != HOP_OK)
        fail_msg("whole stage: %s", whole->err.message);
    assert_int_equal(whole->exchanges, 0);
}

static double states_error(const struct scene *scene, const void *a, const void *b)
{
    const size_t n = scene->gang.room;
    float *const wide = malloc(2 * n * sizeof *wide);
    assert_non_null(wide);
    hop_convert(wide, HOP_F32, a, scene->config.dtype, n);
    hop_convert(wide + n, HOP_F32, b, scene->config.dtype, n);
    const double error = support_error(wide, wide + n, n);
    free(wide);
    return error;
}

static void compare_states(const struct scene *scene, double bound)
{
    const struct member *const whole = &scene->members[SHARDS], *const first = scene->members;
    const size_t bytes = scene->gang.room * hop_dtype_size(scene->config.dtype);
    const size_t labels = (size_t)scene->model->b.batch.labels;
    for (int s = 0; s < scene->gang.count; s++) {
        const struct member *const m = &scene->members[s];
        if (scene->config.head) {
            assert_true(support_error(m->logprob, whole->logprob, labels) < bound);
            assert_memory_equal(m->logprob, first->logprob, labels * sizeof(float));
        } else {
            assert_true(states_error(scene, m->output, whole->output) < bound);
            assert_memory_equal(m->output, first->output, bytes);
        }
        if (!scene->config.embed && s % 2 == 0) {
            assert_true(states_error(scene, m->dinput, whole->dinput) < bound);
            assert_memory_equal(m->dinput, first->dinput, bytes);
        }
    }
}

/* Slices and partial sums, put where they belong, add up to the whole gradient. */
static void compare_gradients(const struct scene *scene, double bound)
{
    const struct hop_parameters *const whole = hop_stage_parameters(scene->members[SHARDS].s.stage);
    float *const placed = calloc(whole->total, sizeof *placed);
    float *const sum = calloc(whole->total, sizeof *sum);
    assert_non_null(placed);
    assert_non_null(sum);
    for (int s = 0; s < scene->gang.count; s++) {
        const struct member *const m = &scene->members[s];
        memset(placed, 0, whole->total * sizeof *placed);
        hop_shard_put(&scene->model->config, &m->shard, whole, scene->config.lo, scene->config.hi,
                      hop_stage_parameters(m->s.stage)->gradients, placed);
        for (size_t i = 0; i < whole->total; i++)
            sum[i] += placed[i];
    }
    for (size_t i = 0; i < whole->count; i++) {
        const struct hop_parameter *const item = &whole->items[i];
        const double error =
            support_error(sum + item->offset, whole->gradients + item->offset, item->count);
        char name[HOP_TENSOR_NAME];
        hop_parameter_name(item, name, sizeof name);
        if (!(error < bound))
            fail_msg("%s: gradient is off by %g", name, error);
    }
    free(placed);
    free(sum);
}

/* Adds up the shared factors' gradients as the runtime does; then every shard has the whole sum of
 * what it holds, and the rows they speak for have the norm of the whole gradient. */
static void add_shared(const struct scene *scene)
{
    const struct hop_model_config *const model = &scene->model->config;
    const struct hop_shard_sum sum = {
        .lo = scene->config.lo,
        .hi = scene->config.hi,
        .shared = true,
        .piece = {.cuts_groups = scene->members[0].shard.cuts_groups}};
    const size_t n =
        hop_shard_sum_count(model, &sum, hop_stage_parameters(scene->members->s.stage));
    float *const one = calloc(n, sizeof *one), *const all = calloc(n, sizeof *all);
    assert_non_null(one);
    assert_non_null(all);
    for (int s = 0; s < scene->gang.count; s++) {
        const struct member *const m = &scene->members[s];
        const struct hop_parameters *const own = hop_stage_parameters(m->s.stage);
        assert_int_equal(hop_shard_sum_count(model, &sum, own), n);
        hop_shard_sum_take(model, &m->shard, &sum, own, own->gradients, one);
        for (size_t i = 0; i < n; i++)
            all[i] += one[i];
    }
    for (int s = 0; s < scene->gang.count; s++) {
        const struct member *const m = &scene->members[s];
        struct hop_parameters *const own = hop_stage_parameters(m->s.stage);
        hop_shard_sum_put(model, &m->shard, &sum, own, all, own->gradients);
    }
    free(one);
    free(all);
}

static double own_squares(const struct scene *scene, const struct member *m)
{
    const struct hop_parameters *const own = hop_stage_parameters(m->s.stage);
    double squares = 0;
    for (size_t i = 0; i < own->count; i++) {
        const struct hop_parameter *const item = &own->items[i];
        const int32_t rank = (int32_t)(item->factor == HOP_LORA_A ? item->rows : item->columns);
        const struct hop_range rows =
            hop_shard_own_rows(&scene->model->config, &m->shard, item->target, item->factor, rank);
        assert_true(rows.lo >= 0 && rows.hi <= item->rows);
        squares +=
            hop_sum_of_squares(own->gradients + item->offset + (int64_t)rows.lo * item->columns,
                               (size_t)((rows.hi - rows.lo) * item->columns));
    }
    return squares;
}

static void compare_summed(const struct scene *scene, double bound)
{
    const struct hop_parameters *const whole = hop_stage_parameters(scene->members[SHARDS].s.stage);
    float *const expected = calloc(whole->total, sizeof *expected);
    double squares = 0;
    assert_non_null(expected);
    add_shared(scene);
    for (int s = 0; s < scene->gang.count; s++) {
        const struct member *const m = &scene->members[s];
        const struct hop_parameters *const own = hop_stage_parameters(m->s.stage);
        hop_shard_take(&scene->model->config, &m->shard, whole, scene->config.lo, scene->config.hi,
                       whole->gradients, expected);
        assert_true(support_error(own->gradients, expected, own->total) < bound);
        squares += own_squares(scene, m);
    }
    assert_close(squares / hop_sum_of_squares(whole->gradients, whole->total), 1, bound);
    free(expected);
}

/* Weights that every shard has: norms, embedding and head. */
static size_t common_weights(const struct hop_stage_config *config)
{
    const size_t norm = hop_align((size_t)config->model.hidden * sizeof(float));
    const size_t table = (size_t)hop_model_embed_parameters(&config->model) * sizeof(float);
    const size_t blocks = (size_t)(config->hi - config->lo);
    return blocks * HOP_BLOCK_NORMS * norm + (config->head ? table + norm : 0) +
           (config->embed ? table : 0);
}

/* Without biases and with whole groups, nothing else is held twice. */
static void compare_bytes(const struct scene *scene)
{
    const struct hop_stage_config *const config = &scene->config;
    const struct hop_stage_bytes whole = hop_stage_bytes(config);
    const size_t shards = (size_t)scene->gang.count;
    size_t weights = 0;
    for (size_t s = 0; s < shards; s++) {
        struct hop_stage_config own = *config;
        own.shard = scene->members[s].shard;
        const struct hop_stage_bytes bytes = hop_stage_bytes(&own);
        const size_t adapters = hop_stage_parameters(scene->members[s].s.stage)->total;
        assert_int_equal(bytes.parameters, 2 * adapters * sizeof(float));
        assert_true(bytes.weights < whole.weights);
        assert_true(bytes.kept < whole.kept);
        weights += bytes.weights;
    }
    if (!scene->members[0].shard.cuts_groups && !config->model.attention_bias &&
        config->dtype == HOP_F32)
        assert_int_equal(weights, whole.weights + (shards - 1) * common_weights(config));
}

static struct hop_stage_config stage_config(const struct model *model, bool ends)
{
    return (struct hop_stage_config){.model = model->config,
                                     .lora = support_all_targets(3, 6),
                                     .dtype = HOP_F32,
                                     .lo = ends ? 0 : 1,
                                     .hi = 2,
                                     .embed = ends,
                                     .head = ends,
                                     .gradient = HOP_GRADIENT_BACKPROP,
                                     .limits = support_limits(&model->b),
                                     .slots = 1};
}

static void check_scene(const struct model *model, const struct hop_ops *ops,
                        const struct hop_stage_config *config, const struct cut *cut, double bound)
{
    struct scene scene;
    scene_open(&scene, model, ops, config, cut);
    run_all(&scene, false);
    compare_states(&scene, bound);
    compare_gradients(&scene, bound);
    compare_summed(&scene, bound);
    compare_bytes(&scene);
    /* Twice a block in forward; backward's first block stops where nobody wants the gradient. */
    const size_t blocks = (size_t)(config->hi - config->lo);
    assert_int_equal(scene.members[0].exchanges, 4 * blocks - (config->embed ? 1 : 0));
    scene_close(&scene);
}

static const struct cut cuts[] = {
    {2, {0.5, 1}},          {2, {0.7, 1}},       {3, {1 / 3.0, 2 / 3.0, 1}},
    {3, {0.5, 5 / 6.0, 1}}, {3, {0.2, 0.85, 1}},
};
enum { CUTS = sizeof cuts / sizeof *cuts };

static void check_cuts(const struct hop_model_config *config, bool biased)
{
    static struct model m;
    model_open(&m, config, biased);
    for (int i = 0; i < backend_count; i++) {
        for (int c = 0; c < CUTS; c++) {
            for (int ends = 0; ends < 2; ends++) {
                struct hop_stage_config stage = stage_config(&m, ends);
                check_scene(&m, backends[i], &stage, &cuts[c], 1e-5);
                for (int target = 0; target < HOP_TARGETS; target++)
                    stage.lora.targets[target] = target == HOP_Q_PROJ || target == HOP_V_PROJ;
                check_scene(&m, backends[i], &stage, &cuts[c], 1e-5);
            }
        }
    }
    hop_weights_free(m.weights);
}

static void test_whole_groups(void **state)
{
    (void)state;
    const struct hop_model_config config = heads_and_columns(6, 3, 44);
    check_cuts(&config, false);
}

/* Three shards of two key/value heads: some are held twice. */
static void test_cut_groups(void **state)
{
    (void)state;
    const struct hop_model_config config = heads_and_columns(8, 2, 131);
    check_cuts(&config, false);
}

static void test_biases(void **state)
{
    (void)state;
    const struct hop_model_config config = heads_and_columns(4, 4, 45);
    check_cuts(&config, true);
}

/* Blocks of different ranks, some without an adapter. */
static void test_uneven_adapters(void **state)
{
    (void)state;
    static struct model m;
    const struct hop_model_config config = heads_and_columns(6, 3, 44);
    model_open(&m, &config, false);
    struct hop_stage_config stage = stage_config(&m, true);
    stage.lora.blocks = 2;
    for (int target = 0; target < HOP_TARGETS; target++) {
        stage.lora.ranks[0][target] = (uint16_t)(target % 3);
        stage.lora.ranks[1][target] = (uint16_t)(1 + target % 4);
        stage.lora.alphas[0][target] = stage.lora.alphas[1][target] = 4;
    }
    for (int c = 0; c < CUTS; c++)
        check_scene(&m, backends[0], &stage, &cuts[c], 1e-5);
    hop_weights_free(m.weights);
}

/* bf16 rounds partial sums; memory that the host does not see is copied to be added up. */
static void test_other_memory(void **state)
{
    (void)state;
    static struct model m;
    const struct hop_model_config config = heads_and_columns(8, 2, 44);
    struct hop_ops device = *hop_backend_find("reference");
    device.host_memory = false;
    model_open(&m, &config, true);
    for (int c = 0; c < CUTS; c++) {
        struct hop_stage_config stage = stage_config(&m, false);
        check_scene(&m, &device, &stage, &cuts[c], 1e-5);
        stage.dtype = HOP_BF16;
        for (int i = 0; i < backend_count; i++)
            check_scene(&m, backends[i], &stage, &cuts[c], 2e-2);
    }
    hop_weights_free(m.weights);
}

static void test_decode(void **state)
{
    (void)state;
    static struct model m;
    const struct hop_model_config config = heads_and_columns(8, 2, 44);
    model_open(&m, &config, false);
    for (int c = 0; c < CUTS; c++) {
        struct scene scene;
        struct hop_stage_config stage = stage_config(&m, true);
        stage.cache = 16;
        scene_open(&scene, &m, backends[0], &stage, &cuts[c]);
        run_all(&scene, true);
        const size_t words = (size_t)config.vocabulary;
        for (int s = 0; s < scene.gang.count; s++)
            assert_true(support_error(scene.members[s].logprob, scene.members[SHARDS].logprob,
                                      words) < 1e-5);
        scene_close(&scene);
    }
    hop_weights_free(m.weights);
}

/* A piece of split factors, as replicas cut in other places add them up: the sums of all pieces and
 * the shared ones are every number once. */
static void test_pieces(void **state)
{
    (void)state;
    static const double ends[] = {0, 0.25, 0.5, 0.75, 1};
    struct hop_error err = {0};
    const struct hop_model_config model = heads_and_columns(8, 4, 40);
    const struct hop_lora_config lora = support_all_targets(2, 4);
    struct hop_parameters whole;
    float numbers[4096], back[4096];
    assert_ok(hop_parameters_create(&model, &lora, 0, 2, &whole, &err));
    assert_true(whole.total <= 4096);
    for (size_t i = 0; i < whole.total; i++)
        whole.values[i] = (float)(i + 1);
    memset(back, 0, sizeof back);
    size_t total = 0;
    for (int i = 0; i < 5; i++) {
        const struct hop_shard whole_shard = {0};
        struct hop_shard_sum sum = {.lo = 0, .hi = 2, .shared = i == 4};
        if (i < 4)
            sum.piece = (struct hop_shard){.lo = ends[i], .hi = ends[i + 1]};
        total += hop_shard_sum_count(&model, &sum, &whole);
        hop_shard_sum_take(&model, &whole_shard, &sum, &whole, whole.values, numbers);
        hop_shard_sum_put(&model, &whole_shard, &sum, &whole, numbers, back);
    }
    assert_int_equal(total, whole.total);
    assert_memory_equal(back, whole.values, whole.total * sizeof(float));
    hop_parameters_free(&whole);
}

static hop_status refused(const struct model *m, const struct hop_stage_config *config,
                          struct hop_error *err)
{
    struct hop_backend *backend;
    struct hop_stage *stage = NULL;
    assert_int_equal(backends[0]->open(1, &backend, err), HOP_OK);
    const hop_status status =
        hop_stage_create(backends[0], backend, m->weights, config, &stage, err);
    assert_null(stage);
    backends[0]->close(backend);
    return status;
}

static void test_refusals(void **state)
{
    (void)state;
    static struct model m;
    struct hop_error err = {0};
    struct member member;
    const struct hop_model_config config = heads_and_columns(8, 2, 44);
    model_open(&m, &config, false);
    struct hop_stage_config stage = stage_config(&m, true);
    stage.exchange = (struct hop_exchange){.reduce = reduce, .context = &member};
    stage.shard = (struct hop_shard){.lo = 0, .hi = 0.5};
    stage.probes = 2;
    assert_fails(refused(&m, &stage, &err), HOP_UNSUPPORTED, "run no zeroth-order probes");
    stage.probes = 0;
    stage.shard = (struct hop_shard){.lo = 0.5, .hi = 0.6};
    assert_fails(refused(&m, &stage, &err), HOP_UNSUPPORTED, "0 of 8 query heads");
    stage.shard.cuts_groups = true;
    stage.shard.hi = 0.505;
    assert_fails(refused(&m, &stage, &err), HOP_UNSUPPORTED, "0 of 44 feed-forward columns");
    stage.shard.hi = 1;
    stage.exchange.reduce = NULL;
    assert_fails(refused(&m, &stage, &err), HOP_INTERNAL, "without an exchange");
    hop_weights_free(m.weights);
}

int main(void)
{
    for (; hop_backends[backend_count]; backend_count++)
        backends[backend_count] = hop_backends[backend_count];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quanta),       cmocka_unit_test(test_tiles),
        cmocka_unit_test(test_whole_groups), cmocka_unit_test(test_cut_groups),
        cmocka_unit_test(test_biases),       cmocka_unit_test(test_uneven_adapters),
        cmocka_unit_test(test_other_memory), cmocka_unit_test(test_decode),
        cmocka_unit_test(test_pieces),       cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
