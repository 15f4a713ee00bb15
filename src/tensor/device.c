/* The table of devices (device.h): which are open, and whose an address is. */
#include "core/str.h"
#include "tensor/device_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLACES = 1024, DEVICES = 256 };

/* Ranges are looked up without a lock: `end` is set last and cleared first, and looked at again
 * behind `begin`, which may be that of a later range. */
static struct {
    _Atomic uintptr_t begin, end;
    lvni_tensor_device *device;
} place[PLACES];
_Atomic int lvni_tensor_device_places;

/* of changes of the table of addresses (a leaf lock), and of opening */
static pthread_mutex_t place_lock = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static lvni_tensor_device *open_devices[DEVICES];

lvni_tensor_device *lvni_tensor_device_search(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    const int n = atomic_load_explicit(&lvni_tensor_device_places, memory_order_acquire);
    for (int i = 0; i < n; i++) {
        const uintptr_t end = atomic_load_explicit(&place[i].end, memory_order_acquire),
                        begin = atomic_load_explicit(&place[i].begin, memory_order_acquire);
        if (a < end && a >= begin &&
            atomic_load_explicit(&place[i].end, memory_order_relaxed) == end) {
            return place[i].device;
        }
    }
    return NULL;
}

lvn_status lvni_tensor_device_place_add(lvni_tensor_device *d, const void *begin, size_t bytes)
{
    lvn_status s = LVN_OK;
    int i = 0;
    pthread_mutex_lock(&place_lock);
    while (i < PLACES && place[i].device != NULL) {
        i++;
    }
    if (i == PLACES) {
        s = lvn_error_set(LVN_ERR_UNSUPPORTED, __FILE__, __LINE__,
                          "%s: more than %d pieces of device memory at once", d->name, PLACES);
    } else {
        place[i].device = d;
        atomic_store_explicit(&place[i].begin, (uintptr_t)begin, memory_order_release);
        atomic_store_explicit(&place[i].end, (uintptr_t)begin + bytes, memory_order_release);
        const int n = atomic_load(&lvni_tensor_device_places);
        atomic_store(&lvni_tensor_device_places, i + 1 > n ? i + 1 : n);
    }
    pthread_mutex_unlock(&place_lock);
    return s;
}

void lvni_tensor_device_place_remove(const void *begin)
{
    pthread_mutex_lock(&place_lock);
    for (int i = 0; i < PLACES; i++) {
        if (place[i].device != NULL && atomic_load(&place[i].begin) == (uintptr_t)begin) {
            atomic_store_explicit(&place[i].end, 0, memory_order_release);
            place[i].device = NULL; /* `begin` stays: below it lie other addresses */
        }
    }
    pthread_mutex_unlock(&place_lock);
}

/* ---- what a device is ---- */

const char *lvni_tensor_device_name(const lvni_tensor_device *d)
{
    return d->name;
}

const lvn_device_info *lvni_tensor_device_info(const lvni_tensor_device *d)
{
    return &d->info;
}

int lvni_tensor_device_kind(const lvni_tensor_device *d)
{
    return d->kind;
}

void *lvni_tensor_device_state(const lvni_tensor_device *d)
{
    return d->state;
}

const lvn_backend *lvni_tensor_device_backend(const lvni_tensor_device *d)
{
    return d->backend;
}

bool lvni_tensor_device_is_dry(const lvni_tensor_device *d)
{
    return d->kind == LVN_DEVICE_DRY;
}

lvni_tensor_device *lvni_tensor_device_stands_for(const lvni_tensor_device *d)
{
    return d->stands_for;
}

bool lvni_tensor_device_dry_run(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx != NULL && ctx->device != NULL && ctx->device->kind == LVN_DEVICE_DRY;
}

/* ---- opening ---- */

static void destroy(lvni_tensor_device *d)
{
    lvni_tensor_device_streams_free(d);
    lvni_tensor_device_memory_free(d);
    if (d->state != NULL) {
        d->backend->close(d->state);
    }
    lvni_core_free(d);
}

static void close_all(void)
{
    for (int i = 0; i < DEVICES; i++) {
        if (open_devices[i] != NULL) {
            destroy(open_devices[i]);
            open_devices[i] = NULL;
        }
    }
}

static lvn_status create(int kind, int index, lvni_tensor_device **out)
{
    *out = NULL;
    lvni_tensor_device *d = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_device);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->kind = kind;
    d->index = index;
    d->backend = lvni_tensor_backend_get(kind);
    snprintf(d->name, sizeof d->name, "%s:%d", d->backend->name, index);
    /* always both: destroy undoes them */
    lvn_status s = lvni_tensor_device_memory_init(d);
    const lvn_status opened = d->backend->open(index, &d->state, &d->info);
    s = s == LVN_OK ? opened : s;
    if (s == LVN_OK) {
        s = lvni_tensor_device_streams_init(d);
    }
    if (s != LVN_OK) {
        const lvn_error error = *lvn_last_error();
        destroy(d);
        return lvn_error_adopt(&error);
    }
    *out = d;
    return LVN_OK;
}

/* With the lock held. */
static lvn_status check_index(int kind, int index)
{
    const lvn_backend *b = lvni_tensor_backend_get(kind);
    int n = 0;
    if (b == NULL || b->on_host || kind == LVN_DEVICE_DRY) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "there is no device of kind %d with number %d", kind, index);
    }
    LVN_TRY(b->count(&n));
    if (index < 0 || index >= n) {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "there is no device %s:%d; %s has %d%s", b->name, index,
                 b->name, n,
                 kind == LVN_DEVICE_SIM ? " (LEVIN_SIM_DEVICES; sim:0 is the first)" : "");
    }
    return LVN_OK;
}

/* With the lock held. */
static lvn_status open_device(int kind, int index, lvni_tensor_device **out)
{
    int i = 0;
    while (i < DEVICES && open_devices[i] != NULL &&
           (open_devices[i]->kind != kind || open_devices[i]->index != index)) {
        i++;
    }
    if (i == DEVICES) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "more than %d devices at once", DEVICES);
    }
    if (open_devices[i] == NULL) {
        LVN_TRY(create(kind, index, &open_devices[i]));
        static bool first = true;
        if (first) {
            first = false;
            atexit(close_all); /* before what the backends' threads use goes */
        }
    }
    *out = open_devices[i];
    return LVN_OK;
}

lvn_status lvni_tensor_device_open(int kind, int index, lvni_tensor_device **out)
{
    *out = NULL;
    pthread_mutex_lock(&lock);
    lvn_status s = check_index(kind, index);
    if (s == LVN_OK) {
        s = open_device(kind, index, out);
    }
    pthread_mutex_unlock(&lock);
    return s;
}

int lvn_device_count(lvn_device_kind kind)
{
    const lvn_backend *b = lvni_tensor_backend_get((int)kind);
    int n = 0;
    if (kind == LVN_DEVICE_CPU) {
        return 1;
    }
    return b != NULL && b->count != NULL && b->count(&n) == LVN_OK ? n : 0;
}

lvn_status lvni_tensor_device_create_dry(lvni_tensor_device *real, lvni_tensor_device **out)
{
    lvni_tensor_device *d = NULL;
    *out = NULL;
    LVN_TRY(create(LVN_DEVICE_DRY, 0, &d));
    if (d != NULL) { /* for the analyzer */
        d->stands_for = real;
    }
    *out = d;
    return LVN_OK;
}

void lvni_tensor_device_destroy_dry(lvni_tensor_device *d)
{
    if (d != NULL) {
        destroy(d);
    }
}
