/* Reading what `squeue` prints, apart from asking it, for tests. */
#ifndef LEVIN_SWEEP_SWEEP_ALIVE_H
#define LEVIN_SWEEP_SWEEP_ALIVE_H

#include "sweep/sweep_records.h"

/* Lines "JOB STATE NODES" that have been asked for: GONE, UNKNOWN or THERE. */
lvni_sweep_alive lvni_sweep_alive_in(const char *squeue, const lvni_sweep_owner *owner);

#endif
