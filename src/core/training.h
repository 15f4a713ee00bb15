/* Several trainings in one process, apart from each other: what a process that trains once has
 * once. A thread belongs to the training of the thread that started it (thread.h); without one, to
 * that of the process. */
#ifndef LEVIN_CORE_TRAINING_H
#define LEVIN_CORE_TRAINING_H

#include <stdatomic.h>
#include <stdbool.h>

typedef struct lvni_core_training {
    /* of a host program, whose signals and screen stay its own: neither handlers nor output, and
     * `stop` in place of a signal */
    bool hosted;
    bool alone;         /* variables of launchers do not count: it is not a rank of theirs */
    _Atomic bool stops; /* `stop` counts */
    _Atomic int stop;   /* LVNI_STOP_ASKED, or 0; hosted only */
    _Atomic int agreed; /* the signal, or `stop`, that its ranks agreed on */
    int dir_lock;       /* of its run directory (run/run_dir.c); -1: none */
    struct lvni_log_logger *log; /* log/run_log.c; NULL: that of the process */
} lvni_core_training;

enum { LVNI_STOP_ASKED = 1000 }; /* in place of a signal's number */

/* Of the calling thread; never NULL. */
lvni_core_training *lvni_core_training_get(void);
/* NULL: that of the process. For a thread's beginning; threads that it starts have the same. */
void lvni_core_training_set(lvni_core_training *training);

#endif
