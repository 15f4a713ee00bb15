/* Where the time of a run goes (profiler=simple), by the clock of the thread that runs the loop:
 * every moment belongs to one part, so that the parts add up to the whole. Lanes beside that
 * thread's, loader threads and a save's writer are seen where it waits for them. */
#ifndef LEVIN_TRAINER_PROFILE_H
#define LEVIN_TRAINER_PROFILE_H

#include <stdint.h>

typedef enum lvni_trainer_part {
    LVNI_PART_REST,
    LVNI_PART_DATA,
    LVNI_PART_COPY,
    LVNI_PART_FORWARD,
    LVNI_PART_BACKWARD,
    LVNI_PART_MERGE,
    LVNI_PART_REDUCE,
    LVNI_PART_UPDATE,
    LVNI_PART_RESULT, /* of a device, which computes on its own */
    LVNI_PART_LOG,
    LVNI_PART_VALIDATE,
    LVNI_PART_SAVE,
    LVNI_PART_COUNT
} lvni_trainer_part;

typedef struct lvni_trainer_profile {
    lvni_trainer_part at;
    uint64_t begin_ns, at_ns; /* of the whole, of the current part */
    uint64_t ns[LVNI_PART_COUNT];
    int64_t times[LVNI_PART_COUNT]; /* that a part was entered */
} lvni_trainer_profile;

/* The calling thread's time is measured from here on, into *profile, until the end. */
void lvni_trainer_profile_begin(lvni_trainer_profile *profile);
/* Logs the table, the largest part first. Nothing where no profile has begun. */
void lvni_trainer_profile_end(int64_t steps);
/* The thread enters a part; returns the one that it leaves. Nothing without a profile. */
lvni_trainer_part lvni_trainer_profile_at(lvni_trainer_part part);

#endif
