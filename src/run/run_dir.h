/* The run directory `out`: its rules, and the files that the recipe itself writes there. */
#ifndef LEVIN_RUN_RUN_DIR_H
#define LEVIN_RUN_RUN_DIR_H

#include "ckpt/checkpoint.h"
#include "core/config.h"

/* Where the run goes: `out`; NULL when it is unset, and a number is to be claimed. The caller frees
 * *path (lvni_core_free). Nothing is made yet; an `out` that exists without resume or overwrite is
 * LVN_ERR_USAGE. */
lvn_status lvni_run_dir_choose(const lvni_core_config *config, char **path);
/* Makes out/<recipe>-<number>, the first number that is free, so that no other process takes it:
 * when all else is found to be good. The caller frees *path. *made: the length of what was not
 * there before, "out" or all of it. */
lvn_status lvni_run_dir_claim(const char *recipe, char **path, size_t *made);
/* Nothing came of it: removes what was made, unless something is in it. `path` is a shorter one
 * then. */
void lvni_run_dir_unclaim(char *path, size_t made);
/* This process's launcher has started its ranks before, or Slurm its job, and they began the run in
 * `out`: not one that was there already. */
bool lvni_run_dir_is_of_attempt_before(const char *out);
/* Slurm has accepted to start this job again: a file there, by which the job's script knows, too,
 * that this start of it has not failed. */
lvn_status lvni_run_dir_mark_requeued(const char *path);
bool lvni_run_dir_is_requeued(const char *path);
/* There is no such directory, or nothing in it but what a launcher writes. */
bool lvni_run_dir_is_unused(const char *out);
/* LVN_ERR_USAGE when there is no run in `out` that could be resumed. */
lvn_status lvni_run_dir_check_run(const char *out);
/* Two processes that write to one run would write over each other: until
 * lvni_run_dir_release or the end of the process it is locked. LVN_ERR_USAGE when another
 * process trains in it; where the file system has no locks, there is none. */
lvn_status lvni_run_dir_lock(const char *path);
/* LVN_ERR_USAGE when a process trains in it. */
lvn_status lvni_run_dir_check_free(const char *path);
/* Make it (emptying what levin wrote there before when overwrite=true, except the file `keep`,
 * which may be NULL), with checkpoints/ and exported_models/, open train.log. Locked until
 * lvni_run_dir_release or the end of the process; LVN_ERR_USAGE when another process holds
 * it. */
lvn_status lvni_run_dir_make(const char *path, bool overwrite, bool resume, const char *keep);
/* The number of the run that the directory belongs to, drawn at its first start and kept in its
 * file run_id and in every checkpoint (LVNI_CKPT_RUN_ID). A directory that has none (of an earlier
 * version, or put together by hand) gets that of `saved`, the checkpoint that is resumed (NULL:
 * none), or a new one. LVN_ERR_USAGE: `saved`, last or best is a checkpoint of another run. Those
 * without a number are taken as they are. */
enum { LVNI_RUN_ID = 33 };
lvn_status lvni_run_dir_identify(const char *path, const lvni_ckpt *saved, char id[LVNI_RUN_ID]);
/* The run is over: others may use the directory. */
void lvni_run_dir_release(void);
/* The step that the last checkpoint of a directory holds, and the epoch of the one after it, from
 * 0; false: there is none. Changes nothing. */
bool lvni_run_dir_saved(const char *path, int64_t *step, int64_t *epoch);
/* After a kill of the process that wrote there: removes what is half written, and returns what
 * lvni_run_dir_saved does. For a caller that has the directory to itself. */
bool lvni_run_dir_after_kill(const char *path, int64_t *step, int64_t *epoch);
/* In it: the images it was trained with (data/folder_index.c). */
#define LVNI_RUN_INDEX "data.index"
/* In it: its page (recipe.h) */
#define LVNI_RUN_PAGE "report.html"
/* Write config.yaml. */
lvn_status lvni_run_dir_write_config(const char *path, const lvni_core_config *config);
/* The file of a checkpoint or an exported model, freed by the caller; NULL when memory is out.
 * name: "last", "best" or another. */
#define LVNI_RUN_CHECKPOINTS "checkpoints/"
#define LVNI_RUN_EXPORTS "exported_models/exported_"
char *lvni_run_dir_file(const char *path, const char *folder, const char *name);
/* The exported model for torch.load; the same. */
char *lvni_run_dir_torch_file(const char *path, const char *name);
/* "<dir>/<name>", freed by the caller; NULL when memory is out. */
char *lvni_run_path_join(const char *dir, const char *name);

#endif
