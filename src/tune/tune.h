/* Finders: `levin tune batch-size` and `levin tune lr`. Each is a training that makes a few steps
 * of the real thing on all of its ranks, and leaves nothing behind but what it was asked for.
 *
 *   tune_options.c     the keys
 *   tune_batch_size.c  the search: which sizes are tried, and the answer
 *   tune_trial.c       one size, in a process of its own, whose ranks are those of the training
 *   tune_lr.c          the largest steps that still help: a range test (range_test.h) */
#ifndef LEVIN_TUNE_TUNE_H
#define LEVIN_TUNE_TUNE_H

#include "run/recipe.h"

/* A finder's command line: n arguments behind its name, the first of them perhaps the recipe,
 * whose own keys begin at args[skip]. */
typedef struct lvni_tune_command {
    const lvni_run_recipe *recipe;
    int n, skip;
    const char *const *args;
} lvni_tune_command;

/* The largest batch_size_per_device that fits on every rank. LVN_ERR_RESOURCE: none does. */
lvn_status lvni_tune_batch_size(const lvni_tune_command *command);
/* A learning rate at which the loss falls; writes tune.csv and tune.plot. LVN_ERR_RESOURCE: no
 * descent is clear. Also on ranks that another launcher has started. */
lvn_status lvni_tune_lr(const lvni_tune_command *command);

extern const lvni_core_option_table lvni_tune_size_options, lvni_tune_lr_options;
/* All keys of finders. */
extern const lvni_core_option_table *const lvni_tune_own_keys[];
enum { LVNI_TUNE_TABLES = 16 };
typedef struct lvni_tune_key_list {
    const lvni_core_option_table *table[LVNI_TUNE_TABLES];
} lvni_tune_key_list;
/* Those of the recipe's training and of one finder; the list is in `out`. */
lvni_core_option_list lvni_tune_keys(const lvni_run_recipe *recipe,
                                     const lvni_core_option_table *finder, lvni_tune_key_list *out);

/* tune_write.c: what goes into the YAML file of config=. */
typedef struct lvni_tune_answer {
    int64_t size; /* of a device */
    int world;
    int64_t accumulate; /* accumulate_grad_batches; 0: that of the file stays */
} lvni_tune_answer;

/* Where the keys stand: the size where batch_size_per_device stands, or batch_size (of all devices;
 * in files of rcGAN of one); else behind the last line. note: what was written. LVN_ERR_USAGE names
 * the line to change by hand, where the file cannot be. */
lvn_status lvni_tune_write(const lvni_run_recipe *recipe, const char *path,
                           const lvni_tune_answer *answer, lvni_core_str *note);
/* What would be written. */
lvn_status lvni_tune_show(const lvni_run_recipe *recipe, const char *path,
                          const lvni_tune_answer *answer, lvni_core_str *note);
/* Could that be written? */
lvn_status lvni_tune_check_file(const lvni_run_recipe *recipe, const char *path, bool accumulates);

/* ---- tune_trial.c ---- */

/* How a rank stood. */
typedef struct lvni_tune_rank {
    uint64_t need;  /* estimated; 0: it is counted with another rank, or not known */
    uint64_t limit; /* UINT64_MAX: not known */
    uint64_t peak;  /* measured; 0: it did not run */
    uint64_t lanes; /* that compute at once; 0: not known */
} lvni_tune_rank;

typedef enum lvni_tune_outcome {
    LVNI_TUNE_FITS,
    LVNI_TUNE_TOO_LARGE,
    LVNI_TUNE_REFUSED /* the training takes no such size, whatever the memory */
} lvni_tune_outcome;

typedef struct lvni_tune_trial {
    int64_t size;
    bool ran; /* the run's beginning; else the estimate alone */
    lvni_tune_outcome outcome;
    int world, accumulate; /* 0: not known, as a rank could not begin */
    int64_t samples;       /* of the training set */
    /* eval_batch_size of a validation that takes more than training, which may fit; 0: it does not
     */
    int64_t chunk;
    bool on_device;
    bool leads;          /* rank 0 is one of this process */
    int tightest;        /* the rank with the least room */
    lvni_tune_rank rank; /* that one */
    char message[768];   /* why not */
} lvni_tune_trial;

/* Is this process a trial, or a rank of one? Then lvni_tune_trial_run is all that it does.
 */
bool lvni_tune_is_trial(void);
lvn_status lvni_tune_trial_run(const lvni_tune_command *command);
/* trial->size in processes of its own. dry: the estimate alone. Errors: those of the training that
 * have nothing to do with its size. */
lvn_status lvni_tune_try(const lvni_tune_command *command, bool dry, lvni_tune_trial *trial);
/* "4GiB", "512MiB", bytes; 0: it is none. */
uint64_t lvni_tune_read_bytes(const char *text);

#endif
