/* The checkpoints that stand under names of their own beside last and best: which ones
 * checkpoint.save_top_k keeps, and which one goes for a new one. Rank 0 has the list, and every
 * checkpoint holds it, so that a run that is resumed knows exactly what is there. */
#ifndef LEVIN_TRAINER_KEPT_H
#define LEVIN_TRAINER_KEPT_H

#include "core/str.h"
#include "trainer/file_pattern.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum lvni_trainer_kept_state {
    LVNI_KEPT_THERE,
    LVNI_KEPT_NEW,    /* its save has not succeeded yet */
    LVNI_KEPT_LEAVES, /* goes once that one has */
    LVNI_KEPT_OTHER   /* kept for its epoch or an earlier monitor: stays, and has its name */
} lvni_trainer_kept_state;

typedef struct lvni_trainer_kept_file {
    char name[LVNI_FILE_NAME + 16]; /* without folder and ending */
    int64_t step;
    double score; /* more is better; NaN: as bad as can be */
    bool stays;   /* of a new one: it does not compete with others */
    lvni_trainer_kept_state state;
} lvni_trainer_kept_file;

typedef struct lvni_trainer_kept {
    lvni_trainer_kept_file *file; /* in the order in which they came */
    int64_t n, room;
} lvni_trainer_kept;

/* Does a checkpoint with this score come among the best k? k -1: every one does. Of equal ones the
 * earlier stays. */
bool lvni_trainer_kept_wants(const lvni_trainer_kept *kept, int64_t k, double score);
/* A new one, unless one of this step is there; the worst ones leave for it, unless it stays
 * whatever its score. A name that is taken gets -v1, -v2 behind it. */
lvn_status lvni_trainer_kept_add(lvni_trainer_kept *kept, int64_t k, const char *name, int64_t step,
                                 double score, bool stays);
/* Is there one whose save has not succeeded yet? */
const lvni_trainer_kept_file *lvni_trainer_kept_new(const lvni_trainer_kept *kept);
/* The save of the new one succeeded, and what leaves is gone. */
void lvni_trainer_kept_commit(lvni_trainer_kept *kept);
/* It failed, if it was another step's: all that was there stays. */
void lvni_trainer_kept_undo(lvni_trainer_kept *kept, int64_t step);
void lvni_trainer_kept_remove(lvni_trainer_kept *kept, int64_t i);
/* The monitor is another one: none of them counts any more, and none goes. Returns how many. */
int64_t lvni_trainer_kept_set_aside(lvni_trainer_kept *kept);
void lvni_trainer_kept_free(lvni_trainer_kept *kept);

/* "kept 120 BITS NAME" per line; "leaves 60 BITS NAME" for a file that may be there still, "other"
 * of an earlier monitor. Reading: LVN_ERR_CORRUPT, without a message, when it is anything else. */
void lvni_trainer_kept_print(const lvni_trainer_kept *kept, lvni_core_str *out);
lvn_status lvni_trainer_kept_read(const char *text, lvni_trainer_kept *out);

#endif
