/* Stopping and going on (sweep_control.h). */
#include "sweep/sweep_control.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void stop_path(const lvni_sweep_plan *plan, int64_t trial, lvni_core_str *out)
{
    if (trial >= 0) {
        lvni_sweep_trial_path(plan, trial, out);
    } else {
        lvni_core_str_append(out, plan->dir);
    }
    lvni_core_str_append(out, "/stop");
}

lvn_status lvni_sweep_stop(const lvni_sweep_plan *plan, int64_t trial)
{
    static const char text[] = "levin sweep resume goes on\n";
    lvni_core_str path = {0};
    lvn_status s;
    stop_path(plan, trial, &path);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    s = lvni_core_file_write(lvni_core_str_text(&path), text, sizeof text - 1);
done:
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_sweep_unstop(const lvni_sweep_plan *plan)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    /* the sweep's own last: killed before that, nothing runs that was stopped */
    for (int64_t i = plan->n_trials; i-- >= 0;) {
        lvni_core_str_clear(&path);
        stop_path(plan, i, &path);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        LVNI_TRY_DONE(s, lvni_core_file_remove(lvni_core_str_text(&path)));
    }
done:
    lvni_core_str_free(&path);
    return s;
}

/* ---- processes of this host ---- */

static bool is_of_here(const lvni_sweep_owner *self, const lvni_sweep_owner *owner)
{
    return owner->pid > 0 && owner->pid != self->pid && owner->space == self->space &&
           strcmp(owner->host, self->host) == 0 && strcmp(owner->boot, self->boot) == 0;
}

lvn_status lvni_sweep_stop_here(const lvni_sweep_look *looks, int64_t n, int64_t *asked)
{
    lvni_sweep_owner self;
    int64_t *done = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n, sizeof *done);
    *asked = 0;
    if (done == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_sweep_owner_self(&self);
    for (int64_t i = 0; i < n; i++) {
        const lvni_sweep_owner *owner = &looks[i].owner;
        bool known = looks[i].state != LVNI_SWEEP_RUNNING || !is_of_here(&self, owner) ||
                     lvni_sweep_ask_host(owner, NULL) != LVNI_SWEEP_THERE;
        for (int64_t k = 0; k < *asked && !known; k++) {
            known = done[k] == owner->pid;
        }
        if (!known && kill((pid_t)owner->pid, SIGTERM) == 0) {
            done[(*asked)++] = owner->pid;
        }
    }
    lvni_core_free(done);
    return LVN_OK;
}

/* ---- once more ---- */

/* The result renamed to failed.K; of an owner that was killed before it linked the result, left.K
 * under this name, too. */
static lvn_status rename_result(const char *result, const char *left, const char *failed)
{
    const lvni_core_vfs *vfs = lvni_core_vfs_get();
    if (vfs->rename(result, failed) == 0 ||
        (errno == ENOENT && (vfs->link(left, failed) == 0 || errno == EEXIST))) {
        return LVN_OK;
    }
    LVN_FAIL(LVN_ERR_IO, "%s: it cannot be renamed to %s: %s", result, failed, strerror(errno));
}

lvn_status lvni_sweep_again(const lvni_sweep_plan *plan, int64_t trial, const lvni_sweep_look *look)
{
    lvni_core_str path = {0}, result = {0}, left = {0}, failed = {0};
    lvn_status s;
    lvni_sweep_trial_path(plan, trial, &path);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    const char *dir = lvni_core_str_text(&path);
    const long long k = look->attempt;
    lvni_core_str_printf(&result, "%s/result", dir);
    lvni_core_str_printf(&left, "%s/left.%lld", dir, k);
    lvni_core_str_printf(&failed, "%s/failed.%lld", dir, k);
    LVNI_TRY_DONE(s, lvni_core_str_status(&result));
    LVNI_TRY_DONE(s, lvni_core_str_status(&left));
    LVNI_TRY_DONE(s, lvni_core_str_status(&failed));
    s = rename_result(lvni_core_str_text(&result), lvni_core_str_text(&left),
                      lvni_core_str_text(&failed));
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&result);
    lvni_core_str_free(&left);
    lvni_core_str_free(&failed);
    return s;
}
