/* Cluster files, profiles and this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/string.h"
#include "cluster/cluster.h"
#include "io/file.h"
#include "io/yaml.h"

/* Of every figure that the profiles below give. */
#define SOURCES "sources: {bp: assumed for a test, rate: measured here, memory: derived from it}\n"

static char folder[] = "/tmp/hop-cluster-XXXXXX";

static hop_status parse(const char *text, struct hop_cluster *out, struct hop_error *err)
{
    char where[sizeof folder + 16];
    json_t *object = NULL;
    snprintf(where, sizeof where, "%s/c.yaml", folder);
    if (hop_yaml_parse(text, strlen(text), where, &object, err) != HOP_OK)
        fail_msg("%s", err->message);
    const hop_status status = hop_cluster_parse(object, where, out, err);
    json_decref(object);
    return status;
}

static struct hop_cluster parse_ok(const char *text)
{
    struct hop_cluster cluster = {0};
    struct hop_error err = {0};
    if (parse(text, &cluster, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return cluster;
}

static void refuse(const char *text, hop_status expected, const char *message)
{
    struct hop_cluster cluster = {.count = 77};
    struct hop_error err = {0};
    const hop_status status = parse(text, &cluster, &err);
    if (status != expected || !strstr(err.message, message))
        fail_msg("status %d, message '%s'; expected '%s'", (int)status, err.message, message);
    assert_null(strchr(err.message, '\n'));
    assert_int_equal(cluster.count, 77);
}

static void defaults(void **state)
{
    (void)state;
    struct hop_cluster c = parse_ok("devices: [{name: a}]");
    const struct hop_device *const d = &c.devices[0];
    assert_int_equal(c.count, 1);
    assert_true(c.bandwidth == 0 && c.latency == 0);
    assert_false(c.half_duplex);
    assert_false(c.shared_nic);
    assert_int_equal(c.link_count, 0);
    assert_true(c.share_files);
    assert_string_equal(d->name, "a");
    assert_string_equal(d->backend, "cpu");
    assert_null(d->host);
    assert_null(d->profile);
    assert_null(d->mode);
    assert_true(d->bp);
    assert_true(d->rate == 0.1 && d->memory == 0 && d->memory_bandwidth == 0 && d->overhead == 0);
    assert_true(d->backward_ratio == 1.05 && d->probe_ratio == 1);
    assert_true(isnan(d->idle_watts) && isnan(d->busy_watts));
    assert_int_equal(d->threads, 0);
    assert_false(d->emulate);
    assert_true(d->time_scale == 1);
    hop_cluster_free(&c);
    hop_cluster_free(NULL);
}

static void device_keys(void **state)
{
    (void)state;
    struct hop_cluster c =
        parse_ok("devices:\n"
                 "- {name: a, emulate: false, power: null, rate: null}\n"
                 "- {name: b, host: 10.0.0.2, backend: cuda, bp: false, memory: 7GiB, threads: 3, "
                 "rate: 2.5,\n"
                 "   bandwidth: 50GB/s, overhead: 0.25ms, backward_ratio: 8.6, probe_ratio: 0.5,\n"
                 "   power: {idle: 0, busy: 18.5}, emulate: true, time_scale: 0.125}\n"
                 "- {name: c, power: {busy: 9}}\n");
    const struct hop_device *const a = &c.devices[0], *const b = &c.devices[1];
    assert_int_equal(c.count, 3);
    assert_true(isnan(a->idle_watts) && isnan(a->busy_watts) && a->rate == 0.1);
    assert_false(a->emulate);
    assert_string_equal(b->host, "10.0.0.2");
    assert_string_equal(b->backend, "cuda");
    assert_false(b->bp);
    assert_true(b->rate == 2.5 && b->memory == 7 * 0x1p30);
    assert_true(b->memory_bandwidth == 5e10);
    assert_true(b->overhead > 2.49e-4 && b->overhead < 2.51e-4);
    assert_true(b->backward_ratio == 8.6 && b->probe_ratio == 0.5);
    assert_true(b->idle_watts == 0 && b->busy_watts == 18.5);
    assert_int_equal(b->threads, 3);
    assert_true(b->emulate && b->time_scale == 0.125);
    assert_true(isnan(c.devices[2].idle_watts) && c.devices[2].busy_watts == 9);
    assert_int_equal(hop_cluster_find(&c, "b"), 1);
    assert_int_equal(hop_cluster_find(&c, "d"), -1);
    hop_cluster_free(&c);
}

static void network_keys(void **state)
{
    (void)state;
    struct hop_cluster c = parse_ok("network:\n"
                                    "  bandwidth: 1Gbps\n"
                                    "  latency: 0.3ms\n"
                                    "  duplex: half\n"
                                    "  nic: shared\n"
                                    "  pairs:\n"
                                    "  - {from: b, to: a, bandwidth: 100Mbps, latency: 1ms}\n"
                                    "  - {from: a, to: b, latency: 0}\n"
                                    "  - {from: c, to: a, bandwidth: 12.5MB/s}\n"
                                    "share_files: false\n"
                                    "devices: [{name: a}, {name: b}, {name: c}]\n");
    assert_true(c.bandwidth == 1.25e8);
    assert_true(c.latency == 0.3 * 1e-3);
    assert_true(c.half_duplex && c.shared_nic);
    assert_false(c.share_files);
    assert_int_equal(c.link_count, 3);
    assert_true(c.links[0].from == 1 && c.links[0].to == 0);
    assert_true(c.links[0].bandwidth == 1.25e7 && c.links[0].latency == 1e-3);
    assert_true(c.links[1].from == 0 && c.links[1].to == 1);
    assert_true(c.links[1].bandwidth == c.bandwidth && c.links[1].latency == 0);
    assert_true(c.links[2].from == 2 && c.links[2].to == 0);
    assert_true(c.links[2].bandwidth == 1.25e7 && c.links[2].latency == c.latency);
    hop_cluster_free(&c);

    c = parse_ok("network: {duplex: full, nic: separate, pairs: []}\ndevices: [{name: a}]\n");
    assert_false(c.half_duplex);
    assert_false(c.shared_nic);
    assert_int_equal(c.link_count, 0);
    hop_cluster_free(&c);
}

static void bad_clusters_are_named(void **state)
{
    (void)state;
    refuse("{}", HOP_INPUT, "c.yaml: devices: a list of at least one device");
    refuse("devices: []", HOP_INPUT, "c.yaml: devices: a list of at least one device");
    refuse("devices: [3]", HOP_INPUT, "c.yaml: devices[0]: a device is a map");
    refuse("device: [{name: a}]", HOP_INPUT, "unknown key device; did you mean devices?");
    refuse("devices: [{name: a}, {name: b, memry: 1GB}]", HOP_INPUT,
           "c.yaml: devices[1]: unknown key memry; did you mean memory?");
    refuse("devices: [{host: x}]", HOP_INPUT, "c.yaml: devices[0]: name is missing");
    refuse("devices: [{name: ''}]", HOP_INPUT, "c.yaml: devices[0]: name is missing");
    refuse("devices: [{name: a}, {name: b}, {name: a}]", HOP_INPUT,
           "c.yaml: devices[2]: name 'a' is also devices[0]'s");
    refuse("devices: [{name: a, rate: 0}]", HOP_INPUT, "c.yaml: devices[0]: rate must be");
    refuse("devices: [{name: a, rate: fast}]", HOP_INPUT, "c.yaml: devices[0]: rate must be");
    refuse("devices: [{name: a, bp: 3}]", HOP_INPUT,
           "c.yaml: devices[0]: bp must be true or false");
    refuse("devices: [{name: a, threads: -1}]", HOP_INPUT, "c.yaml: devices[0]: threads must be");
    refuse("devices: [{name: a, memory: lots}]", HOP_INPUT, "c.yaml: devices[0]: memory must be");
    refuse("network: {bandwith: 1Gbps}\ndevices: [{name: a}]", HOP_INPUT,
           "unknown key network.bandwith; did you mean network.bandwidth?");
}

static void bad_figures_are_named(void **state)
{
    (void)state;
    const struct {
        const char *keys, *message;
    } bad[] = {
        {"bandwidth: fast", "bandwidth must be a number of bytes a second or a rate such as"},
        {"bandwidth: -1", "bandwidth must be"},
        {"overhead: 3GB", "overhead must be a number of seconds or a time such as"},
        {"overhead: -0.1", "overhead must be"},
        {"backward_ratio: 0", "backward_ratio must be between 0.001 and 1000, found 0"},
        {"backward_ratio: two", "backward_ratio must be a number, found \"two\""},
        {"probe_ratio: 1001", "probe_ratio must be between 0.001 and 1000, found 1001"},
        {"power: 5", "power must be a section with keys of its own, found 5"},
        {"power: {idle: -1}", "power.idle must be between 0 and 1000000, found -1"},
        {"power: {bussy: 1}", "unknown key power.bussy; did you mean power.busy?"},
        {"bandwith: 1", "unknown key bandwith; did you mean bandwidth?"},
        {"emulate: 1", "emulate must be true or false, found 1"},
        {"emulate: true, time_scale: 0",
         "time_scale must be between 1e-09 and 1000000000, found 0"},
        {"emulate: true, time_scale: x", "time_scale must be a number, found \"x\""},
        {"time_scale: 1", "time_scale is for emulated devices; add emulate: true, or leave it out"},
        {"emulate: false, time_scale: 2", "time_scale is for emulated devices"},
        {"mode: 15W", "mode '15W' is one of no profile; name the profile, or leave mode out"},
        {"mode: 15", "mode must be text"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[256], message[256];
        snprintf(text, sizeof text, "devices: [{name: z}, {name: a, %s}]", bad[i].keys);
        snprintf(message, sizeof message, "c.yaml: devices[1]: %s", bad[i].message);
        refuse(text, HOP_INPUT, message);
    }
}

static void emulated_devices_share_a_time_scale(void **state)
{
    (void)state;
    refuse(
        "devices: [{name: a, emulate: true, time_scale: 2}, {name: b}, {name: c, emulate: true}]",
        HOP_INPUT,
        "c.yaml: devices[2]: time_scale of 'c' is 1, that of 'a' 2; emulated devices must have "
        "the same one");
    struct hop_cluster c = parse_ok("devices: [{name: a, emulate: true, time_scale: 2}, {name: b}, "
                                    "{name: c, emulate: true, time_scale: 2.0}]");
    hop_cluster_free(&c);
}

static void bad_networks_are_named(void **state)
{
    (void)state;
    const struct {
        const char *keys, *message;
    } bad[] = {
        {"duplex: simplex", "c.yaml: network.duplex must be one of full, half, found \"simplex\""},
        {"nic: 2", "c.yaml: network.nic must be one of separate, shared, found 2"},
        {"pairs: 3", "c.yaml: network.pairs must be a list such as"},
        {"pairs: {from: a}", "c.yaml: network.pairs must be a list such as"},
        {"pairs: [a]", "c.yaml: network.pairs[0]: a pair is a map such as {from: a, to: b"},
        {"pairs: [{to: npu1, latency: 0}]", "c.yaml: network.pairs[0]: from is missing"},
        {"pairs: [{from: npu0, latency: 0}]", "c.yaml: network.pairs[0]: to is missing"},
        {"pairs: [{from: npu0, to: npu2, latency: 0}]",
         "c.yaml: network.pairs[0]: to: there is no device 'npu2'; did you mean 'npu0'?"},
        {"pairs: [{from: elsewhere, to: npu0, latency: 0}]",
         "c.yaml: network.pairs[0]: from: there is no device 'elsewhere'; use a name of the list"},
        {"pairs: [{from: npu0, to: npu0, latency: 0}]",
         "c.yaml: network.pairs[0]: from and to are both 'npu0'; two devices are needed"},
        {"pairs: [{from: npu0, to: npu1}]",
         "c.yaml: network.pairs[0]: bandwidth or latency is needed"},
        {"pairs: [{from: npu0, to: npu1, bandwidth: 0}]",
         "c.yaml: network.pairs[0]: bandwidth must be at least 1, found 0"},
        {"pairs: [{from: npu0, to: npu1, latency: -1}]",
         "c.yaml: network.pairs[0]: latency must be"},
        {"pairs: [{form: npu0, to: npu1, latency: 0}]",
         "c.yaml: network.pairs[0]: unknown key form; did you mean from?"},
        {"pairs: [{from: npu0, to: npu1, latency: 0}, {from: npu1, to: npu0, latency: 0}, "
         "{from: npu0, to: npu1, latency: 0}]",
         "c.yaml: network.pairs[2]: from 'npu0' to 'npu1' is also network.pairs[0]'s"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[512];
        snprintf(text, sizeof text, "network: {%s}\ndevices: [{name: npu0}, {name: npu1}]",
                 bad[i].keys);
        refuse(text, HOP_INPUT, bad[i].message);
    }
    refuse("network: 3\ndevices: [{name: a}]", HOP_INPUT, "c.yaml: network must be a section");
}

static void write_file(const char *name, const char *text)
{
    char path[256];
    struct hop_error err = {0};
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (hop_file_write(path, text, strlen(text), &err) != HOP_OK)
        fail_msg("%s", err.message);
}

static void profiles_give_defaults(void **state)
{
    (void)state;
    write_file("mine.yaml", "description: mine\nbp: false\nrate: 3.5\nmemory: 1GB\n" SOURCES);
    struct hop_cluster c = parse_ok("devices:\n"
                                    "- {name: a, profile: mine}\n"
                                    "- {name: b, profile: mine, bp: true, rate: 9}\n"
                                    "- {name: c, profile: ./mine.yaml}\n"
                                    "- {name: d, profile: atlas-200i-dk-a2}\n");
    assert_false(c.devices[0].bp);
    assert_true(c.devices[0].rate == 3.5 && c.devices[0].memory == 1e9);
    assert_non_null(strstr(c.devices[0].profile, "/mine.yaml"));
    assert_true(c.devices[1].bp && c.devices[1].rate == 9 && c.devices[1].memory == 1e9);
    assert_false(c.devices[2].bp);
    assert_false(c.devices[3].bp);
    assert_true(c.devices[3].rate == 2.2 && c.devices[3].memory == 2e9);
    hop_cluster_free(&c);
}

static void bad_profiles_are_named(void **state)
{
    (void)state;
    write_file("broken.yaml", "rate: 1\nmemroy: 1GB\n");
    refuse("devices: [{name: a, profile: broken}]", HOP_INPUT,
           "broken.yaml: unknown key memroy; did you mean memory?");
    refuse("devices: [{name: a, profile: 3}]", HOP_INPUT, "c.yaml: devices[0]: profile must be");
    refuse("devices: [{name: a, profile: jetson-orin-nanoo}]", HOP_INPUT,
           "c.yaml: devices[0]: there is no profile 'jetson-orin-nanoo'; did you mean "
           "'jetson-orin-nano'?");
    refuse("devices: [{name: a, profile: ./none.yaml}]", HOP_INPUT,
           "c.yaml: devices[0]: there is no profile './none.yaml' beside this file");
    refuse("devices: [{name: a, profile: jetson-orin-nq}]", HOP_INPUT,
           "did you mean "
           "'jetson-orin-nx'?");
}

static const char two_modes[] =
    "bp: false\n"
    "rate: 1\n"
    "memory: 2GB\n"
    "bandwidth: 3GB/s\n"
    "overhead: 1ms\n"
    "power: {idle: 4, busy: 8}\n"
    "mode: low\n"
    "modes:\n"
    "  low: {rate: 0.5, power: {busy: 5}, sources: {rate: measured here, power: assumed so}}\n"
    "  high:\n"
    "    {bp: true, rate: 2, memory: 1GB, bandwidth: 4GB/s, overhead: 0, backward_ratio: 2,\n"
    "     probe_ratio: 3, power: {idle: 6, busy: 12},\n"
    "     sources: {bp: assumed so, rate: measured here, memory: assumed so, bandwidth: derived "
    "so,\n"
    "               overhead: measured here, backward_ratio: derived so, probe_ratio: assumed so,\n"
    "               power: assumed so}}\n"
    "  plain: {}\n"
    "sources:\n"
    "  {bp: assumed so, rate: \"measured: here\", memory: \"assumed, so\", bandwidth: derived so,\n"
    "   overhead: measured here, power: assumed so}\n";

static void modes_override_profiles(void **state)
{
    (void)state;
    write_file("modes.yaml", two_modes);
    struct hop_cluster c =
        parse_ok("devices:\n"
                 "- {name: low, profile: modes}\n"
                 "- {name: high, profile: modes, mode: high}\n"
                 "- {name: plain, profile: modes, mode: plain}\n"
                 "- {name: own, profile: modes, mode: high, rate: 7, bp: false,\n"
                 "   power: {idle: 1}, memory: null}\n");
    const struct hop_device *d = &c.devices[0];
    assert_string_equal(d->mode, "low");
    assert_true(!d->bp && d->rate == 0.5 && d->memory == 2e9 && d->memory_bandwidth == 3e9);
    assert_true(d->overhead == 1e-3 && d->backward_ratio == 8.6 && d->probe_ratio == 1);
    assert_true(d->idle_watts == 4 && d->busy_watts == 5);
    d = &c.devices[1];
    assert_string_equal(d->mode, "high");
    assert_true(d->bp && d->rate == 2 && d->memory == 1e9 && d->memory_bandwidth == 4e9);
    assert_true(d->overhead == 0 && d->backward_ratio == 2 && d->probe_ratio == 3);
    assert_true(d->idle_watts == 6 && d->busy_watts == 12);
    d = &c.devices[2];
    assert_string_equal(d->mode, "plain");
    assert_true(d->rate == 1 && d->idle_watts == 4 && d->busy_watts == 8);
    d = &c.devices[3];
    assert_string_equal(d->mode, "high");
    assert_true(!d->bp && d->rate == 7 && d->memory == 1e9);
    assert_true(d->idle_watts == 1 && d->busy_watts == 12);
    hop_cluster_free(&c);

    write_file("modes.yaml", "modes: {a: {rate: 2, sources: {rate: measured here}}}\nrate: 1\n"
                             "sources: {rate: assumed so}\n");
    c = parse_ok("devices: [{name: x, profile: modes}, {name: y, profile: modes, mode: a}]");
    assert_null(c.devices[0].mode);
    assert_true(c.devices[0].rate == 1 && c.devices[1].rate == 2);
    hop_cluster_free(&c);
}

static void unknown_modes_list_the_modes(void **state)
{
    (void)state;
    write_file("modes.yaml", two_modes);
    refuse("devices: [{name: a, profile: modes, mode: hihg}]", HOP_INPUT,
           "/modes.yaml: there is no mode 'hihg'; its modes: low, high, plain");
    refuse("devices: [{name: a, profile: jetson-orin-nano, mode: MAXN}]", HOP_INPUT,
           "/jetson-orin-nano.yaml: there is no mode 'MAXN'; its modes: 7W, 15W, 25W, MAXN_SUPER");
    refuse("devices: [{name: a, profile: rk3588, mode: 15W}]", HOP_INPUT,
           "/rk3588.yaml: there is no mode '15W': it has no modes");
    refuse("devices: [{name: a, profile: modes, mode: 3}]", HOP_INPUT,
           "c.yaml: devices[0]: mode must be text");
}

static void every_figure_needs_a_source(void **state)
{
    (void)state;
    const struct {
        const char *profile, *message;
    } bad[] = {
        {"rate: 1", "p.yaml: rate has no entry in sources; say where it is from"},
        {"bp: true\nsources: {rate: measured here}", "p.yaml: bp has no entry in sources"},
        {"memory: 0\nsources: {}", "p.yaml: memory has no entry in sources"},
        {"bandwidth: 1GB/s", "p.yaml: bandwidth has no entry in sources"},
        {"overhead: 0", "p.yaml: overhead has no entry in sources"},
        {"backward_ratio: 1", "p.yaml: backward_ratio has no entry in sources"},
        {"probe_ratio: 1", "p.yaml: probe_ratio has no entry in sources"},
        {"power: {idle: 1}", "p.yaml: power has no entry in sources"},
        {"rate: 1\nsources: [x]", "p.yaml: sources must be a map such as"},
        {"rate: 1\nsources: {rate: guessed}",
         "p.yaml: sources.rate must begin with measured, derived or assumed and say where"},
        {"rate: 1\nsources: {rate: measuredly so}", "p.yaml: sources.rate must begin with"},
        {"rate: 1\nsources: {rate: measured}", "p.yaml: sources.rate must begin with"},
        {"rate: 1\nsources: {rate: 'assumed, '}", "p.yaml: sources.rate must begin with"},
        {"rate: 1\nsources: {rate: 7}", "p.yaml: sources.rate must begin with"},
        {"sources: {rte: measured here}",
         "p.yaml: unknown figure sources.rte; did you mean sources.rate"},
        {"sources: {description: measured here}",
         "p.yaml: unknown figure sources.description; sources holds the keys of figures"},
        {"modes: {a: {rate: 1}}\nrate: 1\nsources: {rate: measured here}",
         "p.yaml: modes.a: rate has no entry in sources"},
        {"modes: {a: {}, b: {power: {busy: 1}, sources: {power: so}}}",
         "p.yaml: modes.b: sources.power must begin with"},
        {"modes: {a: {sources: 1}}", "p.yaml: modes.a: sources must be a map"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("p.yaml", bad[i].profile);
        refuse("devices: [{name: a, profile: p}]", HOP_INPUT, bad[i].message);
    }
    write_file("p.yaml", "description: x\nmode: m\nmodes: {m: {}}\n");
    struct hop_cluster c = parse_ok("devices: [{name: a, profile: p}]");
    assert_string_equal(c.devices[0].mode, "m");
    hop_cluster_free(&c);
}

static void bad_modes_are_named(void **state)
{
    (void)state;
    const struct {
        const char *profile, *message;
    } bad[] = {
        {"modes: [a]", "p.yaml: modes must be a map from names to figures"},
        {"modes: {a: 3}", "p.yaml: modes.a must be a map of figures"},
        {"modes: {a: null}", "p.yaml: modes.a must be a map of figures"},
        {"modes: {a: {rte: 1}}", "p.yaml: modes.a: unknown key rte; did you mean rate?"},
        {"modes: {a: {rate: 0}}", "p.yaml: modes.a: rate must be between"},
        {"modes: {a: {mode: b}}", "p.yaml: modes.a: unknown key mode"},
        {"mode: b\nmodes: {a: {}}", "p.yaml: there is no mode 'b'; its modes: a"},
        {"mode: b", "p.yaml: there is no mode 'b': it has no modes"},
        {"mode: [b]", "p.yaml: mode must be text"},
        {"description: 3", "p.yaml: description must be text"},
        {"- 3", "p.yaml: keys and values are needed at the top"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        write_file("p.yaml", bad[i].profile);
        refuse("devices: [{name: a, profile: p}]", HOP_INPUT, bad[i].message);
    }
    write_file("p.yaml", "mode: b\nmodes: {a: {}}");
    refuse("devices: [{name: a, profile: p, mode: a}]", HOP_INPUT,
           "p.yaml: there is no mode 'b'; its modes: a");
}

/* A device that leaves a single figure to the profile needs the file. */
static void complete_devices_need_no_profile(void **state)
{
    (void)state;
    static const char *const keys[] = {"bp: true",       "rate: 2",         "memory: 0",
                                       "bandwidth: 0",   "overhead: 0",     "backward_ratio: 1",
                                       "probe_ratio: 1", "power: {idle: 1}"};
    enum { KEYS = sizeof keys / sizeof *keys };
    for (size_t without = 0; without <= KEYS; without++) {
        char text[512] = "devices: [{name: a, profile: gone, mode: some";
        for (size_t i = 0; i < KEYS; i++)
            if (i != without)
                snprintf(text + strlen(text), sizeof text - strlen(text), ", %s", keys[i]);
        snprintf(text + strlen(text), sizeof text - strlen(text), "}]");
        if (without < KEYS) {
            refuse(text, HOP_INPUT, "c.yaml: devices[0]: there is no profile 'gone'");
            continue;
        }
        struct hop_cluster c = parse_ok(text);
        assert_string_equal(c.devices[0].profile, "gone");
        assert_string_equal(c.devices[0].mode, "some");
        hop_cluster_free(&c);
    }
}

static void environment_names_the_profiles(void **state)
{
    (void)state;
    char path[sizeof folder + 16];
    snprintf(path, sizeof path, "%s/own", folder);
    struct hop_error err = {0};
    assert_int_equal(hop_directory_create(path, &err), HOP_OK);
    write_file("own/board.yaml", "rate: 42\n" SOURCES);
    setenv("HYBRIDOP_PROFILES", path, 1);
    struct hop_cluster c = parse_ok("devices: [{name: a, profile: board}]");
    assert_true(c.devices[0].rate == 42);
    hop_cluster_free(&c);
    refuse("devices: [{name: a, profile: atlas-200i-dk-a2}]", HOP_INPUT, "there is no profile");
    unsetenv("HYBRIDOP_PROFILES");
}

static void assert_same_text(const char *a, const char *b)
{
    if (a || b)
        assert_string_equal(a, b);
}

static void assert_same_number(double a, double b)
{
    assert_memory_equal(&a, &b, sizeof a);
}

static void assert_same_device(const struct hop_device *a, const struct hop_device *b)
{
    assert_same_text(a->name, b->name);
    assert_same_text(a->host, b->host);
    assert_same_text(a->profile, b->profile);
    assert_same_text(a->mode, b->mode);
    assert_same_text(a->backend, b->backend);
    assert_int_equal(a->bp, b->bp);
    assert_same_number(a->rate, b->rate);
    assert_same_number(a->memory, b->memory);
    assert_same_number(a->memory_bandwidth, b->memory_bandwidth);
    assert_same_number(a->overhead, b->overhead);
    assert_same_number(a->backward_ratio, b->backward_ratio);
    assert_same_number(a->probe_ratio, b->probe_ratio);
    assert_same_number(a->idle_watts, b->idle_watts);
    assert_same_number(a->busy_watts, b->busy_watts);
    assert_int_equal(a->threads, b->threads);
    assert_int_equal(a->emulate, b->emulate);
    assert_same_number(a->time_scale, b->time_scale);
}

static void assert_same_cluster(const struct hop_cluster *a, const struct hop_cluster *b)
{
    assert_int_equal(a->count, b->count);
    assert_same_number(a->bandwidth, b->bandwidth);
    assert_same_number(a->latency, b->latency);
    assert_int_equal(a->half_duplex, b->half_duplex);
    assert_int_equal(a->shared_nic, b->shared_nic);
    assert_int_equal(a->share_files, b->share_files);
    assert_int_equal(a->link_count, b->link_count);
    for (size_t d = 0; d < a->count; d++)
        assert_same_device(&a->devices[d], &b->devices[d]);
    for (size_t i = 0; i < a->link_count; i++) {
        assert_int_equal(a->links[i].from, b->links[i].from);
        assert_int_equal(a->links[i].to, b->links[i].to);
        assert_same_number(a->links[i].bandwidth, b->links[i].bandwidth);
        assert_same_number(a->links[i].latency, b->links[i].latency);
    }
}

/* As ranks get it (JSON text) and as config.yaml keeps it, on a machine without the profiles. */
static void round_trip(const struct hop_cluster *a)
{
    struct hop_error err = {0};
    struct hop_string yaml = {0};
    json_t *const object = hop_cluster_json(a);
    assert_non_null(object);
    char *const text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17));
    assert_int_equal(hop_yaml_write(object, &yaml, &err), HOP_OK);
    json_decref(object);
    json_t *copies[2] = {json_loads(text, 0, NULL), NULL};
    assert_int_equal(
        hop_yaml_parse(hop_string_text(&yaml), yaml.length, "config.yaml", &copies[1], &err),
        HOP_OK);
    setenv("HYBRIDOP_PROFILES", "/nonexistent", 1);
    for (size_t i = 0; i < 2; i++) {
        struct hop_cluster b;
        if (hop_cluster_parse(copies[i], "/nonexistent/c.yaml", &b, &err) != HOP_OK)
            fail_msg("%s", err.message);
        assert_same_cluster(a, &b);
        hop_cluster_free(&b);
        json_decref(copies[i]);
    }
    unsetenv("HYBRIDOP_PROFILES");
    hop_string_free(&yaml);
    free(text);
}

static void json_round_trip(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "devices: [{name: a}]",
        "network: {bandwidth: 100Mbps, latency: 1ms, duplex: half}\n"
        "devices: [{name: a, profile: ghost, host: h, threads: 2}, {name: b, backend: x, rate: "
        "0.7}]",
        "network: {nic: shared, pairs: [{from: b, to: a, latency: 0.7ms}, "
        "{from: a, to: b, bandwidth: 0.3Gbps}]}\n"
        "share_files: false\n"
        "devices:\n"
        "- {name: a, bp: false, memory: 1.1GB, bandwidth: 33.3GB/s, overhead: 0.1us,\n"
        "   backward_ratio: 8.7, probe_ratio: 0.3, power: {busy: 7.7}, emulate: true,\n"
        "   time_scale: 0.1}\n"
        "- {name: \"b \\\" é\", rate: 1.0e-6, power: {idle: 0.1, busy: 0}}\n"
        "- {name: b, emulate: true, time_scale: 0.1}\n",
    };
    write_file("ghost.yaml", "bp: false\nrate: 3.3\nmemory: 1GB\nmode: m\nmodes: {m: {power: "
                             "{idle: 0.1}, sources: {power: measured here}}}\n" SOURCES);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct hop_cluster c = parse_ok(texts[i]);
        round_trip(&c);
        hop_cluster_free(&c);
    }
}

/* What was resolved stays when the profile's file says something else later. */
static void round_trip_ignores_the_file(void **state)
{
    (void)state;
    struct hop_error err = {0};
    write_file("ghost.yaml", "rate: 3\n" SOURCES);
    struct hop_cluster b, a = parse_ok("devices: [{name: a, profile: ghost}]");
    json_t *const object = hop_cluster_json(&a);
    write_file("ghost.yaml",
               "rate: 4\npower: {idle: 1, busy: 2}\nsources: {rate: measured, power: measured}\n");
    assert_int_equal(hop_cluster_parse(object, "c.yaml", &b, &err), HOP_OK);
    assert_same_cluster(&a, &b);
    json_decref(object);
    hop_cluster_free(&a);
    hop_cluster_free(&b);
}

static struct hop_cluster load_example(const char *name)
{
    char path[512];
    struct hop_cluster c = {0};
    struct hop_error err = {0};
    snprintf(path, sizeof path, "%s/examples/clusters/%s", HOP_SOURCE_DIR, name);
    if (hop_cluster_load(path, &c, &err) != HOP_OK)
        fail_msg("%s", err.message);
    return c;
}

static void examples_load(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t devices, bp_free, emulated, links;
        double rate;
    } examples[] = {
        {"home-two-boards.yaml", 2, 1, 0, 0, 7.2},
        {"local-2npu-2gpu.yaml", 4, 2, 0, 0, 0.4},
        {"paper-3b.yaml", 6, 2, 0, 0, 37},
        {"paper-8b.yaml", 10, 4, 0, 0, 54.2},
        {"emulated-paper-3b.yaml", 6, 2, 6, 0, 37},
        {"emulated-paper-8b.yaml", 10, 4, 10, 0, 54.2},
        {"emulated-2npu-2gpu-slow-link.yaml", 4, 2, 4, 2, 14.4},
    };
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        struct hop_cluster c = load_example(examples[i].name);
        size_t bp_free = 0, emulated = 0;
        double rate = 0;
        for (size_t d = 0; d < c.count; d++) {
            bp_free += !c.devices[d].bp;
            emulated += c.devices[d].emulate;
            rate += c.devices[d].rate;
            assert_true(!c.devices[d].emulate || !c.devices[d].host);
        }
        assert_int_equal(c.count, examples[i].devices);
        assert_int_equal(bp_free, examples[i].bp_free);
        assert_int_equal(emulated, examples[i].emulated);
        assert_int_equal(c.link_count, examples[i].links);
        assert_true(fabs(rate - examples[i].rate) < 1e-9);
        round_trip(&c);
        hop_cluster_free(&c);
    }
}

static bool is_yaml(const char *name)
{
    const size_t n = strlen(name);
    return n > 5 && strcmp(name + n - 5, ".yaml") == 0;
}

static void every_example_loads(void **state)
{
    (void)state;
    DIR *const directory = opendir(HOP_SOURCE_DIR "/examples/clusters");
    size_t examples = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        if (!is_yaml(entry->d_name))
            continue;
        struct hop_cluster c = load_example(entry->d_name);
        examples++;
        hop_cluster_free(&c);
    }
    closedir(directory);
    assert_true(examples >= 7);
}

/* The emulated clusters are the boards of the real ones. */
static void emulated_examples_are_the_same_boards(void **state)
{
    (void)state;
    const char *const pairs[][2] = {{"paper-3b.yaml", "emulated-paper-3b.yaml"},
                                    {"paper-8b.yaml", "emulated-paper-8b.yaml"}};
    for (size_t i = 0; i < 2; i++) {
        struct hop_cluster a = load_example(pairs[i][0]), b = load_example(pairs[i][1]);
        assert_int_equal(a.count, b.count);
        for (size_t d = 0; d < a.count; d++) {
            free(a.devices[d].host);
            a.devices[d].host = NULL;
            a.devices[d].emulate = true;
            a.devices[d].time_scale = b.devices[d].time_scale;
        }
        assert_same_cluster(&a, &b);
        hop_cluster_free(&a);
        hop_cluster_free(&b);
    }
}

struct shipped {
    const char *profile, *mode; /* NULL: without modes */
    double rate, memory, bandwidth, backward_ratio, idle, busy;
    bool bp, is_default;
};

static const struct shipped shipped[] = {
    {"atlas-200i-a2-20t", "20T", 5.0, 9.5e9, 44e9, 8.6, 8, 18, false, true},
    {"atlas-200i-a2-20t", "16T", 4.0, 9.5e9, 44e9, 8.6, 8, 16, false, false},
    {"atlas-200i-a2-20t", "8T", 2.2, 9.5e9, 44e9, 8.6, 7, 14, false, false},
    {"atlas-200i-dk-a2", NULL, 2.2, 2e9, 20e9, 8.6, 7, 14, false, true},
    {"generic-cpu", NULL, 0.11, 0, 0, 1.03, NAN, NAN, true, true},
    {"jetson-agx-orin", "15W", 2.6, 58e9, 160e9, 1.03, 10, 15, true, false},
    {"jetson-agx-orin", "30W", 4.9, 58e9, 160e9, 1.03, 10, 30, true, true},
    {"jetson-agx-orin", "50W", 12, 58e9, 160e9, 1.03, 10, 50, true, false},
    {"jetson-agx-orin", "MAXN", 20, 58e9, 160e9, 1.03, 10, 60, true, false},
    {"jetson-orin-nano", "7W", 2.0, 5.5e9, 50e9, 1.03, 4.5, 7, true, false},
    {"jetson-orin-nano", "15W", 5.0, 5.5e9, 50e9, 1.03, 4.5, 15, true, true},
    {"jetson-orin-nano", "25W", 5.5, 5.5e9, 50e9, 1.03, 4.5, 25, true, false},
    {"jetson-orin-nano", "MAXN_SUPER", 5.7, 5.5e9, 50e9, 1.03, 4.5, 25, true, false},
    {"jetson-orin-nx", "10W", 2.3, 13e9, 53e9, 1.03, 6, 10, true, false},
    {"jetson-orin-nx", "15W", 2.3, 13e9, 80e9, 1.03, 6, 15, true, true},
    {"jetson-orin-nx", "25W", 3.0, 13e9, 80e9, 1.03, 6, 25, true, false},
    {"jetson-orin-nx", "MAXN", 8.0, 13e9, 80e9, 1.03, 6, 25, true, false},
    {"jetson-orin-nx", "40W", 9.5, 13e9, 80e9, 1.03, 6, 40, true, false},
    {"jetson-xavier-nx", "10W-desktop", 1.7, 5e9, 45e9, 1.03, 5, 10, true, false},
    {"jetson-xavier-nx", "10W-2core", 2.6, 5e9, 45e9, 1.03, 5, 10, true, false},
    {"jetson-xavier-nx", "10W-4core", 2.6, 5e9, 45e9, 1.03, 5, 10, true, false},
    {"jetson-xavier-nx", "15W", 3.6, 5e9, 45e9, 1.03, 5, 15, true, true},
    {"jetson-xavier-nx", "20W", 3.6, 5e9, 52e9, 1.03, 5, 20, true, false},
    {"orangepi-aipro-20t", NULL, 5.0, 9.5e9, 44e9, 8.6, 8, 18, false, true},
    {"orangepi-aipro-8t", NULL, 2.2, 5.5e9, 20e9, 8.6, 7, 14, false, true},
    {"raspberry-pi-5", NULL, 0.11, 6.5e9, 10e9, 1.03, 3.3, 9.8, true, true},
    {"rk3588", NULL, 0.5, 6e9, 20e9, 4.7, 3, 12, false, true},
};

enum { SHIPPED = sizeof shipped / sizeof *shipped };

static void assert_shipped(const struct shipped *expected, const char *mode)
{
    char text[256];
    snprintf(text, sizeof text, "devices: [{name: a, profile: %s%s%s}]", expected->profile,
             mode ? ", mode: " : "", mode ? mode : "");
    struct hop_cluster c = parse_ok(text);
    const struct hop_device *const d = &c.devices[0];
    assert_same_text(d->mode, expected->mode);
    assert_int_equal(d->bp, expected->bp);
    assert_true(d->rate == expected->rate);
    assert_true(d->memory == expected->memory);
    assert_true(d->memory_bandwidth == expected->bandwidth);
    assert_true(d->backward_ratio == expected->backward_ratio);
    assert_true(d->probe_ratio == 1 && d->overhead == 0);
    assert_true(isnan(expected->idle) ? isnan(d->idle_watts) : d->idle_watts == expected->idle);
    assert_true(isnan(expected->busy) ? isnan(d->busy_watts) : d->busy_watts == expected->busy);
    round_trip(&c);
    hop_cluster_free(&c);
}

static void modes_of_shipped_profiles(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHIPPED; i++) {
        assert_shipped(&shipped[i], shipped[i].mode);
        if (shipped[i].is_default)
            assert_shipped(&shipped[i], NULL);
    }
}

/* Every file and mode there is stands in the table above. */
static void all_shipped_profiles_are_known(void **state)
{
    (void)state;
    DIR *const directory = opendir(HOP_SOURCE_DIR "/profiles");
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char path[512];
        size_t listed = 0;
        json_t *profile;
        struct hop_error err = {0};
        if (!is_yaml(entry->d_name))
            continue;
        snprintf(path, sizeof path, "%s/profiles/%.200s", HOP_SOURCE_DIR, entry->d_name);
        assert_int_equal(hop_yaml_load(path, &profile, &err), HOP_OK);
        for (size_t i = 0; i < SHIPPED; i++)
            listed += strlen(shipped[i].profile) == strlen(entry->d_name) - 5 &&
                      strncmp(shipped[i].profile, entry->d_name, strlen(shipped[i].profile)) == 0;
        const size_t modes = json_object_size(json_object_get(profile, "modes"));
        if (listed != (modes ? modes : 1))
            fail_msg("%s: %zu modes, %zu in the test", path, modes, listed);
        assert_true(json_is_string(json_object_get(profile, "description")));
        json_decref(profile);
    }
    closedir(directory);
}

/* First letter of the word that says where the figure is from, in the mode or else at the top. */
static char source_of(const json_t *profile, const char *mode, const char *figure)
{
    const json_t *const modes = json_object_get(profile, "modes");
    const json_t *const own =
        json_object_get(mode ? json_object_get(modes, mode) : NULL, "sources");
    const char *text = json_string_value(json_object_get(own, figure));
    if (!text)
        text = json_string_value(json_object_get(json_object_get(profile, "sources"), figure));
    assert_non_null(text);
    return text[0];
}

/* Appends " VALUE (LETTER) |", or " |" for what nobody knows. */
static void add_cell(char *row, size_t size, const char *value, bool known, char letter)
{
    const size_t n = strlen(row);
    if (known)
        snprintf(row + n, size - n, " %s (%c) |", value, letter);
    else
        snprintf(row + n, size - n, " |");
}

static void add_number(char *row, size_t size, double value, const json_t *profile,
                       const char *mode, const char *figure)
{
    char text[32];
    const bool known = value != 0;
    snprintf(text, sizeof text, "%.12g", value);
    add_cell(row, size, text, known, known ? source_of(profile, mode, figure) : ' ');
}

/* The row of docs/profiles.md. */
static void make_row(const struct shipped *s, const json_t *profile, char *row, size_t size)
{
    char watts[64];
    const bool known = !isnan(s->busy);
    snprintf(row, size, "| %s |%s%s%s |", s->profile, s->mode ? " " : "", s->mode ? s->mode : "",
             s->mode && s->is_default ? ", default" : "");
    add_cell(row, size, s->bp ? "yes" : "no", true, source_of(profile, s->mode, "bp"));
    add_number(row, size, s->rate, profile, s->mode, "rate");
    add_number(row, size, s->memory / 1e9, profile, s->mode, "memory");
    add_number(row, size, s->bandwidth / 1e9, profile, s->mode, "bandwidth");
    add_number(row, size, s->backward_ratio, profile, s->mode, "backward_ratio");
    snprintf(watts, sizeof watts, "%.12g, %.12g", s->idle, s->busy);
    add_cell(row, size, watts, known, known ? source_of(profile, s->mode, "power") : ' ');
}

static void documentation_has_every_row(void **state)
{
    (void)state;
    struct hop_error err = {0};
    struct hop_map map = {0};
    const char *const path = HOP_SOURCE_DIR "/docs/profiles.md";
    assert_int_equal(hop_map_open(path, &map, &err), HOP_OK);
    char *const page = strndup((const char *)map.data, map.size);
    hop_map_close(&map);
    for (size_t i = 0; i < SHIPPED; i++) {
        char row[512], name[512];
        json_t *profile;
        snprintf(name, sizeof name, "%s/profiles/%s.yaml", HOP_SOURCE_DIR, shipped[i].profile);
        assert_int_equal(hop_yaml_load(name, &profile, &err), HOP_OK);
        make_row(&shipped[i], profile, row, sizeof row);
        if (!strstr(page, row))
            fail_msg("%s has no row %s", path, row);
        json_decref(profile);
    }
    free(page);
}

/* One line or a cluster, whatever the value. */
static void assert_read_or_refused(const char *text)
{
    struct hop_cluster c;
    struct hop_error err = {0};
    const hop_status status = parse(text, &c, &err);
    if (status == HOP_OK) {
        round_trip(&c);
        hop_cluster_free(&c);
        return;
    }
    if (status != HOP_INPUT || !err.message[0] || strchr(err.message, '\n'))
        fail_msg("status %d, message '%s' for %s", (int)status, err.message, text);
}

static void any_value_of_any_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"name",           "host",        "profile",    "mode",
                                       "backend",        "bp",          "rate",       "memory",
                                       "bandwidth",      "overhead",    "power",      "threads",
                                       "emulate",        "time_scale",  "from",       "to",
                                       "latency",        "duplex",      "nic",        "pairs",
                                       "sources",        "modes",       "devices",    "description",
                                       "backward_ratio", "probe_ratio", "share_files"};
    static const char *const values[] = {"null",
                                         "true",
                                         "-1",
                                         "0",
                                         "7",
                                         "1.0e300",
                                         "-0.5",
                                         "9223372036854775807",
                                         "''",
                                         "x",
                                         "a",
                                         "'1e999Gbps'",
                                         "\"\\n\"",
                                         "[]",
                                         "[a, 1]",
                                         "[[], {}]",
                                         "{}",
                                         "{idle: x}",
                                         "{idle: 1, busy: null}",
                                         "{a: {b: [c]}}",
                                         "{rate: {}}",
                                         "{rate: measured here}"};
    static const char *const forms[] = {
        "devices: [{name: a, %s: %s}]",
        "devices: [{name: a, profile: jetson-orin-nano, %s: %s}]",
        "devices: [{name: a, emulate: true, %s: %s}, {name: b, emulate: true}]",
        "devices: [{name: a}, {name: b}]\nnetwork: {%s: %s}",
        "devices: [{name: a}, {name: b}]\nnetwork: {pairs: [{to: b, latency: 0, %s: %s}]}",
        "%s: %s",
    };
    enum { KEYS = sizeof keys / sizeof *keys, VALUES = sizeof values / sizeof *values };
    for (size_t k = 0; k < KEYS; k++)
        for (size_t v = 0; v < VALUES; v++) {
            char text[256];
            for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
                /* A key that the form has already is given twice, which YAML refuses. */
                if (strstr(forms[f], keys[k]))
                    continue;
                snprintf(text, sizeof text, forms[f], keys[k], values[v]);
                assert_read_or_refused(text);
            }
            snprintf(text, sizeof text, "%s: %s\n", keys[k], values[v]);
            write_file("p.yaml", text);
            assert_read_or_refused("devices: [{name: a, profile: p}]");
            snprintf(text, sizeof text, "mode: m\nmodes: {m: {%s: %s}}\n", keys[k], values[v]);
            write_file("p.yaml", text);
            assert_read_or_refused("devices: [{name: a, profile: p, mode: m}]");
        }
}

static void this_machine(void **state)
{
    (void)state;
    struct hop_cluster c;
    struct hop_error err = {0};
    assert_int_equal(hop_cluster_local(&c, &err), HOP_OK);
    assert_int_equal(c.count, 1);
    assert_string_equal(c.devices[0].name, "local");
    assert_true(c.devices[0].bp);
    hop_cluster_free(&c);
    const int32_t cores = hop_machine_cores();
    assert_true(cores >= 1 && cores <= sysconf(_SC_NPROCESSORS_CONF));

    char machine[256] = "";
    gethostname(machine, sizeof machine - 1);
    struct hop_device device = {.host = NULL};
    assert_true(hop_device_is_local(&device));
    char *const local[] = {"localhost", "127.0.0.1", "::1", machine};
    for (size_t i = 0; i < sizeof local / sizeof *local; i++) {
        device.host = local[i];
        assert_true(hop_device_is_local(&device));
    }
    char other[] = "192.0.2.1";
    device.host = other;
    assert_false(hop_device_is_local(&device));
}

static int make_folder(void **state)
{
    (void)state;
    unsetenv("HYBRIDOP_PROFILES");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    const char *const files[] = {"mine.yaml",  "broken.yaml", "own/board.yaml", "own",
                                 "ghost.yaml", "modes.yaml",  "p.yaml",         "."};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        remove(path);
    }
    return rmdir(folder) == 0 || access(folder, F_OK) != 0 ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(device_keys),
        cmocka_unit_test(network_keys),
        cmocka_unit_test(bad_clusters_are_named),
        cmocka_unit_test(bad_figures_are_named),
        cmocka_unit_test(emulated_devices_share_a_time_scale),
        cmocka_unit_test(bad_networks_are_named),
        cmocka_unit_test(profiles_give_defaults),
        cmocka_unit_test(bad_profiles_are_named),
        cmocka_unit_test(modes_override_profiles),
        cmocka_unit_test(unknown_modes_list_the_modes),
        cmocka_unit_test(every_figure_needs_a_source),
        cmocka_unit_test(bad_modes_are_named),
        cmocka_unit_test(complete_devices_need_no_profile),
        cmocka_unit_test(environment_names_the_profiles),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(round_trip_ignores_the_file),
        cmocka_unit_test(examples_load),
        cmocka_unit_test(every_example_loads),
        cmocka_unit_test(emulated_examples_are_the_same_boards),
        cmocka_unit_test(modes_of_shipped_profiles),
        cmocka_unit_test(all_shipped_profiles_are_known),
        cmocka_unit_test(documentation_has_every_row),
        cmocka_unit_test(any_value_of_any_key),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
