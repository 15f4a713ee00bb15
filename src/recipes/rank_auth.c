/* rank_auth.h */
#include "recipes/rank_auth.h"

#include "control/auth.h"
#include "launch/env_vars.h"
#include "log/run_log.h"

#include <unistd.h>

/* By the store's host alone, before any rank joins: the others get it from the store. */
static lvni_control_auth choose(const lvni_launch_rank_info *info, const char *dir,
                                const lvni_recipes_rank_auth *a)
{
    if (a->run_key != NULL || a->secret != NULL) {
        return LVNI_AUTH_KEY;
    }
    if (info->slurm.job && a->slurm.munge) {
        if (lvni_control_munge_probe(a->munge_socket) == LVN_OK) {
            return LVNI_AUTH_MUNGE;
        }
        lvni_log_line(
            LVNI_LOG_WARNING,
            "the ranks authenticate with a key in a file in %s, as MUNGE does not work here: %s",
            dir, lvn_last_error()->message);
    }
    return a->closed ? LVNI_AUTH_FILE : LVNI_AUTH_OPEN;
}

lvn_status lvni_recipes_rank_auth_choose(const lvni_launch_rank_info *info, const char *dir,
                                         lvni_recipes_rank_auth *out)
{
    *out = (lvni_recipes_rank_auth){.run_key = lvni_launch_env_get(environ, "LEVIN_RUN_KEY"),
                                    .secret = lvni_launch_env_get(environ, "LEVIN_TOKEN"),
                                    .key_dir = dir,
                                    .closed = info->slurm.job || info->rdzv == LVNI_RDZV_FILE};
    if (info->slurm.job) {
        LVN_TRY(lvni_launch_slurm_auth_read(environ, &out->slurm));
        out->munge_socket =
            out->slurm.socket.len > 0 ? lvni_core_str_text(&out->slurm.socket) : NULL;
    }
    if (!info->store_host) {
        return LVN_OK;
    }
    out->how = choose(info, dir, out);
    static const char *const names[] = {[LVNI_AUTH_OPEN] = "nothing",
                                        [LVNI_AUTH_KEY] = "a key of the environment",
                                        [LVNI_AUTH_FILE] = "a key in a file",
                                        [LVNI_AUTH_MUNGE] = "MUNGE"};
    lvni_log_line(LVNI_LOG_DEBUG, "the ranks authenticate with %s", names[out->how]);
    return LVN_OK;
}

void lvni_recipes_rank_auth_warn(const lvni_recipes_rank_auth *auth, int port)
{
    if (auth->how == LVNI_AUTH_OPEN) {
        lvni_log_line(
            LVNI_LOG_WARNING,
            "any process that reaches port %d of this host can join this run: set LEVIN_TOKEN to "
            "one secret text for all ranks",
            port);
    }
}

void lvni_recipes_rank_auth_free(lvni_recipes_rank_auth *auth)
{
    lvni_launch_slurm_auth_free(&auth->slurm);
}
