#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "oracle.h"
#include "pipedream_graph.h"

enum { MOST_DEVICES = 1024 };

struct problem {
    struct pipedream_states states;
    int32_t devices;
    double bandwidth;
    bool straight;
};

/* As Python prints a float: the fewest digits that read back as the same number. */
static void print_real(double value)
{
    char text[32];
    int digits = 1;
    do
        snprintf(text, sizeof text, "%.*e", digits - 1, value);
    while (strtod(text, NULL) != value && digits++ < 17);
    const int exponent = atoi(strchr(text, 'e') + 1);
    if (exponent < -4 || exponent >= 16)
        printf("%.*g", digits, value);
    else
        printf("%.*f", digits - 1 - exponent > 1 ? digits - 1 - exponent : 1, value);
}

static void print_line(const char *text, double value)
{
    fputs(text, stdout);
    print_real(value);
    putchar('\n');
}

static void print_stages(const struct problem *problem, const struct hop_pipedream_stage *stages,
                         int32_t count)
{
    const double *const seconds = problem->states.seconds;
    puts("(Split start, split end) / compute time taken per stage / replication factor per stage:");
    for (int32_t i = 0; i < count; i++) {
        const struct hop_pipedream_stage *const stage = &stages[i];
        printf("(%d, %d) ", stage->lo, stage->hi);
        print_real(stage->lo ? seconds[stage->hi - 1] - seconds[stage->lo - 1]
                             : seconds[stage->hi - 1]);
        printf(" %d\n", stage->replicas);
    }
    printf("\nTotal number of stages: %d\n\n", count);
}

static void print_times(const struct problem *problem, double seconds)
{
    char text[96];
    const struct hop_pipedream_model *const model = &problem->states.model;
    const double alone = model->seconds[model->states - 1];
    const double replicated = hop_pipedream_replicated(model, problem->devices, problem->bandwidth);
    print_line("Time taken by single-stage pipeline: ", alone);
    print_line("Time per stage in pipeline: ", seconds);
    print_line("Throughput increase (compared to single machine): ", alone / seconds);
    printf("[Note that single-machine and (%d)-machine DP might not fit given memory "
           "constraints]\n",
           problem->devices);
    snprintf(
        text, sizeof text,
        "Throughput increase of (%d)-machine DP compared to single machine: ", problem->devices);
    print_line(text, alone / replicated);
    snprintf(text, sizeof text,
             "Throughput increase (compared to (%d)-machine DP): ", problem->devices);
    print_line(text, replicated / seconds);
}

static hop_status solve(const struct problem *problem, struct hop_error *err)
{
    struct hop_pipedream_stage *stages;
    int32_t count;
    double seconds;
    HOP_TRY(hop_calloc(&stages, (size_t)problem->devices, sizeof *stages, err));
    hop_status status =
        hop_pipedream_optimize(&problem->states.model, problem->devices, problem->bandwidth,
                               problem->straight, stages, &count, &seconds, err);
    if (status == HOP_OK && count == 0)
        status = hop_fail(err, HOP_INFEASIBLE,
                          "pipedream: %d devices and %d states; a straight pipeline needs a state "
                          "a device",
                          problem->devices, problem->states.model.states);
    if (status == HOP_OK) {
        print_stages(problem, stages, count);
        print_times(problem, seconds);
    }
    free(stages);
    return status;
}

hop_status oracle_pipedream(int argc, char **argv, struct hop_error *err)
{
    struct problem problem = {.straight = argc == 4};
    if (argc < 3 || argc > 4 || (argc == 4 && strcmp(argv[3], "straight") != 0))
        return oracle_usage("pipedream GRAPH DEVICES BANDWIDTH [straight]", err);
    HOP_TRY(oracle_integer(argv[1], "DEVICES", 1, MOST_DEVICES, &problem.devices, err));
    HOP_TRY(oracle_real(argv[2], "BANDWIDTH", &problem.bandwidth, err));
    HOP_TRY(pipedream_states_load(argv[0], &problem.states, err));
    const hop_status status = solve(&problem, err);
    pipedream_states_free(&problem.states);
    return status;
}
