/* From a configuration, a model and datasets to a finished run: what all training commands
 * share. */
#ifndef LEVIN_RUN_FIT_H
#define LEVIN_RUN_FIT_H

#include "core/config.h"
#include "nn/model.h"
#include "plan/plan.h"
#include "run/ranks.h"
#include "trainer/trainer.h"

#include <levin/recipe.h>

struct lvni_trainer_memory_need; /* trainer/memory.h */

/* What a recipe opens its data and network for. */
typedef enum lvni_run_purpose {
    LVNI_RUN_TRAIN, /* `levin plan`, too, without ranks */
    /* of a trained model: network, and data where it is measured or predicts */
    LVNI_RUN_EVAL,
    LVNI_RUN_PREDICT,
    LVNI_RUN_SHOW, /* a page shows some of its data (lvni_run_recipe.shown) */
    LVNI_RUN_EXPORT
} lvni_run_purpose;

/* The peak of a run, as its plan estimates it. Zeroed first; freed by the caller. */
typedef struct lvni_run_memory {
    lvni_core_str line; /* "memory: about 1.2 GiB at peak (...)" */
    lvni_core_str
        scarce;      /* a sentence, where there is not as much: what takes less; empty: enough */
    uint64_t bytes;  /* 0: not known */
    uint64_t device; /* of these on an accelerator */
} lvni_run_memory;

typedef struct lvni_run_job {
    lvni_run_purpose purpose;
    lvni_core_config *config; /* of the command; finished; resolved values are written back */
    lvni_run_ranks *ranks;    /* of this process; NULL for lvni_run_fit_plan */
    const struct lvni_run_recipe *recipe;
    /* Of the training: `config` itself, or what the card of a trained model has of it. */
    lvni_core_config *keys;
    lvn_card *facts; /* for the general card (card.h); NULL: none */
    void *state;     /* of the recipe, from open to close */
    const lvn_module_class *cls;
    const void *arguments;          /* of the root's build() */
    const uint64_t *weights_seed;   /* of first weights; NULL: the run's seed */
    const lvn_dataset *train, *val; /* borrowed; val may be NULL */
    /* What a training makes of `val`; all zero: the means of what the validation step logs. */
    lvni_trainer_evaluation evaluation;
    /* That a trained model is measured on, or predicts of; NULL: train or val, by split=. */
    const lvn_dataset *used;
    /* What a step takes beside samples of `train`; borrowed. */
    const lvn_stream *streams;
    int n_streams;
    lvn_order order;       /* of `train`, not balanced */
    const char *kept_file; /* that overwrite=true must not remove, as the run reads it, or NULL */
    /* That a thread that loads training or validation samples keeps beside them; 0: not known. */
    size_t decode_bytes, val_decode_bytes;
    uint64_t data_files; /* what identity.h keeps of them; 0: none */
    /* of all files that the samples come from, before the start; of a trained model: a training
     * on such data would have */
    bool headers_read;
    bool balanced; /* training samples are drawn with replacement, classes alike */
    /* Keys of which a resumed run has the values of its checkpoint, as what they made is in it;
     * n_fixed of them, static. */
    const char *fixed[16];
    int n_fixed;
    const char *note;    /* one line about the data for the banner, or NULL */
    const char *ignored; /* the line behind it, on what of the data is not used; NULL, "": none */
    const char *chosen;  /* a line on what the recipe chose itself, and why; NULL, "": nothing */
    /* For the model card (exported.h), of recipes that have one: name of the network, identity of
     * the data (NULL: none), and the recipe's part (NULL: the job itself); of a trained model data
     * and part as they were read. */
    const char *model, *data;
    const void *own_card;
    /* The module that exported models are of, with names relative to it, as a backbone in front of
     * heads; beside each is the same for torch.load (.pt). A trained model's file holds this module
     * alone, its checkpoints all. NULL: the whole model, and no .pt. */
    const char *exported_part;
    /* Of a trained model: its file holds that module alone. */
    bool part_alone;
    /* The module that files of such a network are loaded into beside it (weights=), as a student
     * that it follows. NULL: none. */
    const char *trained_part;
    /* The module that a file of weights= is loaded into which has not all of the model, as a
     * backbone from a file of its own. NULL: none. */
    const char *part_of_file;
    /* Of each rank's model, before it gets weights: what no checkpoint of it has. NULL: nothing. */
    lvn_status (*complete)(const struct lvni_run_job *job, lvni_nn_model *model);
    /* The key with a digest of what `complete` reads, which is the same for all ranks. NULL: none.
     */
    const char *other_file;
    /* Files that belong into the run directory beside those of every run; called once, before the
     * first step. NULL: none. */
    lvn_status (*write_files)(void *user, const char *dir);
    void *user;        /* of write_files */
    int preview_every; /* recipe->preview (preview.h): of so many epochs one; 0: no images */
    /* In place of lvni_trainer_fit, on each rank: a host program (public_trainer.h), whose run has
     * a directory only where `out` is given. NULL: trains to the end. */
    lvn_status (*drive)(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        lvni_trainer *trainer);
    void *host;
    /* `levin export weights=`: the network alone is needed; data (`train` NULL) where the recipe
     * knows the network by them. */
    bool exports;
    /* A finder drives it (tune.h): nothing is written, even where `out` is given. */
    bool tunes;
    /* On each rank, with its estimate, before there is a trainer; a collective. NULL: none. */
    lvn_status (*weigh)(void *host, const lvni_run_ranks *ranks, const lvni_run_rank *rank,
                        const lvni_nn_model *model, const lvni_plan *plan,
                        const struct lvni_trainer_memory_need *need);
    lvni_trainer_hooks hooks; /* of the first rank of this process */
    /* the loss does not show how good the model is: without a validation the newest is the best */
    bool newest_is_best;
    /* Of lvni_run_fit_estimate. */
    lvni_run_memory *memory;
    /* Receives the run directory that rank 0 has in this process, for the caller to free; it stays
     * NULL where there is none. NULL: not wanted. */
    char **dir;
} lvni_run_job;

/* Train. LVN_ERR_CANCELLED after a signal. The run directory and its log stay this process's. */
lvn_status lvni_run_fit(const lvni_run_job *request);
/* When the ranks are closed, with the status that is going to be reported, whose error is the
 * thread's: train.log keeps its message, and the run directory is free. Returns the status. */
lvn_status lvni_run_fit_end(lvn_status status);
/* Print the plan that lvni_run_fit would follow, and the memory it would take; train
 * nothing. */
lvn_status lvni_run_fit_plan(const lvni_run_job *request);
/* The memory alone, into request->memory. */
lvn_status lvni_run_fit_estimate(const lvni_run_job *request);
/* What it would begin with, weights= of another program, as an exported model in the file `out`;
 * train nothing. */
lvn_status lvni_run_fit_export_start(const lvni_run_job *request);

/* ---- fit_saved.c ---- */

/* `levin eval choose=` has made the checkpoint of `step` the best one, in place of those that the
 * training had found up to step `until`: a resumed run leaves it so until it finds a better one. */
lvn_status lvni_run_write_chosen(const char *run, int64_t step, int64_t until);

#endif
