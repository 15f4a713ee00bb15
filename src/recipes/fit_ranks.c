/* A training command on all ranks of this process (fit.h). */
#include "log/run_log.h"
#include "recipes/devices.h"
#include "recipes/fit_impl.h"
#include "recipes/run_dir.h"
#include "trainer/phases.h"

#include <stdio.h>
#include <string.h>

/* Not a warning: the results are the same. */
static bool shares_cores(const lvni_recipes_fit_run *run, char *out, size_t room)
{
    const int ranks = run->rank.world, cores = run->rank.cores_all;
    snprintf(out, room,
             "%d ranks share %d core%s and take turns: more than %d make%s nothing faster", ranks,
             cores, lvni_core_plural(cores, "", "s"), cores, lvni_core_plural(cores, "s", ""));
    return cores > 0 && ranks > cores && !lvni_recipes_accelerator_is_sim(run->request->config);
}

void lvni_recipes_fit_print_cores(const lvni_recipes_fit_run *run)
{
    char text[128];
    if (shares_cores(run, text, sizeof text)) {
        printf("%s\n", text);
    }
}

void lvni_recipes_fit_report_ranks(const lvni_recipes_fit_run *run)
{
    const lvni_recipes_ranks *ranks = run->request->ranks;
    /* NULL: all ranks are here */
    const lvni_control_member *reported =
        run->rank.control == NULL ? NULL : lvni_control_members(run->rank.control);
    lvni_core_str devices = {.len = 0};
    for (int i = 0; lvni_recipes_accelerator_is_sim(run->request->config) && i < run->rank.world;
         i++) {
        const char *between = i == 0 ? ", devices " : ",";
        if (reported != NULL) {
            lvni_core_str_printf(&devices, "%s%s", between, reported[i].device);
        } else {
            lvni_core_str_printf(&devices, "%ssim:%d", between, ranks->rank[i].device);
        }
    }
    lvni_log_line(LVNI_LOG_INFO, "%d ranks: %s (strategy=%s)%s", run->rank.world, ranks->how,
                  lvni_core_config_str(run->request->config, "strategy"),
                  lvni_core_str_text(&devices));
    lvni_core_str_free(&devices);
    char cores[128];
    if (shares_cores(run, cores, sizeof cores)) {
        lvni_log_line(LVNI_LOG_INFO, "%s", cores);
    }
}

lvn_status lvni_recipes_fit_end(lvn_status status)
{
    const lvn_error *e = lvn_last_error();
    if (status == LVN_ERR_CANCELLED) {
        lvni_log_file_line(LVNI_LOG_INFO, "stopped: %-s", e->message);
    } else if (status != LVN_OK) {
        lvni_log_file_line(LVNI_LOG_ERROR, "%-s",
                           e->message[0] != '\0' ? e->message : lvn_status_text(status));
        for (int i = 0; i < e->n_frames; i++) {
            lvni_log_file_line(LVNI_LOG_ERROR, "  in %s", e->frames[i]);
        }
    }
    lvni_log_close();
    lvni_recipes_run_dir_release();
    return status;
}

void lvni_recipes_fit_report_phases(const lvni_recipes_fit_run *r)
{
    lvni_core_str text = {0};
    if (lvni_trainer_phases_count(r->model) > 1) {
        lvni_trainer_phases_describe(r->model, &text);
        lvni_log_line(LVNI_LOG_DETAIL, "phases of a step: %s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}
