/* levin sweep: the table of its sub-commands. */
#include "cli/cli.h"
#include "cli/sweep.h"
#include "core/error.h"
#include "core/escape.h"

#include <string.h>

const lvni_core_option_table *const lvni_cli_sweep_keys[] = {
    &lvni_sweep_plan_table, &lvni_cli_sweep_run_table, &lvni_cli_sweep_show_table,
    &lvni_cli_sweep_submit_table, NULL};

int lvni_cli_cmd_sweep(int n, const char *const *args)
{
    static const struct {
        const char *name;
        int (*run)(int n, const char *const *args);
    } all[] = {{"plan", lvni_cli_sweep_plan},     {"train", lvni_cli_sweep_train},
               {"run", lvni_cli_sweep_run},       {"worker", lvni_cli_sweep_worker},
               {"trial", lvni_cli_sweep_trial},   {"submit", lvni_cli_sweep_submit},
               {"status", lvni_cli_sweep_status}, {"show", lvni_cli_sweep_show},
               {"best", lvni_cli_sweep_best},     {"export", lvni_cli_sweep_export},
               {"report", lvni_cli_sweep_report}, {"stop", lvni_cli_sweep_stop},
               {"resume", lvni_cli_sweep_resume}};
    for (size_t i = 0; n > 0 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(args[0], all[i].name) == 0) {
            return all[i].run(n - 1, args + 1);
        }
    }
    if (n > 0) {
        lvni_core_print(stderr, "error: there is no levin sweep %s\n", args[0]);
    }
    return lvni_cli_command_misused("sweep");
}
