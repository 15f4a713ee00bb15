/* Measuring what a parser takes of memory: the peak of a process of its own. */
#ifndef LEVIN_TESTS_PARSER_MEMORY_H
#define LEVIN_TESTS_PARSER_MEMORY_H

#include "support/test.h"

#include <levin/status.h>

#include "support/sanitized.h"

enum { MEASURED = !SANITIZED }; /* a sanitizer's own memory would be counted */

#define MIB ((size_t)1 << 20)
#define PART (MIB >> (SANITIZED ? 4 : 0)) /* of inputs whose size matters to what is measured */

typedef struct input {
    char *bytes;
    size_t n;
} input;

typedef lvn_status (*parser)(const input *in);

typedef struct outcome {
    lvn_status status;
    size_t peak; /* bytes above what the process had before */
    char message[256];
} outcome;

/* Runs the parser in a process of its own; fails the test when it took more than 64 MiB + 16 n. */
outcome bounded(parser parse, const input *in, const char *what);
/* head, then `unit` (a %d in it counts up) until there are n bytes, then tail; `before` bytes are
 * left free in front of it. The bytes are the caller's. */
input repeat(const char *head, const char *unit, const char *tail, size_t n, size_t before);
/* For a parser that wants a path: a file without a name. */
lvn_status by_path(const input *in, lvn_status (*open)(const char *path));

#endif
