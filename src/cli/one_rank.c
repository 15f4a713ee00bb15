/* Commands that are one rank's work, among several ranks (cli.h). */
#include "cli/cli.h"
#include "core/notice.h"
#include "launch/env_vars.h"
#include "launch/who.h"

#include <stdio.h>
#include <unistd.h>

/* Of rank 0: the work is done, or under LEVIN_STRICT=1 refused. */
static bool warn(const char *name, int world)
{
    lvni_notices note = {0};
    bool strict = false;
    lvni_notice_warn(&note, 203,
                     "levin %s is the work of one rank: rank 0 does it, the other%s of the %d "
                     "ranks ha%s nothing to do",
                     name, world > 2 ? "s" : "", world, world > 2 ? "ve" : "s");
    lvn_status s = lvni_env_strict(environ, -1, &note, &strict);
    s = s == LVN_OK && strict ? lvni_notices_refuse_warnings(&note) : s;
    fputs(lvni_str_text(s == LVN_OK ? &note.warnings : &note.text), stderr);
    lvni_notices_free(&note);
    return s != LVN_OK;
}

bool lvni_command_is_done_elsewhere(const char *name, int *code)
{
    const lvni_who_options o = {.launcher = true}; /* in the shell of a batch job it is alone */
    lvni_notices said = {0};
    lvni_who who;
    const bool known = lvni_who_detect(environ, &o, &said, &who) == LVN_OK;
    lvni_notices_free(&said);
    if (!known) {
        /* variables that contradict each other are no matter of a command without ranks */
        lvn_clear_error();
        return false;
    }
    const bool refused = who.world > 1 && who.rank == 0 && warn(name, who.world);
    *code = refused ? LVNI_EXIT_USAGE : LVNI_EXIT_OK;
    const bool elsewhere = who.rank > 0;
    lvni_who_free(&who);
    return elsewhere || refused;
}
