/* The backends of this process: those that kernels/ registers before main, and those that are
 * loaded from shared objects when their name is first asked for. Called by device.c, kernels/ and
 * whatever lists devices. */
#include "tensor/backend.h"

#include "core/alloc.h"
#include "core/own_program.h"
#include "core/str.h"

#include <dirent.h>
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

/* The first of the functions that a backend with memory of its own cannot go without; NULL: all are
 * there. Ops may be missing: they fail by name before anything changes. Flat buffers may not: an
 * update that stops half-way leaves no weights to go on from. */
static const char *find_missing(const lvn_backend *b)
{
#define NEED(function)                                                                             \
    do {                                                                                           \
        if (b->function == NULL) {                                                                 \
            return #function;                                                                      \
        }                                                                                          \
    } while (0)
    NEED(count);
    NEED(open);
    NEED(close);
    NEED(take);
    NEED(give);
    NEED(host_take);
    NEED(host_give);
    NEED(stream_create);
    NEED(stream_destroy);
    NEED(stream_wait);
    NEED(stream_failed);
    NEED(stream_clear);
    NEED(event_create);
    NEED(event_destroy);
    NEED(event_record);
    NEED(event_follow);
    NEED(event_wait);
    NEED(host_call);
    NEED(copy);
    NEED(upload);
    NEED(zero);
    NEED(flat.add);
    NEED(flat.lerp);
    NEED(flat.block_sumsq);
    NEED(flat.sgd);
    NEED(flat.trust);
    NEED(flat.adamw);
    NEED(flat.rmsprop);
    NEED(flat.lion);
    NEED(flat.lamb_moments);
    NEED(flat.lamb);
    NEED(flat.adafactor);
    NEED(flat.round_bf16);
    NEED(flat.record);
    NEED(flat.apply_record);
    NEED(flat.append);
    NEED(flat.number);
    NEED(flat.seed);
    NEED(flat.decide);
    NEED(flat.finish);
#undef NEED
    return NULL;
}

static lvn_status check(const lvn_backend *b, const char *name, const char *path)
{
    if (b == NULL || b->version != LVN_BACKEND_VERSION || b->table_size != sizeof *b) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s is a backend of version %u with a table of %u bytes; this levin needs version "
                 "%d, %zu bytes: build it again with this levin (`make`, or its headers)",
                 path, b == NULL ? 0 : b->version, b == NULL ? 0 : b->table_size,
                 LVN_BACKEND_VERSION, sizeof *b);
    }
    if (b->name == NULL || strcmp(b->name, name) != 0) {
        LVN_FAIL(LVN_ERR_INVALID, "%s calls itself %s; its file name must be levin_backend_%s.so",
                 path, b->name == NULL ? "nothing" : b->name, b->name == NULL ? "NAME" : b->name);
    }
    const char *missing = b->on_host ? NULL : find_missing(b);
    if (b->on_host || missing != NULL) {
        LVN_FAIL(LVN_ERR_INVALID,
                 "%s: a backend in a shared object has memory of its own and all functions of its "
                 "table except supports and captures: %s%s",
                 path, b->on_host ? "on_host is set" : missing, b->on_host ? "" : " is NULL");
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

/* ---- where shared objects are looked for ---- */

enum { PATH = 4096 };

#ifndef LEVIN_LIBDIR /* of the installation: lib, lib64, lib/x86_64-linux-gnu */
#define LEVIN_LIBDIR "lib"
#endif

/* Calls fn with each folder until one returns false: those of LEVIN_BACKEND_PATH, then where levin
 * itself lies: beside it (a build folder), and lib/levin below the same prefix. */
static void for_each_folder(bool (*fn)(const char *folder, void *user), void *user)
{
    const char *folders = getenv("LEVIN_BACKEND_PATH");
    char folder[PATH], self[PATH];
    for (const char *at = folders == NULL ? "" : folders; *at != '\0';) {
        const size_t n = strcspn(at, ":");
        snprintf(folder, sizeof folder, "%.*s", (int)n, at);
        if (n > 0 && !fn(folder, user)) {
            return;
        }
        at += n + (at[n] == ':');
    }
    Dl_info object;
    const bool in_library = dladdr(&n_tables, &object) != 0 && object.dli_fname != NULL &&
                            strstr(object.dli_fname, "liblevin") != NULL;
    if (!(in_library ? realpath(object.dli_fname, self) != NULL
                     : lvni_core_self(self, sizeof self)) ||
        strrchr(self, '/') == NULL) {
        return;
    }
    *strrchr(self, '/') = '\0';
    static const char *const below[] = {"", "/levin", "/../" LEVIN_LIBDIR "/levin"};
    for (size_t i = 0; i < sizeof below / sizeof *below; i++) {
        if (snprintf(folder, sizeof folder, "%s%s", self, below[i]) < (int)sizeof folder &&
            !fn(folder, user)) {
            return;
        }
    }
}

typedef struct file_search {
    const char *file;
    char path[PATH]; /* of what was found; empty: nothing */
} file_search;

static bool look_into(const char *folder, void *user)
{
    file_search *s = user;
    const int n = snprintf(s->path, sizeof s->path, "%s/%s", folder, s->file);
    if (n < (int)sizeof s->path && access(s->path, F_OK) == 0) {
        return false;
    }
    s->path[0] = '\0';
    return true;
}

bool lvni_tensor_backend_beside(const char *file, char *path, size_t room)
{
    file_search s = {.file = file, .path = ""};
    for_each_folder(look_into, &s);
    return s.path[0] != '\0' && snprintf(path, room, "%s", s.path) < (int)room;
}

/* With the lock held. */
static lvn_status search(const char *name, int *kind)
{
    char file[PATH], path[PATH];
    const int n = snprintf(file, sizeof file, "levin_backend_%s.so", name);
    if (!good_name(name) || n >= (int)sizeof file ||
        !lvni_tensor_backend_beside(file, path, sizeof path)) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "there is no backend %s: no levin_backend_%s.so beside levin, nor in "
                 "LEVIN_BACKEND_PATH (%s)",
                 name, name, lvni_tensor_backend_path());
    }
    LVN_TRY(load(name, path));
    *kind = find(name);
    return LVN_OK;
}

const char *lvni_tensor_backend_path(void)
{
    const char *folders = getenv("LEVIN_BACKEND_PATH");
    return folders == NULL || folders[0] == '\0' ? "which is not set" : folders;
}

/* ---- what is there ---- */

enum { NAMES = 64, NAME = 64 };

typedef struct names {
    char name[NAMES][NAME];
    int n;
} names;

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* "levin_backend_NAME.so"; a name twice counts once. */
static void add_name(names *all, const char *file)
{
    static const char before[] = "levin_backend_", after[] = ".so";
    const size_t n = strlen(file), head = sizeof before - 1, tail = sizeof after - 1;
    char name[NAME];
    if (all->n == NAMES || n <= head + tail || n - head - tail >= NAME ||
        strncmp(file, before, head) != 0 || strcmp(file + n - tail, after) != 0) {
        return;
    }
    snprintf(name, sizeof name, "%.*s", (int)(n - head - tail), file + head);
    for (int i = 0; i < all->n; i++) {
        if (strcmp(all->name[i], name) == 0) {
            return;
        }
    }
    if (good_name(name)) {
        memcpy(all->name[all->n++], name, sizeof name);
    }
}

static bool read_folder(const char *path, void *user)
{
    DIR *dir = opendir(path);
    for (const struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        add_name(user, e->d_name);
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return true;
}

void lvni_tensor_backend_names(const char *between, lvni_core_str *out)
{
    names all = {.n = 0};
    for_each_folder(read_folder, &all);
    qsort(all.name, (size_t)all.n, sizeof all.name[0], by_name);
    for (int i = 0; i < all.n; i++) {
        lvni_core_str_printf(out, "%s%s", i > 0 ? between : "", all.name[i]);
    }
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
