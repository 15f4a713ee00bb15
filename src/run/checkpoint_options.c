/* Rows of checkpoints: when one is written, which are kept, and their names; and what they become
 * (options.h). */
#include "run/options.h"

#include "trainer/file_pattern.h"

#include <string.h>

#define NAMED "checkpoint.save_top_k"
#define KEPT_EPOCHS "checkpoint.keep_every_n_epochs"

static lvn_status check_pattern(const lvni_core_option *row, const lvni_core_value *value,
                                const char *origin)
{
    const char *wrong = lvni_trainer_pattern_wrong(value->text);
    return wrong == NULL ? LVN_OK : lvni_core_option_fail(row, value, origin, "%s", wrong);
}

static const lvni_core_option checkpoint_rows[] = {
    {.name = "checkpoint.every_n_steps",
     .type = LVNI_OPT_INT,
     .unit = "steps",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Save checkpoints/last also every so many steps; 0: after each epoch and at the end."},
    {.name = "checkpoint.every_n_epochs",
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "1",
     .range = LVNI_BETWEEN(1, 2147483647),
     .help = "Epochs from one that is saved to the next; validations in the others choose neither "
             "the best nor those of checkpoint.save_top_k."},
    {.name = "checkpoint.every_n_minutes",
     .type = LVNI_OPT_FLOAT,
     .unit = "minutes",
     .fallback = "0",
     .range = LVNI_AT_LEAST(0),
     .help = "Save checkpoints/last also after the step at which the newest save is that old; 0: "
             "the clock does not matter."},
    {.name = "checkpoint.monitor",
     .type = LVNI_OPT_STRING,
     .help = "The metric that the best checkpoint has the best value of: val/loss, val/acc or any "
             "other of the log, after each validation; train/loss and others after each epoch. "
             "Unset: val/acc (more is better), else val/loss, else train/loss."},
    {.name = "checkpoint.mode",
     .type = LVNI_OPT_CHOICE,
     .choices = "auto|min|max",
     .fallback = "auto",
     .needs = "checkpoint.monitor",
     .help =
         "What is better, less or more; auto: more of val/acc and other accuracies (acc, accuracy, "
         "f1, auc, psnr, ssim), less of all else."},
    {.name = NAMED,
     .type = LVNI_OPT_INT,
     .fallback = "0",
     .range = LVNI_AT_LEAST(-1),
     .help = "Keep so many of the best checkpoints beside best and last, under names of their own; "
             "-1: every one that is saved, those between two validations, too."},
    {.name = KEPT_EPOCHS,
     .type = LVNI_OPT_INT,
     .unit = "epochs",
     .fallback = "0",
     .range = LVNI_BETWEEN(0, 2147483647),
     .help = "Keep the checkpoint of every so many epochs, too, whatever its metric; 0: none."},
    {.name = "checkpoint.filename",
     .type = LVNI_OPT_STRING,
     .fallback = "{epoch:04d}-{step}",
     .check = check_pattern,
     .needs = NAMED,
     .help = "Their names: {epoch}, {step}, {val/NAME} or {train/NAME}, with formats as in "
             "{epoch:04d} and {val/loss:.2f}; .safetensors stands behind them."},
    {.name = "checkpoint.auto_insert_metric_name",
     .type = LVNI_OPT_BOOL,
     .fallback = "true",
     .needs = NAMED,
     .help = "With the name before each value, as epoch=0001; a / in it becomes _."},
    LVNI_OPTION_ALIAS("save_top_k", NAMED),
    LVNI_OPTION_ALIAS("every_n_train_steps", "checkpoint.every_n_steps"),
    LVNI_OPTION_ALIAS("every_n_epochs", "checkpoint.every_n_epochs"),
};
const lvni_core_option_table lvni_run_checkpoint_options =
    LVNI_OPTION_TABLE("checkpoints", checkpoint_rows);

/* Values of a validation that the run does not have. */
static lvn_status check_filename(const lvni_core_config *c, const lvni_trainer_options *o)
{
    lvni_trainer_pattern_field f;
    const char *at = o->keep.filename;
    for (lvni_trainer_pattern_part part = lvni_trainer_pattern_next(&at, &f);
         part == LVNI_PATTERN_TEXT || part == LVNI_PATTERN_FIELD;
         part = lvni_trainer_pattern_next(&at, &f)) {
        LVN_TRY(f.metric[0] == '\0'
                    ? LVN_OK
                    : lvni_run_check_monitor(c, "checkpoint.filename", f.metric, o->val != NULL));
    }
    return LVN_OK;
}

lvn_status lvni_run_read_checkpoints(const lvni_core_config *c, lvni_trainer_options *o)
{
    o->keep = (lvni_trainer_keep_options){
        .monitor = lvni_core_config_is_set(c, "checkpoint.monitor")
                       ? lvni_core_config_str(c, "checkpoint.monitor")
                       : NULL,
        .larger_is_better = lvni_run_more_is_better(c, "checkpoint.mode", "checkpoint.monitor"),
        .save_top_k = lvni_run_is_dev_run(c) ? 0 : lvni_core_config_int(c, NAMED),
        .keep_every_n_epochs = lvni_run_is_dev_run(c) ? 0 : lvni_core_config_int(c, KEPT_EPOCHS),
        .filename = lvni_core_config_str(c, "checkpoint.filename"),
        .names_in_filename = lvni_core_config_bool(c, "checkpoint.auto_insert_metric_name"),
        .every_n_steps = lvni_core_config_int(c, "checkpoint.every_n_steps"),
        .every_n_epochs = lvni_core_config_int(c, "checkpoint.every_n_epochs"),
        .every_s = lvni_core_config_float(c, "checkpoint.every_n_minutes") * 60.0};
    LVN_TRY(o->keep.monitor == NULL
                ? LVN_OK
                : lvni_run_check_monitor(c, "checkpoint.monitor", o->keep.monitor, o->val != NULL));
    const bool named = o->keep.save_top_k != 0 || o->keep.keep_every_n_epochs > 0;
    return named ? check_filename(c, o) : LVN_OK;
}
