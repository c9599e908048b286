/* The cost table: sums, JSON in and out, what is refused, and damaged files. */
#include "support_files.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "cluster/cost.h"
#include "io/file.h"
#include "io/json.h"

static struct hop_error err;

/* The example of docs/cost.md. */
static const char *const example =
    "{\"micro_batch_samples\": 2, \"blocks\": 2, \"boundary_bytes\": 4718592,\n"
    " \"devices\": [\n"
    "  {\"name\": \"npu0\", \"bp\": false, \"forward\": [0.010, 0.020],\n"
    "   \"backward\": [0.170, 0.180], \"memory\": 9.5e9,\n"
    "   \"feedback\": [0.001, 0.0015], \"exit_forward\": 0.008, \"exit_bytes\": 7.9e8,\n"
    "   \"state_bytes\": [2.0e8, 2.5e8], \"activation_bytes\": [6.4e7, 6.5e7],\n"
    "   \"fixed_bytes\": 100, \"power\": {\"idle\": 8, \"busy\": 18}},\n"
    "  {\"name\": \"gpu0\", \"bp\": true, \"forward\": [0.004, 0.005], \"backward\": [0.004, "
    "0.006],"
    "\n   \"probe\": [0.003, 0.0035], \"step\": [1e-5, 2e-5]},\n"
    "  {\"name\": \"gpu1\", \"bp\": false, \"forward\": [0, 1]}],\n"
    " \"network\": {\"bandwidth\": 1.25e8, \"latency\": 0.0003, \"duplex\": \"half\",\n"
    "  \"nic\": \"shared\", \"pairs\": [\n"
    "   {\"from\": \"npu0\", \"to\": \"gpu0\", \"bandwidth\": 1.2e7, \"latency\": 0.001}]},\n"
    " \"machines\": [[\"npu0\"], [\"gpu0\", \"gpu1\"]],\n"
    " \"gradient_bytes\": [327680, 327681], \"tied_bytes\": 0}";

static json_t *json(const char *text)
{
    json_t *object = NULL;
    ASSERT_OK(hop_json_parse(text, strlen(text), "text", &object, &err));
    return object;
}

static struct hop_cost_table parse(const char *text)
{
    struct hop_cost_table cost;
    json_t *const object = json(text);
    ASSERT_OK(hop_cost_parse(object, "table.json", &cost, &err));
    json_decref(object);
    return cost;
}

static void test_example(void **state)
{
    (void)state;
    struct hop_cost_table c = parse(example);
    assert_int_equal(c.blocks, 2);
    assert_int_equal(c.device_count, 3);
    assert_true(c.micro_batch_samples == 2 && c.boundary_bytes[0] == 4718592);
    assert_true(c.gradient_bytes[0] == 327680 && c.gradient_bytes[1] == 327681);
    const struct hop_cost_device *const npu = &c.devices[0], *const gpu = &c.devices[1];
    assert_string_equal(npu->name, "npu0");
    assert_true(!npu->bp && gpu->bp);
    assert_true(npu->backward[1] == 0.180 && npu->memory == 9.5e9 && npu->fixed_bytes == 100);
    assert_true(npu->state_bytes[1] == 2.5e8 && npu->activation_bytes[0] == 6.4e7);
    assert_true(npu->idle_watts == 8 && npu->busy_watts == 18);
    assert_true(npu->feedback[1] == 0.0015 && npu->exit_forward == 0.008);
    assert_true(npu->exit_bytes == 7.9e8 && gpu->exit_bytes == 0 && gpu->feedback[0] == 0);
    assert_true(c.half_duplex && c.shared_nic);
    hop_cost_free(&c);
}

/* The documentation shows this very table. */
static void test_documented(void **state)
{
    (void)state;
    static const char begin[] = "```json\n";
    struct hop_map map;
    json_t *shown, *const expected = json(example);
    ASSERT_OK(hop_map_open(HOP_SOURCE_DIR "/docs/cost.md", &map, &err));
    const char *const text = memmem(map.data, map.size, begin, strlen(begin));
    assert_non_null(text);
    const char *const first = text + strlen(begin);
    const size_t left = map.size - (size_t)(first - (const char *)map.data);
    const char *const end = memmem(first, left, "```", 3);
    assert_non_null(end);
    ASSERT_OK(hop_json_parse(first, (size_t)(end - first), "docs/cost.md", &shown, &err));
    assert_true(json_equal(shown, expected));
    json_decref(shown);
    json_decref(expected);
    hop_map_close(&map);
}

static void test_defaults(void **state)
{
    (void)state;
    struct hop_cost_table c = parse("{\"micro_batch_samples\": 1, \"blocks\": 3, \"devices\": ["
                                    "{\"name\": \"a\", \"bp\": false, \"forward\": [1, 2, 3]},"
                                    "{\"name\": \"b\", \"bp\": false, \"forward\": [1, 2, 3]}]}");
    const struct hop_cost_device *const a = &c.devices[0];
    assert_null(a->backward);
    assert_memory_equal(a->probe, a->forward, 3 * sizeof(double));
    assert_true(isinf(a->memory) && isnan(a->idle_watts) && isnan(a->busy_watts));
    for (int b = 0; b < 3; b++)
        assert_true(a->step[b] == 0 && a->feedback[b] == 0 && a->state_bytes[b] == 0 &&
                    a->activation_bytes[b] == 0 && c.gradient_bytes[b] == 0);
    assert_true(a->exit_forward == 0 && a->exit_bytes == 0);
    assert_true(a->fixed_bytes == 0 && c.tied_bytes == 0 && !c.half_duplex && !c.shared_nic);
    assert_true(c.boundary_bytes[0] == 0 && c.boundary_bytes[1] == 0);
    assert_true(hop_cost_link(&c, 0, 1, 1e12) == 0);
    assert_int_not_equal(c.machine[0], c.machine[1]);
    assert_true(isinf(hop_cost_backward(&c, 0, 0, 1)) && hop_cost_backward(&c, 0, 1, 1) == 0);
    hop_cost_free(&c);
    hop_cost_free(NULL);
}

static void test_sums(void **state)
{
    (void)state;
    struct hop_cost_table c = parse(example);
    ASSERT_NEAR(hop_cost_forward(&c, 0, 0, 2), 0.03, 1e-15);
    ASSERT_NEAR(hop_cost_backward(&c, 1, 0, 2), 0.010, 1e-15);
    ASSERT_NEAR(hop_cost_probe(&c, 1, 0, 2, 3), 0.009 + 2 * 0.0065, 1e-15);
    ASSERT_NEAR(hop_cost_probe(&c, 0, 1, 2, 4), 4 * 0.020, 1e-15);
    ASSERT_NEAR(hop_cost_step(&c, 1, 1, 2), 2e-5, 1e-18);
    ASSERT_NEAR(hop_cost_feedback(&c, 0, 0, 2), 0.0025, 1e-15);
    ASSERT_NEAR(hop_cost_memory(&c, 0, 0, 2, 0), 100 + 4.5e8, 0);
    ASSERT_NEAR(hop_cost_memory(&c, 0, 1, 2, 3), 100 + 2.5e8 + 3 * 6.5e7, 0);
    c.tied_bytes = 1e8;
    ASSERT_NEAR(hop_cost_memory(&c, 0, 0, 2, 0), 100 + 3.5e8, 0);
    ASSERT_NEAR(hop_cost_memory(&c, 0, 0, 1, 0), 100 + 2e8, 0);
    assert_int_equal(hop_cost_find(&c, "gpu1"), 2);
    assert_int_equal(hop_cost_find(&c, "gpu"), -1);
    hop_cost_free(&c);
}

static void test_network(void **state)
{
    (void)state;
    struct hop_cost_table c = parse(example);
    ASSERT_NEAR(hop_cost_link(&c, 0, 1, 1.2e7), 1.001, 1e-12);
    ASSERT_NEAR(hop_cost_link(&c, 1, 0, 1.25e8), 1.0003, 1e-12);
    ASSERT_NEAR(hop_cost_link(&c, 0, 2, 1.25e8), 1.0003, 1e-12);
    assert_true(hop_cost_link(&c, 1, 2, 1e12) == 0);
    assert_true(hop_cost_link(&c, 0, 0, 1e12) == 0);
    assert_int_equal(c.machine[1], c.machine[2]);
    assert_int_not_equal(c.machine[0], c.machine[1]);
    hop_cost_free(&c);
}

#define TWO                                                                                        \
    "\"micro_batch_samples\": 1, \"blocks\": 1, \"devices\": [{\"name\": \"a\", \"bp\": false, "   \
    "\"forward\": [1]}, {\"name\": \"b\", \"bp\": false, \"forward\": [1]}]"

static void test_pair_inside_machine(void **state)
{
    (void)state;
    struct hop_cost_table c =
        parse("{" TWO ", \"machines\": [[\"b\", \"a\"]], \"network\": {\"bandwidth\": \"1Gbps\", "
              "\"latency\": 1, \"pairs\": [{\"from\": \"a\", \"to\": \"b\", \"bandwidth\": 10}]}}");
    assert_true(hop_cost_link(&c, 0, 1, 5) == 0.5);
    assert_true(hop_cost_link(&c, 1, 0, 5) == 0);
    hop_cost_free(&c);
    c = parse("{" TWO ", \"network\": {\"bandwidth\": 10, \"latency\": 1, \"pairs\": "
              "[{\"from\": \"a\", \"to\": \"b\", \"latency\": 0}]}}");
    assert_true(hop_cost_link(&c, 0, 1, 5) == 0.5);
    assert_true(hop_cost_link(&c, 1, 0, 5) == 1.5);
    hop_cost_free(&c);
}

/* Any finite positive double of 10^-6 to 10^6, a function of its number. */
static double any(uint32_t number)
{
    const struct hop_random_key key = {.seed = 7, .domain = HOP_RANDOM_SAMPLE, .step = number};
    float draws[3];
    hop_random_uniform(&key, 0, 3, draws);
    return pow(10, 12 * (double)draws[0] - 6) * (1 + (double)draws[1] + 0x1p-26 * (double)draws[2]);
}

static void fill(double *values, int32_t n, uint32_t *number)
{
    for (int32_t i = 0; i < n; i++)
        values[i] = any((*number)++);
}

static void fill_device(struct hop_cost_device *d, int32_t index, int32_t blocks, uint32_t *number)
{
    d->name = malloc(32);
    snprintf(d->name, 32, "device \"%d\"", index);
    d->bp = index % 2;
    if (index % 3) {
        ASSERT_OK(hop_calloc(&d->backward, (size_t)blocks, sizeof(double), &err));
        fill(d->backward, blocks, number);
        d->memory = any((*number)++);
        d->idle_watts = any((*number)++);
        d->busy_watts = index % 3 == 2 ? NAN : 17;
    }
    d->bp = d->bp && d->backward;
    fill(d->forward, blocks, number);
    fill(d->probe, blocks, number);
    fill(d->step, blocks, number);
    fill(d->state_bytes, blocks, number);
    fill(d->activation_bytes, blocks, number);
    d->fixed_bytes = any((*number)++);
}

/* kind 0: every link its own; 1: some free; 2: alike, with exceptions inside and outside. */
static void fill_network(struct hop_cost_table *c, uint32_t kind, uint32_t *number)
{
    const int32_t n = c->device_count;
    for (int32_t i = 0; i < n * n; i++) {
        const bool diagonal = i % (n + 1) == 0;
        const bool inside = c->machine[i / n] == c->machine[i % n];
        const double one = kind == 2 && i % 7 ? 3.3 : any((*number)++);
        const bool freed = (kind == 1 && i % 3 == 0) || (kind == 2 && inside && i % 2);
        c->bandwidth[i] = diagonal || freed ? INFINITY : one;
        c->latency[i] = diagonal || (kind == 2 && inside) ? 0 : one / 3;
    }
}

static struct hop_cost_table random_table(uint32_t round)
{
    struct hop_cost_table c;
    uint32_t number = 100000 * round;
    const int32_t blocks = 1 + (int32_t)(round % 5), devices = 1 + (int32_t)(round % 7);
    ASSERT_OK(hop_cost_create(blocks, devices, &c, &err));
    c.micro_batch_samples = 1 + any(number++);
    fill(c.boundary_bytes, blocks - 1, &number);
    fill(c.gradient_bytes, blocks, &number);
    for (int32_t d = 0; d < devices; d++)
        fill_device(&c.devices[d], d, blocks, &number);
    for (int32_t d = 0; d < devices; d++)
        c.machine[d] = round % 2 ? d / 2 : d % 3;
    fill_network(&c, round % 3, &number);
    c.half_duplex = round % 2;
    c.shared_nic = round % 4 < 2;
    c.tied_bytes = INFINITY;
    for (int32_t d = 0; d < devices; d++)
        c.tied_bytes = fmin(c.tied_bytes, c.devices[d].state_bytes[0]);
    return c;
}

static void assert_same(const double *a, const double *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0 && !(isnan(a[i]) && isnan(b[i])))
            fail_msg("%zu: %.17g became %.17g", i, a[i], b[i]);
}

static void assert_same_device(const struct hop_cost_device *a, const struct hop_cost_device *b,
                               size_t blocks)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->bp, b->bp);
    assert_int_equal(!a->backward, !b->backward);
    assert_same(a->forward, b->forward, blocks);
    if (a->backward)
        assert_same(a->backward, b->backward, blocks);
    assert_same(a->probe, b->probe, blocks);
    assert_same(a->step, b->step, blocks);
    assert_same(a->state_bytes, b->state_bytes, blocks);
    assert_same(a->activation_bytes, b->activation_bytes, blocks);
    assert_same(&a->fixed_bytes, &b->fixed_bytes, 1);
    assert_same(&a->memory, &b->memory, 1);
    assert_same(&a->idle_watts, &b->idle_watts, 1);
    assert_same(&a->busy_watts, &b->busy_watts, 1);
}

static void assert_same_table(const struct hop_cost_table *a, const struct hop_cost_table *b)
{
    const size_t blocks = (size_t)a->blocks, n = (size_t)a->device_count;
    assert_int_equal(a->blocks, b->blocks);
    assert_int_equal(a->device_count, b->device_count);
    assert_same(&a->micro_batch_samples, &b->micro_batch_samples, 1);
    assert_same(&a->tied_bytes, &b->tied_bytes, 1);
    assert_same(a->boundary_bytes, b->boundary_bytes, blocks - 1);
    assert_same(a->gradient_bytes, b->gradient_bytes, blocks);
    for (size_t d = 0; d < n; d++)
        assert_same_device(&a->devices[d], &b->devices[d], blocks);
    assert_same(a->bandwidth, b->bandwidth, n * n);
    assert_same(a->latency, b->latency, n * n);
    assert_int_equal(a->half_duplex, b->half_duplex);
    assert_int_equal(a->shared_nic, b->shared_nic);
    for (size_t i = 0; i < n * n; i++)
        assert_int_equal(a->machine[i / n] == a->machine[i % n],
                         b->machine[i / n] == b->machine[i % n]);
}

static void test_round_trip(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < 84; round++) {
        struct hop_cost_table a = random_table(round), b;
        json_t *const object = hop_cost_json(&a);
        assert_non_null(object);
        const char *const path = hop_test_path("round.json");
        ASSERT_OK(hop_json_save(path, object, &err));
        ASSERT_OK(hop_cost_load(path, &b, &err));
        assert_same_table(&a, &b);
        json_t *const again = hop_cost_json(&b);
        assert_true(json_equal(object, again));
        json_decref(object);
        json_decref(again);
        hop_cost_free(&a);
        hop_cost_free(&b);
    }
}

/* The example with `key` of the object at `path` ("devices/1") replaced; NULL removes it. */
struct change {
    const char *path, *key, *value, *message;
};

static json_t *at(json_t *object, const char *path)
{
    char name[32];
    for (int n; *path; path += n + (path[n] == '/')) {
        n = (int)strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", n, path);
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(name))
                                       : json_object_get(object, name);
        assert_non_null(object);
    }
    return object;
}

static void assert_change_refused(const struct change *change)
{
    struct hop_cost_table c = {.blocks = -7};
    json_t *const object = json(example);
    json_t *const target = at(object, change->path);
    if (change->value)
        assert_int_equal(json_object_set_new(target, change->key, json(change->value)), 0);
    else
        assert_int_equal(json_object_del(target, change->key), 0);
    ASSERT_REFUSED(hop_cost_parse(object, "t.json", &c, &err), HOP_INPUT, change->message);
    assert_int_equal(c.blocks, -7);
    json_decref(object);
}

static const struct change refused[] = {
    {"", "micro_batch_samples", NULL, "t.json: micro_batch_samples is missing"},
    {"", "micro_batch_samples", "0", "micro_batch_samples must be between 1 and 1000000000"},
    {"", "micro_batch_samples", "\"2\"", "micro_batch_samples must be a number, found \"2\""},
    {"", "blocks", NULL, "t.json: blocks is missing"},
    {"", "blocks", "null", "t.json: blocks is missing"},
    {"", "blocks", "0", "blocks must be between 1 and 65536, found 0"},
    {"", "blocks", "-2", "blocks must be between 1 and 65536, found -2"},
    {"", "blocks", "65537", "blocks must be between 1 and 65536, found 65537"},
    {"", "blocks", "1.5", "blocks must be an integer, found 1.5"},
    {"", "blocks", "4", "t.json: devices[0] (npu0): forward has 2 numbers; blocks is 4"},
    {"", "devices", NULL, "t.json: devices is missing"},
    {"", "devices", "[]", "devices: a list of at least one device"},
    {"", "devices", "{\"a\": 1}", "devices: a list of at least one device"},
    {"", "devices", "[3]", "t.json: devices[0]: a device is a map"},
    {"", "device", "[]", "t.json: unknown key device; did you mean devices?"},
    {"", "colour", "1", "t.json: unknown key colour; known here: micro_batch_samples, blocks"},
    {"", "boundary_bytes", "[1, 2]", "boundary_bytes has 2 numbers; blocks is 2, so 1 are needed"},
    {"", "boundary_bytes", "-1", "boundary_bytes must be a number between 0 and 1e+30, found -1"},
    {"", "boundary_bytes", "[true]", "boundary_bytes[0] must be a number between 0 and 1e+30"},
    {"", "boundary_bytes", "{}", "boundary_bytes must be a number between 0 and 1e+30, found {}"},
    {"", "gradient_bytes", "[1]", "t.json: gradient_bytes has 1 numbers; blocks is 2"},
    {"", "gradient_bytes", "5", "gradient_bytes must be a list of numbers, one a block, found 5"},
    {"", "tied_bytes", "-5", "tied_bytes must be a number of bytes"},
    {"", "tied_bytes", "5e8",
     "tied_bytes is 500000000, but the first and the last block of 'npu0'"},
    {"devices/1", "name", NULL, "t.json: devices[1]: name is missing"},
    {"devices/1", "name", "\"\"", "t.json: devices[1]: name is empty"},
    {"devices/1", "name", "7", "t.json: devices[1]: name must be text"},
    {"devices/1", "name", "\"npu0\"", "devices[1] (npu0): name is also that of devices[0]"},
    {"devices/1", "bp", NULL, "t.json: devices[1] (gpu0): bp is missing"},
    {"devices/1", "bp", "1", "devices[1] (gpu0): bp must be true or false, found 1"},
    {"devices/1", "forward", NULL, "t.json: devices[1] (gpu0): forward is missing"},
    {"devices/1", "forward", "[1, 2, 3]",
     "t.json: devices[1] (gpu0): forward has 3 numbers; blocks is 2"},
    {"devices/1", "forward", "[1, -2]", "devices[1] (gpu0): forward[1] must be a number between 0"},
    {"devices/1", "forward", "[1e31, 2]",
     "(gpu0): forward[0] must be a number between 0 and 1e+30, found 1e31"},
    {"devices/1", "forward", "[\"1\", 2]",
     "(gpu0): forward[0] must be a number between 0 and 1e+30, found \"1\""},
    {"devices/1", "backward", NULL, "t.json: devices[1] (gpu0): backward is missing"},
    {"devices/1", "backward", "[1]", "devices[1] (gpu0): backward has 1 numbers; blocks is 2"},
    {"devices/0", "backward", "[null, 1]",
     "(npu0): backward[0] must be a number between 0 and 1e+30, found null"},
    {"devices/1", "probe", "[1]", "devices[1] (gpu0): probe has 1 numbers; blocks is 2"},
    {"devices/1", "step", "[1]", "devices[1] (gpu0): step has 1 numbers; blocks is 2"},
    {"devices/1", "state_bytes", "[1]", "devices[1] (gpu0): state_bytes has 1 numbers"},
    {"devices/1", "activation_bytes", "[1]", "(gpu0): activation_bytes has 1 numbers"},
    {"devices/1", "memory", "0",
     "devices[1] (gpu0): memory must be between 1e-09 and 1e+30, found 0"},
    {"devices/1", "memory", "-1", "devices[1] (gpu0): memory must be a number of bytes"},
    {"devices/1", "fixed_bytes", "-1", "devices[1] (gpu0): fixed_bytes must be a number of bytes"},
    {"devices/1", "foward", "[1, 2]",
     "devices[1] (gpu0): unknown key foward; did you mean forward?"},
    {"devices/0/power", "idel", "1", "(npu0): unknown key power.idel; did you mean power.idle?"},
    {"devices/0/power", "busy", "-1", "(npu0): power.busy must be between 0 and 1e+30, found -1"},
    {"devices/0", "power", "8", "(npu0): power must be a section"},
    {"network", "bandwith", "1", "unknown key network.bandwith; did you mean network.bandwidth?"},
    {"network", "bandwidth", "0", "network.bandwidth must be between 1e-09 and 1e+30, found 0"},
    {"network", "latency", "-1", "network.latency must be a number of seconds"},
    {"network", "duplex", "\"haf\"", "network.duplex must be one of full, half"},
    {"network", "nic", "2", "network.nic must be one of separate, shared, found 2"},
    {"network", "pairs", "3", "network.pairs must be a list of maps, found 3"},
    {"network", "pairs", "[3]", "network.pairs[0]: a map with from, to"},
    {"network", "pairs", "[{\"from\": \"gpu0\"}]", "network.pairs[0]: to is missing"},
    {"network/pairs/0", "from", "\"gpu2\"",
     "network.pairs[0]: from: no device is named 'gpu2'; did you mean 'gpu0'?"},
    {"network/pairs/0", "to", "\"elsewhere\"",
     "network.pairs[0]: to: no device is named 'elsewhere'; `devices` has"},
    {"network/pairs/0", "to", "\"npu0\"", "network.pairs[0]: from and to are both 'npu0'"},
    {"network/pairs/0", "bandwidth", "0", "network.pairs[0]: bandwidth must be between 1e-09"},
    {"network/pairs/0", "latency", "-1", "network.pairs[0]: latency must be a number of seconds"},
    {"network/pairs/0", "speed", "1", "network.pairs[0]: unknown key speed; known here: from, to"},
    {"network", "pairs",
     "[{\"from\": \"npu0\", \"to\": \"gpu0\"}, {\"from\": \"npu0\", \"to\": \"gpu0\"}]",
     "network.pairs[1]: the pair from 'npu0' to 'gpu0' is there twice"},
    {"", "machines", "{}", "machines must be a list of lists of device names, found {}"},
    {"", "machines", "[\"npu0\"]", "machines[0] must be a list of device names, found \"npu0\""},
    {"", "machines", "[[1]]", "machines[0] must be a list of device names, found [1]"},
    {"", "machines", "[[\"npu0\"], [\"gpu0\", \"gup1\"]]",
     "machines[1]: no device is named 'gup1'; did you mean 'gpu1'?"},
    {"", "machines", "[[\"npu0\"], [\"gpu0\", \"npu0\"]]", "machines[1]: 'npu0' is named a second"},
};

/* Rows cost half, weights and what is there anyway do not. */
static void test_half(void **state)
{
    (void)state;
    struct hop_cost_table whole = parse(example), half;
    ASSERT_OK(hop_cost_halve(&whole, &half, &err));
    assert_true(half.micro_batch_samples == 1 && half.boundary_bytes[0] == 4718592 / 2.0);
    assert_true(hop_cost_forward(&half, 0, 0, 2) == hop_cost_forward(&whole, 0, 0, 2) / 2);
    assert_true(hop_cost_backward(&half, 0, 0, 2) == hop_cost_backward(&whole, 0, 0, 2) / 2);
    assert_true(isinf(hop_cost_backward(&half, 2, 0, 2)));
    assert_true(hop_cost_probe(&half, 1, 0, 2, 3) == hop_cost_probe(&whole, 1, 0, 2, 3) / 2);
    assert_true(hop_cost_step(&half, 1, 0, 2) == hop_cost_step(&whole, 1, 0, 2));
    assert_true(hop_cost_memory(&half, 0, 0, 2, 6) == hop_cost_memory(&whole, 0, 0, 2, 3));
    assert_true(half.gradient_bytes[1] == 327681 && half.devices[0].memory == 9.5e9);
    assert_true(half.latency[1] == whole.latency[1] && half.machine[2] == whole.machine[2]);
    struct hop_cost_table none = {.blocks = -7};
    assert_int_equal(hop_cost_halve(&half, &none, &err), HOP_INPUT);
    assert_non_null(strstr(err.message, "1 samples has no halves"));
    assert_int_equal(none.blocks, -7);
    hop_cost_free(&half);
    hop_cost_free(&whole);
}

static void test_refused(void **state)
{
    (void)state;
    struct hop_cost_table c;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_change_refused(&refused[i]);
    json_t *const list = json("[1]");
    ASSERT_REFUSED(hop_cost_parse(list, "t.json", &c, &err), HOP_INPUT, "t.json: a cost table is");
    json_decref(list);
    ASSERT_REFUSED(hop_cost_load(hop_test_path("missing.json"), &c, &err), HOP_INPUT,
                   "missing.json");
    ASSERT_REFUSED(hop_cost_load(hop_test_write_text("big.json", "{\"blocks\": 1e999}"), &c, &err),
                   HOP_INPUT, "big.json:1:");
}

/* Small files that ask for much memory. */
static void test_too_large(void **state)
{
    (void)state;
    struct hop_cost_table c;
    json_t *const object = json(example), *const devices = json_array();
    json_t *const device = json_array_get(json_object_get(object, "devices"), 2);
    for (int d = 0; d < 1025; d++)
        json_array_append(devices, device);
    json_object_set_new(object, "devices", devices);
    ASSERT_REFUSED(hop_cost_parse(object, "t.json", &c, &err), HOP_INPUT, "devices: 1025 of them");
    json_array_remove(devices, 0);
    json_object_set_new(object, "blocks", json_integer(65536));
    ASSERT_REFUSED(hop_cost_parse(object, "t.json", &c, &err), HOP_INPUT,
                   "1024 devices of 65536 blocks each; their product may be 4194304 at most");
    json_decref(object);
}

static size_t draw(uint32_t round, uint32_t number, size_t limit)
{
    const struct hop_random_key key = {
        .seed = 1, .domain = HOP_RANDOM_SAMPLE, .step = round, .parameter = number};
    float value;
    hop_random_uniform(&key, 0, 1, &value);
    return (size_t)(value * (float)limit);
}

static char hostile(size_t choice)
{
    static const char bytes[] = "0123456789-+.eE\"[]{}:, \n\\ntrue\xff";
    return bytes[choice % (sizeof bytes - 1)];
}

/* One to three bytes replaced, or the rest cut off, or a span taken out. */
static size_t damage(char *text, size_t n, uint32_t round)
{
    const size_t at = draw(round, 0, n), span = draw(round, 1, 12) % (n - at);
    switch (draw(round, 2, 8)) {
    case 0:
        return at;
    case 1:
        memmove(text + at, text + at + span, n - at - span);
        return n - span;
    default:
        for (uint32_t i = 0; i <= draw(round, 3, 3); i++)
            text[draw(round, 4 + 2 * i, n)] = hostile(draw(round, 5 + 2 * i, 32));
        return n;
    }
}

static void test_damaged(void **state)
{
    (void)state;
    enum { ROUNDS = 4000 };
    size_t refused_count = 0;
    const size_t size = strlen(example);
    char *const text = malloc(size + 1);
    for (uint32_t round = 0; round < ROUNDS; round++) {
        struct hop_cost_table c;
        memcpy(text, example, size);
        const size_t n = damage(text, size, round);
        const hop_status status = hop_cost_load(hop_test_write("damaged.json", text, n), &c, &err);
        if (status == HOP_OK) {
            assert_true(isfinite(hop_cost_memory(&c, 0, 0, c.blocks, 3)));
            hop_cost_free(&c);
        } else if (status != HOP_INPUT || !*err.message || strchr(err.message, '\n')) {
            fail_msg("round %u: %s: %s", round, hop_status_text(status), err.message);
        }
        refused_count += status != HOP_OK;
    }
    free(text);
    assert_in_range(refused_count, ROUNDS / 4, ROUNDS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_example),    cmocka_unit_test(test_documented),
        cmocka_unit_test(test_defaults),   cmocka_unit_test(test_sums),
        cmocka_unit_test(test_network),    cmocka_unit_test(test_pair_inside_machine),
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_half),       cmocka_unit_test(test_too_large),
        cmocka_unit_test(test_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
