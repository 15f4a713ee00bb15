/* The jobs of a sweep that Slurm was given: DIR/jobs.tsv, a line for each, and which trials are in
 * the queue by them. */
#ifndef LEVIN_SWEEP_SWEEP_JOBS_H
#define LEVIN_SWEEP_SWEEP_JOBS_H

#include "core/str.h"
#include "sweep/sweep_plan.h"

/* "2,5-8" of numbers that ascend. */
void lvni_sweep_list_print(const int64_t *numbers, int64_t n, lvni_core_str *out);

typedef struct lvni_sweep_job {
    char id[64];  /* "123", without the cluster */
    char *trials; /* "2,5-8"; "*": those that are pending, by workers */
    bool array;   /* trial t is element t - offset */
    int64_t offset;
} lvni_sweep_job;

typedef struct lvni_sweep_jobs {
    lvni_sweep_job *list;
    int64_t n;
} lvni_sweep_jobs;

/* Of DIR/jobs.tsv; none where there is no such file. A line that was cut off is passed over, as
 * its job is not known. Columns: job, name, script, time, trials, offset ("": no array). */
lvn_status lvni_sweep_jobs_read(const lvni_sweep_plan *plan, lvni_sweep_jobs *out);
void lvni_sweep_jobs_free(lvni_sweep_jobs *jobs);

/* queue: what `squeue -h -r -o %i` prints, "123" and "123_4", one a line. queued[t] of the plan's n
 * trials: it has a job there. *workers: the first job of workers that is there; NULL: none. */
lvn_status lvni_sweep_jobs_match(const lvni_sweep_jobs *jobs, const char *queue, int64_t n,
                                 bool *queued, const lvni_sweep_job **workers);
/* Is "123_4" or "123" a line of it? */
bool lvni_sweep_queue_has(const char *queue, const char *job);
/* Those of the jobs that are there, appended to `ids` for scancel. */
lvn_status lvni_sweep_jobs_there(const lvni_sweep_jobs *jobs, const char *queue, char ***ids);

#endif
