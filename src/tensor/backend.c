/* The backends of this process: those that kernels/ registers before main, and those that are
 * loaded from shared objects when their name is first asked for. Called by device.c, kernels/ and
 * whatever lists devices. */
#include "tensor/backend.h"

#include "core/alloc.h"
#include "core/str.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const lvn_backend *table[LVNI_BACKENDS];
static _Atomic int n_tables;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of changes; reading needs none */
static lvni_tensor_backend_resolve resolve;

int lvni_tensor_backend_count(void)
{
    return atomic_load_explicit(&n_tables, memory_order_acquire);
}

const lvn_backend *lvni_tensor_backend_get(int kind)
{
    return kind >= 0 && kind < lvni_tensor_backend_count() ? table[kind] : NULL;
}

void lvni_tensor_backend_set_resolve(lvni_tensor_backend_resolve fn)
{
    resolve = fn;
}

lvn_status lvni_tensor_backend_add(const lvn_backend *backend)
{
    const int n = atomic_load(&n_tables);
    if (n == LVNI_BACKENDS) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "more than %d backends in a process", LVNI_BACKENDS);
    }
    table[n] = backend;
    LVN_TRY(resolve == NULL ? LVN_OK : resolve(n, backend));
    atomic_store_explicit(&n_tables, n + 1, memory_order_release);
    return LVN_OK;
}

static int find(const char *name)
{
    for (int i = 0; i < lvni_tensor_backend_count(); i++) {
        if (strcmp(table[i]->name, name) == 0) {
            return i;
        }
    }
    return -1;
}

/* Functions that a backend with memory of its own cannot go without. */
static bool complete(const lvn_backend *b)
{
    return b->count != NULL && b->open != NULL && b->close != NULL && b->take != NULL &&
           b->give != NULL && b->host_take != NULL && b->host_give != NULL &&
           b->stream_create != NULL && b->stream_destroy != NULL && b->stream_wait != NULL &&
           b->stream_failed != NULL && b->stream_clear != NULL && b->event_create != NULL &&
           b->event_destroy != NULL && b->event_record != NULL && b->event_follow != NULL &&
           b->event_wait != NULL && b->copy != NULL && b->upload != NULL && b->zero != NULL;
}

static lvn_status check(const lvn_backend *b, const char *name, const char *path)
{
    if (b == NULL || b->version != LVN_BACKEND_VERSION || b->table_size != sizeof *b) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s is a backend of version %u with a table of %u bytes; this levin needs version "
                 "%d, %zu bytes: build it with the headers of this levin",
                 path, b == NULL ? 0 : b->version, b == NULL ? 0 : b->table_size,
                 LVN_BACKEND_VERSION, sizeof *b);
    }
    if (b->name == NULL || strcmp(b->name, name) != 0) {
        LVN_FAIL(LVN_ERR_INVALID, "%s calls itself %s; its file name must be levin_backend_%s.so",
                 path, b->name == NULL ? "nothing" : b->name, b->name == NULL ? "NAME" : b->name);
    }
    if (b->on_host || !complete(b)) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: a backend in a shared object has memory of its own and all functions for "
                 "devices, memory, streams, events and copies; this table lacks some",
                 path);
    }
    return LVN_OK;
}

/* It stays loaded: tensors of its devices may live until the process ends. */
static lvn_status load(const char *name, const char *path)
{
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object == NULL) {
        LVN_FAIL(LVN_ERR_IO, "the backend %s cannot be loaded: %s", name, dlerror());
    }
    void *symbol = dlsym(object, LVN_BACKEND_SYMBOL);
    lvn_backend_table_fn get;
    if (symbol == NULL) {
        dlclose(object);
        LVN_FAIL(LVN_ERR_INVALID, "%s does not export %s: it is not a backend of levin", path,
                 LVN_BACKEND_SYMBOL);
    }
    memcpy(&get, &symbol, sizeof get);
    const lvn_backend *backend = get();
    LVN_TRY(check(backend, name, path));
    return lvni_tensor_backend_add(backend);
}

static bool good_name(const char *name)
{
    return name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

/* With the lock held. */
static lvn_status search(const char *name, int *kind)
{
    const char *folders = getenv("LEVIN_BACKEND_PATH");
    for (const char *at = folders == NULL ? "" : folders; *at != '\0' && good_name(name);) {
        const size_t n = strcspn(at, ":");
        char path[4096];
        snprintf(path, sizeof path, "%.*s/levin_backend_%s.so", (int)n, at, name);
        if (n > 0 && access(path, F_OK) == 0) {
            LVN_TRY(load(name, path));
            *kind = find(name);
            return LVN_OK;
        }
        at += n + (at[n] == ':');
    }
    LVN_FAIL(LVN_ERR_NOT_FOUND,
             "there is no backend %s: no levin_backend_%s.so in LEVIN_BACKEND_PATH (%s)", name,
             name, folders == NULL || folders[0] == '\0' ? "which is not set" : folders);
}

lvn_status lvni_tensor_backend_find(const char *name, int *kind)
{
    *kind = find(name);
    if (*kind >= 0) {
        return LVN_OK;
    }
    pthread_mutex_lock(&lock);
    *kind = find(name); /* another thread may have been faster */
    const lvn_status s = *kind >= 0 ? LVN_OK : search(name, kind);
    pthread_mutex_unlock(&lock);
    return s;
}
