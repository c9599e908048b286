/* The cost model against the published accounting of the LLaMA models, against the size table of
 * the stages for every split, and as a function: what grows with what. */
#include "support_files.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "cluster/cost_model.h"
#include "model/stage.h"

static struct hop_error err;

static struct hop_model_config llama(int32_t hidden, int32_t blocks, int32_t heads,
                                     int32_t head_dim, int32_t intermediate, bool tied)
{
    return (struct hop_model_config){.hidden = hidden,
                                     .intermediate = intermediate,
                                     .blocks = blocks,
                                     .heads = heads,
                                     .kv_heads = 8,
                                     .head_dim = head_dim,
                                     .vocabulary = 128256,
                                     .max_positions = 131072,
                                     .tied = tied};
}

static struct hop_model_config model_1b(void)
{
    return llama(2048, 16, 32, 64, 8192, true);
}

static struct hop_model_config model_3b(void)
{
    return llama(3072, 28, 24, 128, 8192, true);
}

static struct hop_model_config model_8b(void)
{
    return llama(4096, 32, 32, 128, 14336, false);
}

static struct hop_lora_config on_q_v(int32_t rank)
{
    struct hop_lora_config lora = {.rank = rank, .alpha = 16};
    lora.targets[HOP_Q_PROJ] = lora.targets[HOP_V_PROJ] = true;
    return lora;
}

static struct hop_lora_config on_all(int32_t rank)
{
    struct hop_lora_config lora = {.rank = rank, .alpha = 16};
    for (int target = 0; target < HOP_TARGETS; target++)
        lora.targets[target] = true;
    return lora;
}

/* One sample of `tokens` tokens, the head at every position, in 16 bit. */
static struct hop_workload one_sample(struct hop_model_config model, int32_t tokens)
{
    return (struct hop_workload){
        .model = model,
        .lora = on_q_v(8),
        .dtype = HOP_BF16,
        .samples = 1,
        .tokens = tokens,
        .labels = tokens,
        .limits = {.sequences = 1, .tokens = tokens, .labels = tokens},
        .probe_batch = 1,
        .window = 4,
    };
}

static struct hop_device device(char *name, bool bp)
{
    return (struct hop_device){.name = name,
                               .bp = bp,
                               .rate = 5,
                               .backward_ratio = bp ? 1.02 : 12,
                               .probe_ratio = 1,
                               .idle_watts = NAN,
                               .busy_watts = NAN};
}

static struct hop_cost_table price(const struct hop_workload *workload, struct hop_device *devices,
                                   size_t count)
{
    struct hop_cost_table cost;
    const struct hop_cluster cluster = {.devices = devices, .count = count};
    ASSERT_OK(hop_cost_from_model(workload, &cluster, &cost, &err));
    return cost;
}

static struct hop_cost_table price_one(const struct hop_workload *workload, struct hop_device one)
{
    return price(workload, &one, 1);
}

static void assert_relative(double found, double expected, double tolerance)
{
    ASSERT_NEAR(found / expected, 1, tolerance);
}

/* Figures as published; the operations have as many digits as their precision says. */
static const struct published {
    struct hop_model_config (*model)(void);
    int32_t tokens;
    double block_gflop, precision, model_tflop, boundary_mb, kept_mb;
} published[] = {
    {model_1b, 384, 47, 0.5, 0.96, 1.573, 28},     {model_1b, 1024, 129, 0.5, 2.60, 4.194, 74},
    {model_3b, 384, 78.2, 0.05, 2.49, 2.359, 32},  {model_3b, 1024, 212.6, 0.05, 6.76, 6.291, 86},
    {model_8b, 384, 168.7, 0.05, 5.80, 3.146, 50}, {model_8b, 1024, 455.3, 0.05, 15.64, 8.389, 134},
};

static void test_published_sizes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        const struct published *const p = &published[i];
        struct hop_workload w = one_sample(p->model(), p->tokens);
        w.lora = on_q_v(0);
        const double block = hop_block_operations(&w);
        ASSERT_NEAR(block / 1e9, p->block_gflop, p->precision);
        ASSERT_NEAR((w.model.blocks * block + hop_head_operations(&w)) / 1e12, p->model_tflop,
                    0.0051);
        w.lora = on_q_v(8);
        struct hop_cost_table c = price_one(&w, device("gpu0", true));
        for (int32_t b = 0; b + 1 < c.blocks; b++)
            ASSERT_NEAR(c.boundary_bytes[b] / 1e6, p->boundary_mb, 0.0006);
        /* The published figure keeps both norms' outputs and the product of gate and up, which
         * this backward computes again: 5 h + 2 kv + 3 ffn against 4 h + 2 kv + 2 ffn. */
        const double hidden = w.model.hidden, kv = 8 * w.model.head_dim;
        const double ffn = w.model.intermediate;
        const double less = (4 * hidden + 2 * kv + 2 * ffn) / (5 * hidden + 2 * kv + 3 * ffn);
        assert_relative(c.devices[0].activation_bytes[0] / 1e6, less * p->kept_mb, 0.03);
        hop_cost_free(&c);
    }
}

static void test_lora_operations(void **state)
{
    (void)state;
    struct hop_workload w = one_sample(model_3b(), 384);
    w.lora = on_q_v(0);
    const double plain = hop_block_operations(&w);
    w.lora = on_q_v(8);
    ASSERT_NEAR(hop_block_operations(&w) - plain, 2.0 * 384 * 81920, 64);
    w.lora = on_all(8);
    ASSERT_NEAR(hop_block_operations(&w) - plain, 2.0 * 384 * 434176, 64);
    w.samples = 5;
    ASSERT_NEAR(hop_block_operations(&w), 5 * (plain + 2.0 * 384 * 434176), 1024);
}

static const struct {
    struct hop_model_config (*model)(void);
    double block_millions, block_mb, table_mb, head_in_blocks, q_v, all;
} accounting[] = {
    {model_1b, 60.8, 121.6, 525.3, 4.3, 53248, 352256},
    {model_3b, 100.7, 201.3, 788.0, 3.9, 81920, 434176},
    {model_8b, 218.1, 436.2, 1050.7, 2.4, 106496, 655360},
};

static void test_accounting(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accounting / sizeof *accounting; i++) {
        struct hop_workload w = one_sample(accounting[i].model(), 384);
        ASSERT_NEAR((double)hop_model_block_parameters(&w.model) / 1e6,
                    accounting[i].block_millions, 0.06);
        w.lora = on_q_v(0);
        ASSERT_NEAR(hop_head_operations(&w) / hop_block_operations(&w),
                    accounting[i].head_in_blocks, 0.05);
        for (int all = 0; all < 2; all++) {
            w.lora = all ? on_all(8) : on_q_v(8);
            const double parameters = all ? accounting[i].all : accounting[i].q_v;
            struct hop_cost_table c = price_one(&w, device("gpu0", true));
            const double *const bytes = c.devices[0].state_bytes;
            assert_true(c.gradient_bytes[0] == 4 * parameters);
            /* Values, gradients and two moments in f32; the norms' gains are f32 too. */
            ASSERT_NEAR((bytes[1] - 16 * parameters) / 1e6, accounting[i].block_mb, 0.1);
            ASSERT_NEAR(c.tied_bytes / 1e6, w.model.tied ? accounting[i].table_mb : 0, 0.06);
            hop_cost_free(&c);
        }
    }
}

/* What the runtime allocates for a part, its two moments and its message buffers included. probes:
 * passes at once, or 0. */
static double allocated(const struct hop_workload *w, bool bp, int32_t probes, int32_t lo,
                        int32_t hi, int32_t in_flight)
{
    const bool keeps = bp || w->front == HOP_FRONT_TANGENTS || w->front == HOP_FRONT_FEEDBACK;
    struct hop_stage_config config = {
        .model = w->model,
        .lora = w->lora,
        .dtype = w->dtype,
        .lo = lo,
        .hi = hi,
        .embed = lo == 0,
        .head = hi == w->model.blocks,
        .gradient = bp ? HOP_GRADIENT_BACKPROP : HOP_GRADIENT_ZEROTH_ORDER,
        .limits = w->limits,
        .slots = in_flight,
        .probes = probes,
        .per_sample = !bp && w->per_sample,
        .tangents = !bp && w->front == HOP_FRONT_TANGENTS,
    };
    if (!bp)
        config.lora.core_hi = w->model.blocks;
    if (config.lora.core_hi == 0)
        config.lora.core = 0;
    const struct hop_stage_bytes b = hop_stage_bytes(&config);
    const size_t parameters = (size_t)hop_lora_parameters(&w->model, &config.lora, lo, hi);
    const size_t tensor =
        (size_t)w->limits.tokens * (size_t)w->model.hidden * hop_dtype_size(w->dtype);
    const size_t neighbours = (size_t)!config.embed + (size_t)!config.head;
    const size_t ring = (keeps ? 2 : 1) * hop_align(tensor) + hop_align((size_t)probes * tensor);
    return (double)(b.weights + b.parameters + (size_t)in_flight * b.kept + b.scratch +
                    2 * hop_align(parameters * sizeof(float)) +
                    neighbours * (size_t)w->window * ring);
}

static struct hop_workload small(uint32_t variant)
{
    struct hop_workload w = {
        .model = {.hidden = 136,
                  .intermediate = 300,
                  .blocks = 5,
                  .heads = 8,
                  .kv_heads = 4,
                  .head_dim = 18,
                  .vocabulary = 1009,
                  .max_positions = 512},
        .samples = 3,
        .tokens = 7,
        .labels = 2,
        .limits = {.sequences = 3, .tokens = 23, .labels = 9},
        .probe_batch = 3,
        .window = 2,
    };
    w.model.tied = variant & 1;
    w.dtype = variant & 2 ? HOP_BF16 : HOP_F32;
    w.lora = variant & 4 ? on_all(5) : on_q_v(3);
    if (variant & 8) {
        w.probe_batch = 1;
        w.window = 4;
        w.limits.tokens = 31;
    }
    if (variant & 16)
        w.model.blocks = 1;
    return w;
}

/* Every array may be padded to 64 bytes: two moments, and a block's perturbed adapters. */
static double padding(const struct hop_cost_table *c)
{
    return 64.0 * (c->blocks + 2);
}

static void assert_memory(const struct hop_workload *w, const struct hop_cost_table *c, int32_t d,
                          bool probed)
{
    const bool bp = c->devices[d].bp;
    const bool keeps = bp || w->front == HOP_FRONT_TANGENTS || w->front == HOP_FRONT_FEEDBACK;
    const int32_t probes = probed ? w->probe_batch * (w->passes > 1 ? w->passes : 1) : 0;
    for (int32_t lo = 0; lo < c->blocks; lo++)
        for (int32_t hi = lo + 1; hi <= c->blocks; hi++)
            for (int32_t kept = keeps ? 1 : 0; kept <= (keeps ? 4 : 0); kept++)
                ASSERT_NEAR(hop_cost_memory(c, d, lo, hi, kept),
                            allocated(w, bp, probes, lo, hi, kept), padding(c));
}

static void test_memory_of_every_part(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 32; variant++) {
        const struct hop_workload w = small(variant);
        struct hop_device both[] = {device("npu0", false), device("gpu0", true)};
        struct hop_cost_table c = price(&w, both, 2);
        assert_true((c.tied_bytes > 0) == w.model.tied);
        assert_memory(&w, &c, 0, true);
        assert_memory(&w, &c, 1, true);
        hop_cost_free(&c);
        c = price(&w, &both[1], 1);
        assert_memory(&w, &c, 0, false);
        hop_cost_free(&c);
    }
}

/* What each way to a gradient keeps and runs on BP-free devices, and leaves to BP-capable ones. */
static void test_memory_of_front_work(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 16; variant++)
        for (int front = 0; front <= HOP_FRONT_NOTHING; front++)
            for (uint32_t more = 0; more < 16; more++) {
                struct hop_workload w = small(variant);
                w.front = (enum hop_front_work)front;
                w.passes = more & 1 ? 2 : 1;
                w.per_sample = more & 2;
                w.lora.core = more & 4 ? 2 : 0;
                w.lora.core_hi = (more & 12) == 12 ? w.model.blocks : 0;
                struct hop_device both[] = {device("npu0", false), device("gpu0", true)};
                struct hop_cost_table c = price(&w, both, 2);
                assert_memory(&w, &c, 0, w.front < HOP_FRONT_FEEDBACK);
                assert_memory(&w, &c, 1, w.front == HOP_FRONT_PROBES);
                hop_cost_free(&c);
            }
}

static void test_exit(void **state)
{
    (void)state;
    for (uint32_t variant = 0; variant < 16; variant++) {
        const struct hop_workload w = small(variant);
        struct hop_device npu = device("npu0", false);
        struct hop_cost_table c = price_one(&w, npu);
        struct hop_stage_config config = {.model = w.model,
                                          .lora = w.lora,
                                          .dtype = w.dtype,
                                          .lo = 1,
                                          .hi = 3,
                                          .gradient = HOP_GRADIENT_ZEROTH_ORDER,
                                          .limits = w.limits,
                                          .probes = w.probe_batch};
        const struct hop_stage_bytes without = hop_stage_bytes(&config);
        config.exit = true;
        const struct hop_stage_bytes with = hop_stage_bytes(&config);
        ASSERT_NEAR(
            c.devices[0].exit_bytes,
            (double)(with.weights + with.scratch) - (double)(without.weights + without.scratch), 0);
        assert_true(c.devices[0].exit_bytes >=
                    (double)hop_model_embed_parameters(&w.model) * (double)hop_dtype_size(w.dtype));
        ASSERT_NEAR(c.devices[0].exit_forward, hop_head_operations(&w) / 5e12, 1e-15);
        npu.memory_bandwidth = 1e6;
        hop_cost_free(&c);
        c = price_one(&w, npu);
        ASSERT_NEAR(c.devices[0].exit_forward, c.devices[0].forward[4] - c.devices[0].forward[3],
                    1e-9);
        hop_cost_free(&c);
    }
}

static void test_feedback(void **state)
{
    (void)state;
    struct hop_workload w = one_sample(model_3b(), 384);
    struct hop_device npu = device("npu0", false);
    struct hop_cost_table c = price_one(&w, npu);
    assert_true(hop_feedback_operations(&w) == 0 && c.devices[0].feedback[3] == 0);
    hop_cost_free(&c);
    w.lora = on_all(8);
    const double plain = 2.0 * 384 * 8 * (2 * 3072 + 3072 + 2 * 3072 + 8192);
    ASSERT_NEAR(hop_feedback_operations(&w), plain, 1);
    c = price_one(&w, npu);
    ASSERT_NEAR(hop_cost_feedback(&c, 0, 2, 5), 3 * plain / 5e12, 1e-12);
    hop_cost_free(&c);
    npu.memory_bandwidth = 1e9;
    c = price_one(&w, npu);
    ASSERT_NEAR(c.devices[0].feedback[0], 2.0 * 384 * (3072 + 3072 + 4 * 8192 + 3072) / 1e9, 1e-9);
    hop_cost_free(&c);
    w.lora.core = 4;
    ASSERT_NEAR(hop_feedback_operations(&w), 2.0 * 384 * 4 * (3072 + 3072), 1);
}

static void test_memory_of_large_models(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof accounting / sizeof *accounting; i++) {
        struct hop_workload w = one_sample(accounting[i].model(), 384);
        struct hop_device both[] = {device("npu0", false), device("gpu0", true)};
        struct hop_cost_table c = price(&w, both, 2);
        assert_memory(&w, &c, 0, true);
        assert_memory(&w, &c, 1, true);
        hop_cost_free(&c);
    }
}

/* Where the message buffers are larger than the whole model, the end blocks cannot take them off:
 * then memory is never too low, and the table is still one that can be written and read. */
static void test_buffers_above_model(void **state)
{
    (void)state;
    struct hop_cost_table back;
    for (uint32_t variant = 0; variant < 32; variant++) {
        struct hop_workload w = small(variant);
        w.limits.tokens = 5000;
        struct hop_device both[] = {device("npu0", false), device("gpu0", true)};
        struct hop_cost_table c = price(&w, both, 2);
        for (int32_t lo = 0; lo < c.blocks; lo++)
            for (int32_t hi = lo + 1; hi <= c.blocks; hi++)
                for (int32_t d = 0; d < 2; d++)
                    assert_true(hop_cost_memory(&c, d, lo, hi, d) + padding(&c) >=
                                allocated(&w, d, w.probe_batch, lo, hi, d));
        json_t *const object = hop_cost_json(&c);
        ASSERT_OK(hop_cost_parse(object, "generated", &back, &err));
        json_decref(object);
        hop_cost_free(&c);
        hop_cost_free(&back);
    }
}

static void test_seconds(void **state)
{
    (void)state;
    struct hop_workload w = one_sample(model_3b(), 384);
    w.labels = 4;
    struct hop_device gpu = device("gpu0", true);
    gpu.overhead = 1e-3;
    gpu.probe_ratio = 0.5;
    gpu.backward_ratio = 1.5;
    const double block = hop_block_operations(&w) / 5e12, head = hop_head_operations(&w) / 5e12;
    struct hop_cost_table c = price_one(&w, gpu);
    const struct hop_cost_device *const d = &c.devices[0];
    ASSERT_NEAR(d->forward[0], 1e-3 + block, 1e-12);
    ASSERT_NEAR(d->forward[27], 1e-3 + block + head, 1e-12);
    ASSERT_NEAR(d->backward[0], 1.5 * (1e-3 + block), 1e-12);
    ASSERT_NEAR(d->backward[27], 1.5 * (1e-3 + block) + head, 1e-12);
    ASSERT_NEAR(d->probe[0], 0.5 * (1e-3 + block), 1e-12);
    ASSERT_NEAR(d->probe[27], 0.5 * (1e-3 + block + head), 1e-12);
    assert_true(d->step[0] == 0);
    hop_cost_free(&c);
}

/* A short micro-batch waits for the weights; a probe more does not. */
static void test_weight_floor(void **state)
{
    (void)state;
    struct hop_workload w = one_sample(model_3b(), 4);
    struct hop_device gpu = device("gpu0", true);
    gpu.memory_bandwidth = 50e9;
    const double block = hop_block_operations(&w) / 5e12, head = hop_head_operations(&w) / 5e12;
    const double lookup = 2 * 4 * 3072 * 2 / 50e9;
    struct hop_cost_table c = price_one(&w, gpu);
    const struct hop_cost_device *const d = &c.devices[0];
    assert_relative(d->forward[1], 201.3e6 / 50e9, 1e-3);
    ASSERT_NEAR(d->forward[0] - d->forward[1], lookup, 1e-12);
    assert_relative(d->forward[27] - d->forward[1], 788.0e6 / 50e9, 1e-3);
    ASSERT_NEAR(d->probe[0], block + lookup, 1e-12);
    ASSERT_NEAR(d->probe[1], block, 1e-12);
    ASSERT_NEAR(d->probe[27], block + head, 1e-12);
    ASSERT_NEAR(d->backward[0], 1.02 * d->forward[1], 1e-12);
    assert_relative(d->step[5], 32 * 81920 / 50e9, 1e-12);
    hop_cost_free(&c);
}

static void test_bp_free_backward(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_1b(), 384);
    struct hop_device npu = device("npu0", false);
    struct hop_cost_table c = price_one(&w, npu);
    for (int32_t b = 0; b < c.blocks; b++)
        ASSERT_NEAR(c.devices[0].backward[b], 12 * c.devices[0].forward[b], 1e-12);
    assert_true(!c.devices[0].bp && c.devices[0].activation_bytes[3] > 0);
    hop_cost_free(&c);
    npu.backward_ratio = 0;
    c = price_one(&w, npu);
    assert_null(c.devices[0].backward);
    assert_true(isinf(hop_cost_backward(&c, 0, 0, 1)));
    hop_cost_free(&c);
}

static void test_device_figures(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_1b(), 8);
    struct hop_device two[] = {device("a", true), device("b", false)};
    two[0].memory = 5e9;
    two[0].idle_watts = 4;
    two[0].busy_watts = 15;
    struct hop_cost_table c = price(&w, two, 2);
    assert_string_equal(c.devices[1].name, "b");
    assert_true(c.devices[0].memory == 5e9 && isinf(c.devices[1].memory));
    assert_true(c.devices[0].idle_watts == 4 && c.devices[0].busy_watts == 15);
    assert_true(isnan(c.devices[1].idle_watts) && isnan(c.devices[1].busy_watts));
    assert_true(c.micro_batch_samples == 1 && c.blocks == 16);
    hop_cost_free(&c);
}

static void test_machines(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_1b(), 8);
    struct hop_device d[] = {device("a", true), device("b", true), device("c", true),
                             device("d", true), device("e", true), device("f", true)};
    d[1].host = "10.0.0.2";
    d[2].host = "localhost";
    d[3].emulate = d[4].emulate = true;
    d[5].host = "10.0.0.2";
    const int32_t machine[] = {0, 1, 0, 3, 4, 1};
    struct hop_cost_table c;
    const struct hop_cluster cluster = {
        .devices = d, .count = 6, .bandwidth = 1.25e8, .latency = 3e-4, .half_duplex = true};
    ASSERT_OK(hop_cost_from_model(&w, &cluster, &c, &err));
    for (int32_t i = 0; i < 6; i++)
        assert_int_equal(c.machine[i], machine[i]);
    for (int32_t from = 0; from < 6; from++)
        for (int32_t to = 0; to < 6; to++)
            ASSERT_NEAR(hop_cost_link(&c, from, to, 1.25e8),
                        machine[from] == machine[to] ? 0 : 1.0003, 1e-12);
    assert_true(c.half_duplex && !c.shared_nic);
    hop_cost_free(&c);
}

static void test_links(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_1b(), 8);
    struct hop_device d[] = {device("a", true), device("b", true), device("c", true)};
    d[2].host = "10.0.0.2";
    struct hop_link links[] = {{.from = 0, .to = 1, .bandwidth = 1e6, .latency = 1},
                               {.from = 2, .to = 0, .bandwidth = 2e6, .latency = 2}};
    struct hop_cost_table c;
    const struct hop_cluster cluster = {
        .devices = d, .count = 3, .shared_nic = true, .links = links, .link_count = 2};
    ASSERT_OK(hop_cost_from_model(&w, &cluster, &c, &err));
    ASSERT_NEAR(hop_cost_link(&c, 0, 1, 1e6), 2, 1e-12);
    ASSERT_NEAR(hop_cost_link(&c, 1, 0, 1e6), 0, 0);
    ASSERT_NEAR(hop_cost_link(&c, 2, 0, 1e6), 2.5, 1e-12);
    ASSERT_NEAR(hop_cost_link(&c, 0, 2, 1e6), 0, 0);
    assert_true(c.shared_nic && !c.half_duplex);
    hop_cost_free(&c);
}

/* Every figure of `more` is at least that of `less`, and the total is larger. */
static void assert_dearer(const struct hop_workload *less, struct hop_device with,
                          const struct hop_workload *more, struct hop_device than)
{
    struct hop_cost_table a = price_one(less, with), b = price_one(more, than);
    for (int32_t i = 0; i < a.blocks; i++) {
        assert_true(b.devices[0].forward[i] >= a.devices[0].forward[i]);
        assert_true(b.devices[0].backward[i] >= a.devices[0].backward[i]);
        assert_true(b.devices[0].probe[i] >= a.devices[0].probe[i]);
    }
    assert_true(hop_cost_forward(&b, 0, 0, b.blocks) > hop_cost_forward(&a, 0, 0, a.blocks));
    hop_cost_free(&a);
    hop_cost_free(&b);
}

static void test_monotonic_seconds(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_3b(), 384);
    struct hop_device gpu = device("gpu0", true);
    gpu.memory_bandwidth = 50e9;
    struct hop_workload more = w;
    more.samples = 2;
    assert_dearer(&w, gpu, &more, gpu);
    more = w;
    more.tokens = 385;
    assert_dearer(&w, gpu, &more, gpu);
    more = w;
    more.labels = 400;
    assert_dearer(&w, gpu, &more, gpu);
    more = w;
    more.lora = on_all(8);
    assert_dearer(&w, gpu, &more, gpu);
    struct hop_device slower = gpu;
    slower.rate = 4;
    assert_dearer(&w, gpu, &w, slower);
    slower = gpu;
    slower.overhead = 1e-4;
    assert_dearer(&w, gpu, &w, slower);
    slower = gpu;
    slower.memory_bandwidth = 1e9;
    assert_dearer(&w, gpu, &w, slower);
}

static void test_monotonic_memory(void **state)
{
    (void)state;
    const struct hop_workload w = one_sample(model_3b(), 384);
    struct hop_workload larger = w;
    larger.limits.tokens = 768;
    larger.probe_batch = 2;
    struct hop_device both[] = {device("npu0", false), device("gpu0", true)};
    struct hop_cost_table a = price(&w, both, 2), b = price(&larger, both, 2);
    for (int32_t d = 0; d < 2; d++)
        for (int32_t hi = 1; hi < a.blocks; hi++) {
            const double here = hop_cost_memory(&a, d, 0, hi, 1);
            assert_true(hop_cost_memory(&a, d, 0, hi, 2) > here);
            assert_true(hop_cost_memory(&b, d, 0, hi, 1) > here);
            assert_true(hop_cost_memory(&a, d, 0, hi + 1, 1) > here);
        }
    hop_cost_free(&a);
    hop_cost_free(&b);
}

static void test_refused(void **state)
{
    (void)state;
    struct hop_workload w = one_sample(model_1b(), 8);
    struct hop_device gpu = device("gpu0", true), npu = device("npu0", false);
    struct hop_cluster cluster = {.devices = &gpu, .count = 1};
    struct hop_cost_table c;
    gpu.rate = 0;
    ASSERT_REFUSED(hop_cost_from_model(&w, &cluster, &c, &err), HOP_INPUT,
                   "device 'gpu0': rate is 0; a number above 0 is needed");
    gpu = device("gpu0", true);
    gpu.backward_ratio = 0;
    ASSERT_REFUSED(hop_cost_from_model(&w, &cluster, &c, &err), HOP_INPUT,
                   "device 'gpu0': backward_ratio is 0");
    cluster.devices = &npu;
    npu.probe_ratio = NAN;
    ASSERT_REFUSED(hop_cost_from_model(&w, &cluster, &c, &err), HOP_INPUT,
                   "device 'npu0': probe_ratio is nan");
    npu.probe_ratio = 1;
    w.samples = 0;
    ASSERT_REFUSED(hop_cost_from_model(&w, &cluster, &c, &err), HOP_INPUT,
                   "workload of 0 samples, 8 tokens");
    w.samples = 1;
    w.dtype = HOP_DTYPE_OTHER;
    ASSERT_REFUSED(hop_cost_from_model(&w, &cluster, &c, &err), HOP_INPUT, "f32 or bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_sizes),
        cmocka_unit_test(test_lora_operations),
        cmocka_unit_test(test_accounting),
        cmocka_unit_test(test_memory_of_every_part),
        cmocka_unit_test(test_memory_of_front_work),
        cmocka_unit_test(test_exit),
        cmocka_unit_test(test_feedback),
        cmocka_unit_test(test_memory_of_large_models),
        cmocka_unit_test(test_buffers_above_model),
        cmocka_unit_test(test_seconds),
        cmocka_unit_test(test_weight_floor),
        cmocka_unit_test(test_bp_free_backward),
        cmocka_unit_test(test_device_figures),
        cmocka_unit_test(test_machines),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_monotonic_seconds),
        cmocka_unit_test(test_monotonic_memory),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
