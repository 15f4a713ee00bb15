/* Scratch memory of the cpu kernels (scratch.h). */
#include "kernels/cpu/scratch.h"

#include "core/alloc.h"
#include "tensor/ctx.h"

struct lvni_scratch {
    void *data[LVNI_SCRATCH_SLOTS];
    size_t bytes[LVNI_SCRATCH_SLOTS];
    void *attachment;
    void (*release)(void *);
};

static void free_scratch(struct lvni_scratch *s)
{
    if (s->attachment != NULL) {
        s->release(s->attachment);
    }
    for (int i = 0; i < LVNI_SCRATCH_SLOTS; i++) {
        lvni_free(s->data[i]);
    }
    lvni_free(s);
}

/* Before main, so that no thread can see the hook change. */
__attribute__((constructor)) static void register_free(void)
{
    lvni_ctx_free_scratch = free_scratch;
}

/* The context's scratch object, made at first use. */
static struct lvni_scratch *get(void)
{
    lvni_ctx *ctx = lvni_ctx_get();
    if (ctx != NULL && ctx->scratch == NULL) {
        ctx->scratch = LVNI_NEW(LVNI_TAG_KERNEL, struct lvni_scratch);
    }
    return ctx == NULL ? NULL : ctx->scratch;
}

void *lvni_scratch(lvni_scratch_slot slot, size_t bytes)
{
    struct lvni_scratch *s = get();
    if (s == NULL) {
        return NULL;
    }
    if (s->data[slot] == NULL || s->bytes[slot] < bytes) {
        /* The old contents are dead: free first, so that the peak is one buffer. */
        lvni_free(s->data[slot]);
        const size_t rounded = (bytes + 4095) / 4096 * 4096;
        s->data[slot] = lvni_alloc(LVNI_TAG_KERNEL, rounded);
        s->bytes[slot] = s->data[slot] == NULL ? 0 : rounded;
    }
    return s->data[slot];
}

void **lvni_scratch_attachment(void (*release)(void *))
{
    struct lvni_scratch *s = get();
    if (s == NULL) {
        return NULL;
    }
    s->release = release;
    return &s->attachment;
}
