/* A rank that is stopped (SIGSTOP) does not notice that its run has ended on other nodes, and a
 * launcher whose only rank it is would wait for it for ever. What it cannot read the kernel knows:
 * the connections to the other ranks, which these have closed. A run that is stopped as a whole
 * keeps them. */
#include "launch/launch_impl.h"

#include "core/alloc.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LOOK_NS 500000000u
enum { SOCKETS = 4096, ADDRESS = 48, ESTABLISHED = 1, CLOSE_WAIT = 8 };

typedef struct connection {
    unsigned long inode;
    unsigned state; /* 0: not TCP, or closed */
    char local[ADDRESS], remote[ADDRESS];
} connection;

typedef struct connections {
    connection *of;
    int n;
} connections;

/* The sockets of the process. */
static void find_sockets(pid_t pid, connections *c)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    for (const struct dirent *e = NULL; d != NULL && c->n < SOCKETS && (e = readdir(d)) != NULL;) {
        const ssize_t n = readlinkat(dirfd(d), e->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = '\0';
        if (strncmp(target, "socket:[", 8) == 0) {
            c->of[c->n++] = (connection){.inode = strtoul(target + 8, NULL, 10)};
        }
    }
    if (d != NULL) {
        closedir(d);
    }
}

/* Their states and addresses, of the network that the process sees. */
static void read_states(pid_t pid, const char *table, const connections *c)
{
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%d/net/%s", (int)pid, table);
    FILE *f = fopen(path, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        connection one = {.state = 0};
        if (sscanf(line, " %*d: %47[0-9A-F:] %47[0-9A-F:] %x %*s %*s %*s %*s %*s %lu", one.local,
                   one.remote, &one.state, &one.inode) != 4) {
            continue;
        }
        for (int i = 0; i < c->n; i++) {
            c->of[i] = c->of[i].inode == one.inode ? one : c->of[i];
        }
    }
    if (f != NULL) {
        fclose(f);
    }
}

/* The other end is the process itself, as rank 0 is connected to its own store. */
static bool is_own(const connections *c, const connection *one)
{
    for (int i = 0; i < c->n; i++) {
        if (strcmp(c->of[i].local, one->remote) == 0 && strcmp(c->of[i].remote, one->local) == 0) {
            return true;
        }
    }
    return false;
}

/* Connections to other processes: those that stand, and those that the other end has closed. */
static bool count(pid_t pid, int *open, int *closed)
{
    connections c = {.of = lvni_core_calloc(LVNI_TAG_CORE, SOCKETS, sizeof *c.of)};
    *open = *closed = 0;
    if (c.of == NULL) {
        return false;
    }
    find_sockets(pid, &c);
    read_states(pid, "tcp", &c);
    read_states(pid, "tcp6", &c);
    for (int i = 0; i < c.n; i++) {
        *open += c.of[i].state == ESTABLISHED && !is_own(&c, &c.of[i]);
        *closed += c.of[i].state == CLOSE_WAIT;
    }
    lvni_core_free(c.of);
    return true;
}

uint64_t lvni_launch_stopped_tick(lvni_launch_run *r, uint64_t now_ns)
{
    bool any = false;
    if (r->nodes < 2 || r->phase != LVNI_PHASE_RUN) {
        return 0;
    }
    if (now_ns - r->looked_ns < LOOK_NS) {
        return r->sees_stopped ? r->looked_ns + LOOK_NS : 0;
    }
    for (int i = 0; i < r->local && r->phase == LVNI_PHASE_RUN; i++) {
        lvni_launch_proc *p = &r->procs[i];
        int open, closed;
        if (!p->alive || !lvni_launch_is_stopped(p->pid) || !count(p->pid, &open, &closed)) {
            p->peers = 0;
            continue;
        }
        any = true;
        p->peers = open > p->peers ? open : p->peers;
        if (open == 0 && (closed > 0 || p->peers > 0)) {
            lvni_launch_print(r,
                              "rank %d (pid %d) is stopped, and the other nodes have closed all "
                              "connections to it: their part of the run has ended",
                              p->rank, (int)p->pid);
            lvni_launch_stop(r, LVNI_REASON_FAILURE, SIGTERM, now_ns);
        }
    }
    r->looked_ns = now_ns;
    r->sees_stopped = any;
    return any ? now_ns + LOOK_NS : 0;
}
