/* A program that takes training steps on request: it reads a number of steps from its input and
 * answers with a line. */
#ifndef LEVIN_BENCH_CHILD_H
#define LEVIN_BENCH_CHILD_H

#include <levin/status.h>

#include <stdio.h>
#include <sys/types.h>

typedef struct bench_child {
    pid_t pid; /* 0: not running */
    FILE *to, *from;
} bench_child;

/* argv[0] is the program's path. env NULL: ours. False when it does not start. */
bool bench_child_start(bench_child *c, char *const argv[], char *const env[]);
/* Ends its input, and so the program; waits for it. */
void bench_child_stop(bench_child *c);

#endif
