#include "runtime/watch.h"

#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

void hop_watch_open(struct hop_watch *out)
{
    out->set = epoll_create1(EPOLL_CLOEXEC);
}

/* The descriptors of the processes stay open to the end of the program: a run has few. */
void hop_watch_close(struct hop_watch *watch)
{
    if (watch->set >= 0)
        close(watch->set);
    watch->set = -1;
}

void hop_watch_add(struct hop_watch *watch, long pid, int tag)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = tag};
    const int process = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    if (process >= 0 && epoll_ctl(watch->set, EPOLL_CTL_ADD, process, &event) != 0)
        close(process);
}

int hop_watch_first(const struct hop_watch *watch)
{
    struct epoll_event first;
    return epoll_wait(watch->set, &first, 1, 0) == 1 ? first.data.fd : -1;
}
