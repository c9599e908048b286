/* Entry points of the commands. argv[0] is "hybridop NAME"; the result is the exit status. */
#ifndef HOP_CLI_COMMANDS_H
#define HOP_CLI_COMMANDS_H

int hop_cmd_tokenize(int argc, char **argv);

#endif
