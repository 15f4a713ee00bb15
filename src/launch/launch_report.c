/* Which process failed first, the exit code of the launcher, and the report: its own lines, the
 * first failure with its cause and last lines, and how all ended. */
#include "launch/launch_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { FILE_MAX = 64 << 10 };

/* ---- the first failure ----
 * The first to die need not be the cause: a rank whose neighbour is gone dies too, often sooner. So
 * the earliest error record that is not about a lost peer decides; without one the earliest death
 * that does not have that code; without that the earliest death. */

int lvni_launch_code_of(const lvni_launch_proc *p)
{
    return p->how == CLD_EXITED ? p->status : lvni_core_exit_of_signal(p->status);
}

static bool is_requeue(int code)
{
    return code == LVNI_EXIT_REQUEUE || code == LVNI_EXIT_NO_REQUEUE;
}

static bool failed(const lvni_launch_proc *p)
{
    const int code = lvni_launch_code_of(p);
    return p->started && code != LVNI_EXIT_OK && !is_requeue(code);
}

/* A process that was stopped died after another. Of two deaths noticed at one moment the one by a
 * signal came first: a lost peer is never the cause of a signal. */
static bool earlier(const lvni_launch_proc *a, const lvni_launch_proc *b)
{
    if (b == NULL || a->stopped != b->stopped) {
        return b == NULL || b->stopped;
    }
    return a->end_ns < b->end_ns ||
           (a->end_ns == b->end_ns && a->how != CLD_EXITED && b->how == CLD_EXITED);
}

static const lvni_launch_proc *first_record(const lvni_launch_run *r, lvni_core_error_record *best)
{
    const lvni_launch_proc *found = NULL;
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        lvni_core_error_record one;
        if (failed(p) && lvni_core_error_record_read(p->record, &one) == LVN_OK &&
            strcmp(one.kind, "peer") != 0 && (found == NULL || one.time_ns < best->time_ns)) {
            found = p;
            *best = one;
        }
    }
    lvn_clear_error();
    return found;
}

static const lvni_launch_proc *first_death(const lvni_launch_run *r, bool by_itself)
{
    const lvni_launch_proc *found = NULL;
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        if (failed(p) &&
            (!by_itself || (!p->stopped && lvni_launch_code_of(p) != LVNI_EXIT_PEER)) &&
            earlier(p, found)) {
            found = p;
        }
    }
    return found;
}

const lvni_launch_proc *lvni_launch_first(const lvni_launch_run *r, lvni_core_error_record *record)
{
    *record = (lvni_core_error_record){.code = 0};
    const lvni_launch_proc *p = first_record(r, record);
    if (p != NULL) {
        return p;
    }
    p = first_death(r, true);
    if (p == NULL) {
        p = first_death(r, false);
    }
    if (p != NULL && lvni_core_error_record_read(p->record, record) != LVN_OK) {
        /* one of a lost peer, or none */
        *record = (lvni_core_error_record){.code = 0};
        lvn_clear_error();
    }
    return p;
}

/* Was it really? The signal itself cannot be seen from here: one that a handler takes leaves no
 * trace outside of its process, so a rank that was sent SIGTERM and one that chose 143 by itself
 * look alike. The first is taken for granted, since it ends runs every day. The launcher's exit
 * code is the same either way; only the report and the restarts would differ. */
bool lvni_launch_was_asked(const lvni_launch_run *r)
{
    lvni_core_error_record record;
    const lvni_launch_proc *first = lvni_launch_first(r, &record);
    bool asked = first != NULL && record.kind[0] == '\0' && first->how == CLD_EXITED &&
                 (first->status == LVNI_EXIT_SIGTERM || first->status == LVNI_EXIT_SIGINT ||
                  first->status == LVNI_EXIT_SIGHUP);
    for (int i = 0; asked && i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        asked = p->started && p->how == CLD_EXITED && p->status == first->status;
    }
    return asked;
}

/* The exit code when nothing failed: 0, or that of a stop that asks for a requeue. */
static int code_of_good_end(const lvni_launch_run *r)
{
    int code = LVNI_EXIT_OK;
    for (int i = 0; i < r->local; i++) {
        const int one = lvni_launch_code_of(&r->procs[i]);
        code = one > code ? one : code;
    }
    return code;
}

int lvni_launch_code(const lvni_launch_run *r)
{
    lvni_core_error_record record;
    const lvni_launch_proc *first = lvni_launch_first(r, &record);
    if (r->reason == LVNI_REASON_TIMEOUT) {
        return LVNI_EXIT_TIMEOUT;
    }
    if (r->reason == LVNI_REASON_STRAGGLER) {
        return LVNI_EXIT_FAILURE;
    }
    if (first == NULL) {
        return code_of_good_end(r);
    }
    if (r->reason == LVNI_REASON_SIGNAL) {
        return lvni_core_exit_of_signal(r->signal);
    }
    /* Its record holds the exit code it had chosen when the others' ends made the launcher stop it,
     * too. */
    return first->stopped && record.code > 0 ? record.code : lvni_launch_code_of(first);
}

/* ---- the launcher's own lines ---- */

void lvni_launch_print(lvni_launch_run *r, const char *fmt, ...)
{
    lvni_core_str s = {0};
    va_list args;
    va_start(args, fmt);
    char text[2048];
    lvni_core_escape_format(text, sizeof text, fmt, args);
    va_end(args);
    lvni_core_str_printf(&s, "levin launch: %s", text);
    lvni_launch_sink_line(r->err, lvni_core_str_text(&s));
    lvni_core_str_free(&s);
}

/* ---- out of memory ---- */

/* The path after "0::" in /proc/self/cgroup. */
static bool control_group(char *path, size_t room)
{
    char *data;
    size_t bytes;
    if (lvni_core_file_read("/proc/self/cgroup", FILE_MAX, &data, &bytes) != LVN_OK) {
        return false;
    }
    const char *at = strncmp(data, "0::", 3) == 0 ? data : strstr(data, "\n0::");
    if (at != NULL) {
        at += *at == '\n' ? 4 : 3;
        snprintf(path, room, "/sys/fs/cgroup%.*s/memory.events", (int)strcspn(at, "\n"), at);
    }
    lvni_core_free(data);
    return at != NULL;
}

int64_t lvni_launch_oom_kills(void)
{
    char path[1024];
    char *data = NULL;
    size_t bytes;
    int64_t n = -1;
    if (control_group(path, sizeof path) && lvni_core_path_exists(path) &&
        lvni_core_file_read(path, FILE_MAX, &data, &bytes) == LVN_OK) {
        const char *at = strstr(data, "oom_kill ");
        n = at != NULL ? (int64_t)strtoll(at + 9, NULL, 10) : -1;
        lvni_core_free(data);
    }
    lvn_clear_error();
    return n;
}

/* ---- how a process ended ---- */

static void print_end(const lvni_launch_proc *p, lvni_core_str *out)
{
    if (p->how == CLD_EXITED) {
        lvni_core_str_printf(out, "exit code %d", p->status);
        return;
    }
    const char *name = sigabbrev_np(p->status);
    if (name != NULL) {
        lvni_core_str_printf(out, "killed by SIG%s%s", name,
                             p->how == CLD_DUMPED ? " (core dumped)" : "");
    } else {
        lvni_core_str_printf(out, "killed by signal %d", p->status);
    }
}

static void print_device(const lvni_launch_run *r, const lvni_launch_proc *p, lvni_core_str *out)
{
    const lvni_launch_device_choice *d = &r->devices;
    if (d->accelerator != LVNI_ACCELERATOR_CPU && d->index != NULL && p->local_rank < d->n &&
        d->index[p->local_rank] < r->visible.n) {
        lvni_core_str_printf(out, ", %s %s",
                             d->accelerator == LVNI_ACCELERATOR_CUDA ? "GPU" : r->o.accelerator,
                             r->visible.device[d->index[p->local_rank]].name);
    }
}

/* When all ended with exit code 76 none of them failed itself, unless one has a record of its own
 * (it hung): the cause is a node or a process that stopped answering, which their records name. */
static void headline(lvni_launch_run *r, const lvni_launch_proc *p, const lvni_core_error_record *e)
{
    lvni_core_str end = {0}, device = {0};
    if (p->stopped && e->code > 0) { /* on its way out with this code when it was stopped */
        lvni_core_str_printf(&end, "exit code %d", e->code);
    } else {
        print_end(p, &end);
    }
    print_device(r, p, &device);
    const double after_s = (double)(p->end_ns - p->start_ns) / 1e9;
    const bool by_itself = e->kind[0] != '\0' && strcmp(e->kind, "peer") != 0;
    if (lvni_launch_code_of(p) == LVNI_EXIT_PEER && !by_itself) {
        lvni_launch_print(r,
                          "no rank failed by itself; rank %d (pid %d, node %s%s) was the first to "
                          "stop because another one was gone, after %.1f s",
                          p->rank, (int)p->pid, r->host, lvni_core_str_text(&device), after_s);
    } else {
        lvni_launch_print(r, "rank %d (pid %d, node %s%s) failed first: %s after %.1f s", p->rank,
                          (int)p->pid, r->host, lvni_core_str_text(&device),
                          lvni_core_str_text(&end), after_s);
    }
    lvni_core_str_free(&end);
    lvni_core_str_free(&device);
}

/* ---- parts of the report ---- */

LVN_PRINTF(2, 3)
static void line(lvni_launch_run *r, const char *fmt, ...)
{
    char text[4096];
    va_list args;
    va_start(args, fmt);
    lvni_core_escape_format(text, sizeof text, fmt, args);
    va_end(args);
    lvni_launch_sink_line(r->err, text);
}

static void print_record(lvni_launch_run *r, const lvni_core_error_record *e)
{
    if (e->kind[0] == '\0') {
        return;
    }
    line(r, "  %s: %-s", e->kind, e->message);
    if (e->where[0] != '\0') {
        line(r, "  at %s", e->where);
    }
    for (int i = 0; i < e->n_stack; i++) {
        line(r, "  in %s", e->stack[i]);
    }
}

static void print_hints(lvni_launch_run *r, const lvni_launch_proc *p,
                        const lvni_core_error_record *e)
{
    if (p->how != CLD_EXITED && p->status == SIGKILL && e->kind[0] == '\0') {
        const int64_t n = lvni_launch_oom_kills();
        if (n > r->oom_kills && r->oom_kills >= 0) {
            line(r,
                 "  out of memory: the kernel killed here since the start (memory.events: oom_kill "
                 "%" PRId64 ", before %" PRId64 ")",
                 n, r->oom_kills);
        } else {
            line(r,
                 "  possibly out of memory: the kernel kills so, and so does a person or a batch "
                 "system%s",
                 n >= 0 ? " (memory.events counts no oom_kill since the start)" : "");
        }
    }
}

static bool has_printed(const lvni_launch_proc *p, const char *before, const char *message)
{
    char *text = NULL, sentence[1040];
    size_t bytes = 0;
    snprintf(sentence, sizeof sentence, "%s%s", before, message);
    if (lvni_launch_stream_tail(&p->err, LVNI_ERROR_STACK, &text, &bytes) != LVN_OK) {
        return false;
    }
    const bool found = memmem(text, bytes, sentence, strlen(sentence)) != NULL;
    lvni_core_free(text);
    return found;
}

/* The message of the record is on the terminal already, in the last lines of its rank or of one
 * that made the same mistake. */
static bool is_reported(const lvni_launch_run *r, const lvni_launch_proc *first,
                        const lvni_core_error_record *e)
{
    bool reported = false;
    for (int i = 0; i < r->local && e->kind[0] != '\0' && e->message[0] != '\0' && !reported; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        reported = lvni_launch_shows(r, p, LVNI_STREAM_ERR) &&
                   /* of others only their own mistake, not what they heard from this one */
                   has_printed(p, p == first ? "" : "error: ", e->message);
    }
    return reported;
}

static bool ends_with(const char *text, size_t n, const char *end, size_t m)
{
    return m > 0 && n >= m && memcmp(text + n - m, end, m) == 0;
}

/* Does the line of n bytes only repeat the record: (the end of) a line of its message, or a
 * frame? */
static bool is_of_record(const lvni_core_error_record *e, const char *text, size_t n)
{
    const size_t blanks = strspn(text, " \t"), skip = blanks < n ? blanks : n;
    bool is = e->kind[0] != '\0' && skip == n; /* an empty one between them */
    for (const char *at = e->message; *at != '\0' && !is;
         at += at[strcspn(at, "\n")] == '\n' ? strcspn(at, "\n") + 1 : strcspn(at, "\n")) {
        is = ends_with(text, n, at, strcspn(at, "\n"));
    }
    char frame[1040];
    snprintf(frame, sizeof frame, "at %s", e->where);
    is = is || (e->where[0] != '\0' && strlen(frame) == n - skip &&
                memcmp(text + skip, frame, n - skip) == 0);
    for (int i = 0; i < e->n_stack && !is; i++) {
        snprintf(frame, sizeof frame, "in %s", e->stack[i]);
        is = strlen(frame) == n - skip && memcmp(text + skip, frame, n - skip) == 0;
    }
    return is;
}

/* Except lines that repeat the record. */
static void print_tail(lvni_launch_run *r, const lvni_launch_proc *p,
                       const lvni_core_error_record *e)
{
    char *text;
    size_t bytes;
    if (lvni_launch_stream_tail(&p->err, r->o.tail, &text, &bytes) != LVN_OK) {
        return;
    }
    bool begun = false;
    for (char *at = text; at < text + bytes;) {
        char *end = memchr(at, '\n', (size_t)(text + bytes - at));
        const size_t n = end != NULL ? (size_t)(end - at) : (size_t)(text + bytes - at);
        if (!is_of_record(e, at, n)) {
            if (!begun) {
                line(r, "  last lines of its standard error:");
            }
            begun = true;
            lvni_launch_sink_put(r->err, "  | ", 4);
            lvni_launch_sink_put(r->err, at, n);
            lvni_launch_sink_put(r->err, "\n", 1);
        }
        at += n + 1;
    }
    lvni_core_free(text);
}

static const char *short_end(const lvni_launch_proc *p, char *text, size_t room)
{
    if (!p->started) {
        snprintf(text, room, "not started");
    } else if (p->alive) {
        snprintf(text, room, "alive");
    } else if (p->how == CLD_EXITED) {
        snprintf(text, room, "%d", p->status);
    } else {
        const char *name = sigabbrev_np(p->status);
        snprintf(text, room, "%s%s%s", name != NULL ? "SIG" : "signal", name != NULL ? name : "",
                 p->stopped ? " (stopped)" : "");
    }
    return text;
}

static void print_table(lvni_launch_run *r, uint64_t zero_ns)
{
    line(r, "  %5s  %-12s  %-18s %9s  %s", "rank", "host", "exit", "time", "log");
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_proc *p = &r->procs[i];
        char end[48];
        const double at = p->started && !p->alive ? ((double)p->end_ns - (double)zero_ns) / 1e9 : 0;
        line(r, "  %5d  %-12s  %-18s %+7.2f s  %s", p->rank, r->host, short_end(p, end, sizeof end),
             at, r->o.keep_logs == LVNI_KEEP_NEVER ? "-" : p->err_log);
    }
}

/* Logs that could not be written do not stop a run, but are reported. */
static void print_broken_logs(lvni_launch_run *r)
{
    for (int i = 0; i < r->local; i++) {
        const lvni_launch_stream *both[] = {&r->procs[i].out, &r->procs[i].err};
        for (int k = 0; k < 2; k++) {
            if (both[k]->log_error != 0) {
                lvni_launch_print(r, "the log %s is cut: %s",
                                  k == 0 ? r->procs[i].out_log : r->procs[i].err_log,
                                  strerror(both[k]->log_error));
            }
        }
    }
}

static void report_reason(lvni_launch_run *r)
{
    if (r->reason == LVNI_REASON_TIMEOUT) {
        lvni_launch_print(r, "stopped: the time of --timeout %g s is over", r->o.timeout_s);
    } else if (r->reason == LVNI_REASON_SIGNAL) {
        lvni_launch_print(r, "stopped by SIG%s", sigabbrev_np(r->signal));
    } else if (r->reason == LVNI_REASON_STRAGGLER) {
        lvni_launch_print(r,
                          "rank %d ended early: others still ran %g s later (--straggler-timeout)",
                          r->straggler, r->o.straggler_timeout_s);
    }
}

void lvni_launch_report_saved(lvni_launch_run *r)
{
    int64_t step, epoch;
    const lvni_launch_proc *p = &r->procs[0];
    if (r->o.keep_logs != LVNI_KEEP_STARTED || p->rank != 0 || !p->started ||
        p->how == CLD_EXITED || !r->after_kill(r->run_dir, &step, &epoch)) {
        return;
    }
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "step %" PRId64 " (epoch %" PRId64 ") is saved: resume=true goes on from there", step,
             epoch + 1);
    /* killed while it ended, it has reported that itself */
    if (!lvni_launch_shows(r, p, LVNI_STREAM_ERR) || !has_printed(p, "", sentence)) {
        lvni_launch_print(r, "%s", sentence);
    }
}

void lvni_launch_report(lvni_launch_run *r)
{
    print_broken_logs(r);
    lvni_core_error_record record;
    const lvni_launch_proc *first = lvni_launch_first(r, &record);
    if (r->reason == LVNI_REASON_SIGNAL) {
        if (first != NULL && !r->o.quiet) {
            report_reason(r);
        }
        return;
    }
    report_reason(r);
    if (r->reason != LVNI_REASON_FAILURE || first == NULL) {
        if (r->reason != LVNI_REASON_NONE) {
            print_table(r, r->stop_ns);
        }
        return;
    }
    if (lvni_launch_was_asked(r)) { /* each has printed its own message */
        lvni_launch_print(r, "all ranks ended with exit code %d (SIG%s)", first->status,
                          sigabbrev_np(first->status - 128));
        return;
    }
    const bool reported = is_reported(r, first, &record), begun = !lvni_launch_not_begun(r);
    if (reported && !begun) { /* the message is all there is to report */
        return;
    }
    headline(r, first, &record);
    if (!reported) {
        print_record(r, &record);
        print_hints(r, first, &record);
        print_tail(r, first, &record);
    }
    if (begun) {
        print_table(r, first->end_ns);
    }
}
