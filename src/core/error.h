/* How a process reports that it failed: its exit code, the numbered errors of starting a run, and
 * the error record, a file that outlives it. The errors of a call are in levin/status.h. */
#ifndef LEVIN_CORE_ERROR_H
#define LEVIN_CORE_ERROR_H

#include "core/str.h"

#include <levin/status.h>

/* ---- exit codes ----
 * Of every levin command, every rank and the launcher: this one table and no others. The cause is
 * in the message and in the error record; the code shows what kind of failure it was and whether
 * starting again makes sense. */

/* name, code, meaning */
#define LVNI_EXIT_LIST(X)                                                                          \
    X(OK, 0, "finished")                                                                           \
    X(FAILURE, 1,                                                                                  \
      "failure in the work itself: user code, data, a value that is not finite, a file, a check")  \
    X(USAGE, 64, "usage, configuration, identity: unknown key, wrong type, impossible batch plan") \
    X(RESOURCE, 69, "a resource is missing or too small: memory, device, port, a command")         \
    X(RENDEZVOUS, 75, "the ranks did not find each other in time")                                 \
    X(PEER, 76, "stopped because another rank or node is gone")                                    \
    X(REQUEUE, 85, "stopped at the time limit or on the requeue signal, checkpoint written")       \
    X(NO_REQUEUE, 86, "as 85, but the limit of requeues is reached")                               \
    X(TIMEOUT, 124, "the time given with --timeout is over")                                       \
    X(NOT_EXECUTABLE, 126, "the program is not executable")                                        \
    X(NO_PROGRAM, 127, "the program is not found")                                                 \
    X(SIGHUP, 129, "the terminal went away (checkpoint written if it could be)")                   \
    X(SIGINT, 130, "interrupted from the keyboard (checkpoint written if it could be)")            \
    X(SIGTERM, 143, "terminated (checkpoint written if it could be)")

typedef enum lvni_core_exit_code {
#define LVNI_EXIT_ENUM(name, code, text) LVNI_EXIT_##name = code,
    LVNI_EXIT_LIST(LVNI_EXIT_ENUM)
#undef LVNI_EXIT_ENUM
} lvni_core_exit_code;

/* The exit code for a status. For LVN_ERR_CANCELLED the caller knows the signal and calls
 * lvni_core_exit_of_signal; here it counts as 1. */
lvni_core_exit_code lvni_core_exit_of_status(lvn_status status);
int lvni_core_exit_of_signal(int signal_number); /* 128 + n */

/* ---- the first failure of a function that has something to free ----
 * LVN_TRY there: s, a lvn_status, is what the call returned; a failure goes to the function's one
 * label `done:`, behind which it frees what it has and returns s. Success gets there, too, or has
 * returned before it where what was made lives on. */
#define LVNI_TRY_DONE(s, call)                                                                     \
    do {                                                                                           \
        (s) = (call);                                                                              \
        if ((s) != LVN_OK) {                                                                       \
            goto done;                                                                             \
        }                                                                                          \
    } while (0)

/* ---- users' callbacks ----
 * One has failed: where it set no error since `before`, a serial of lvn_last_error(), it gets one
 * that names it. The format reports which: "get() of the dataset digits". */

/* It returned this status, which is returned again. LVN_OK: nothing happens. */
lvn_status lvni_core_error_of_callback(lvn_status status, uint64_t before, const char *format, ...)
    LVN_PRINTF(3, 4);
/* It returned NULL: LVN_ERR_INVALID. */
void lvni_core_error_of_null(uint64_t before, const char *format, ...) LVN_PRINTF(2, 3);

/* ---- failures of others ---- */

/* The thread's last error where it was set since `before`, a serial of lvn_last_error(), else an
 * empty one: an earlier failure does not explain this one. */
const lvn_error *lvni_core_error_since(uint64_t before);
/* What has failed elsewhere with `status`, another thread or a call before others, has left
 * `error`, which becomes the last error. None, which would pass for success, gets one that names
 * `who`: "lane 2". Returns the status; never LVN_OK. */
lvn_status lvni_core_error_collect(lvn_status status, const lvn_error *error, const char *who);
/* The last error as it was, to the serial: nothing has failed since. */
void lvni_core_error_restore(const lvn_error *error);

/* ---- numbered errors and warnings ----
 * Of starting a run: who a rank is, which device it gets, how the ranks connect. An error is a
 * block of lines (what is wrong, what was found, what to do) and there is at most one; a warning is
 * a line. They are collected, not printed: the caller decides which rank prints. A zeroed
 * lvni_core_notices is empty. */

/* The thread's last error is the one with this number, with which its message begins ("E113: ",
 * under strict "W202: "). Returns its status. */
lvn_status lvni_core_error_number(int number);
/* LVN_FAIL for a numbered error: the format begins with "E113: ". */
#define LVNI_CORE_FAIL_NUMBERED(code, number, ...)                                                 \
    return (void)lvn_error_set((code), __FILE__, __LINE__, __VA_ARGS__),                           \
           (void)lvni_core_error_number(number), (code)

/* With which every line of warnings begins. */
#define LVNI_WARNING_PREFIX "levin: warning "

typedef struct lvni_core_notices {
    int error; /* 101 for E101; 0: nothing is wrong */
    int rank;  /* of this process; -1: not known */
    /* the error is of this process alone, so others may not know it: it prints whatever its rank */
    bool own;
    bool by_hand;           /* so are all errors: the ranks' variables were set one by one */
    lvni_core_str text;     /* the block: "levin: error E101: ...\n  found: ...\n  fix: ...\n" */
    lvni_core_str warnings; /* LVNI_WARNING_PREFIX "W204: ...\n", each a line */
    int n_warnings;
    int first_warning; /* 204 for W204 */
} lvni_core_notices;

/* Begins the block of an error (a block that was there goes) and records it as the thread's last
 * error. Returns its status. */
lvn_status lvni_core_notice_error(lvni_core_notices *n, int code, const char *fmt, ...)
    LVN_PRINTF(3, 4);
/* Lines of the block: "  found: ..." and "  fix: ...". */
void lvni_core_notice_found(lvni_core_notices *n, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_core_notice_fix(lvni_core_notices *n, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_core_notice_warn(lvni_core_notices *n, int code, const char *fmt, ...) LVN_PRINTF(3, 4);
/* strict=true: the warnings become the block of an error of usage, "levin: error W204: ...", and
 * its status is returned; LVN_OK where there are none. */
lvn_status lvni_core_notices_refuse_warnings(lvni_core_notices *n);
/* The exit code for this error (LVNI_EXIT_OK: there is none). */
lvni_core_exit_code lvni_core_notices_exit(const lvni_core_notices *n);
/* The same for any error of a thread: numbered ones have their own codes, others that of their
 * status. */
lvni_core_exit_code lvni_core_exit_of_error(const lvn_error *error);
/* How the error of a thread begins where it is printed: a numbered one as the blocks do, all others
 * with "error: ". */
const char *lvni_core_error_prefix(const lvn_error *error);
/* Does this process print its error? Rank 0 prints for all; each rank its own where others cannot
 * know it. */
bool lvni_core_notices_should_print(const lvni_core_notices *n);
/* LVN_ERR_MEMORY when a line could not be kept. */
lvn_status lvni_core_notices_status(const lvni_core_notices *n);
void lvni_core_notices_free(lvni_core_notices *n); /* empty again */

/* ---- error records ----
 * Why a rank failed: {"rank", "host", "pid", "time_ns", "kind", "code", "message", "where",
 * "stack"}. A rank writes one (LEVIN_ERROR_FILE) before it leaves with a code other than 0; the
 * process that started the ranks reads them all and names the first cause. Written under a
 * temporary name and renamed, so it is never half written. */

enum { LVNI_ERROR_STACK = 16 };

typedef struct lvni_core_error_record {
    int rank, code; /* code: the exit code the rank is about to leave with */
    int64_t pid;
    uint64_t time_ns; /* since 1970; 0: unknown */
    /* error nan oom cuda nccl peer signal; "peer": it stopped because another rank is gone */
    char kind[16];
    char host[256], message[1024], where[256];
    int n_stack;
    char stack[LVNI_ERROR_STACK][160]; /* innermost first */
} lvni_core_error_record;

/* At the start of a rank: where its record goes (NULL or "": nowhere), and who it is. Called again:
 * the new place counts, and nothing is written yet. The folder must exist. */
lvn_status lvni_core_error_record_begin(const char *path, int rank);
/* From now on SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT leave a record of kind "signal" on the
 * way; what was set up for them before happens after that (a core dump, a sanitizer's report).
 * After lvni_core_error_record_begin, in the main thread. */
lvn_status lvni_core_error_record_catch_signals(void);
/* A user's code, between these addresses, was loaded from the file `object`: in a process without a
 * record, from now on such a signal of the process's own is reported on standard error, and where a
 * record is written it has the same text. Then what was set up before happens, as above. */
lvn_status lvni_core_error_report_crashes(const char *object, const void *from, const void *to);
/* Writes the record. Only the first call of a process does: an error on the way out is not the
 * cause. LVN_OK where there is no place for it. Thread-safe. */
lvn_status lvni_core_error_record_write(const lvn_error *error, int code);
/* The kind that goes with a status: LVN_ERR_NON_FINITE is "nan", ... */
const char *lvni_core_error_record_kind(lvn_status status);

/* LVN_ERR_NOT_FOUND: there is none; LVN_ERR_CORRUPT: it is not a record. Missing fields are 0 or
 * "". */
lvn_status lvni_core_error_record_read(const char *path, lvni_core_error_record *out);

#endif
