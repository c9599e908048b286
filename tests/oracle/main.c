#include <stdio.h>
#include <string.h>

#include "oracle.h"

static const struct {
    const char *name;
    oracle_run *run;
} systems[] = {
    {"accpar", oracle_accpar}, {"asteroid", oracle_asteroid},   {"chimera", oracle_chimera},
    {"dapple", oracle_dapple}, {"pipedream", oracle_pipedream},
};
enum { SYSTEMS = sizeof systems / sizeof *systems };

static int unknown(const char *name)
{
    fprintf(stderr, "planner-oracle: error: there is no system '%s'; choose one of", name);
    for (int i = 0; i < SYSTEMS; i++)
        fprintf(stderr, "%s %s", i ? "," : "", systems[i].name);
    fputc('\n', stderr);
    return hop_status_exit_code(HOP_INPUT);
}

static int run(int system, int argc, char **argv)
{
    struct hop_error err = {0};
    const hop_status status = systems[system].run(argc, argv, &err);
    if (status != HOP_OK)
        fprintf(stderr, "planner-oracle: error: %s\n", err.message);
    return hop_status_exit_code(status);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: planner-oracle SYSTEM ARGUMENT...\n");
        return hop_status_exit_code(HOP_INPUT);
    }
    for (int i = 0; i < SYSTEMS; i++)
        if (strcmp(argv[1], systems[i].name) == 0)
            return run(i, argc - 2, argv + 2);
    return unknown(argv[1]);
}
