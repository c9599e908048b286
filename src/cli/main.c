#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/string.h"
#include "cli/commands.h"

#define HOP_VERSION "0.1.0"

static const struct {
    const char *name, *title, *summary; /* no summary: not shown */
    int (*run)(int argc, char **argv);
} commands[] = {
    {"train", "hybridop train", "fine-tune a model as a job file says", hop_cmd_train},
    {"plan", "hybridop plan", "which device should hold which blocks, and how fast that is",
     hop_cmd_plan},
    {"simulate", "hybridop simulate", "strategies side by side, by event simulation",
     hop_cmd_simulate},
    {"compare", "hybridop compare", "which strategy suits these devices, and why", hop_cmd_compare},
    {"study", "hybridop study", "a job with many settings and seeds, side by side", hop_cmd_study},
    {"eval", "hybridop eval", "task metric of a model or adapter on held-out rows", hop_cmd_eval},
    {"generate", "hybridop generate", "text from a model", hop_cmd_generate},
    {"merge", "hybridop merge", "a model with an adapter merged into it", hop_cmd_merge},
    {"tokenize", "hybridop tokenize", "text to token ids and back", hop_cmd_tokenize},
    {"inspect", "hybridop inspect", "what the folder of a model or an adapter holds",
     hop_cmd_inspect},
    {"score", "hybridop score", "official metrics of predictions that exist already",
     hop_cmd_score},
    {"data", "hybridop data", "look at a job's rows before training: `hybridop data check JOB`",
     hop_cmd_data},
    {"devices", "hybridop devices", "backends and what they can do on this machine",
     hop_cmd_devices},
    {"profile", "hybridop profile", "measure this machine for a model", hop_cmd_profile},
    {"worker", "hybridop worker", NULL, hop_cmd_worker},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *to)
{
    fprintf(to,
            "Usage: hybridop COMMAND [OPTION...]\n\n"
            "Fine-tunes LLaMA models with LoRA on edge devices, with and without backward.\n\n");
    for (int i = 0; i < COMMANDS; i++)
        if (commands[i].summary)
            fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`hybridop COMMAND --help` explains a command.\n");
}

static int unknown(const char *name)
{
    const char *names[COMMANDS];
    for (int i = 0; i < COMMANDS; i++)
        names[i] = commands[i].name;
    const char *const nearest = hop_nearest_name(name, names, COMMANDS);
    fprintf(stderr, "hybridop: error: unknown command '%s'%s%s%s; see `hybridop --help`\n", name,
            nearest ? "; did you mean '" : "", nearest ? nearest : "", nearest ? "'?" : "");
    return HOP_EXIT_USAGE;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return HOP_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return 0;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("hybridop %s\n", HOP_VERSION);
        return 0;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) {
            argv[1] = (char *)(uintptr_t)commands[i].title;
            return commands[i].run(argc - 1, argv + 1);
        }
    return unknown(argv[1]);
}
