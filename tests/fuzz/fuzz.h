/* A fuzz target is one function over bytes. With clang it is linked with libFuzzer; else with
 * driver.c, which knows the same few flags. What must hold for every input is CHECKed; memory
 * errors are the sanitizers' part. */
#ifndef LEVIN_TESTS_FUZZ_H
#define LEVIN_TESTS_FUZZ_H

#include <levin/status.h>

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of all builds, NDEBUG or not. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: does not hold: %s\nlast error: %s\n", __FILE__, __LINE__,      \
                    #condition, lvn_last_error()->message);                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

/* A status that is not OK comes with a message. */
#define CHECK_REPORTED(status)                                                                     \
    CHECK((status) == LVN_OK ||                                                                    \
          (lvn_last_error()->code == (status) && lvn_last_error()->message[0] != '\0'))

#endif
