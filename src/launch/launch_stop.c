/* Ending a run: signals to the process groups of the ranks, after a grace period SIGKILL, and in
 * the end a search for everything that descends from the launcher. It is a child subreaper, so what
 * a rank leaves behind becomes its child, whatever group or session that made itself. For the case
 * that the launcher itself is killed a small guard process does it in its place. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/wait.h>
#include <unistd.h>

/* two signals closer than this are one: `timeout` sends to the process and to its group */
#define AT_LEAST_NS 50000000u
/* after SIGKILL: a process that has not died by then waits in the kernel */
#define GIVE_UP_NS 1900000000u
enum { PROCESSES_MAX = 1 << 20, ENVIRONMENT_MAX = 4 << 20, SWEEPS = 20, PAUSE_US = 20000 };

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
            p->group_alive = false; /* another may get its number from now on */
        }
    }
}

/* ---- what descends from us ---- */

typedef struct pair {
    pid_t pid, parent;
    bool stopped;
} pair;

typedef struct table {
    pair *rows;
    size_t n, room;
} table;

/* Zombies count as gone. */
static bool read_pair(pid_t pid, pair *out)
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
    *out = (pair){pid, (pid_t)strtol(name_end + 3, NULL, 10), name_end[2] == 'T'};
    return true;
}

bool lvni_launch_is_stopped(pid_t pid)
{
    pair one;
    return read_pair(pid, &one) && one.stopped;
}

static void read_table(table *t)
{
    DIR *d = opendir("/proc");
    for (const struct dirent *e = NULL;
         d != NULL && (e = readdir(d)) != NULL && t->n < PROCESSES_MAX;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        pair one;
        if (pid <= 0 || !read_pair(pid, &one)) {
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
        t->rows[t->n++] = one;
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

/* A stopped process could not end. Only to those: a SIGCONT also takes away the stop by which a
 * debugger or a leak checker is about to attach, which then waits for ever. */
static void continue_stopped(const lvni_launch_run *r)
{
    table t = {.n = 0};
    read_table(&t);
    const size_t n = collect(r, &t, getpid());
    for (size_t i = 0; i < n; i++) {
        if (t.rows[i].stopped) {
            kill(t.rows[i].pid, SIGCONT);
        }
    }
    lvni_core_free(t.rows);
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

/* A second request to end, from whatever source, ends the waiting. */
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
    continue_stopped(r);
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

/* When SIGKILL is due. Ranks that got a signal to stop may have something to save first, and end
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

/* Not those that were stopped because a neighbour failed: their report is about that one. */
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
    if (dead && r->phase == LVNI_PHASE_RUN) { /* a good end, but processes are left behind */
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

/* ---- the guard ----
 * When the launcher is killed, by a person or by the kernel for lack of memory, its ranks die with
 * it (PR_SET_PDEATHSIG), but not what they started. The guard holds the end of a pipe, and when the
 * launcher ends without ending it, it kills every process that carries the mark of this launcher in
 * its environment. The mark holds the run's id and a random number: the next run in the same
 * folder, under the same name too, may have begun by then. */

/* Is the mark among the variables in /proc/PID/environ? */
static bool carries(pid_t pid, const char *mark)
{
    char path[64];
    char *data;
    size_t bytes;
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    if (lvni_core_file_read(path, ENVIRONMENT_MAX, &data, &bytes) != LVN_OK) {
        return false;
    }
    bool found = false;
    for (size_t at = 0; at < bytes && !found; at += strlen(data + at) + 1) {
        found = strcmp(data + at, mark) == 0;
    }
    lvni_core_free(data);
    return found;
}

static int kill_marked(const char *mark)
{
    int n = 0;
    DIR *d = opendir("/proc");
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        const pid_t pid = (pid_t)strtol(e->d_name, NULL, 10);
        if (pid > 0 && pid != getpid() && carries(pid, mark)) {
            n++;
            kill(pid, SIGKILL);
        }
    }
    if (d != NULL) {
        closedir(d);
    }
    return n;
}

/* Keeps nothing open, so that readers of the launcher's output see its end; not in the group of a
 * terminal. */
static void guard(int from, const char *mark)
{
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setpgid(0, 0);
    prctl(PR_SET_NAME, "lvn-guard");
    if (dup2(from, 0) == 0) {
        close_range(1, ~0u, 0);
    }
    char byte;
    ssize_t n;
    do {
        n = read(0, &byte, 1);
    } while (n < 0 && errno == EINTR);
    for (int i = 0; i < SWEEPS && kill_marked(mark) > 0; i++) {
        usleep(PAUSE_US);
    }
    _exit(LVNI_EXIT_OK);
}

lvn_status lvni_launch_guard_start(lvni_launch_run *r)
{
    int ends[2];
    uint64_t own;
    if (getrandom(&own, sizeof own, 0) != (ssize_t)sizeof own) {
        LVN_FAIL(LVN_ERR_INTERNAL, "the system gives no random numbers: %s", strerror(errno));
    }
    snprintf(r->launch_id, sizeof r->launch_id, "%s-%016llx", r->run_id, (unsigned long long)own);
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe: %s (ulimit -n)", strerror(errno));
    }
    lvni_core_str mark = {0};
    lvni_core_str_printf(&mark, "LEVIN_LAUNCH_ID=%s", r->launch_id);
    lvn_status s;
    r->guard = -1;
    LVNI_TRY_DONE(s, lvni_core_str_status(&mark));
    r->guard = fork();
    if (r->guard == 0) {
        close(ends[1]);
        guard(ends[0], lvni_core_str_text(&mark));
    }
    if (r->guard < 0) {
        s = lvn_error_set(LVN_ERR_IO, __FILE__, __LINE__,
                          "no process could be started: %s (ulimit -u, pids.max of the container)",
                          strerror(errno));
    }
done:
    r->guard_fd = ends[1];
    close(ends[0]);
    lvni_core_str_free(&mark);
    return s;
}

void lvni_launch_guard_end(lvni_launch_run *r)
{
    if (r->guard > 0) {
        kill(r->guard, SIGKILL);
        waitpid(r->guard, NULL, 0);
    }
    if (r->guard_fd >= 0) {
        close(r->guard_fd);
    }
    r->guard = 0;
    r->guard_fd = -1;
}
