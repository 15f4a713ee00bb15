/* A training command on all ranks of this process (fit.h). */
#include "core/signals.h"
#include "log/run_log.h"
#include "recipes/accelerator.h"
#include "recipes/fit_impl.h"
#include "recipes/run_dir.h"
#include "trainer/phases.h"

#include <stdio.h>
#include <string.h>

/* No mistake, and no warning: the results are the same, and somebody may want to see them so. */
static bool shares_cores(const lvni_fit_run *run, char *out, size_t room)
{
    const int ranks = run->rank.world, cores = run->rank.cores_all;
    snprintf(out, room,
             "%d ranks share %d core%s and take turns: more than %d make%s nothing faster", ranks,
             cores, lvni_plural(cores, "", "s"), cores, lvni_plural(cores, "s", ""));
    return cores > 0 && ranks > cores && !lvni_accelerator_is_sim(run->request->config);
}

void lvni_fit_print_cores(const lvni_fit_run *run)
{
    char text[128];
    if (shares_cores(run, text, sizeof text)) {
        printf("%s\n", text);
    }
}

void lvni_fit_say_ranks(const lvni_fit_run *run)
{
    const lvni_ranks *ranks = run->request->ranks;
    /* NULL: all ranks are here */
    const lvni_member *told =
        run->rank.control == NULL ? NULL : lvni_control_members(run->rank.control);
    lvni_str devices = {.len = 0};
    for (int i = 0; lvni_accelerator_is_sim(run->request->config) && i < run->rank.world; i++) {
        const char *between = i == 0 ? ", devices " : ",";
        if (told != NULL) {
            lvni_str_printf(&devices, "%s%s", between, told[i].device);
        } else {
            lvni_str_printf(&devices, "%ssim:%d", between, ranks->rank[i].device);
        }
    }
    lvni_log_line(LVNI_LOG_INFO, "%d ranks: %s (strategy=%s)%s", run->rank.world, ranks->how,
                  lvni_config_str(run->request->config, "strategy"), lvni_str_text(&devices));
    lvni_str_free(&devices);
    char cores[128];
    if (shares_cores(run, cores, sizeof cores)) {
        lvni_log_line(LVNI_LOG_INFO, "%s", cores);
    }
}

static lvn_status fit_rank(void *user, const lvni_rank *rank)
{
    const lvni_fit_request *request = *(const lvni_fit_request **)user;
    lvni_ranks *ranks = request->ranks;
    lvni_fit_run r = {.request = request, .rank = *rank};
    const lvn_status s = lvni_fit_rank(&r);
    const lvn_error error = *lvn_last_error();
    lvni_rank_give_up(rank, s); /* before the trainer goes, for whose end others may be needed */
    if (rank == ranks->rank && r.trainer != NULL) {
        memcpy(ranks->kept, r.trainer->kept, sizeof ranks->kept);
    }
    lvni_fit_run_free(&r);
    lvn_error_adopt(&error);
    return s;
}

lvn_status lvni_fit(const lvni_fit_request *request)
{
    const lvn_status s = lvni_ranks_each(request->ranks, fit_rank, &request);
    if (request->ranks->process == NULL) { /* else its way out is not over: lvni_ranks_close */
        lvni_core_signals_remove();
    }
    return s;
}

lvn_status lvni_fit_end(lvn_status status)
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
    lvni_run_dir_release();
    return status;
}

void lvni_fit_say_phases(const lvni_fit_run *r)
{
    lvni_str text = {0};
    if (lvni_phases_count(r->model) > 1) {
        lvni_phases_describe(r->model, &text);
        lvni_log_line(LVNI_LOG_DETAIL, "phases of a step: %s", lvni_str_text(&text));
    }
    lvni_str_free(&text);
}
