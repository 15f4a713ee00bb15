/* What Slurm's options take: times, sizes of memory, lists of array elements, signals, GPUs.
 * Pure functions of a text; false: it is not one. What is wrong is worded by slurm_findings.c. */
#ifndef LEVIN_SLURM_SLURM_GRAMMAR_H
#define LEVIN_SLURM_SLURM_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Digits alone, from `least` on. */
bool lvni_slurm_count_read(const char *text, int64_t least, int64_t *out);

enum { LVNI_SLURM_UNLIMITED = -1, LVNI_SLURM_TIME_TEXT = 40 };
/* As Slurm reads it: M (a number alone is minutes), M:S, H:M:S, D-H, D-H:M, D-H:M:S, 0, UNLIMITED
 * and INFINITE; and with a unit, which Slurm does not take: 90s, 30m, 2h, 1d. */
bool lvni_slurm_time_read(const char *text, int64_t *seconds);
/* "1-01:10:00", the form that Slurm reads in one way only; "UNLIMITED". */
void lvni_slurm_time_write(int64_t seconds, char out[LVNI_SLURM_TIME_TEXT]);

/* Digits and K, M, G or T; without one MiB. 0 is all memory of a node. */
bool lvni_slurm_size_read(const char *text);
bool lvni_slurm_size_mib(const char *text, int64_t *mib); /* rounded up */

typedef struct lvni_slurm_array {
    int64_t n;    /* elements, of which one that is named twice counts twice */
    int64_t last; /* the highest */
} lvni_slurm_array;
/* "0-7", "1,3,9", "0-30:10", each with "%4": at most so many at once. */
bool lvni_slurm_array_read(const char *text, lvni_slurm_array *out);

typedef struct lvni_slurm_signal {
    char name[8]; /* "USR1", "10"; as `kill -s` takes it */
    bool batch;   /* "B:": to the shell of the script alone */
    int64_t lead; /* seconds before the end; 60 where none is given */
} lvni_slurm_signal;
/* "[B:|R:]USR1[@90]", also SIGUSR1 and 10. */
bool lvni_slurm_signal_read(const char *text, lvni_slurm_signal *out);

/* A list of --mail-type. */
bool lvni_slurm_mail_read(const char *text);
#define LVNI_SLURM_MAIL_TYPES                                                                      \
    "NONE|BEGIN|END|FAIL|REQUEUE|ALL|INVALID_DEPEND|STAGE_OUT|TIME_LIMIT|TIME_LIMIT_90|"           \
    "TIME_LIMIT_80|TIME_LIMIT_50|ARRAY_TASKS"

/* "8", "a100:2", "1g.20gb:1" and, of the generator, "2:a100". *type points into the text, *n_type
 * bytes; 0: none. */
bool lvni_slurm_gpus_read(const char *text, int64_t *count, const char **type, size_t *n_type);

/* NAME=VALUE, where NAME is one of a shell's variables; *n: bytes of the name. */
bool lvni_slurm_variable_read(const char *text, size_t *n);

#endif
