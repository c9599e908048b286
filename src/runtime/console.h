/* How the ranks of a run talk to the launcher that started them: marked lines on stderr.
 *
 * mpiexec forwards the stderr of every rank, mixed with its own messages. A line "@hop KIND TEXT"
 * is ours; all else is diagnostics that the launcher shows only when a run fails without a word
 * from a rank. */
#ifndef HOP_RUNTIME_CONSOLE_H
#define HOP_RUNTIME_CONSOLE_H

#include <stdbool.h>

#include "base/error.h"
#include "report/progress.h"

#define HOP_CONSOLE_MARK "@hop "

/* "@hop hello RANK HOST PID": lets the launcher put a name to a process that died. */
void hop_console_hello(int rank);
/* "@hop note TEXT": a line for people. */
void hop_console_note(const char *format, ...) HOP_PRINTF(1, 2);
/* "@hop error EXIT TEXT": why the run ends; `device` may be NULL. */
void hop_console_error(const char *device, const struct hop_error *err);
/* "@hop silent RANK PEER TEXT": this rank gave up waiting for PEER, which may itself be waiting
 * for the one that is stuck. */
void hop_console_silent(int rank, int peer, const struct hop_error *err);
/* "@hop progress ...": numbers the launcher draws. */
void hop_console_progress(const struct hop_progress_line *line);
/* Parses the text after "progress "; false when it is not one. */
bool hop_console_parse_progress(const char *text, struct hop_progress_line *line);

#endif
