/* The processors of a rank among those of its host (rank_cores.h). */
#include "recipes/rank_cores.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lvni_recipes_rank_print_cores(char *out, size_t size)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    out[0] = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0) {
        return;
    }
    size_t n = 0;
    for (size_t i = 0; i < CPU_SETSIZE && n + 6 < size; i++) {
        if (CPU_ISSET(i, &set)) {
            n += (size_t)snprintf(out + n, size - n, "%zu,", i);
        }
    }
}

/* The other direction of lvni_recipes_rank_print_cores, added to what is there. */
static void add_mask(const char *text, cpu_set_t *set)
{
    char *end;
    for (const char *p = text; *p != '\0'; p = *end == ',' ? end + 1 : end) {
        const unsigned long cpu = strtoul(p, &end, 10);
        if (end == p) {
            return;
        }
        if (cpu < CPU_SETSIZE) {
            CPU_SET(cpu, set);
        }
    }
}

/* Processors that any rank of one host may use: masks may overlap without being equal. */
static int cores_of_host(const lvni_control_member *m, int world, int host)
{
    cpu_set_t set;
    int most = 0; /* where masks are not known, or too long for their text */
    CPU_ZERO(&set);
    for (int i = 0; i < world; i++) {
        if (m[i].host_index == host) {
            add_mask(m[i].fingerprint, &set);
            most = m[i].cpus > most ? m[i].cpus : most;
        }
    }
    return CPU_COUNT(&set) > most ? CPU_COUNT(&set) : most;
}

void lvni_recipes_rank_share_cores(const lvni_control *control, lvni_recipes_rank *rank)
{
    const lvni_control_member *m = lvni_control_members(control);
    const lvni_control_member *own = &m[rank->rank];
    int same = 1, hosts = 0; /* hosts are numbered by their smallest rank */
    rank->cores_all = 0;
    for (int i = 0; i < rank->world; i++) {
        same += i != rank->rank && m[i].host_index == own->host_index &&
                strcmp(m[i].fingerprint, own->fingerprint) == 0;
        if (m[i].host_index == hosts) {
            rank->cores_all += cores_of_host(m, rank->world, hosts++);
        }
    }
    rank->cores = own->cpus / same > 1 ? own->cpus / same : 1;
}
