/* The command's part of the start-up of the cpu backend (the rest: lvni_cpu_start in kernels.h). */
#ifndef LEVIN_KERNELS_CPU_OMP_START_H
#define LEVIN_KERNELS_CPU_OMP_START_H

/* First call in main, before any thread: when a variable is set that spoils OpenMP teams and that libgomp has already read,
 * start the program again without it (once; argv as main got it). Returns when there is nothing to clean. */
void lvni_cpu_clean_environment(char **argv);

#endif
