/* Why a rank failed, as a file that outlives it: {"rank", "host", "pid", "time_ns", "kind", "code",
 * "message", "where", "stack"}. A rank writes one (LEVIN_ERROR_FILE) before it leaves with a code
 * other than 0; who started the ranks reads them all and names the first cause. Written to a
 * temporary name and renamed: it is there whole, or not at all. */
#ifndef LEVIN_CORE_ERROR_RECORD_H
#define LEVIN_CORE_ERROR_RECORD_H

#include <levin/status.h>

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
/* Leaves the record. Only the first of a process counts, later ones change nothing: an error on the
 * way out is no cause. Nowhere to write is LVN_OK. Thread-safe. */
lvn_status lvni_core_error_record_write(const lvn_error *error, int code);
/* The kind that goes with a status: LVN_ERR_NON_FINITE is "nan", ... */
const char *lvni_core_error_record_kind(lvn_status status);

/* LVN_ERR_NOT_FOUND: there is none; LVN_ERR_CORRUPT: it is no record. What is missing in it is 0 or
 * "". */
lvn_status lvni_core_error_record_read(const char *path, lvni_core_error_record *out);

#endif
