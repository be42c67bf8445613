/* A thread looks for connections that are late. Shutting a socket wakes the thread that reads from it, which
 * closes it. */
#include "report/connections.h"

#include <math.h>
#include <pthread.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/memory.h"

#define LOOK_S 0.25 /* between two looks */

typedef struct Connection {
    int fd;
    double since; /* when it began to wait; INFINITY: it is being answered or has been shut */
} Connection;

struct Connections {
    double limit;
    size_t most;
    pthread_mutex_t lock;
    pthread_cond_t stopping;
    bool stopped, started;
    pthread_t thread;
    Connection *open;
    size_t count, capacity;
};

static void shut(Connection *connection) {
    shutdown(connection->fd, SHUT_RDWR);
    connection->since = INFINITY;
}

static void *shut_late(void *context) {
    Connections *all = context;
    pthread_mutex_lock(&all->lock);
    while (!all->stopped) {
        double now = clock_wall();
        for (size_t i = 0; i < all->count; i++)
            if (now - all->open[i].since > all->limit) shut(&all->open[i]);
        struct timespec next = clock_after(LOOK_S);
        pthread_cond_timedwait(&all->stopping, &all->lock, &next);
    }
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

Status connections_new(Connections **ret_connections, double limit, size_t most) {
    Connections *all = NULL;
    TRY(mem_new(1, sizeof *all, &all));
    all->limit = limit;
    all->most = most;
    pthread_mutex_init(&all->lock, NULL);
    clock_cond_init(&all->stopping);
    all->started = pthread_create(&all->thread, NULL, shut_late, all) == 0;
    if (!all->started) {
        connections_free(all);
        return FAILED("cannot start a thread for the server");
    }
    *ret_connections = all;
    return OK;
}

void connections_free(Connections *all) {
    if (!all) return;
    pthread_mutex_lock(&all->lock);
    all->stopped = true;
    pthread_cond_broadcast(&all->stopping);
    pthread_mutex_unlock(&all->lock);
    if (all->started) pthread_join(all->thread, NULL);
    pthread_mutex_destroy(&all->lock);
    pthread_cond_destroy(&all->stopping);
    free(all->open);
    free(all);
}

/* NULL if it is unknown. The lock is held. */
static Connection *find(Connections *all, int fd) {
    for (size_t i = 0; i < all->count; i++)
        if (all->open[i].fd == fd) return &all->open[i];
    return NULL;
}

/* Shuts the connection that has waited longest if too many wait. The lock is held. */
static void make_room(Connections *all) {
    Connection *oldest = NULL;
    size_t waiting = 0;
    for (size_t i = 0; i < all->count; i++) {
        Connection *connection = &all->open[i];
        if (!isfinite(connection->since)) continue;
        waiting++;
        if (!oldest || connection->since < oldest->since) oldest = connection;
    }
    if (waiting > all->most) shut(oldest);
}

void connections_opened(Connections *all, int fd) {
    pthread_mutex_lock(&all->lock);
    CLEANUP(status_freep)
    Status full = mem_grow(&all->open, &all->capacity, all->count + 1, sizeof *all->open);
    if (full) {
        shutdown(fd, SHUT_RDWR);
    } else {
        all->open[all->count++] = (Connection){fd, clock_wall()};
        make_room(all);
    }
    pthread_mutex_unlock(&all->lock);
}

void connections_answering(Connections *all, int fd, bool answering) {
    pthread_mutex_lock(&all->lock);
    Connection *connection = find(all, fd);
    if (connection) connection->since = answering ? INFINITY : clock_wall();
    pthread_mutex_unlock(&all->lock);
}

void connections_closed(Connections *all, int fd) {
    pthread_mutex_lock(&all->lock);
    Connection *connection = find(all, fd);
    if (connection) *connection = all->open[--all->count];
    pthread_mutex_unlock(&all->lock);
}
