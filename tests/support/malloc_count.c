/* malloc and its kin, counted by return address (malloc_count.h). The memory itself comes from
 * glibc's own functions. */
#include "support/malloc_count.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

/* Libraries find these, not those of the C library. */
#define SEEN __attribute__((visibility("default")))

extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);
extern void *__libc_realloc(void *p, size_t bytes);
extern void *__libc_memalign(size_t align, size_t bytes);
extern void __libc_free(void *p);

SEEN void *malloc(size_t bytes);
SEEN void *calloc(size_t n, size_t bytes);
SEEN void *realloc(void *p, size_t bytes);
SEEN void *memalign(size_t align, size_t bytes);
SEEN void *aligned_alloc(size_t align, size_t bytes);
SEEN int posix_memalign(void **p, size_t align, size_t bytes);
SEEN void free(void *p);

enum { PLACES = 4096 };
static struct place {
    _Atomic uintptr_t address;
    _Atomic uint64_t calls;
} places[PLACES];
static _Atomic bool counting;
static _Thread_local uint64_t calls_of_thread;
static _Thread_local int counted_thread; /* 0: not known yet, 1: yes, -1: no */

static bool thread_counts(void)
{
    if (counted_thread == 0) {
        char name[17] = "";
        prctl(PR_GET_NAME, name);
        counted_thread = strncmp(name, "lvn-load", 8) == 0 ? -1 : 1;
    }
    return counted_thread > 0;
}

static void count(const void *caller)
{
    if (!atomic_load_explicit(&counting, memory_order_relaxed) || !thread_counts()) {
        return;
    }
    calls_of_thread++;
    const uintptr_t address = (uintptr_t)caller;
    for (size_t i = 0; i < PLACES; i++) {
        struct place *p = &places[(address / 4 + i) % PLACES];
        uintptr_t there = atomic_load(&p->address);
        if (there == 0 && atomic_compare_exchange_strong(&p->address, &there, address)) {
            there = address;
        }
        if (there == address) {
            atomic_fetch_add(&p->calls, 1);
            return;
        }
    }
    abort(); /* more places than the table has */
}

void *malloc(size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, bytes);
}

void *realloc(void *p, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_realloc(p, bytes);
}

void *memalign(size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}

void *aligned_alloc(size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    return __libc_memalign(align, bytes);
}

int posix_memalign(void **p, size_t align, size_t bytes)
{
    count(__builtin_return_address(0));
    void *got = __libc_memalign(align, bytes);
    if (got == NULL) {
        return ENOMEM;
    }
    *p = got;
    return 0;
}

void free(void *p)
{
    __libc_free(p);
}

void malloc_count_switch(bool on)
{
    atomic_store(&counting, on);
}

uint64_t malloc_count_of_thread(void)
{
    return calls_of_thread;
}

static bool of_library(const Dl_info *info)
{
    static const char *const names[] = {"libdnnl.", "libgomp.", "libstdc++."};
    const char *slash = strrchr(info->dli_fname, '/'),
               *name = slash == NULL ? info->dli_fname : slash + 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(name, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* The object and function of a place; false when it has had no calls. */
static bool look_up(const struct place *p, Dl_info *info)
{
    const uintptr_t address = atomic_load(&p->address);
    void *pointer;
    memcpy(&pointer, &address, sizeof pointer);
    if (address == 0) {
        return false;
    }
    if (dladdr(pointer, info) == 0) {
        *info = (Dl_info){.dli_fname = "?"};
    }
    return true;
}

malloc_counts malloc_count_get(void)
{
    malloc_counts c = {0, 0};
    for (size_t i = 0; i < PLACES; i++) {
        Dl_info info;
        if (look_up(&places[i], &info)) {
            *(of_library(&info) ? &c.library : &c.own) += atomic_load(&places[i].calls);
        }
    }
    return c;
}

void malloc_count_print(FILE *to)
{
    for (size_t i = 0; i < PLACES; i++) {
        Dl_info info;
        if (look_up(&places[i], &info)) {
            fprintf(
                to, "%8llu calls from %s %s %#llx\n",
                (unsigned long long)atomic_load(&places[i].calls), info.dli_fname,
                info.dli_sname == NULL ? "" : info.dli_sname,
                (unsigned long long)(atomic_load(&places[i].address) - (uintptr_t)info.dli_fbase));
        }
    }
}
