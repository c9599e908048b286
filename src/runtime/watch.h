/* Which of several processes of this machine ended first.
 *
 * When one rank dies, mpiexec ends the others within a millisecond, and MPICH's names just one of
 * all the dead. So every rank keeps one end of a socket in descriptor 0: the kernel closes
 * descriptors in ascending order, so the other end hears of a death before mpiexec, which watches a
 * higher one, can react to it. */
#ifndef HOP_RUNTIME_WATCH_H
#define HOP_RUNTIME_WATCH_H

struct hop_watch {
    int listener, set; /* -1: this system cannot */
    char name[64];     /* of the socket, for the ranks */
};

/* The watching process. */
void hop_watch_open(struct hop_watch *out);
void hop_watch_close(struct hop_watch *watch);
/* Takes in the ranks that have joined since the last call. */
void hop_watch_accept(struct hop_watch *watch);
/* The rank that ended first; -1 while all run. To be asked once. */
int hop_watch_first(const struct hop_watch *watch);

/* A watched process: gives up its standard input. On another machine nothing happens. */
void hop_watch_join(const char *name, int rank);

#endif
