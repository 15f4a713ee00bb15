/* Numbered errors and warnings of starting a run: who a rank is, which device it gets, how the
 * ranks meet. An error is a block of lines - what is wrong, what was found, what to do - and there
 * is at most one; warnings are lines and there may be several. They are collected, not printed:
 * which rank speaks is the caller's matter. A zeroed lvni_core_notices is empty. */
#ifndef LEVIN_CORE_NOTICE_H
#define LEVIN_CORE_NOTICE_H

#include "core/exit_code.h"
#include "core/str.h"

/* The thread's last error is the one with this number, with which its message begins ("E113: ",
 * under strict "W202: "). Returns its status. */
lvn_status lvni_core_error_number(int number);
/* LVN_FAIL for a numbered error: the format begins with "E113: ". */
#define LVNI_CORE_FAIL_NUMBERED(code, number, ...)                                                 \
    return (void)lvn_error_set((code), __FILE__, __LINE__, __VA_ARGS__),                           \
           (void)lvni_core_error_number(number), (code)

typedef struct lvni_core_notices {
    int error; /* 101 for E101; 0: nothing is wrong */
    int rank;  /* of this process; -1: not known */
    /* the error is of this process alone, so others may not know it: it prints whatever its rank */
    bool own;
    bool by_hand;       /* so are all errors: nobody has set the variables of all ranks together */
    lvni_core_str text; /* the block: "levin: error E101: ...\n  found: ...\n  fix: ...\n" */
    lvni_core_str warnings; /* "levin: warning W204: ...\n", each a line */
    int n_warnings;
    int first_warning; /* 204 for W204 */
} lvni_core_notices;

/* Begins the block of an error (a block that was there goes) and records it as the thread's last
 * error. Returns its status. */
lvn_status lvni_core_notice_error(lvni_core_notices *n, int code, const char *fmt, ...)
    LVN_PRINTF(3, 4);
/* Lines of the block: "  found: ..." and "  fix: ...", and one as it is. */
void lvni_core_notice_found(lvni_core_notices *n, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_core_notice_fix(lvni_core_notices *n, const char *fmt, ...) LVN_PRINTF(2, 3);
void lvni_core_notice_warn(lvni_core_notices *n, int code, const char *fmt, ...) LVN_PRINTF(3, 4);
/* strict=true: the warnings become the block of an error of usage, "levin: error W204: ...", and
 * its status is returned; LVN_OK where there are none. */
lvn_status lvni_core_notices_refuse_warnings(lvni_core_notices *n);
/* What a process that ends because of this error leaves with (LVNI_EXIT_OK: there is none). */
lvni_core_exit_code lvni_core_notices_exit(const lvni_core_notices *n);
/* The same for any error of a thread: numbered ones have their own codes, others that of their
 * status. */
lvni_core_exit_code lvni_core_exit_of_error(const lvn_error *error);
/* How the error of a thread begins where it is printed: a numbered one as the blocks do, all others
 * with "error: ". */
const char *lvni_core_error_prefix(const lvn_error *error);
/* Does this process print its error? Rank 0 speaks for all, and each for itself where others cannot
 * know. */
bool lvni_core_notices_should_print(const lvni_core_notices *n);
/* LVN_ERR_MEMORY when a line could not be kept. */
lvn_status lvni_core_notices_status(const lvni_core_notices *n);
void lvni_core_notices_free(lvni_core_notices *n); /* empty again */

#endif
