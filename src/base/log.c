#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

static bool quiet_process;

void hop_log_set_quiet(bool quiet)
{
    quiet_process = quiet;
}

/* One write per line, so that lines of several processes do not interleave. */
static void print_line(const char *kind, const char *format, va_list args)
{
    char text[1024];
    vsnprintf(text, sizeof text, format, args);
    fprintf(stderr, "hybridop: %s%s\n", kind, text);
}

void hop_note(const char *format, ...)
{
    if (quiet_process)
        return;
    va_list args;
    va_start(args, format);
    print_line("", format, args);
    va_end(args);
}

void hop_warn(const char *format, ...)
{
    if (quiet_process)
        return;
    va_list args;
    va_start(args, format);
    print_line("warning: ", format, args);
    va_end(args);
}

void hop_log_error(const struct hop_error *err)
{
    fprintf(stderr, "hybridop: error: %s\n",
            err->message[0] ? err->message : hop_status_text(err->status));
}
