/* Cluster files, profiles and this machine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static void keys_and_defaults(void **state)
{
    (void)state;
    struct hop_cluster c = parse_ok("network: {bandwidth: 1Gbps, latency: 0.3ms}\n"
                                    "share_files: false\n"
                                    "devices:\n"
                                    "- {name: a}\n"
                                    "- {name: b, host: 10.0.0.2, backend: cuda, bp: false, "
                                    "memory: 7GiB, threads: 3, rate: 2.5, emulate: false}\n");
    assert_int_equal(c.count, 2);
    assert_true(c.bandwidth == 1.25e8);
    assert_true(c.latency > 2.9e-4 && c.latency < 3.1e-4);
    assert_false(c.share_files);
    assert_string_equal(c.devices[0].name, "a");
    assert_string_equal(c.devices[0].backend, "cpu");
    assert_null(c.devices[0].host);
    assert_null(c.devices[0].profile);
    assert_true(c.devices[0].bp && c.devices[0].rate == 0.1 && c.devices[0].memory == 0);
    assert_int_equal(c.devices[0].threads, 0);
    assert_string_equal(c.devices[1].host, "10.0.0.2");
    assert_string_equal(c.devices[1].backend, "cuda");
    assert_false(c.devices[1].bp);
    assert_true(c.devices[1].rate == 2.5 && c.devices[1].memory == 7 * 0x1p30);
    assert_int_equal(c.devices[1].threads, 3);
    assert_int_equal(hop_cluster_find(&c, "b"), 1);
    assert_int_equal(hop_cluster_find(&c, "c"), -1);
    hop_cluster_free(&c);
    hop_cluster_free(NULL);
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
    struct hop_cluster c = parse_ok("devices: [{name: a, profile: gone, bp: false, rate: 2, "
                                    "memory: 0, bandwidth: 0, overhead: 0, backward_ratio: 1, "
                                    "probe_ratio: 1, power: {}}]");
    assert_string_equal(c.devices[0].profile, "gone");
    hop_cluster_free(&c);
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

static void json_round_trip(void **state)
{
    (void)state;
    write_file("mine.yaml", "bp: false\nrate: 3.3\nmemory: 1GB\n" SOURCES);
    struct hop_cluster a = parse_ok("network: {bandwidth: 100Mbps, latency: 1ms}\n"
                                    "devices:\n"
                                    "- {name: a, profile: mine, host: h, threads: 2}\n"
                                    "- {name: b, backend: x, rate: 0.1}\n");
    struct hop_cluster b;
    struct hop_error err = {0};
    json_t *const object = hop_cluster_json(&a);
    assert_non_null(object);
    if (hop_cluster_parse(object, "elsewhere/c.yaml", &b, &err) != HOP_OK)
        fail_msg("%s", err.message);
    json_decref(object);
    assert_int_equal(a.count, b.count);
    assert_true(a.bandwidth == b.bandwidth && a.latency == b.latency);
    assert_int_equal(a.share_files, b.share_files);
    for (size_t d = 0; d < a.count; d++) {
        const struct hop_device *const x = &a.devices[d], *const y = &b.devices[d];
        assert_same_text(x->name, y->name);
        assert_same_text(x->host, y->host);
        assert_same_text(x->profile, y->profile);
        assert_same_text(x->backend, y->backend);
        assert_int_equal(x->bp, y->bp);
        assert_true(x->rate == y->rate && x->memory == y->memory);
        assert_int_equal(x->threads, y->threads);
    }
    hop_cluster_free(&a);
    hop_cluster_free(&b);
}

static void examples_load(void **state)
{
    (void)state;
    const struct {
        const char *name;
        size_t devices, bp_free;
    } examples[] = {{"home-two-boards", 2, 1}, {"paper-3b", 6, 2}, {"local-2npu-2gpu", 4, 2}};
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        char path[512];
        struct hop_cluster c;
        struct hop_error err = {0};
        snprintf(path, sizeof path, "%s/examples/clusters/%s.yaml", HOP_SOURCE_DIR,
                 examples[i].name);
        if (hop_cluster_load(path, &c, &err) != HOP_OK)
            fail_msg("%s", err.message);
        size_t bp_free = 0;
        for (size_t d = 0; d < c.count; d++)
            bp_free += !c.devices[d].bp;
        assert_int_equal(c.count, examples[i].devices);
        assert_int_equal(bp_free, examples[i].bp_free);
        hop_cluster_free(&c);
    }
}

static void shipped_profiles_load(void **state)
{
    (void)state;
    DIR *const directory = opendir(HOP_SOURCE_DIR "/profiles");
    int profiles = 0;
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));) {
        char text[512];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(text, sizeof text, "devices: [{name: a, profile: %s/profiles/%.200s}]",
                 HOP_SOURCE_DIR, entry->d_name);
        struct hop_cluster c = parse_ok(text);
        assert_true(c.devices[0].rate > 0);
        hop_cluster_free(&c);
        profiles++;
    }
    closedir(directory);
    assert_true(profiles >= 5);
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
    const char *const files[] = {"mine.yaml", "broken.yaml", "own/board.yaml", "own", "."};
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
        cmocka_unit_test(keys_and_defaults),
        cmocka_unit_test(bad_clusters_are_named),
        cmocka_unit_test(profiles_give_defaults),
        cmocka_unit_test(bad_profiles_are_named),
        cmocka_unit_test(environment_names_the_profiles),
        cmocka_unit_test(json_round_trip),
        cmocka_unit_test(examples_load),
        cmocka_unit_test(shipped_profiles_load),
        cmocka_unit_test(this_machine),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
