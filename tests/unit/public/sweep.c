/* The loop over k (sweep.h). */
#include "sweep.h"

#include "core/alloc.h"
#include "support/sanitized.h"

#include <pthread.h>
#include <string.h>

enum { MANY = 100000 };

typedef struct attempt {
    const scenario *s;
    int64_t k;   /* which allocation fails; 0: none */
    bool failed; /* it came to that */
    lvn_status status;
    lvn_error error; /* the last one */
} attempt;

static void *run(void *argument)
{
    attempt *a = argument;
    const scenario *s = a->s;
    lvn_clear_error();
    if (s->before != NULL) {
        s->before(s->argument);
    }
    lvni_core_alloc_fail_at(a->k);
    a->status = s->run(s->argument);
    a->failed = lvni_core_alloc_fail_at(0) == 0 && a->k > 0;
    a->error = *lvn_last_error();
    if (s->after != NULL) {
        s->after(s->argument);
    }
    return NULL;
}

static attempt try_with(const scenario *s, int64_t k)
{
    attempt a = {.s = s, .k = k};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, run, &a), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    return a;
}

static int64_t next_after(const scenario *s, int64_t k)
{
    const double growth = SANITIZED && s->growth < 1.1 ? 1.1 : s->growth;
    return growth > 0 && k > 30 ? k + (int64_t)((double)k * (growth - 1)) + 1 : k + 1;
}

int64_t sweep(const char *what, const scenario *s)
{
    const attempt warm = try_with(s, 0); /* what the process makes once */
    if (warm.status != LVN_OK) {
        fail_msg("%s: fails without a reason: %s", what, warm.error.message);
    }
    const uint64_t live = lvni_core_alloc_get_total().live_bytes;
    int64_t failures = 0;
    for (int64_t k = 1; k < MANY; k = next_after(s, k)) {
        const attempt a = try_with(s, k);
        const uint64_t now = lvni_core_alloc_get_total().live_bytes;
        if (now != live) {
            fail_msg("%s, allocation %d: %lld bytes are left behind", what, (int)k,
                     (long long)(now - live));
        }
        if (!a.failed) {
            if (a.status != LVN_OK) {
                fail_msg("%s: nothing failed before allocation %d, and still: %s", what, (int)k,
                         a.error.message);
            }
            return failures;
        }
        if (a.status == LVN_OK && s->goes_on) {
            continue;
        }
        if (a.status != LVN_ERR_MEMORY || strstr(a.error.message, "memory") == NULL) {
            fail_msg("%s, allocation %d: status %s, message \"%s\"", what, (int)k,
                     lvn_status_name(a.status), a.error.message);
        }
        failures++;
    }
    fail_msg("%s: no end of allocations", what);
    return failures;
}
