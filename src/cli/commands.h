/* The commands of the program: each is one file and returns the exit status. argv[0] is the
 * command's name. */
#ifndef HOP_CLI_COMMANDS_H
#define HOP_CLI_COMMANDS_H

#include <argp.h>

#include "base/error.h"

int hop_cmd_train(int argc, char **argv);
int hop_cmd_plan(int argc, char **argv);
int hop_cmd_simulate(int argc, char **argv);
int hop_cmd_compare(int argc, char **argv);
int hop_cmd_study(int argc, char **argv);
int hop_cmd_eval(int argc, char **argv);
int hop_cmd_generate(int argc, char **argv);
int hop_cmd_merge(int argc, char **argv);
int hop_cmd_tokenize(int argc, char **argv);
int hop_cmd_inspect(int argc, char **argv);
int hop_cmd_score(int argc, char **argv);
int hop_cmd_data(int argc, char **argv);
int hop_cmd_devices(int argc, char **argv);
int hop_cmd_profile(int argc, char **argv);
/* One rank of a run; started by the launcher, not by people. */
int hop_cmd_worker(int argc, char **argv);

#define HOP_EXIT_USAGE 2

/* What all commands do around their work: parses the arguments into options (usage errors exit with
 * HOP_EXIT_USAGE), runs, prints an error as one line. Returns the exit status. */
int hop_command(const struct argp *argp, int argc, char **argv, void *options,
                hop_status (*run)(void *options, struct hop_error *err));

#endif
