/* Jobs as squeue, sacct and scontrol print them: what to ask these for, and pure readers of the
 * answers. Nothing here starts a program (slurm_tool.h does). */
#ifndef LEVIN_SLURM_SLURM_JOBS_H
#define LEVIN_SLURM_SLURM_JOBS_H

#include "core/str.h"

/* The answers are lines of fields between bytes that no name of a job has. */
enum { LVNI_SLURM_SEPARATOR = '\037' };

/* The fields of a job, in the order of the lines; the name is the last one. */
typedef enum lvni_slurm_job_field {
    LVNI_SLURM_JOB_ID,  /* "123", "123_4", "123_[5-8%2]" of an array, "123+0" of parts */
    LVNI_SLURM_JOB_RAW, /* the number that an element has of its own, as of 123_4 */
    LVNI_SLURM_JOB_STATE,
    LVNI_SLURM_JOB_ELAPSED,
    LVNI_SLURM_JOB_LIMIT,
    LVNI_SLURM_JOB_NODES,
    LVNI_SLURM_JOB_USER,
    LVNI_SLURM_JOB_REASON,
    LVNI_SLURM_JOB_NODELIST,
    LVNI_SLURM_JOB_FOLDER, /* where it runs */
    LVNI_SLURM_JOB_EXIT,   /* "CODE:SIGNAL", of sacct alone */
    LVNI_SLURM_JOB_NAME,
    LVNI_SLURM_JOB_FIELDS
} lvni_slurm_job_field;
/* The options of squeue and sacct (with --parsable2 --delimiter) that ask for them. */
extern const char lvni_slurm_squeue_format[], lvni_slurm_sacct_format[];

/* Lines of fields, as many in each. A zeroed one is empty. */
typedef struct lvni_slurm_table {
    char *text;
    const char **field; /* n times `fields` of them; "" and never NULL */
    size_t n, fields;
} lvni_slurm_table;

/* A line with fewer fields, as of an error, is left out; what stands behind the last separator that
 * counts belongs to the last field. Blanks around a field go. */
lvn_status lvni_slurm_table_read(const char *text, char separator, size_t fields,
                                 lvni_slurm_table *out);
void lvni_slurm_table_free(lvni_slurm_table *table);
/* Borrowed, as long as the table lives. */
const char *lvni_slurm_table_at(const lvni_slurm_table *table, size_t row, int field);

/* What a state means to who waits for the job. */
typedef enum lvni_slurm_phase {
    LVNI_SLURM_UNKNOWN, /* a word of a later Slurm */
    LVNI_SLURM_WAITS,
    LVNI_SLURM_RUNS,
    LVNI_SLURM_FINISHED,
    LVNI_SLURM_FAILED /* ended in any other way */
} lvni_slurm_phase;

/* "RUNNING" is "running", "CANCELLED by 1000" is "cancelled"; a word that is not known is itself,
 * in lower case, of at most that many bytes. */
enum { LVNI_SLURM_STATE_TEXT = 32 };
lvni_slurm_phase lvni_slurm_state_read(const char *state, char word[LVNI_SLURM_STATE_TEXT]);
bool lvni_slurm_phase_is_end(lvni_slurm_phase phase);

/* Why a job waits, and what helps: "other jobs come first". *advice: NULL where waiting is all.
 * NULL: a reason that is not known, or "None". */
const char *lvni_slurm_reason_text(const char *reason, const char **advice);

/* "123", "123_4", "123+1": one job, element or part. */
bool lvni_slurm_id_read(const char *text);
/* Is the job of a line the one that is asked for? "123" is all of 123_4, 123_[5-8] and 123+0;
 * "123_6" is of 123_[5-8%2], too. raw: its own number; "": none. */
bool lvni_slurm_id_covers(const char *asked, const char *id, const char *raw);

/* A job of `scontrol show job`: the n bytes of the value of `Key=`; NULL: it has none, or
 * "(null)". Those of paths and commands, which have lines of their own, may hold blanks. */
const char *lvni_slurm_show_value(const char *job, const char *key, size_t *n);
/* The text behind this job: the next one of the answer; NULL: it was the last. */
const char *lvni_slurm_show_next(const char *job);

#endif
