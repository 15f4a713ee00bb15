/* Shapes without memory: a backend on which a step runs only to count what it would take. A device
 * has addresses (pages that are never written cost nothing) and computes nothing; what the host
 * reads of it is zeros. Used by trainer/memory.c. */
#include "core/alloc.h"
#include "kernels/kernels_decl.h"
#include "tensor/device.h"

#include <string.h>
#include <sys/mman.h>

static const size_t SIZE = (size_t)256 << 30;

typedef struct dry_device {
    void *base;
    _Atomic bool given_out;
} dry_device;

/* ---- devices and memory ---- */

static lvn_status open_device(int index, void **device, lvn_device_info *info)
{
    (void)index;
    *device = NULL;
    dry_device *d = LVNI_NEW(LVNI_TAG_KERNEL, dry_device);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    /* A module may look at numbers: it finds zeros. */
    void *base = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) { /* a system that counts what could be written */
        base = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    if (base == MAP_FAILED) {
        lvni_core_free(d);
        LVN_FAIL(LVN_ERR_MEMORY, "cannot reserve the addresses of a dry run (%zu GiB)", SIZE >> 30);
    }
    d->base = base;
    *info = (lvn_device_info){.name = "dry run", .memory = SIZE, .segment = SIZE};
    *device = d;
    return LVN_OK;
}

static void close_device(void *device)
{
    dry_device *d = device;
    munmap(d->base, SIZE);
    lvni_core_free(d);
}

static lvn_status count(int *n)
{
    *n = 0; /* none to use: lvni_tensor_device_create_dry */
    return LVN_OK;
}

static lvn_status take(void *device, size_t bytes, void **address)
{
    dry_device *d = device;
    if (bytes > SIZE || atomic_exchange(&d->given_out, true)) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY, "a dry run needs more than %zu GiB", SIZE >> 30);
    }
    *address = d->base;
    return LVN_OK;
}

static void give(void *device, void *address, size_t bytes)
{
    dry_device *d = device;
    (void)address;
    (void)bytes;
    atomic_store(&d->given_out, false);
}

static lvn_status host_take(void *device, size_t bytes, void **p)
{
    (void)device;
    *p = lvni_core_alloc(LVNI_TAG_KERNEL, bytes);
    return *p == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

static void host_give(void *device, void *p, size_t bytes)
{
    (void)device;
    (void)bytes;
    lvni_core_free(p);
}

/* ---- streams and events: nothing is ever under way ---- */

static char nothing; /* stands for all of them */

static lvn_status stream_create(void *device, lvn_stream_kind kind, void **stream)
{
    (void)device;
    (void)kind;
    *stream = &nothing;
    return LVN_OK;
}

static void ignore(void *p)
{
    (void)p;
}

static lvn_status done(void *p)
{
    (void)p;
    return LVN_OK;
}

static bool never(void *p)
{
    (void)p;
    return false;
}

static lvn_status event_create(void *device, void **event)
{
    (void)device;
    *event = &nothing;
    return LVN_OK;
}

static lvn_status done_both(void *a, void *b)
{
    (void)a;
    (void)b;
    return LVN_OK;
}

static lvn_status host_call(void *stream, void (*fn)(void *user), void *user)
{
    (void)stream;
    fn(user);
    return LVN_OK;
}

static lvn_status copy(void *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    (void)from;
    if (lvni_tensor_device_of(to) == NULL) {
        memset(to, 0, bytes);
    }
    return LVN_OK;
}

static lvn_status upload(void *stream, void *to, const void *from, size_t bytes)
{
    (void)stream;
    (void)to;
    (void)from;
    (void)bytes;
    return LVN_OK;
}

static lvn_status zero(void *stream, void *p, size_t bytes)
{
    (void)stream;
    (void)p;
    (void)bytes;
    return LVN_OK;
}

/* ---- ops ---- */

/* What the cpu's kernel would take besides its tensors, where it can report that (LVNI_DRY). */
static lvn_status dry_kernel(const lvn_kernel_args *args)
{
    const lvni_kernels_op_info *info = lvni_kernels_info(args);
    bool reports = (info->flags & LVNI_DRY) != 0;
    for (int i = 0; i < info->n_in + info->n_out; i++) {
        const lvn_tensor *t = i < info->n_in ? args->in[i] : args->out[i - info->n_in];
        reports = reports && (t == NULL || lvn_numel(t) > 0);
        reports = reports && (i >= info->n_in || t == NULL || t->dtype != LVN_F64); /* ref's */
    }
    return reports ? lvni_kernels_row(LVN_DEVICE_CPU, (lvni_kernels_op)info->number)->run(args)
                   : LVN_OK;
}

static const lvn_backend_kernel rows[] = {
#define LVNI_OP(name, inputs, outputs, attr_type, op_flags, text)                                  \
    {#name, dry_kernel, LVNI_CPU_TYPES(op_flags) | 1u << LVN_F64,                                  \
     (unsigned)(op_flags) / LVNI_BESIDE, NULL},
#include "kernels/ops.def"
#undef LVNI_OP
};

const lvn_backend lvni_dry_backend = {
    .version = LVN_BACKEND_VERSION,
    .table_size = sizeof(lvn_backend),
    .name = "dry",
    .count = count,
    .open = open_device,
    .close = close_device,
    .take = take,
    .give = give,
    .host_take = host_take,
    .host_give = host_give,
    .stream_create = stream_create,
    .stream_destroy = ignore,
    .stream_wait = done,
    .stream_failed = never,
    .stream_clear = ignore,
    .event_create = event_create,
    .event_destroy = ignore,
    .event_record = done_both,
    .event_follow = done_both,
    .event_wait = done,
    .host_call = host_call,
    .copy = copy,
    .upload = upload,
    .zero = zero,
    .kernels = rows,
    .n_kernels = LVNI_OP_COUNT,
    /* no functions of flat buffers: flat_buffers.c submits nothing to a dry device */
};
