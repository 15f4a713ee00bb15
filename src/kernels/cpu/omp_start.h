/* The command's part of the start-up of the cpu backend (the rest: lvni_cpu_start in kernels.h). */
#ifndef LEVIN_KERNELS_CPU_OMP_START_H
#define LEVIN_KERNELS_CPU_OMP_START_H

/* First call in main, before any thread: start the program again (once; argv as main got it) without the variables that spoil
 * OpenMP teams, and with a short spin of waiting threads; libgomp reads both when it is loaded. Returns when all is well. */
void lvni_cpu_clean_environment(char **argv);

#endif
