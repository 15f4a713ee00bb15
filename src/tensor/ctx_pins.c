/* Pinned choices of the thread's run (levin/pins.h). */
#include "tensor/ctx.h"

#include <levin/pins.h>

/* NULL: outside a run. */
static lvni_core_pin_entries *entries_of_thread(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx == NULL ? NULL : ctx->pins.entries;
}

const char *lvn_pin_get(const char *key)
{
    lvni_core_pin_entries *e = entries_of_thread();
    return e == NULL || key == NULL ? NULL : lvni_core_pin_entries_get(e, key);
}

lvn_status lvn_pin_record(const char *key, const char *value, const char **counts)
{
    LVN_ARG(key != NULL && value != NULL && counts != NULL,
            "lvn_pin_record: a key, a value and a place for the answer are needed, got NULL");
    lvni_core_pin_entries *e = entries_of_thread();
    *counts = value;
    return e == NULL ? LVN_OK : lvni_core_pin_entries_record(e, key, value, counts);
}
