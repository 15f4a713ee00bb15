/* Who failed first, and what the launcher leaves with. The first to die need not be the cause: a
 * rank whose neighbour is gone dies too, often sooner. So the earliest error record that is not
 * about a lost peer decides; without one the earliest death that is no such code; without that the
 * earliest death. */
#include "launch/launch_impl.h"

#include "core/error.h"

#include <string.h>
#include <sys/wait.h>

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

/* Who was stopped died after somebody else. Of two deaths noticed at one moment the one by a signal
 * came first: nobody dies of a signal because a peer is gone. */
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
 * trace outside of its process, so a rank that was sent SIGTERM by somebody and one that chose 143
 * by itself look alike. The code is therefore taken at its word, since the first is what ends runs
 * every day. The launcher leaves with it either way; the report and the restarts alone would be
 * others. */
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

/* The one code that stands for all when nothing failed: 0, or that of a stop that asks for going
 * on. */
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
    /* Its record tells what it was about to leave with when the others' ends made the launcher stop
     * it, too. */
    return first->stopped && record.code > 0 ? record.code : lvni_launch_code_of(first);
}
