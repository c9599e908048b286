#include "runtime/background.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

struct hop_background {
    pthread_t thread;
    pthread_mutex_t mpi;   /* held around MPI calls */
    pthread_mutex_t state; /* guards the two below */
    pthread_cond_t changed;
    bool active, ending;
    MPI_Comm channel;
    struct hop_outbox *outbox; /* guarded by `mpi` */
};

/* Blocks while there is nothing to do; false when the thread should end. */
static bool wait_until_active(struct hop_background *background)
{
    pthread_mutex_lock(&background->state);
    while (!background->active && !background->ending)
        pthread_cond_wait(&background->changed, &background->state);
    const bool go_on = !background->ending;
    pthread_mutex_unlock(&background->state);
    return go_on;
}

static void *progress(void *argument)
{
    struct hop_background *const background = argument;
    static const double interval = 400e-6;
    while (wait_until_active(background)) {
        int found;
        /* Whoever holds the lock is inside MPI and makes progress itself. */
        if (pthread_mutex_trylock(&background->mpi) == 0) {
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, background->channel, &found, MPI_STATUS_IGNORE);
            hop_outbox_advance(background->outbox);
            pthread_mutex_unlock(&background->mpi);
        }
        hop_clock_sleep(interval);
    }
    return NULL;
}

/* Signals are the main thread's business. */
static int start_without_signals(struct hop_background *background)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int failed = pthread_create(&background->thread, NULL, progress, background);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

hop_status hop_background_create(MPI_Comm channel, struct hop_background **out,
                                 struct hop_error *err)
{
    struct hop_background *background;
    HOP_TRY(hop_calloc(&background, 1, sizeof *background, err));
    background->channel = channel;
    pthread_mutex_init(&background->mpi, NULL);
    pthread_mutex_init(&background->state, NULL);
    pthread_cond_init(&background->changed, NULL);
    const int failed = start_without_signals(background);
    if (failed) {
        free(background);
        return hop_fail(err, HOP_MEMORY, "cannot start a thread: %s", strerror(failed));
    }
    *out = background;
    return HOP_OK;
}

void hop_background_free(struct hop_background *background)
{
    if (!background)
        return;
    pthread_mutex_lock(&background->state);
    background->ending = true;
    pthread_cond_signal(&background->changed);
    pthread_mutex_unlock(&background->state);
    pthread_join(background->thread, NULL);
    pthread_cond_destroy(&background->changed);
    pthread_mutex_destroy(&background->state);
    pthread_mutex_destroy(&background->mpi);
    free(background);
}

void hop_background_set_active(struct hop_background *background, bool active)
{
    if (!background)
        return;
    pthread_mutex_lock(&background->state);
    background->active = active;
    pthread_cond_signal(&background->changed);
    pthread_mutex_unlock(&background->state);
}

void hop_background_set_outbox(struct hop_background *background, struct hop_outbox *outbox)
{
    if (!background)
        return;
    hop_background_lock(background);
    background->outbox = outbox;
    hop_background_unlock(background);
}

void hop_background_lock(struct hop_background *background)
{
    if (background)
        pthread_mutex_lock(&background->mpi);
}

void hop_background_unlock(struct hop_background *background)
{
    if (background)
        pthread_mutex_unlock(&background->mpi);
}
