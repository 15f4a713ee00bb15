/* Counts the calls of malloc and its kin in a test program, by caller: linked in,
 * malloc_count.c takes the place of the C library's functions for the program and every library it
 * loads (which is why sanitizer builds do without it). Threads whose name begins with "lvn-load"
 * (the loader's) are not counted. */
#ifndef LEVIN_TESTS_MALLOC_COUNT_H
#define LEVIN_TESTS_MALLOC_COUNT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct malloc_counts {
    /* called by the program itself, the C library for it, or any library but these: */
    uint64_t own;
    /* called by oneDNN (libdnnl), libgomp, or libstdc++, which only oneDNN uses */
    uint64_t library;
} malloc_counts;

void malloc_count_switch(bool on); /* off at the start */
malloc_counts malloc_count_get(void);
/* Calls of the calling thread, by anybody. */
uint64_t malloc_count_of_thread(void);
/* One line per place of a call: how often, which object, which function if its name is known. */
void malloc_count_print(FILE *to);

#endif
