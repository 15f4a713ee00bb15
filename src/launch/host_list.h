/* Host lists as Slurm writes them, "n[08-11],login1": expanded and compressed without Slurm's
 * commands, which fail silently where no configuration is reachable. Called for the hosts of a
 * step, by `levin slurm expand|compress` and by the launcher. */
#ifndef LEVIN_LAUNCH_HOST_LIST_H
#define LEVIN_LAUNCH_HOST_LIST_H

#include "core/notice.h"

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

#endif
