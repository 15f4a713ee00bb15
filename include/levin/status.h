/* Status codes and the thread's last error.
 *
 * Every fallible call that is not an op returns lvn_status. The detail (message, place, up to eight
 * frames of context) is thread local: lvn_last_error(). Ops return NULL instead and leave the same
 * record (see ops.h). */
#ifndef LEVIN_STATUS_H
#define LEVIN_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define LVN_API __attribute__((visibility("default")))
#define LVN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define LVN_API
#define LVN_PRINTF(fmt, args)
#endif

/* code, number, sentence */
#define LVN_STATUS_LIST(X)                                                                         \
    X(LVN_OK, 0, "no error")                                                                       \
    X(LVN_ERR_INVALID, -1, "invalid argument")                                                     \
    X(LVN_ERR_SHAPE, -2, "shapes do not fit")                                                      \
    X(LVN_ERR_DTYPE, -3, "wrong data type")                                                        \
    X(LVN_ERR_MEMORY, -4, "out of host memory")                                                    \
    X(LVN_ERR_DEVICE_MEMORY, -5, "out of device memory")                                           \
    X(LVN_ERR_IO, -6, "input or output failed")                                                    \
    X(LVN_ERR_CORRUPT, -7, "file is damaged")                                                      \
    X(LVN_ERR_NOT_FOUND, -8, "not found")                                                          \
    X(LVN_ERR_UNSUPPORTED, -9, "not supported")                                                    \
    X(LVN_ERR_TIMEOUT, -10, "timed out")                                                           \
    X(LVN_ERR_PEER, -11, "a peer is lost")                                                         \
    X(LVN_ERR_ABORTED, -12, "aborted")                                                             \
    X(LVN_ERR_MISMATCH, -13, "does not match")                                                     \
    X(LVN_ERR_CANCELLED, -14, "cancelled")                                                         \
    X(LVN_ERR_USAGE, -15, "usage or configuration error")                                          \
    X(LVN_ERR_NON_FINITE, -16, "a value is not finite")                                            \
    X(LVN_ERR_INTERNAL, -17, "internal error")                                                     \
    X(LVN_ERR_RESOURCE, -18, "a resource is missing")

typedef enum lvn_status {
#define LVN_STATUS_ENUM(code, number, text) code = number,
    LVN_STATUS_LIST(LVN_STATUS_ENUM)
#undef LVN_STATUS_ENUM
} lvn_status;

enum { LVN_ERROR_FRAMES = 8 };

typedef struct lvn_error {
    lvn_status code;
    char message[1024];
    /* of the numbered errors of starting a run (docs/launch.md): 113, and the message begins with
     * "E113: "; 0: it has no number */
    int number;
    const char *file; /* where the error was born (borrowed, static) */
    int line;
    /* counted up with every error of the thread: distinguishes a new one from an old one */
    uint64_t serial;
    int n_frames; /* context added on the way up, innermost first */
    char frames[LVN_ERROR_FRAMES][160];
} lvn_error;

LVN_API const char *lvn_status_name(lvn_status status); /* "LVN_ERR_IO"; never NULL */
LVN_API const char *lvn_status_text(lvn_status status); /* "input or output failed" */

/* The calling thread's last error; code LVN_OK when there is none. Borrowed; valid until the
 * thread's next error. */
LVN_API const lvn_error *lvn_last_error(void);
LVN_API void lvn_clear_error(void);

/* Record an error (the macros below are the usual way) and return its code. The text of each %s and
 * %c is escaped: a control character, a byte that is not UTF-8 or a character that cannot be seen
 * becomes `\xHH`, newlines included. `%-s` leaves newlines and tabs: for text of several lines. */
LVN_API lvn_status lvn_error_set(lvn_status code, const char *file, int line, const char *fmt, ...)
    LVN_PRINTF(4, 5);
/* Add a frame of context to the thread's last error. */
LVN_API void lvn_error_frame(const char *fmt, ...) LVN_PRINTF(1, 2);
/* Add to the end of the thread's last error's message; its frames and its place stay. */
LVN_API void lvn_error_append(const char *fmt, ...) LVN_PRINTF(1, 2);
/* Copy an error record from another thread into this one's. */
LVN_API lvn_status lvn_error_adopt(const lvn_error *error);

#ifdef __clang_analyzer__ /* lint cannot see into lvn_error_set: it gives back its code, so what   \
                             follows LVN_TRY is not reached */
#define LVN_FAIL(code, ...) return lvn_error_set((code), __FILE__, __LINE__, __VA_ARGS__), (code)
#else
#define LVN_FAIL(code, ...) return lvn_error_set((code), __FILE__, __LINE__, __VA_ARGS__)
#endif
#define LVN_TRY(call)                                                                              \
    do {                                                                                           \
        const lvn_status lvn_try_s_ = (call);                                                      \
        if (lvn_try_s_ != LVN_OK) {                                                                \
            return lvn_try_s_;                                                                     \
        }                                                                                          \
    } while (0)
#define LVN_ARG(cond, ...)                                                                         \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            LVN_FAIL(LVN_ERR_INVALID, __VA_ARGS__);                                                \
        }                                                                                          \
    } while (0)

#ifdef __cplusplus
}
#endif
#endif
