/* What levin itself knows of a job, also when Slurm has forgotten it: jobs.tsv and the scripts of
 * `levin slurm submit`, the files of a run directory, and the end of a log. */
#ifndef LEVIN_SLURM_SLURM_JOBS_RECORDS_H
#define LEVIN_SLURM_SLURM_JOBS_RECORDS_H

#include "core/error.h"
#include "slurm/slurm_jobs.h"

/* ---- jobs.tsv ---- */

/* The fields of its lines. */
enum {
    LVNI_SLURM_SENT_JOB, /* "123", "123;CLUSTER" */
    LVNI_SLURM_SENT_NAME,
    LVNI_SLURM_SENT_SCRIPT,
    LVNI_SLURM_SENT_TIME,
    LVNI_SLURM_SENT_FIELDS
};
/* Those of FOLDER/jobs.tsv, its first line too; an empty table where the file is not there. */
lvn_status lvni_slurm_sent_read(const char *folder, lvni_slurm_table *out);
/* The last line of the job with that name, or of the job or element with that number; "last": the
 * last line. False: there is none. */
bool lvni_slurm_sent_find(const lvni_slurm_table *sent, const char *word, size_t *row);
enum { LVNI_SLURM_ID_TEXT = 48 };
/* Its number without its cluster. */
void lvni_slurm_sent_id(const lvni_slurm_table *sent, size_t row, char id[LVNI_SLURM_ID_TEXT]);

/* ---- scripts ---- */

/* The value of the line `#SBATCH --NAME=VALUE`, appended to out; false: there is none. */
bool lvni_slurm_script_directive(const char *script, const char *name, lvni_core_str *out);
/* The run directory of a script that trains, `out=DIR` of its command; false: it has none, or one
 * that is known when the job runs. */
bool lvni_slurm_script_run_dir(const char *script, lvni_core_str *out);
/* The name of a log, `%x-%j.out` of job 123: "name-123.out". False: it has other variables. */
bool lvni_slurm_log_name(const char *pattern, const char *id, const char *name, const char *user,
                         lvni_core_str *out);

/* ---- run directories ---- */

/* The job that trained in the directory last, of its file job_id; false: none did. */
bool lvni_slurm_run_job(const char *run_dir, char id[LVNI_SLURM_ID_TEXT]);
/* The error record that explains the failure: the first one of the last attempt that is not about
 * a lost peer, else the first one. False: there is none. */
bool lvni_slurm_run_error(const char *run_dir, lvni_core_error_record *out);
/* Appends the file's last bytes, at most `most`, from the begin of a line on; false: it cannot be
 * read. */
bool lvni_slurm_tail_read(const char *path, size_t most, lvni_core_str *out);
/* The message of the ERROR line that train.log ends with, borrowed from the text; NULL: the run
 * went on. *n: its bytes. */
const char *lvni_slurm_train_log_error(const char *text, size_t *n);

/* ---- the end of a log ---- */

/* The line that explains how the job's last start ended best: the launcher's about the first
 * failure, an error of levin, of Slurm, of another program, else the last one. Borrowed; NULL: it
 * is empty. */
const char *lvni_slurm_log_cause(const char *text, size_t *n);
/* The directory of the line "run directory: DIR"; NULL: there is none. */
const char *lvni_slurm_log_run_dir(const char *text, size_t *n);
/* Where the last `lines` lines of the n bytes begin. */
size_t lvni_slurm_last_lines(const char *text, size_t n, int64_t lines);

#endif
