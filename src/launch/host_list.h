/* Lists as Slurm writes them: hosts, "n[08-11],login1", and tasks per node, "2(x3),1". Read and
 * written without Slurm's commands, which fail silently where no configuration is reachable. Called
 * for the hosts of a step, by `levin slurm expand|compress` and by the launcher. */
#ifndef LEVIN_LAUNCH_HOST_LIST_H
#define LEVIN_LAUNCH_HOST_LIST_H

#include "core/error.h"

/* hosts of a list, values of one range */
enum { LVNI_HOSTS_MAX = 1048576, LVNI_HOSTS_RANGE = 65536 };

typedef struct lvni_launch_hosts {
    size_t n;
    char *text;    /* the names, each ended by 0 */
    size_t *start; /* of each */
    size_t bytes, room;
} lvni_launch_hosts;

/* Appends the hosts of a list. Elements are separated by commas and blanks; "[01-03,7]" counts,
 * padded as the lower number is written; text may follow the brackets. Of several brackets in one
 * element the last counts fastest, then the first, the second and so on, as Slurm prints them. E112
 * with a caret under what is wrong; *hosts is then as it was. */
lvn_status lvni_launch_hosts_expand(lvni_launch_hosts *hosts, const char *list,
                                    lvni_core_notices *notices);
const char *lvni_launch_hosts_name(const lvni_launch_hosts *hosts, size_t i);
void lvni_launch_hosts_free(lvni_launch_hosts *hosts);

/* The shortest list that expands to the same names in the same order: "n1 n2 n3 n10" gives
 * "n[1-3,10]". */
void lvni_launch_hosts_compress(const lvni_launch_hosts *hosts, lvni_core_str *out);

/* Tasks of each node: "2(x3),1" is 2, 2, 2, 1. */
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
