/* The parts of the loop that stand in files of their own. For this folder. */
#ifndef LEVIN_TRAINER_LOOP_IMPL_H
#define LEVIN_TRAINER_LOOP_IMPL_H

#include "trainer/trainer.h"

#include <signal.h>

/* loop.c: what drive.c needs of it */
bool lvni_trainer_loop_epoch_done(const lvni_trainer *t);
/* Log and loader, if they are not there yet. */
lvn_status lvni_trainer_loop_begin(lvni_trainer *t);
/* Before a step: what the ranks agreed on, and whether another step follows. */
lvn_status lvni_trainer_loop_begin_step(lvni_trainer *t);
/* monitors.c: which metrics are there now; a monitor is looked at when its own are */
enum { LVNI_NEWS_EPOCH = 1, LVNI_NEWS_VALIDATION = 2 };
/* The learning rate and the end of the run, as far as they follow from metrics. LVN_ERR_USAGE:
 * there is no such metric. */
lvn_status lvni_trainer_loop_follow(lvni_trainer *t, unsigned news);
/* Does the validation decide something by name? */
bool lvni_trainer_loop_monitors_validation(const lvni_trainer *t);
/* LVN_ERR_USAGE: one of these names is not among the metrics of `validation`, which has some. */
lvn_status lvni_trainer_loop_check_names(const lvni_trainer *t, const lvni_nn_step *validation);
void lvni_trainer_loop_next_epoch(lvni_trainer *t);
bool lvni_trainer_loop_is_val(const char *monitor); /* "val/NAME" */
/* Is it time to look at this metric? NULL: never. */
bool lvni_trainer_loop_is_new(const lvni_trainer *t, const char *monitor, unsigned news);
/* The metric that an option names, NaN where nothing of it had weight. LVN_ERR_USAGE: there is
 * none; the message lists those that there are. */
lvn_status lvni_trainer_loop_find_metric(const lvni_trainer *t, const char *key,
                                         const char *monitor, double *out);

/* Nothing is left to train: what ended the run, and what trains on. */
void lvni_trainer_loop_report_finished(const lvni_trainer *t);
/* "min val/loss": what a decision in a checkpoint is about; "" without a monitor. */
void lvni_trainer_loop_print_monitor(const char *monitor, bool larger_is_better, char *text,
                                     size_t size);

/* choose.c */
/* What is there now decides about the checkpoint of this step. validated: of some sample. A
 * collective; every rank has the same result. */
lvn_status lvni_trainer_choose(lvni_trainer *t, unsigned news, bool validated, bool *best,
                               bool *named);
/* Is this epoch one of checkpoint.every_n_epochs? */
bool lvni_trainer_choose_is_epoch(const lvni_trainer *t);
/* A checkpoint between two looks at metrics; with save_top_k=-1 it is kept. */
lvn_status lvni_trainer_choose_periodic(lvni_trainer *t);
/* What was chosen for this step becomes part of the list, after the save before has ended. */
lvn_status lvni_trainer_choose_begin_save(lvni_trainer *t);
/* For the checkpoint: "min val/loss", "" without a monitor. */
void lvni_trainer_choose_print_monitor(const lvni_trainer *t, char *text, size_t size);
void lvni_trainer_choose_path(const lvni_trainer *t, const char *name, lvni_core_str *out);
/* The list of a checkpoint in the run's own folder; another one's is empty. */
lvn_status lvni_trainer_choose_read(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                    lvni_trainer_kept *out, bool *same_monitor);
/* The checkpoint's list and its best were about another monitor. */
void lvni_trainer_choose_begin_again(lvni_trainer *t);
/* Finishes what the save of this checkpoint may have left: a name, a file that was to go. */
lvn_status lvni_trainer_choose_repair(const lvni_trainer *t, const lvni_ckpt *ckpt,
                                      lvni_trainer_kept *files);

/* The end of a run that max_time asked for: a signal as any other, that no process is sent. */
enum { LVNI_STOP_TIME = SIGALRM };

/* checkpointing.c */
/* Begins to write checkpoints/last and the exported model; best: these are the best ones, too.
 * Weights that are not finite are never saved. */
lvn_status lvni_trainer_checkpointing_save(lvni_trainer *t, bool best);
/* LVN_ERR_NON_FINITE: a weight or buffer is not finite. */
lvn_status lvni_trainer_checkpointing_check_weights(const lvni_trainer *t);
/* A signal asked for the end: save (unless `saved`), and report where the run can go on. Never
 * LVN_OK. */
lvn_status lvni_trainer_checkpointing_stop(lvni_trainer *t, int signal_number, bool saved);
/* A run of the same configuration and code that is resumed would fail with it again. */
bool lvni_trainer_checkpointing_comes_again(lvn_status failed);
/* An error between steps: save what was learned before it, and add to the error where the run can
 * go on. Returns `failed`. */
lvn_status lvni_trainer_checkpointing_save_on_error(lvni_trainer *t, lvn_status failed);
/* t->checkpointing.signal: what asked any rank to stop so far. A collective. */
lvn_status lvni_trainer_checkpointing_agree_stop(lvni_trainer *t);
/* This rank has failed with the thread's last error: the others stop waiting for it. An
 * error that another rank began is not sent on. */
void lvni_trainer_checkpointing_report_ranks(lvni_trainer *t, lvn_status failed);
/* After a value that is not finite: add to the error what is left to go on from. */
void lvni_trainer_checkpointing_report_last_good(lvni_trainer *t);

/* clock.c */
/* Before the first step: since then time counts, and what a checkpoint has of it before. */
void lvni_trainer_clock_begin(lvni_trainer *t);
/* Before a step: what is due after it, and the end of the run, as of a signal. */
void lvni_trainer_clock_look(lvni_trainer *t);
/* The end alone; between the chunks of a validation, on each rank. */
void lvni_trainer_clock_look_within(lvni_trainer *t);
void lvni_trainer_clock_look_at_max_time(const lvni_trainer *t);
/* Of rank 0; false on the others. */
bool lvni_trainer_clock_save_is_due(const lvni_trainer *t);

/* validate.c */
lvn_status lvni_trainer_loop_validate(lvni_trainer *t); /* result in t->report.last_val */
/* Some chunks before the first step, so that what fails there does not fail after an epoch; of a
 * resumed run one, for the names of metrics that it decides by. */
lvn_status lvni_trainer_loop_check_validation(lvni_trainer *t);

/* left_out.c */
/* t->unreadable and t->val_unreadable. */
lvn_status lvni_trainer_unreadable_create(lvni_trainer *t);
/* Rank 0 logs those that count since the last report, of all ranks. NULL is fine. */
void lvni_trainer_unreadable_report(const lvni_trainer *t, lvni_data_unreadable *unreadable);
/* With on_error=skip: LVN_ERR_CORRUPT when no sample at all could be read. */
lvn_status lvni_trainer_unreadable_check_rest(const lvni_trainer *t);
/* For the checkpoint of t->at; "": none. */
void lvni_trainer_unreadable_print(const lvni_trainer *t, lvni_core_str *train, lvni_core_str *val);
/* Those of the checkpoint count, where it is of the same data; of one without the entry none. */
lvn_status lvni_trainer_unreadable_read(const lvni_trainer *t, const lvni_ckpt *ckpt);

#endif
