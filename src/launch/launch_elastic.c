/* `levin launch --max-restarts R` in the batch script of a Slurm allocation: one step of srun after
 * another, until one ends well or there is no sense in another. Between two of them every node of
 * the job is asked whether it is there (elastic_probe.c); the next step runs on those that are,
 * with fewer tasks where some are not. While it runs, the lost ones are asked again, and a training
 * saves and makes room for a step with them. What the program resumes from is its own affair: a run
 * of `levin train` goes on from its newest checkpoint, with the same bits on any number of ranks.
 * The steps run without --no-kill, which the allocation needs: of a step that lost a node nothing
 * shall stay. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/machine.h"
#include "launch/launch_srun.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* After the first task has failed srun kills the others, and waits for those of a dead node until
 * Slurm gives it up, which takes minutes. Ranks that lost a peer need 15 s to notice. */
#define END_NS 35000000000u
#define LOST_NS 10000000000u /* between two questions to the nodes that are lost */
#define ASKED_POLL_MS 50
#define STEP_POLL_MS 200
enum { LINE_MAX_BYTES = 4096, KILLED = 137, NO_CODE = -1 };

typedef struct elastic {
    lvni_launch_run *r;
    const lvni_launch_allocation *a;
    char *srun;
    /* The program saves and ends at SIGUSR1. It finds this file, and does not ask Slurm for a
     * requeue when there is something in it: the job goes on at once. */
    bool grows;
    int continues_fd;
    lvni_launch_hosts hosts; /* of the job */
    lvni_launch_task_vector vector;
    lvni_launch_probes probes;
    bool *in; /* by host: part of the step */
    int nodes, tasks;
    int restarts; /* that count */
    bool asked;   /* to stop and be started again by others */
    bool was_short;
    /* the step that runs */
    pid_t pid; /* of srun */
    int err_fd;
    uint64_t begin_ns, kill_ns, probe_ns; /* kill_ns 0: no task has failed */
    bool probing, growing;                /* growing: it was asked to end for a lost node's sake */
    lvni_core_str line;
    int first; /* exit code of the task that failed first */
} elastic;

/* ---- what runs where ---- */

static int tasks_of(const elastic *e, size_t host)
{
    const int given = (int)strtol(e->r->o.nproc, NULL, 10);
    return given > 0                        ? given
           : e->vector.n == (int)e->hosts.n ? e->vector.tasks[host]
           : e->a->per_node > 0             ? e->a->per_node
                                            : 1;
}

/* Nodes and tasks of the next step. *per_node: 0 when it differs. */
static void count(elastic *e, int *per_node)
{
    e->nodes = e->tasks = 0;
    *per_node = 0;
    bool same = true;
    for (size_t i = 0; i < e->hosts.n; i++) {
        if (e->in[i]) {
            const int here = tasks_of(e, i);
            same = same && (e->nodes == 0 || here == *per_node);
            *per_node = here;
            e->nodes++;
            e->tasks += here;
        }
    }
    *per_node = same ? *per_node : 0;
}

/* The hosts that are in the step, or are not, as a list. */
static void list(const elastic *e, bool in, lvni_core_str *out)
{
    lvni_launch_hosts some = {0};
    lvni_core_notices notices = {0};
    for (size_t i = 0; i < e->hosts.n; i++) {
        if (e->in[i] == in) {
            /* a name that was read from such a list */
            (void)lvni_launch_hosts_expand(&some, lvni_launch_hosts_name(&e->hosts, i), &notices);
        }
    }
    lvni_launch_hosts_compress(&some, out);
    lvni_launch_hosts_free(&some);
    lvni_core_notices_free(&notices);
}

/* ---- srun ---- */

static void become_step(const elastic *e, const lvni_launch_srun_command *command,
                        const lvni_launch_variables *v, int err_fd)
{
    dup2(err_fd, STDERR_FILENO);
    signal(SIGPIPE, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, &e->r->signals, NULL);
    execve(e->srun, (char *const *)(uintptr_t)command->argv, v->list);
    _exit(LVNI_EXIT_NO_PROGRAM);
}

static lvn_status fork_step(elastic *e, const lvni_launch_srun_command *command)
{
    static const lvni_launch_rank_name no_rank = {.host = "", .run_id = ""};
    lvni_launch_variables v;
    int fd[2];
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_launch_srun_environment(e->r, &no_rank, &v));
    if (e->grows) { /* for rank 0, which is on this machine; nothing of it can be left behind */
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), e->continues_fd);
        lvni_launch_variables_set(&v, "LEVIN_CONTINUES_FILE", path);
    }
    if (pipe2(fd, O_CLOEXEC) != 0) {
        s = lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__, "no pipe: %s", strerror(errno));
        goto done;
    }
    e->pid = fork();
    if (e->pid == 0) {
        become_step(e, command, &v, fd[1]);
    }
    close(fd[1]);
    e->err_fd = fd[0];
    fcntl(fd[0], F_SETFL, O_NONBLOCK);
    if (e->pid < 0) {
        s = lvn_error_set(LVN_ERR_INTERNAL, __FILE__, __LINE__, "no process for srun: %s",
                          strerror(errno));
    }
done:
    lvni_launch_variables_free(&v);
    return s;
}

static void mark_continues(const elastic *e, bool continues)
{
    if (e->grows && ftruncate(e->continues_fd, continues ? 1 : 0) != 0) {
        lvni_launch_print(e->r, "the file that keeps a training from a requeue: %s",
                          strerror(errno));
    }
}

static lvn_status start_step(elastic *e)
{
    lvni_launch_srun_step step = {0};
    lvni_launch_srun_command command;
    lvni_core_str where = {0};
    count(e, &step.per_node);
    step.nodes = e->nodes;
    step.tasks = e->tasks;
    lvni_core_str_append(&where, "--nodelist=");
    list(e, true, &where);
    step.nodelist = lvni_core_str_text(&where);
    e->begin_ns = lvni_core_now_ns();
    e->probe_ns = e->begin_ns + LOST_NS;
    e->kill_ns = 0;
    e->growing = e->probing = false;
    mark_continues(e, false);
    e->first = NO_CODE;
    lvni_core_str_clear(&e->line);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&where));
    LVNI_TRY_DONE(
        s, lvni_launch_srun_command_make(e->r, e->a, e->r->attempt > 0 ? &step : NULL, &command));
    s = fork_step(e, &command);
    lvni_launch_srun_command_free(&command);
done:
    lvni_core_str_free(&where);
    return s;
}

/* "srun: error: n2: task 1: Exited with exit code 3". srun's own exit code is the highest of all
 * tasks, those included that it ended itself. */
static void take_line(elastic *e, const char *line)
{
    static const char exited[] = "Exited with exit code ";
    if (strncmp(line, "srun: error: ", 13) != 0) {
        return;
    }
    const char *task = strstr(line, ": task");
    if (task == NULL && strstr(line, "Node failure on ") == NULL) {
        return;
    }
    if (e->kill_ns == 0) {
        e->kill_ns = lvni_core_now_ns() + END_NS;
    }
    const char *code = task != NULL ? strstr(task, exited) : NULL;
    if (e->first == NO_CODE && code != NULL) {
        e->first = (int)strtol(code + sizeof exited - 1, NULL, 10);
    } else if (e->first == NO_CODE && task != NULL && strstr(task, ": Killed") != NULL) {
        e->first = KILLED;
    }
}

static void take_bytes(elastic *e, const char *bytes, size_t n)
{
    lvni_launch_sink_put(e->r->err, bytes, n);
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            take_line(e, lvni_core_str_text(&e->line));
            lvni_core_str_clear(&e->line);
        } else if (e->line.len < LINE_MAX_BYTES) {
            lvni_core_str_append_n(&e->line, &bytes[i], 1);
        }
    }
}

static void read_errors(elastic *e)
{
    char bytes[4096];
    while (e->err_fd >= 0) {
        const ssize_t n = read(e->err_fd, bytes, sizeof bytes);
        if (n > 0) {
            take_bytes(e, bytes, (size_t)n);
        } else if (n == 0) {
            lvni_launch_close_fd(&e->err_fd);
        } else if (errno != EINTR) {
            return;
        }
    }
}

/* ---- signals ---- */

static lvn_status take_signals(lvni_launch_run *r)
{
    static const int ours[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};
    return lvni_launch_take_signals(r, ours, sizeof ours / sizeof *ours);
}

/* All go to srun, and by it to the tasks, but those of the terminal, which has sent them itself. */
static void read_signals(elastic *e)
{
    struct signalfd_siginfo info;
    while (read(e->r->signal_fd, &info, sizeof info) == (ssize_t)sizeof info) {
        const int n = (int)info.ssi_signo;
        if (n == SIGUSR1) {
            e->asked = true;
            mark_continues(e, false);
        } else if (n != SIGCHLD && n != SIGUSR2) {
            e->r->signal = n;
        }
        if (n != SIGCHLD && e->pid > 0 && info.ssi_code != SI_KERNEL) {
            kill(e->pid, n);
        }
    }
}

/* ---- one step ---- */

/* Is a lost node back? Then the training saves and ends, for a step with all. */
static void look_for_lost(elastic *e, uint64_t now_ns)
{
    if (!e->grows || (size_t)e->nodes == e->hosts.n || e->asked || e->growing ||
        e->r->signal != 0 || e->kill_ns != 0 || (!e->probing && now_ns < e->probe_ns)) {
        return;
    }
    if (!e->probing) {
        lvni_launch_probes_ask(&e->probes, e->in);
        e->probing = true;
    }
    if (!lvni_launch_probes_tick(&e->probes, now_ns)) {
        return;
    }
    e->probing = false;
    e->probe_ns = now_ns + LOST_NS;
    for (size_t i = 0; i < e->hosts.n && !e->growing; i++) {
        e->growing = e->probes.node[i].alive;
        if (e->growing) {
            lvni_launch_print(e->r, "%s is back: the training saves, and continues with it",
                              lvni_launch_hosts_name(&e->hosts, i));
        }
    }
    if (e->growing) {
        mark_continues(e, true);
        kill(e->pid, SIGUSR1);
    }
}

static void wait_a_moment(elastic *e, int ms)
{
    lvni_launch_sink *out = e->r->err;
    struct pollfd f[] = {{.fd = e->err_fd, .events = POLLIN},
                         {.fd = e->r->signal_fd, .events = POLLIN},
                         {.fd = lvni_launch_sink_is_empty(out) ? -1 : out->fd, .events = POLLOUT}};
    poll(f, 3, ms);
    lvni_launch_sink_flush(out);
}

/* Until srun has ended. Its pipe may have other holders, which are not waited for. */
static int watch_step(elastic *e)
{
    int status = 0;
    bool killed = false;
    while (waitpid(e->pid, &status, WNOHANG) == 0) {
        wait_a_moment(e, STEP_POLL_MS);
        read_errors(e);
        read_signals(e);
        const uint64_t now_ns = lvni_core_now_ns();
        look_for_lost(e, now_ns);
        if (e->kill_ns != 0 && now_ns >= e->kill_ns && !killed) {
            lvni_launch_print(e->r, "a part of the step does not end: it is given up");
            kill(e->pid, SIGKILL);
            killed = true;
        }
    }
    e->pid = 0;
    read_errors(e);
    lvni_launch_close_fd(&e->err_fd);
    lvni_launch_probes_stop(&e->probes);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? LVNI_EXIT_OK
           : e->first != NO_CODE                         ? e->first
           : killed                                      ? LVNI_EXIT_PEER
           : WIFEXITED(status)                           ? WEXITSTATUS(status)
                                                         : 128 + WTERMSIG(status);
}

/* ---- from one step to the next ---- */

/* Another step cannot succeed, or is not wanted. */
static bool is_last(const elastic *e, int code)
{
    static const int final[] = {
        LVNI_EXIT_OK,         LVNI_EXIT_USAGE,          LVNI_EXIT_REQUEUE,
        LVNI_EXIT_NO_REQUEUE, LVNI_EXIT_NOT_EXECUTABLE, LVNI_EXIT_NO_PROGRAM,
        LVNI_EXIT_SIGINT,     LVNI_EXIT_SIGTERM};
    bool is = e->r->signal != 0 || e->asked;
    for (size_t i = 0; i < sizeof final / sizeof *final; i++) {
        is = is || code == final[i];
    }
    return is || e->restarts >= e->r->o.max_restarts;
}

/* Two steps in a row that failed at once, on the same nodes. */
static bool is_crash_loop(elastic *e, bool same_nodes)
{
    const bool is_short = lvni_core_seconds_since(e->begin_ns) < e->r->o.crash_loop_s;
    const bool is = is_short && e->was_short && same_nodes;
    e->was_short = is_short;
    if (is) {
        lvni_launch_print(e->r,
                          "no more restarts: two attempts in a row failed within %g s (crash loop)",
                          e->r->o.crash_loop_s);
    }
    return is;
}

/* Which nodes answer; *same: those that did before. false: a signal ended the question. */
static bool choose_nodes(elastic *e, bool *same)
{
    lvni_launch_probes_ask(&e->probes, NULL);
    while (!lvni_launch_probes_tick(&e->probes, lvni_core_now_ns())) {
        wait_a_moment(e, ASKED_POLL_MS);
        read_signals(e);
        if (e->r->signal != 0 || e->asked) {
            lvni_launch_probes_stop(&e->probes);
            return false;
        }
    }
    *same = true;
    for (size_t i = 0; i < e->hosts.n; i++) {
        *same = *same && e->in[i] == e->probes.node[i].alive;
        e->in[i] = e->probes.node[i].alive;
    }
    int per_node;
    count(e, &per_node);
    return true;
}

static void report_next(elastic *e, bool enough, bool counts)
{
    lvni_core_str lost = {0};
    const int all = (int)e->hosts.n;
    if (e->nodes < all) {
        lvni_core_str_append(&lost, "; no answer from ");
        list(e, false, &lost);
    }
    const char *ranks = lvni_core_plural(e->tasks, "", "s");
    if (!enough) {
        lvni_launch_print(e->r, "no more restarts: %d rank%s left, min_ranks=%d%s", e->tasks, ranks,
                          e->r->o.min_ranks, lvni_core_str_text(&lost));
    } else if (counts) {
        lvni_launch_print(e->r, "restart %d of %d: %d rank%s on %d of %d node%s%s", e->restarts,
                          e->r->o.max_restarts, e->tasks, ranks, e->nodes, all,
                          lvni_core_plural(all, "", "s"), lvni_core_str_text(&lost));
    } else {
        lvni_launch_print(e->r, "continues with %d rank%s on %d of %d node%s%s", e->tasks, ranks,
                          e->nodes, all, lvni_core_plural(all, "", "s"), lvni_core_str_text(&lost));
    }
    lvni_core_str_free(&lost);
}

/* After a step that ended with *code: is there another one? */
static bool goes_on(elastic *e, int *code)
{
    const bool saved = *code == LVNI_EXIT_REQUEUE || *code == LVNI_EXIT_NO_REQUEUE,
               grown = e->growing && !e->asked && e->r->signal == 0 && saved;
    bool same = false;
    if (!grown && is_last(e, *code)) {
        return false;
    }
    if (!choose_nodes(e, &same)) {
        *code = e->r->signal != 0 ? 128 + e->r->signal : LVNI_EXIT_REQUEUE;
        return false;
    }
    if (!grown && is_crash_loop(e, same)) {
        return false;
    }
    const bool enough = e->tasks >= e->r->o.min_ranks;
    e->restarts += grown ? 0 : 1;
    report_next(e, enough, !grown);
    *code = enough ? *code : LVNI_EXIT_PEER;
    return enough;
}

static lvn_status run_steps(elastic *e, int *code)
{
    for (;; e->r->attempt++) {
        LVN_TRY(start_step(e));
        *code = watch_step(e);
        if (!goes_on(e, code)) {
            return LVN_OK;
        }
    }
}

/* ---- all of them ---- */

static lvn_status open_job(elastic *e)
{
    lvni_launch_run *r = e->r;
    const char *nodes = lvni_launch_env_get(r->environment, "SLURM_JOB_NODELIST");
    if (nodes == NULL) {
        nodes = lvni_launch_env_get(r->environment, "SLURM_NODELIST");
    }
    if (nodes == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "max_restarts=%d: the nodes of this allocation are not known, "
                 "SLURM_JOB_NODELIST is not set",
                 r->o.max_restarts);
    }
    LVN_TRY(lvni_launch_hosts_expand(&e->hosts, nodes, &r->notices));
    LVN_TRY(lvni_launch_task_vector_read(
        "SLURM_TASKS_PER_NODE", lvni_launch_env_get(r->environment, "SLURM_TASKS_PER_NODE"),
        &r->notices, &e->vector));
    LVN_TRY(lvni_launch_srun_find(r, &e->srun));
    LVN_TRY(lvni_launch_name_run(r));
    e->in = lvni_core_calloc(LVNI_TAG_CORE, e->hosts.n + 1, sizeof *e->in);
    if (e->in == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (size_t i = 0; i < e->hosts.n; i++) {
        e->in[i] = true;
    }
    /* a program that only the nodes have is none of ours */
    int code;
    if (lvni_launch_program_search(r->o.program[0], lvni_launch_env_raw(r->environment, "PATH"),
                                   &r->program, &code) == LVN_OK &&
        lvni_launch_is_training(r)) {
        e->continues_fd = memfd_create("continues", MFD_CLOEXEC);
        e->grows = e->continues_fd >= 0;
    }
    lvn_clear_error();
    LVN_TRY(take_signals(r));
    e->probes = (lvni_launch_probes){.srun = e->srun, .hosts = &e->hosts, .signals = &r->signals};
    return lvni_launch_probes_open(&e->probes, r->environment);
}

lvn_status lvni_launch_elastic(lvni_launch_run *r, const lvni_launch_allocation *a, int *code)
{
    elastic e = {.r = r, .a = a, .err_fd = -1, .continues_fd = -1};
    lvn_status s = open_job(&e);
    if (s == LVN_OK) {
        s = run_steps(&e, code);
    }
    lvni_launch_close_fd(&e.err_fd);
    lvni_launch_close_fd(&e.continues_fd);
    lvni_launch_probes_close(&e.probes);
    lvni_launch_hosts_free(&e.hosts);
    lvni_launch_task_vector_free(&e.vector);
    lvni_core_str_free(&e.line);
    lvni_core_free(e.srun);
    lvni_core_free(e.in);
    return s;
}
