/* Commands that are one rank's work, among several ranks (cli.h). */
#include "cli/cli.h"
#include "core/error.h"
#include "launch/env_vars.h"
#include "launch/rank_info.h"

#include <stdio.h>
#include <unistd.h>

/* Of rank 0: the work is done, or under LEVIN_STRICT=1 refused. */
static bool warn(const char *name, int world)
{
    lvni_core_notices note = {0};
    bool strict = false;
    lvni_core_notice_warn(&note, 203,
                          "levin %s is the work of one rank: rank 0 does it, the other%s of the %d "
                          "ranks ha%s nothing to do",
                          name, world > 2 ? "s" : "", world, world > 2 ? "ve" : "s");
    lvn_status s = lvni_launch_env_strict(environ, -1, &note, &strict);
    s = s == LVN_OK && strict ? lvni_core_notices_refuse_warnings(&note) : s;
    fputs(lvni_core_str_text(s == LVN_OK ? &note.warnings : &note.text), stderr);
    lvni_core_notices_free(&note);
    return s != LVN_OK;
}

bool lvni_cli_command_is_done_elsewhere(const char *name, int *code)
{
    /* in the shell of a batch job it is alone */
    const lvni_launch_rank_info_options o = {.launcher = true};
    lvni_core_notices message = {0};
    lvni_launch_rank_info info;
    const bool known = lvni_launch_rank_info_detect(environ, &o, &message, &info) == LVN_OK;
    lvni_core_notices_free(&message);
    if (!known) {
        /* variables that contradict each other are no matter of a command without ranks */
        lvn_clear_error();
        return false;
    }
    const bool refused = info.world > 1 && info.rank == 0 && warn(name, info.world);
    *code = refused ? LVNI_EXIT_USAGE : LVNI_EXIT_OK;
    const bool elsewhere = info.rank > 0;
    lvni_launch_rank_info_free(&info);
    return elsewhere || refused;
}
