#include "runtime/watch.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

/* A name that begins with a zero byte lives in no file system. */
static socklen_t address_of(const char *name, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    const size_t n = strnlen(name, sizeof out->sun_path - 1);
    memcpy(out->sun_path + 1, name, n);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n);
}

void hop_watch_open(struct hop_watch *out)
{
    static int opened;
    struct sockaddr_un address;
    *out = (struct hop_watch){.listener =
                                  socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                              .set = epoll_create1(EPOLL_CLOEXEC)};
    snprintf(out->name, sizeof out->name, "hybridop-%ld-%d", (long)getpid(), opened++);
    const socklen_t size = address_of(out->name, &address);
    if (out->listener >= 0 && (bind(out->listener, (struct sockaddr *)&address, size) != 0 ||
                               listen(out->listener, SOMAXCONN) != 0)) {
        close(out->listener);
        out->listener = -1;
    }
}

/* The ends of the ranks stay open to the end of the program: a run has few. */
void hop_watch_close(struct hop_watch *watch)
{
    if (watch->listener >= 0)
        close(watch->listener);
    if (watch->set >= 0)
        close(watch->set);
    watch->listener = watch->set = -1;
}

/* A rank says its number right after it has connected. */
static void admit(struct hop_watch *watch, int end)
{
    static const struct timeval patience = {.tv_usec = 100000};
    int32_t rank;
    setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    struct epoll_event event = {.events = EPOLLRDHUP};
    if (recv(end, &rank, sizeof rank, MSG_WAITALL) == (ssize_t)sizeof rank) {
        event.data.fd = rank;
        if (epoll_ctl(watch->set, EPOLL_CTL_ADD, end, &event) == 0)
            return;
    }
    close(end);
}

void hop_watch_accept(struct hop_watch *watch)
{
    int end;
    while (watch->listener >= 0 && (end = accept4(watch->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0)
        admit(watch, end);
}

int hop_watch_first(const struct hop_watch *watch)
{
    struct epoll_event first;
    return epoll_wait(watch->set, &first, 1, 0) == 1 ? first.data.fd : -1;
}

void hop_watch_join(const char *name, int rank)
{
    struct sockaddr_un address;
    const int32_t number = rank;
    const socklen_t size = address_of(name, &address);
    const int end = socket(AF_UNIX, SOCK_STREAM, 0);
    if (end < 0)
        return;
    if (connect(end, (struct sockaddr *)&address, size) == 0 &&
        send(end, &number, sizeof number, MSG_NOSIGNAL) == (ssize_t)sizeof number)
        dup2(end, STDIN_FILENO);
    if (end != STDIN_FILENO)
        close(end);
}
