/* Which training a thread belongs to (training.h). */
#include "core/training.h"

#include <stddef.h>

static lvni_core_training of_process = {.dir_lock = -1};
static _Thread_local lvni_core_training *of_thread;

lvni_core_training *lvni_core_training_get(void)
{
    return of_thread != NULL ? of_thread : &of_process;
}

void lvni_core_training_set(lvni_core_training *training)
{
    of_thread = training;
}
