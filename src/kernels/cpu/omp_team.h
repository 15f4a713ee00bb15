/* The OpenMP setting of the calling thread around a piece of work, and the self-test of teams. Used
 * by every file that calls oneDNN, whose primitives depend on the setting at creation and at
 * execution. */
#ifndef LEVIN_KERNELS_CPU_OMP_TEAM_H
#define LEVIN_KERNELS_CPU_OMP_TEAM_H

#include <levin/status.h>

/* From here on parallel regions of this thread have exactly `team` members. Gives the setting to
 * restore. */
int lvni_cpu_omp_enter(int team);
void lvni_cpu_omp_leave(int before);

/* A team of `team` really has that many members, each flushing denormals to zero? */
lvn_status lvni_cpu_omp_prove_team(int team);

#endif
