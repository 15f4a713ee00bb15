/* Commands that are one rank's work, among several ranks (cli.h). */
#include "cli/cli.h"
#include "core/notice.h"
#include "launch/who.h"

#include <stdio.h>
#include <unistd.h>

bool lvni_command_is_done_elsewhere(const char *name)
{
    const lvni_who_options o = {.launcher = true}; /* in the shell of a batch job it is alone */
    lvni_notices said = {0}, note = {0};
    lvni_who who;
    const bool known = lvni_who_detect(environ, &o, &said, &who) == LVN_OK;
    lvni_notices_free(&said);
    if (!known) { /* variables that contradict each other are no matter of a command without ranks */
        lvn_clear_error();
        return false;
    }
    if (who.world > 1 && who.rank == 0) {
        lvni_notice_warn(&note, 203, "levin %s is the work of one rank: rank 0 does it, the other%s of the %d ranks ha%s nothing to do", name,
                         who.world > 2 ? "s" : "", who.world, who.world > 2 ? "ve" : "s");
        fputs(lvni_str_text(&note.warnings), stderr);
        lvni_notices_free(&note);
    }
    const bool elsewhere = who.rank > 0;
    lvni_who_free(&who);
    return elsewhere;
}
