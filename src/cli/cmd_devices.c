/* hybridop devices: backends and what they can do on this machine. */
#include <argp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "cli/commands.h"
#include "cluster/cluster.h"
#include "ops/ops.h"
#include "report/table.h"
#include "runtime/transport.h"

static error_t parse(int key, char *value, struct argp_state *state)
{
    (void)value;
    if (key != 'j')
        return ARGP_ERR_UNKNOWN;
    *(bool *)state->input = true;
    return 0;
}

static hop_status describe(const struct hop_ops *ops, int32_t cores, char *text, size_t size,
                           struct hop_error *err)
{
    struct hop_backend *backend;
    HOP_TRY(ops->open(cores, &backend, err));
    snprintf(text, size, "%s", ops->describe(backend));
    ops->close(backend);
    return HOP_OK;
}

static hop_status print_json(int32_t cores, struct hop_error *err)
{
    char text[256];
    json_t *const backends = json_array();
    for (const struct hop_ops *const *ops = hop_backends; *ops; ops++) {
        HOP_TRY(describe(*ops, cores, text, sizeof text, err));
        json_array_append_new(backends, json_pack("{s:s, s:b, s:s, s:[s,s]}", "name", (*ops)->name,
                                                  "bp", (int)hop_ops_bp_capable(*ops),
                                                  "description", text, "dtypes", "f32", "bf16"));
    }
    json_t *const object =
        json_pack("{s:i, s:s, s:o}", "cores", (int)cores, "mpi",
                  hop_transport_library(text, sizeof text), "backends", backends);
    json_dumpf(object, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(object);
    return HOP_OK;
}

static hop_status print_table(int32_t cores, struct hop_error *err)
{
    static const char *const headers[] = {"backend", "backward", "dtypes", "computes with", NULL};
    char text[256];
    struct hop_table *table;
    printf("cores  %d\nMPI    %s\n\n", cores, hop_transport_library(text, sizeof text));
    HOP_TRY(hop_table_create(headers, &table, err));
    for (const struct hop_ops *const *ops = hop_backends; *ops; ops++) {
        HOP_TRY(describe(*ops, cores, text, sizeof text, err));
        HOP_TRY(hop_table_cell(table, err, "%s", (*ops)->name));
        HOP_TRY(hop_table_cell(table, err, "%s",
                               hop_ops_bp_capable(*ops) ? "yes (BP-capable)" : "no (BP-free)"));
        HOP_TRY(hop_table_cell(table, err, "f32, bf16"));
        HOP_TRY(hop_table_cell(table, err, "%s", text));
    }
    hop_table_print(table, stdout);
    hop_table_free(table);
    printf("\nAny device becomes BP-free with `bp: false` in the cluster file.\n");
    return HOP_OK;
}

static hop_status run(void *json, struct hop_error *err)
{
    const int32_t cores = hop_machine_cores();
    return *(const bool *)json ? print_json(cores, err) : print_table(cores, err);
}

int hop_cmd_devices(int argc, char **argv)
{
    static const struct argp_option known[] = {{"json", 'j', NULL, 0, "Print JSON", 0}, {0}};
    static const struct argp argp = {
        .options = known, .parser = parse, .doc = "Backends and what they can do on this machine."};
    bool json = false;
    return hop_command(&argp, argc, argv, &json, run);
}
