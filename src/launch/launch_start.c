/* The beginning of an attempt: ports, pipes and log files, then one process after the other. */
#include "launch/launch_impl.h"

#include "launch/launch_torchrun.h"

#include "control/store.h"
#include "control/auth.h"
#include "core/alloc.h"
#include "core/machine.h"
#include "launch/launch_child.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static lvn_status make_procs(lvni_launch_run *r)
{
    r->procs = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *r->procs);
    if (r->procs == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        lvni_launch_proc *p = &r->procs[i];
        p->local_rank = i;
        p->rank = r->node_rank * r->local + i;
        p->out = (lvni_launch_stream){.id = 2 * i, .fd = -1, .log_fd = -1};
        p->err = (lvni_launch_stream){.id = 2 * i + 1, .fd = -1, .log_fd = -1, .keeps_tail = true};
    }
    return lvni_launch_name_files(r);
}

static lvn_status open_ports(lvni_launch_run *r)
{
    r->store_fd = -1;
    r->store_port = 0;
    r->held = LVNI_NO_PORT;
    if (r->nodes == 1) {
        const int any = 0;
        LVN_TRY(lvni_control_store_listen("127.0.0.1", &any, 1, &r->store_fd, &r->store_port));
    }
    if (r->nodes == 1 || r->node_rank == 0) {
        return lvni_launch_port_hold(r->o.master_port, &r->notices, &r->held);
    }
    r->held.port = lvni_launch_port_number(r->o.master_port);
    return LVN_OK;
}

bool lvni_launch_shows(const lvni_launch_run *r, const lvni_launch_proc *p, int stream)
{
    const int hidden = lvni_launch_torchrun_streams(r->o.redirects, p->local_rank);
    return r->shown[p->rank] && !r->o.redirect && (hidden & stream) == 0;
}

/* The prefix holds the number of the process, so it is made when there is one. */
static lvn_status make_prefix(const lvni_launch_run *r, lvni_launch_proc *p)
{
    const char *pattern = r->o.prefix != NULL            ? r->o.prefix
                          : r->local > 1 || r->nodes > 1 ? "[%r] "
                                                         : "";
    lvni_launch_rank_name name;
    lvni_launch_name(r, p, &name);
    lvni_launch_stream *both[] = {&p->out, &p->err};
    for (int k = 0; k < 2; k++) {
        lvni_core_str s = {0};
        lvni_launch_pattern_expand(&s, pattern, &name);
        lvni_core_str_append(&s, "");
        LVN_TRY(lvni_core_str_status(&s));
        both[k]->prefix = lvni_core_str_take(&s);
        if (both[k]->prefix == NULL) {
            return LVN_ERR_MEMORY;
        }
    }
    if (strlen(p->out.prefix) > LVNI_STREAM_PIECE / 2) {
        LVN_FAIL(LVN_ERR_USAGE, "prefix: %zu bytes in front of every line are too many",
                 strlen(p->out.prefix));
    }
    p->out.sink = lvni_launch_shows(r, p, LVNI_STREAM_OUT) ? r->out : NULL;
    p->err.sink = lvni_launch_shows(r, p, LVNI_STREAM_ERR) ? r->err : NULL;
    return LVN_OK;
}

static lvn_status open_pipe(int ends[2])
{
    if (pipe2(ends, O_CLOEXEC) != 0) {
        LVN_FAIL(LVN_ERR_IO, "no pipe for the output of a process: %s (ulimit -n)",
                 strerror(errno));
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    return LVN_OK;
}

/* Where rank 0 writes: a terminal if it is to have one and we write to one. A pipe serves where
 * there are none to be had. */
static lvn_status open_output(lvni_launch_run *r, const lvni_launch_proc *p,
                              lvni_launch_stream *stream, int own, int ends[2])
{
    stream->live = r->o.pty && p->rank == 0 && lvni_core_terminal_rewrites(own);
    if (stream->live && lvni_launch_pty_open(own, ends) != LVN_OK) {
        lvni_launch_print(r, "%s; it writes to a pipe", lvn_last_error()->message);
        lvni_launch_close_fd(&ends[0]);
        lvni_launch_close_fd(&ends[1]);
        stream->live = false;
    }
    return stream->live ? LVN_OK : open_pipe(ends);
}

void lvni_launch_close_fd(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
}

static lvn_status start_with(lvni_launch_run *r, lvni_launch_proc *p, int in, const int *out,
                             const int *err, int *error)
{
    lvni_launch_variables v;
    LVN_TRY(lvni_launch_environment(r, p, &v));
    const bool bound = r->binding.how != LVNI_BIND_NONE;
    const lvni_launch_child c = {
        .path = r->program,
        .argv = r->o.program,
        .envp = v.list,
        .in = in,
        .out = out[1],
        .err = err[1],
        .keep_fds = {p->rank == 0 ? r->store_fd : -1, p->rank == 0 ? r->lock_fd : -1},
        .own_group = !r->shares_group,
        .cpus = bound ? r->binding.cpus[p->local_rank] : NULL,
        .cpu_bytes = r->binding.cpu_bytes,
        .numa_node = bound ? r->binding.numa[p->local_rank] : -1,
        .signals = r->signals,
        .files = r->files};
    p->start_ns = lvni_core_now_ns();
    const lvn_status s = lvni_launch_child_start(&c, &p->pid, error);
    lvni_launch_variables_free(&v);
    if (p->pid > 0) {
        p->started = p->alive = p->group_alive = true;
    }
    return s;
}

static lvn_status start_one(lvni_launch_run *r, lvni_launch_proc *p, int in, int *error)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    const bool by_pid = lvni_launch_logs_by_pid(r);
    /* an error then comes before the process */
    lvn_status s = by_pid ? LVN_OK : lvni_launch_open_logs(r, p);
    if (s == LVN_OK) {
        s = open_output(r, p, &p->out, STDOUT_FILENO, out);
    }
    if (s == LVN_OK) {
        s = open_output(r, p, &p->err, STDERR_FILENO, err);
    }
    if (s == LVN_OK) {
        p->pid = 0;
        s = start_with(r, p, in, out, err, error);
    }
    p->out.fd = out[0];
    p->err.fd = err[0];
    lvni_launch_close_fd(&out[1]);
    lvni_launch_close_fd(&err[1]);
    if (s == LVN_OK && by_pid) {
        s = lvni_launch_open_logs(r, p);
    }
    return s == LVN_OK ? make_prefix(r, p) : s;
}

static lvn_status start_all(lvni_launch_run *r, int *error)
{
    int *ends = lvni_core_calloc(LVNI_TAG_CORE, (size_t)r->local, sizeof *ends);
    if (ends == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < r->local; i++) {
        ends[i] = -1;
    }
    lvn_status s = lvni_launch_feed_open(r, ends);
    for (int i = 0; i < r->local; i++) {
        if (s == LVN_OK) {
            s = start_one(r, &r->procs[i], ends[i], error);
        }
        lvni_launch_close_fd(&ends[i]);
    }
    lvni_core_free(ends);
    return s;
}

/* Launchers of several nodes have nothing secret in common but what the user gives them:
 * LEVIN_TOKEN. */
static lvn_status make_key(lvni_launch_run *r)
{
    lvni_control_token key;
    LVN_TRY(lvni_control_token_random(&key));
    if (r->nodes == 1) {
        lvni_control_token_print(&key, r->run_key);
    }
    return LVN_OK;
}

lvn_status lvni_launch_start(lvni_launch_run *r, int *error)
{
    LVN_TRY(make_key(r));
    LVN_TRY(make_procs(r));
    LVN_TRY(open_ports(r));
    return start_all(r, error);
}
