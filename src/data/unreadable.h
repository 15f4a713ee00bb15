/* Samples that could not be read, of a set and its streams: each counts once, in the order of
 * samples over all ranks, so that any layout, any number of threads and a resumed run leave out the
 * same ones, and end at the same one. The loader notes them when it hands their batch over; they
 * count when the owner settles them, after the step or the evaluation, with what other ranks have
 * noted (trainer/left_out.c). A thread at a time: the one that takes batches. */
#ifndef LEVIN_DATA_UNREADABLE_H
#define LEVIN_DATA_UNREADABLE_H

#include "core/str.h"

#include <levin/data.h>

enum {
    LVNI_UNREADABLE_NAMED = 20, /* in a report */
    LVNI_UNREADABLE_FIRST = 5   /* in the error, and kept in checkpoints */
};

typedef struct lvni_data_unreadable_options {
    const lvn_dataset *dataset; /* borrowed, as all pointers here */
    const lvn_stream *stream;
    int n_streams;
    const char *what; /* "training": samples of that kind, in messages; "": just samples */
    /* of each source, that are left out: the next one is an error; -1: any number (on_error=skip)
     */
    int64_t limit;
} lvni_data_unreadable_options;

typedef struct lvni_data_unreadable lvni_data_unreadable;

lvn_status lvni_data_unreadable_create(const lvni_data_unreadable_options *options,
                                       lvni_data_unreadable **out);
void lvni_data_unreadable_destroy(lvni_data_unreadable *unreadable); /* NULL is fine */

/* One of a batch that is handed over. */
typedef struct lvni_data_unreadable_sample {
    int64_t at;       /* number of its micro-batch or chunk, among those of all ranks */
    int64_t position; /* in the source */
    int source;       /* 0: the set, then its streams */
    lvn_status status;
    const char *why; /* from its name on; copied */
} lvni_data_unreadable_sample;

/* Nothing when it counts already. */
lvn_status lvni_data_unreadable_note(lvni_data_unreadable *unreadable,
                                     const lvni_data_unreadable_sample *sample);
/* Noted, and not settled. */
int64_t lvni_data_unreadable_noted(const lvni_data_unreadable *unreadable);
/* Of the set itself, those among the noted that count for its limit; and whether so many more are
 * too many. A rank that has noted too many needs to read no others: settling finds the same one
 * too many, as the samples before it in their order are noted, here or by other ranks. */
int64_t lvni_data_unreadable_counting(const lvni_data_unreadable *unreadable);
bool lvni_data_unreadable_too_many(const lvni_data_unreadable *unreadable, int64_t more);
/* They are of a step that will not be, or of an evaluation that was broken off. */
void lvni_data_unreadable_forget(lvni_data_unreadable *unreadable);
/* The noted ones for lvni_data_unreadable_settle, of this rank or another. */
void lvni_data_unreadable_pack(const lvni_data_unreadable *unreadable, lvni_core_str *out);
/* Counts what was packed, in the order of samples; `step`: that of the run. Nothing is noted
 * afterwards. When one is too many nothing of it counts: the status of that sample, and *at where
 * in `packed` it lies. LVN_ERR_CORRUPT: not what lvni_data_unreadable_pack makes. */
lvn_status lvni_data_unreadable_settle(lvni_data_unreadable *unreadable, const void *packed,
                                       size_t bytes, int64_t step, size_t *at);

/* Did the last settling fail by one too many? A run that goes on from here ends here again. NULL is
 * fine. */
bool lvni_data_unreadable_is_over(const lvni_data_unreadable *unreadable);
/* How many count, of the set itself. */
int64_t lvni_data_unreadable_count(const lvni_data_unreadable *unreadable);
/* Appends one sentence about those that count since the last call, each with what is wrong with it;
 * not about those that a look at the headers has reported. true: there were some. */
bool lvni_data_unreadable_report(lvni_data_unreadable *unreadable, lvni_core_str *out);

/* For a checkpoint: lines about all that count since a step before `step`; none: nothing. Of a set
 * with many these are some, about 1 MiB of text: the others are found again. */
void lvni_data_unreadable_print(const lvni_data_unreadable *unreadable, int64_t step,
                                lvni_core_str *out);
/* Those of such lines count, and no others; they are not reported again. On failure everything is
 * as before: LVN_ERR_CORRUPT without a message when the text is anything else. */
lvn_status lvni_data_unreadable_read(lvni_data_unreadable *unreadable, const char *text);

#endif
