/* Ending a run: signals to the process groups of the ranks, after a time of grace SIGKILL, and in
 * the end a look for everything that descends from the launcher. It is a child subreaper, so what a
 * rank leaves behind becomes its child, whatever group or session that made itself. */
#include "launch/launch_impl.h"

#include "core/alloc.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT_LEAST_NS                                                                                \
    50000000u /* two signals closer than this are one: `timeout` sends to the process and to its   \
                 group */
#define GIVE_UP_NS 1900000000u /* behind SIGKILL: who has not died by then waits in the kernel */
enum { PROCESSES_MAX = 1 << 20 };

void lvni_launch_send(lvni_launch_run *r, int signal_number)
{
    for (int i = 0; i < r->local; i++) {
        lvni_launch_proc *p = &r->procs[i];
        if (!p->started || !p->group_alive) {
            continue;
        }
        if (r->shares_group) {
            if (p->alive) {
                kill(p->pid, signal_number);
            }
        } else if (kill(-p->pid, signal_number) != 0 && errno == ESRCH && !p->alive) {
            p->group_alive = false; /* its number may be another's from now on */
        }
    }
}

/* ---- what descends from us ---- */

typedef struct pair {
    pid_t pid, parent;
} pair;

typedef struct table {
    pair *rows;
    size_t n, room;
} table;

/* Zombies count as gone. */
static bool read_parent(pid_t pid, pid_t *parent)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    if (f == NULL) {
        return false;
    }
    const size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    const char *name_end = strrchr(text, ')');
    if (name_end == NULL || strlen(name_end) < 4 || name_end[2] == 'Z' || name_end[2] == 'X') {
        return false;
    }
    *parent = (pid_t)strtol(name_end + 3, NULL, 10);
    return true;
}

static void read_table(table *t)
{
    DIR *d = opendir("/proc");
    for (const struct dirent *e = NULL;
         d != NULL && (e = readdir(d)) != NULL && t->n < PROCESSES_MAX;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        pid_t parent;
        if (pid <= 0 || !read_parent(pid, &parent)) {
            continue;
        }
        if (t->n == t->room) {
            const size_t room = t->room == 0 ? 256 : t->room * 2;
            pair *rows = lvni_core_realloc(LVNI_TAG_CORE, t->rows, room * sizeof *rows);
            if (rows == NULL) {
                break;
            }
            t->rows = rows;
            t->room = room;
        }
        t->rows[t->n++] = (pair){pid, parent};
    }
    if (d != NULL) {
        closedir(d);
    }
}

static bool is_other(const lvni_launch_run *r, pid_t pid)
{
    for (int i = 0; i < r->n_others; i++) {
        if (r->others[i] == pid) {
            return true;
        }
    }
    return false;
}

/* Moves the descendants of `root` to the front of the table, parents before children. Returns how
 * many. */
static size_t collect(const lvni_launch_run *r, table *t, pid_t root)
{
    size_t found = 0;
    for (size_t next = 0; next <= found; next++) {
        const pid_t parent = next == 0 ? root : t->rows[next - 1].pid;
        for (size_t i = found; i < t->n; i++) {
            if (t->rows[i].parent == parent && !is_other(r, t->rows[i].pid)) {
                const pair one = t->rows[i];
                t->rows[i] = t->rows[found];
                t->rows[found++] = one;
            }
        }
    }
    return found;
}

/* Sends to every descendant (0: nothing). Returns how many there are. */
static size_t send_to_descendants(const lvni_launch_run *r, int signal_number)
{
    table t = {.n = 0};
    read_table(&t);
    const size_t n = collect(r, &t, getpid());
    for (size_t i = 0; i < n && signal_number != 0; i++) {
        kill(t.rows[i].pid, signal_number);
    }
    lvni_core_free(t.rows);
    return n;
}

void lvni_launch_find_others(lvni_launch_run *r)
{
    table t = {.n = 0};
    read_table(&t);
    const size_t n = collect(r, &t, getpid());
    r->others = lvni_core_calloc(LVNI_TAG_CORE, n + 1, sizeof *r->others);
    for (size_t i = 0; r->others != NULL && i < n; i++) {
        r->others[r->n_others++] = t.rows[i].pid;
    }
    lvni_core_free(t.rows);
}

/* ---- phases ---- */

static void begin_kill(lvni_launch_run *r, uint64_t now_ns)
{
    r->phase = LVNI_PHASE_KILL;
    r->kill_ns = now_ns;
    lvni_launch_send(r, SIGKILL);
    send_to_descendants(r, SIGKILL);
}

/* A second wish to end, whoever had the first, is one not to wait. */
static void again(lvni_launch_run *r, lvni_launch_reason why, int signal_number, uint64_t now_ns)
{
    if (why != LVNI_REASON_SIGNAL || r->phase == LVNI_PHASE_KILL ||
        now_ns - r->stop_ns < AT_LEAST_NS) {
        return;
    }
    if (r->signal == 0) {
        r->signal = signal_number;
    }
    begin_kill(r, now_ns);
}

void lvni_launch_stop(lvni_launch_run *r, lvni_launch_reason why, int signal_number,
                      uint64_t now_ns)
{
    if (r->phase != LVNI_PHASE_RUN) {
        again(r, why, signal_number, now_ns);
        return;
    }
    r->phase = signal_number == SIGKILL ? LVNI_PHASE_KILL : LVNI_PHASE_STOP;
    r->reason = why;
    r->stop_ns = r->kill_ns = now_ns;
    r->signal = why == LVNI_REASON_SIGNAL ? signal_number : 0;
    lvni_launch_send(r, SIGCONT); /* who is stopped could not end */
    lvni_launch_send(r, signal_number);
}

static bool all_dead(const lvni_launch_run *r)
{
    for (int i = 0; i < r->local; i++) {
        if (r->procs[i].alive) {
            return false;
        }
    }
    return true;
}

static void name_survivors(lvni_launch_run *r)
{
    for (int i = 0; i < r->local; i++) {
        if (r->procs[i].alive) {
            lvni_launch_print(
                r,
                "rank %d (pid %d) does not die of SIGKILL: it waits inside the kernel, "
                "for a file system or a device",
                r->procs[i].rank, (int)r->procs[i].pid);
        }
    }
}

/* When patience ends. Ranks that were told to stop may have something to save first, and end
 * together; from the first end on the others are late. */
static uint64_t deadline(const lvni_launch_run *r)
{
    uint64_t first_ns = 0;
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        if (p->started && !p->alive && (first_ns == 0 || p->end_ns < first_ns)) {
            first_ns = p->end_ns;
        }
    }
    const uint64_t late_ns =
        (first_ns > r->stop_ns ? first_ns : r->stop_ns) + (uint64_t)(r->o.grace_s * 1e9);
    return r->reason == LVNI_REASON_SIGNAL && first_ns == 0
               ? r->stop_ns + (uint64_t)(r->o.stop_grace_s * 1e9)
               : late_ns;
}

/* Not those that were told to end because a neighbour failed: their report is about that one. */
static void name_late(lvni_launch_run *r, uint64_t now_ns)
{
    for (int i = 0; i < r->local && r->reason == LVNI_REASON_SIGNAL; i++) {
        if (r->procs[i].alive) {
            lvni_launch_print(r, "rank %d (pid %d) has not ended %.1f s after the signal: killed",
                              r->procs[i].rank, (int)r->procs[i].pid,
                              (double)(now_ns - r->stop_ns) / 1e9);
        }
    }
}

bool lvni_launch_stop_tick(lvni_launch_run *r, uint64_t now_ns)
{
    const bool dead = all_dead(r);
    if (!dead && r->phase == LVNI_PHASE_RUN) {
        return false;
    }
    if (dead && send_to_descendants(r, 0) == 0) {
        return true;
    }
    if (dead && r->phase == LVNI_PHASE_RUN) { /* a good end, but somebody is left behind */
        r->phase = LVNI_PHASE_STOP;
        r->stop_ns = now_ns;
    }
    if (dead && !r->swept) {
        r->swept = true;
        send_to_descendants(r, SIGTERM);
    }
    if (r->phase == LVNI_PHASE_STOP && now_ns >= deadline(r)) {
        name_late(r, now_ns);
        begin_kill(r, now_ns);
    } else if (r->phase == LVNI_PHASE_KILL) {
        send_to_descendants(r, SIGKILL);
        if (now_ns - r->kill_ns > GIVE_UP_NS) {
            name_survivors(r);
            return true;
        }
    }
    return false;
}
