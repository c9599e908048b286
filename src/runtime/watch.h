/* Which of several processes of this machine ended first.
 *
 * When one rank dies, mpiexec ends the others within a millisecond, and MPICH's names just one of all the
 * dead. The kernel knows the order: an epoll set lists what became ready first. */
#ifndef HOP_RUNTIME_WATCH_H
#define HOP_RUNTIME_WATCH_H

struct hop_watch {
    int set; /* -1: this kernel cannot */
};

void hop_watch_open(struct hop_watch *out);
void hop_watch_close(struct hop_watch *watch);
/* A process that is not there (any more) is left out. */
void hop_watch_add(struct hop_watch *watch, long pid, int tag);
/* The tag of the process that ended first; -1 while all run. To be asked once. */
int hop_watch_first(const struct hop_watch *watch);

#endif
