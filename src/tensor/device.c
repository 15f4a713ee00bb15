/* The table of devices (device.h). A sim device is one piece of memory seen twice: at the addresses
 * that tensors have no thread may read or write, at the same addresses plus a constant the device's
 * own thread may. */
#include "core/str.h"
#include "tensor/device_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Ranges are looked up without a lock: `begin` and `end` are set last and cleared first. */
static struct {
    _Atomic uintptr_t begin, end;
    lvni_tensor_device *device;
} place[LVNI_DEVICES];
_Atomic int lvni_tensor_device_places;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the table's changes and of opening */
static struct {
    bool read;
    int count;
    size_t bytes;
    lvni_tensor_device *open[LVNI_DEVICES]; /* sim devices by index */
} sim;

enum { DEFAULT_MEMORY_MIB = 1024 };
static const size_t dry_bytes = (size_t)256 << 30;

lvni_tensor_device *lvni_tensor_device_search(const void *address)
{
    const uintptr_t a = (uintptr_t)address;
    const int n = atomic_load_explicit(&lvni_tensor_device_places, memory_order_acquire);
    for (int i = 0; i < n; i++) {
        if (a < atomic_load_explicit(&place[i].end, memory_order_acquire) &&
            a >= atomic_load_explicit(&place[i].begin, memory_order_relaxed)) {
            return place[i].device;
        }
    }
    return NULL;
}

const char *lvni_tensor_device_name(const lvni_tensor_device *d)
{
    return d->name;
}

bool lvni_tensor_device_is_dry(const lvni_tensor_device *d)
{
    return d->dry;
}

bool lvni_tensor_device_dry_run(void)
{
    const lvni_tensor_ctx *ctx = lvni_tensor_ctx_get();
    return ctx != NULL && ctx->device != NULL && ctx->device->dry;
}

void *lvni_tensor_device_alias(const void *address)
{
    const lvni_tensor_device *d = lvni_tensor_device_of(address);
    uintptr_t a = (uintptr_t)address;
    a += d == NULL ? 0 : (uintptr_t)d->alias;
    void *p;
    memcpy(&p, &a, sizeof p);
    return p;
}

/* With the lock held. */
static lvn_status enter_table(lvni_tensor_device *d)
{
    for (int i = 0; i < LVNI_DEVICES; i++) {
        if (place[i].device == NULL) {
            place[i].device = d;
            atomic_store_explicit(&place[i].begin, (uintptr_t)d->base, memory_order_relaxed);
            atomic_store_explicit(&place[i].end, (uintptr_t)d->base + d->size,
                                  memory_order_release);
            const int n = atomic_load(&lvni_tensor_device_places);
            atomic_store(&lvni_tensor_device_places, i + 1 > n ? i + 1 : n);
            return LVN_OK;
        }
    }
    LVN_FAIL(LVN_ERR_UNSUPPORTED, "more than %d devices at once", LVNI_DEVICES);
}

static void leave_table(const lvni_tensor_device *d)
{
    for (int i = 0; i < LVNI_DEVICES; i++) {
        if (place[i].device == d) {
            atomic_store_explicit(&place[i].end, 0, memory_order_release);
            atomic_store_explicit(&place[i].begin, 0, memory_order_relaxed);
            place[i].device = NULL;
        }
    }
}

static void destroy(lvni_tensor_device *d)
{
    if (d->has_thread) {
        lvni_tensor_device_stream_stop(d);
    }
    if (d->base != NULL) {
        munmap(d->base, d->size);
    }
    if (d->alias != 0) {
        munmap(d->base + d->alias, d->size);
    }
    lvni_tensor_device_memory_free(d);
    lvni_core_free(d);
}

/* ---- the host touches device memory ---- */

static struct sigaction action_before;

/* Only what may run in a signal handler. The instruction runs again afterwards and ends the
 * process. */
static void report_fault(int number, siginfo_t *info, void *context)
{
    (void)context;
    const lvni_tensor_device *d = lvni_tensor_device_search(info->si_addr);
    if (d != NULL) {
        static const char head[] = "levin: the host touched memory of ";
        static const char tail[] = ": only the device can; copy with lvn_to_device(t, LVN_CPU), "
                                   "read single values with lvn_item\n";
        ssize_t written = write(STDERR_FILENO, head, sizeof head - 1);
        written += write(STDERR_FILENO, d->name, strlen(d->name));
        written += write(STDERR_FILENO, tail, sizeof tail - 1);
        (void)written;
    }
    sigaction(number, &action_before, NULL);
}

static void install_handler(void)
{
    struct sigaction action = {.sa_sigaction = report_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &action_before);
}

/* ---- sim ---- */

/* "512MiB", "2GiB", or bytes. */
static lvn_status read_size(const char *text, size_t *bytes)
{
    char *end;
    const double number = strtod(text, &end);
    const double unit = strcmp(end, "GiB") == 0   ? (double)(1 << 30)
                        : strcmp(end, "MiB") == 0 ? (double)(1 << 20)
                        : strcmp(end, "KiB") == 0 ? 1024.0
                        : *end == '\0'            ? 1.0
                                                  : 0.0;
    if (end == text || !(number * unit >= 65536.0 && number * unit <= 1e13)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "LEVIN_SIM_MEMORY=%s is not an amount of memory: give 64KiB or more, as in 512MiB "
                 "or 2GiB",
                 text);
    }
    *bytes = (size_t)(number * unit) / 4096 * 4096;
    return LVN_OK;
}

/* With the lock held; the environment is read once. */
static lvn_status read_environment(void)
{
    const char *count = getenv("LEVIN_SIM_DEVICES"), *memory = getenv("LEVIN_SIM_MEMORY");
    if (sim.read) {
        return LVN_OK;
    }
    if (count != NULL) {
        char *end;
        const long n = strtol(count, &end, 10);
        if (end == count || *end != '\0' || n < 0 || n > LVNI_SIM_DEVICES) {
            LVN_FAIL(LVN_ERR_USAGE, "LEVIN_SIM_DEVICES=%s: give a number of devices, 0 to %d",
                     count, LVNI_SIM_DEVICES);
        }
        sim.count = (int)n;
    }
    sim.bytes = (size_t)DEFAULT_MEMORY_MIB << 20;
    LVN_TRY(memory == NULL ? LVN_OK : read_size(memory, &sim.bytes));
    sim.read = true;
    return LVN_OK;
}

static lvn_status map_twice(lvni_tensor_device *d, size_t bytes)
{
    const int file = memfd_create(d->name, MFD_CLOEXEC);
    void *closed = MAP_FAILED, *usable = MAP_FAILED;
    if (file >= 0 && ftruncate(file, (off_t)bytes) == 0) {
        closed = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
        usable = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    }
    if (file >= 0) {
        close(file);
    }
    d->size = bytes;
    d->base = closed == MAP_FAILED ? NULL : closed;
    if (closed == MAP_FAILED || usable == MAP_FAILED) {
        char text[LVNI_BYTES_TEXT];
        LVN_FAIL(LVN_ERR_MEMORY,
                 "%s: cannot reserve %s of addresses; LEVIN_SIM_MEMORY makes it smaller", d->name,
                 lvni_core_bytes_text(bytes, text));
    }
    d->alias = (ptrdiff_t)((uintptr_t)usable - (uintptr_t)closed);
    return LVN_OK;
}

static void close_all(void)
{
    for (int i = 0; i < LVNI_DEVICES; i++) {
        if (sim.open[i] != NULL) {
            leave_table(sim.open[i]);
            destroy(sim.open[i]);
            sim.open[i] = NULL;
        }
    }
}

static lvn_status start_sim(lvni_tensor_device *d)
{
    const lvn_status mapped = map_twice(d, sim.bytes);
    const lvn_status memory = lvni_tensor_device_memory_init(d); /* always: destroy undoes it */
    LVN_TRY(mapped);
    LVN_TRY(memory);
    LVN_TRY(lvni_tensor_device_stream_start(d));
    return enter_table(d);
}

/* With the lock held. */
static lvn_status open_sim(int index, lvni_tensor_device **out)
{
    lvni_tensor_device *d = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_device);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(d->name, sizeof d->name, "sim:%d", index);
    d->index = index;
    const lvn_status s = start_sim(d);
    if (s != LVN_OK) {
        destroy(d);
        return s;
    }
    static bool first = true;
    if (first) {
        first = false;
        atexit(close_all); /* before what the threads use goes */
        install_handler();
    }
    *out = d;
    return LVN_OK;
}

lvn_status lvni_tensor_device_open(int index, lvni_tensor_device **out)
{
    *out = NULL;
    pthread_mutex_lock(&lock);
    lvn_status s = read_environment();
    if (s == LVN_OK && (index < 0 || index >= sim.count)) {
        s = lvn_error_set(
            LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
            "there is no device sim:%d; LEVIN_SIM_DEVICES is %d (sim:0 is the first of 1)", index,
            sim.count);
    }
    if (s == LVN_OK && sim.open[index] == NULL) {
        s = open_sim(index, &sim.open[index]);
    }
    *out = s == LVN_OK ? sim.open[index] : NULL;
    pthread_mutex_unlock(&lock);
    return s;
}

int lvn_device_count(lvn_device_kind kind)
{
    if (kind == LVN_DEVICE_CPU) {
        return 1;
    }
    pthread_mutex_lock(&lock);
    const int n = kind == LVN_DEVICE_SIM && read_environment() == LVN_OK ? sim.count : 0;
    pthread_mutex_unlock(&lock);
    return n;
}

/* ---- dry ---- */

lvn_status lvni_tensor_device_create_dry(lvni_tensor_device **out)
{
    *out = NULL;
    lvni_tensor_device *d = LVNI_NEW(LVNI_TAG_TENSOR, lvni_tensor_device);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    snprintf(d->name, sizeof d->name, "dry run");
    d->dry = true;
    d->size = dry_bytes;
    /* A module may look at numbers: it finds zeros. Pages that are never written cost nothing. */
    void *base = mmap(NULL, d->size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) { /* a system that counts what could be written */
        base = mmap(NULL, d->size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    }
    d->base = base == MAP_FAILED ? NULL : base;
    lvn_status s = lvni_tensor_device_memory_init(d);
    if (s == LVN_OK && d->base == NULL) {
        s = lvn_error_set(LVN_ERR_MEMORY, __FILE__, __LINE__,
                          "cannot reserve the addresses of a dry run (%zu GiB)", d->size >> 30);
    }
    pthread_mutex_lock(&lock);
    if (s == LVN_OK) {
        s = enter_table(d);
    }
    pthread_mutex_unlock(&lock);
    if (s != LVN_OK) {
        destroy(d);
        return s;
    }
    *out = d;
    return LVN_OK;
}

void lvni_tensor_device_destroy_dry(lvni_tensor_device *d)
{
    if (d != NULL) {
        pthread_mutex_lock(&lock);
        leave_table(d);
        pthread_mutex_unlock(&lock);
        destroy(d);
    }
}
