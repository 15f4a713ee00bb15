/* The calls on a trial's files that core/vfs.h has not, replaceable as those are: a test stops a
 * process between any two of them, and looks at what others make of it (test_sweep_model.c).
 * Shared by sweep_records.c, sweep_claim.c and sweep_asha.c. */
#ifndef LEVIN_SWEEP_SWEEP_RECORDS_IMPL_H
#define LEVIN_SWEEP_SWEEP_RECORDS_IMPL_H

#include "sweep/sweep_records.h"

typedef struct lvni_sweep_calls {
    /* The number of links of a file, and its size, as the server has them now: the file is opened
     * for that, as attributes of a path may be those that this client remembers (NFS). -1 with
     * errno set. */
    int (*stat)(const char *path, int64_t *links, int64_t *bytes);
} lvni_sweep_calls;

const lvni_sweep_calls *lvni_sweep_calls_get(void);
void lvni_sweep_calls_set(const lvni_sweep_calls *calls); /* NULL: the real ones */

/* "DIR/NAME.K"; without .K where attempt is 0. */
void lvni_sweep_file(lvni_core_str *out, const char *dir, const char *name, int64_t attempt);
/* A file with this text gets the name, or another has it. *won counts also where the status is not
 * LVN_OK: what failed came after it. */
lvn_status lvni_sweep_publish(const char *dir, const char *name, int64_t attempt, bool durable,
                              const lvni_sweep_owner *owner, const char *text, bool *won);
/* As a left.K has it. */
const char *lvni_sweep_end_name(lvni_sweep_end why);

#endif
