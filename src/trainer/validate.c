/* Validation after an epoch, and samples that could not be read. Called by the loop (loop.c). */
#include "core/math.h"
#include "log/run_log.h"
#include "trainer/loop_impl.h"

#include <math.h>
#include <string.h>

void lvni_trainer_loop_report_unreadable(lvni_data_loader *loader)
{
    lvni_core_str text = {0};
    if (lvni_data_loader_report(loader, &text)) {
        lvni_log_line(LVNI_LOG_WARNING, "%s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}

bool lvni_trainer_metric_exists(const lvni_nn_step *step, const char *name)
{
    for (int i = 0; i < step->n_metrics; i++) {
        if (strcmp(step->metric[i].name, name) == 0 && step->metric[i].weight != 0.0) {
            return true;
        }
    }
    return false;
}

/* Made, and turned back, only now: its threads would decode at the expense of training. */
static lvn_status start_validation(lvni_trainer *t)
{
    if (t->val_loader != NULL) {
        return lvni_data_loader_rewind(t->val_loader);
    }
    const lvni_data_loader_options o = {.dataset = t->o.val,
                                        .plan = &t->o.plan,
                                        .seed = t->o.seed,
                                        .workers = t->o.workers,
                                        .skip_unreadable = t->o.skip_unreadable};
    return lvni_data_loader_create(&o, &t->val_loader);
}

lvn_status lvni_trainer_loop_validate(lvni_trainer *t)
{
    LVN_TRY(start_validation(t));
    lvni_trainer_show_average(t, true);
    const lvn_status s = lvni_trainer_evaluate(t->o.model, t->val_loader, t->engine->lanes,
                                               t->o.comm, &t->report.last_val);
    lvni_trainer_show_average(t, false);
    t->keeper.signal = s == LVN_ERR_CANCELLED ? lvni_trainer_stop_signal() : t->keeper.signal;
    LVN_TRY(s);
    lvni_trainer_loop_report_unreadable(t->val_loader);
    const double loss = lvni_trainer_metric_mean(&t->report.last_val, "loss");
    if (lvni_trainer_metric_exists(&t->report.last_val, "loss") && !isfinite(loss)) {
        LVN_FAIL(
            LVN_ERR_NON_FINITE,
            "the validation loss is %g after step %lld (epoch %lld): try a smaller optim.lr or "
            "gradient_clip_val=1",
            lvni_core_unsigned_nan(loss), (long long)t->at.step, (long long)t->at.epoch + 1);
    }
    return LVN_OK;
}

/* With on_error=skip: a run that learned nothing must not end as if it had. */
lvn_status lvni_trainer_loop_check_readable(const lvni_trainer *t)
{
    const bool none =
        t->o.comm != NULL
            ? t->report.samples == 0 /* of all ranks; a loader knows its own rank's alone */
            : lvni_data_loader_get_stats(t->loader).unreadable == t->o.plan.n_samples;
    if (none || t->at.samples_seen == 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "none of the training samples read in %lld step%s (of %lld sample%s in all) could "
                 "be used: "
                 "see the warnings for their names",
                 (long long)t->at.step, lvni_core_plural(t->at.step, "", "s"),
                 (long long)t->o.plan.n_samples, lvni_core_plural(t->o.plan.n_samples, "", "s"));
    }
    return LVN_OK;
}
