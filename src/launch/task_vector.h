/* How many tasks each node has, as Slurm writes it: "2(x3),1" is 2, 2, 2, 1. */
#ifndef LEVIN_LAUNCH_TASK_VECTOR_H
#define LEVIN_LAUNCH_TASK_VECTOR_H

#include "core/notice.h"

typedef struct lvni_launch_task_vector {
    int n; /* nodes; 0: unset */
    int *tasks;
    int64_t sum;
} lvni_launch_task_vector;

/* text: the value of the variable `name`; NULL or "" is unset. E102 when it cannot be read. *out is
 * to be freed. */
lvn_status lvni_launch_task_vector_read(const char *name, const char *text,
                                        lvni_core_notices *notices, lvni_launch_task_vector *out);
void lvni_launch_task_vector_free(lvni_launch_task_vector *vector);

#endif
