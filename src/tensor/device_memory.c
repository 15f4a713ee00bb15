/* Memory of devices: the caching allocator over a device's addresses, copies between host and
 * devices, flat buffers, and levin/device.h. */
#include "tensor/device_impl.h"

#include "core/str.h"
#include "tensor/tensor.h"

#include <string.h>

/* ---- the allocator: size classes as in ctx.c, blocks cut from holes, first fit ----
 * What is free is described in host memory. When no hole is large enough, all blocks kept for reuse
 * become holes again, once, before it fails. */

lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *d)
{
    pthread_mutex_init(&d->memory_lock, NULL);
    d->free_list = lvni_core_calloc(LVNI_TAG_TENSOR, LVNI_SIZE_CLASSES, sizeof *d->free_list);
    d->holes = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    if (d->free_list == NULL || d->holes == NULL) {
        return LVN_ERR_MEMORY;
    }
    *d->holes = (lvni_tensor_piece){.p = d->base, .bytes = d->size};
    return LVN_OK;
}

static void free_list(lvni_tensor_piece *piece)
{
    while (piece != NULL) {
        lvni_tensor_piece *next = piece->next;
        lvni_core_free(piece);
        piece = next;
    }
}

void lvni_tensor_device_memory_free(lvni_tensor_device *d)
{
    for (int k = 0; d->free_list != NULL && k < LVNI_SIZE_CLASSES; k++) {
        free_list(d->free_list[k]);
    }
    free_list(d->holes);
    free_list(d->spare);
    lvni_core_free(d->free_list);
    pthread_mutex_destroy(&d->memory_lock);
}

static void push(lvni_tensor_piece **list, lvni_tensor_piece *piece)
{
    piece->next = *list;
    *list = piece;
}

static lvni_tensor_piece *pop(lvni_tensor_piece **list)
{
    lvni_tensor_piece *piece = *list;
    *list = piece->next;
    return piece;
}

/* From the first hole that is large enough; NULL: none is. */
static char *cut(lvni_tensor_device *d, size_t bytes)
{
    for (lvni_tensor_piece **at = &d->holes; *at != NULL; at = &(*at)->next) {
        lvni_tensor_piece *hole = *at;
        if (hole->bytes >= bytes) {
            char *p = hole->p;
            hole->p += bytes;
            hole->bytes -= bytes;
            if (hole->bytes == 0) {
                push(&d->spare, pop(at));
            }
            d->held += bytes;
            d->peak = d->held > d->peak ? d->held : d->peak;
            return p;
        }
    }
    return NULL;
}

/* Into the holes, in its place; joined with its neighbours. */
static void become_hole(lvni_tensor_device *d, lvni_tensor_piece *piece)
{
    lvni_tensor_piece **at = &d->holes;
    d->held -= piece->bytes;
    while (*at != NULL && (*at)->p + (*at)->bytes < piece->p) {
        at = &(*at)->next;
    }
    if (*at != NULL && (*at)->p + (*at)->bytes == piece->p) {
        (*at)->bytes += piece->bytes;
        push(&d->spare, piece);
        piece = *at;
    } else {
        push(at, piece);
    }
    if (piece->next != NULL && piece->p + piece->bytes == piece->next->p) {
        piece->bytes += piece->next->bytes;
        push(&d->spare, pop(&piece->next));
    }
}

static void give_up_free_blocks(lvni_tensor_device *d)
{
    for (int k = 0; k < LVNI_SIZE_CLASSES; k++) {
        while (d->free_list[k] != NULL) {
            become_hole(d, pop(&d->free_list[k]));
        }
    }
}

static void fail_full(const lvni_tensor_device *d, size_t bytes)
{
    char asked[LVNI_BYTES_TEXT], used[LVNI_BYTES_TEXT], all[LVNI_BYTES_TEXT];
    lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                  "%s is out of memory: %s were asked for, and %s of its %s are in use; smaller "
                  "batches (batch_size, "
                  "eval_batch_size, image_size), more micro-batches or fewer lanes need less",
                  d->name, lvni_core_bytes_text(bytes, asked),
                  lvni_core_bytes_text(d->in_use, used), lvni_core_bytes_text(d->size, all));
}

static void *new_block(lvni_tensor_device *d, size_t bytes)
{
    /* for the day the block comes back */
    lvni_tensor_piece *later = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_piece);
    if (later == NULL) {
        return NULL;
    }
    char *p = cut(d, bytes);
    if (p == NULL) {
        give_up_free_blocks(d);
        p = cut(d, bytes);
    }
    if (p == NULL) {
        lvni_core_free(later);
        fail_full(d, bytes);
        return NULL;
    }
    push(&d->spare, later);
    return p;
}

static bool must_fail(lvni_tensor_device *d)
{
    return d->fail_in > 0 && --d->fail_in == 0;
}

static void *take_class(lvni_tensor_device *d, int k, size_t got)
{
    if (must_fail(d)) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: this allocation was set to fail", d->name);
        return NULL;
    }
    if (d->free_list[k] == NULL) {
        return new_block(d, got);
    }
    lvni_tensor_piece *piece = pop(&d->free_list[k]);
    push(&d->spare, piece);
    return piece->p;
}

void *lvni_tensor_device_take(lvni_tensor_device *d, size_t bytes, size_t *got)
{
    if (bytes > LVNI_SIZE_LIMIT) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a tensor of %zu bytes is too large", d->name, bytes);
        return NULL;
    }
    const int k = lvni_tensor_size_class(bytes, got);
    pthread_mutex_lock(&d->memory_lock);
    void *p = take_class(d, k, *got);
    d->in_use += p == NULL ? 0 : *got;
    pthread_mutex_unlock(&d->memory_lock);
    return p;
}

void lvni_tensor_device_give(lvni_tensor_device *d, void *p, size_t got)
{
    size_t size;
    const int k = lvni_tensor_size_class(got, &size);
    pthread_mutex_lock(&d->memory_lock);
    lvni_tensor_piece *piece = pop(&d->spare);
    piece->p = p;
    piece->bytes = size;
    push(&d->free_list[k], piece);
    d->in_use -= size;
    pthread_mutex_unlock(&d->memory_lock);
}

void lvni_tensor_device_fail_at(lvni_tensor_device *d, int64_t k)
{
    pthread_mutex_lock(&d->memory_lock);
    d->fail_in = k;
    pthread_mutex_unlock(&d->memory_lock);
}

lvni_tensor_device_stats lvni_tensor_device_get_stats(lvni_tensor_device *d)
{
    pthread_mutex_lock(&d->memory_lock);
    const lvni_tensor_device_stats s = {
        .limit = d->size, .in_use = d->in_use, .held = d->held, .peak = d->peak};
    pthread_mutex_unlock(&d->memory_lock);
    return s;
}

/* ---- copies ---- */

enum { SMALL = 1024 }; /* bytes that travel in the command itself */

typedef struct copy {
    void *to;
    const void *from; /* NULL: zeros; == here: the bytes behind */
    size_t bytes;
    bool here;
} copy;

typedef struct small_copy {
    copy c;
    unsigned char data[SMALL];
} small_copy;

static lvn_status run_copy(void *payload)
{
    const copy *c = payload;
    if (c->here) {
        memcpy(c->to, ((const small_copy *)payload)->data, c->bytes);
    } else if (c->from == NULL) {
        memset(c->to, 0, c->bytes);
    } else {
        memcpy(c->to, c->from, c->bytes);
    }
    return LVN_OK;
}

static lvn_status copy_from_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    if (bytes <= SMALL) {
        small_copy c = {.c = {.to = lvni_tensor_device_alias(to), .bytes = bytes, .here = true}};
        memcpy(c.data, from, bytes);
        return lvni_tensor_device_submit(d, "copy", run_copy, &c,
                                         offsetof(small_copy, data) + bytes);
    }
    const copy c = {.to = lvni_tensor_device_alias(to), .from = from, .bytes = bytes};
    LVN_TRY(lvni_tensor_device_submit(d, "copy", run_copy, &c, sizeof c));
    return lvni_tensor_device_sync();
}

static lvn_status copy_to_host(lvni_tensor_device *d, void *to, const void *from, size_t bytes)
{
    if (d->dry) {
        memset(to, 0, bytes);
        return LVN_OK;
    }
    const copy c = {.to = to, .from = lvni_tensor_device_alias(from), .bytes = bytes};
    LVN_TRY(lvni_tensor_device_submit(d, "copy", run_copy, &c, sizeof c));
    return lvni_tensor_device_sync();
}

static lvn_status do_nothing(void *payload)
{
    (void)payload;
    return LVN_OK;
}

/* The commands that the device has now, of whichever context, and all of the calling one. */
static lvn_status wait_for_all(lvni_tensor_device *d)
{
    LVN_TRY(lvni_tensor_device_submit(d, "mark", do_nothing, &(char){0}, 1));
    return lvni_tensor_device_sync();
}

lvn_status lvni_tensor_mem_copy(void *to, const void *from, size_t bytes)
{
    lvni_tensor_device *target = lvni_tensor_device_of(to), *source = lvni_tensor_device_of(from);
    if (target == NULL && source == NULL) {
        memcpy(to, from, bytes);
        return LVN_OK;
    }
    if (target == NULL) {
        return copy_to_host(source, to, from, bytes);
    }
    if (source == NULL) {
        return copy_from_host(target, to, from, bytes);
    }
    const copy c = {
        .to = lvni_tensor_device_alias(to), .from = lvni_tensor_device_alias(from), .bytes = bytes};
    if (target != source) {
        LVN_TRY(wait_for_all(source));
    }
    LVN_TRY(lvni_tensor_device_submit(target, "copy", run_copy, &c, sizeof c));
    return target != source ? lvni_tensor_device_sync() : LVN_OK;
}

lvn_status lvni_tensor_mem_zero(void *p, size_t bytes)
{
    lvni_tensor_device *d = lvni_tensor_device_of(p);
    if (d == NULL) {
        memset(p, 0, bytes);
        return LVN_OK;
    }
    const copy c = {.to = lvni_tensor_device_alias(p), .bytes = bytes};
    return lvni_tensor_device_submit(d, "zeros", run_copy, &c, sizeof c);
}

void *lvni_tensor_mem_calloc(lvni_core_tag tag, size_t count, size_t size)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    if (ctx == NULL || ctx->device == NULL) {
        return ctx == NULL ? NULL : lvni_core_calloc(tag, count, size);
    }
    if (size != 0 && count > LVNI_SIZE_LIMIT / size) {
        lvn_error_set(LVN_ERR_DEVICE_MEMORY, __FILE__, __LINE__,
                      "%s: a buffer of %zu x %zu bytes is too large", ctx->device->name, count,
                      size);
        return NULL;
    }
    size_t got;
    void *p = lvni_tensor_device_take(ctx->device, count * size, &got);
    if (p != NULL && lvni_tensor_mem_zero(p, count * size) != LVN_OK) {
        lvni_tensor_device_give(ctx->device, p, got);
        return NULL;
    }
    return p;
}

void lvni_tensor_mem_free(void *p, size_t count, size_t size)
{
    lvni_tensor_device *d = lvni_tensor_device_of(p);
    if (d == NULL) {
        lvni_core_free(p);
        return;
    }
    size_t got;
    lvni_tensor_size_class(count * size, &got);
    lvni_tensor_device_give(d, p, got);
}

/* ---- levin/device.h ---- */

static lvn_status find(lvn_device device, lvni_tensor_device **out)
{
    *out = NULL;
    if (device.kind == LVN_DEVICE_CPU && device.index == 0) {
        return LVN_OK;
    }
    if (device.kind != LVN_DEVICE_SIM) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "there is no device of kind %d with number %d; the CPU has number 0",
                 (int)device.kind, device.index);
    }
    return lvni_tensor_device_open(device.index, out);
}

static lvn_device name_of(const lvni_tensor_device *d)
{
    return d == NULL || d->dry ? LVN_CPU : LVN_SIM(d->index);
}

lvn_status lvn_device_use(lvn_device device)
{
    lvni_tensor_device *d;
    lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    LVN_TRY(ctx == NULL ? LVN_ERR_MEMORY : find(device, &d));
    ctx->device = d;
    return LVN_OK;
}

lvn_device lvn_device_in_use(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return name_of(ctx == NULL ? NULL : ctx->device);
}

lvn_device lvn_tensor_device(const lvn_tensor *t)
{
    return name_of(t == NULL ? NULL : lvni_tensor_device_of(t->data));
}

lvn_tensor *lvni_tensor_to(const lvn_tensor *t, lvni_tensor_device *device)
{
    const lvni_tensor_desc d = lvni_tensor_get_desc(t);
    lvn_tensor *copy_of_t = lvni_tensor_new_on(&d, device);
    if (copy_of_t != NULL &&
        lvni_tensor_mem_copy(copy_of_t->data, t->data,
                             (size_t)lvn_numel(t) * lvn_dtype_size(t->dtype)) != LVN_OK) {
        lvn_release(copy_of_t);
        return NULL;
    }
    return copy_of_t;
}

lvn_tensor *lvn_to_device(const lvn_tensor *t, lvn_device device)
{
    lvni_tensor_device *d;
    if (t == NULL || find(device, &d) != LVN_OK) {
        return NULL;
    }
    return lvni_tensor_to(t, d);
}
