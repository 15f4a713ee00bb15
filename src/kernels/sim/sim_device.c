/* Memory of simulated accelerators, and how they are opened (sim.h). */
#include "core/alloc.h"
#include "core/str.h"
#include "kernels/sim/sim.h"
#include "tensor/device.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of the environment and of opening */
static struct {
    bool read;
    int count;
    size_t bytes[LVNI_SIM_DEVICES];
    uint64_t kernel_ns[LVNI_SIM_DEVICES];
    double copy_ns_a_byte;
    int quickest;
} environment;
/* by index; read without the lock by commands of other devices */
static _Atomic(lvni_sim_device *) device_at[LVNI_SIM_DEVICES];

enum { DEFAULT_MEMORY_MIB = 1024 };

void *lvni_sim_alias(const void *address)
{
    uintptr_t a = (uintptr_t)address;
    for (int i = 0; i < LVNI_SIM_DEVICES; i++) {
        const lvni_sim_device *d = atomic_load_explicit(&device_at[i], memory_order_acquire);
        if (d != NULL && a - (uintptr_t)d->base < d->size) {
            a += (uintptr_t)d->alias;
            break;
        }
    }
    void *p;
    memcpy(&p, &a, sizeof p);
    return p;
}

lvni_sim_counters lvni_sim_get_counters(int index)
{
    lvni_sim_counters c = {0};
    lvni_sim_device *d =
        index >= 0 && index < LVNI_SIM_DEVICES ? atomic_load(&device_at[index]) : NULL;
    for (int k = 0; d != NULL && k < LVN_STREAM_KINDS; k++) {
        pthread_mutex_lock(&d->engine[k].lock);
        c.commands += d->engine[k].submitted;
        pthread_mutex_unlock(&d->engine[k].lock);
    }
    if (d != NULL) {
        c.drained = atomic_load(&d->drained);
        c.throttled = atomic_load(&d->throttled);
        c.device_ns = atomic_load(&d->engine[LVN_STREAM_COMPUTE].busy_ns);
        c.copy_ns = atomic_load(&d->engine[LVN_STREAM_COPY].busy_ns);
        c.clock_ns = atomic_load(&d->engine[LVN_STREAM_COMPUTE].clock_ns);
    }
    return c;
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
        const char *name = lvni_tensor_device_name(d);
        ssize_t written = write(STDERR_FILENO, head, sizeof head - 1);
        written += write(STDERR_FILENO, name, strlen(name));
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

/* ---- the environment ---- */

/* What is in front of a comma or the end, and how long it is; 0: not an amount. */
static double read_amount(const char *text, size_t *length)
{
    char *end;
    const double number = lvni_core_strtod(text, &end);
    const size_t n = strcspn(end, ",");
    *length = (size_t)(end - text) + n;
    return end == text                             ? 0.0
           : n == 0                                ? number
           : n == 3 && strncmp(end, "GiB", n) == 0 ? number * (double)(1 << 30)
           : n == 3 && strncmp(end, "MiB", n) == 0 ? number * (double)(1 << 20)
           : n == 3 && strncmp(end, "KiB", n) == 0 ? number * 1024.0
                                                   : 0.0;
}

/* "512MiB", "2GiB", or bytes; "2GiB,1GiB": of each device, the last one of those behind it, too. */
static lvn_status read_sizes(const char *text)
{
    const char *at = text;
    for (int i = 0; i < LVNI_SIM_DEVICES; i++) {
        size_t n;
        const double bytes = read_amount(at, &n);
        if (!(bytes >= 65536.0 && bytes <= 1e13)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "LEVIN_SIM_MEMORY=%s is not an amount of memory: give 64KiB or more, as in "
                     "512MiB or 2GiB, or one for each device between commas",
                     text);
        }
        environment.bytes[i] = (size_t)bytes / 4096 * 4096;
        at += at[n] == ',' ? n + 1 : 0;
    }
    return LVN_OK;
}

/* A number above 0 and at most `most`; 0 when the variable is not set. */
static lvn_status read_number(const char *name, double most, double *number)
{
    const char *text = getenv(name);
    char *end = NULL;
    *number = text == NULL ? 0.0 : lvni_core_strtod(text, &end);
    if (text != NULL && (end == text || *end != '\0' || !(*number > 0.0 && *number <= most))) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s: give a number above 0, at most %g", name, text, most);
    }
    return LVN_OK;
}

/* A number, or "50,200": of each device. */
static lvn_status read_kernel_us(void)
{
    static const char name[] = "LEVIN_SIM_KERNEL_US";
    const char *at = getenv(name);
    for (int i = 0; at != NULL && i < LVNI_SIM_DEVICES; i++) {
        char *end;
        const double us = lvni_core_strtod(at, &end);
        if (end == at || (*end != '\0' && *end != ',') || !(us > 0.0 && us <= 1e6)) {
            LVN_FAIL(LVN_ERR_USAGE,
                     "%s=%s: give a number above 0, at most 1e+06, or one for each device between "
                     "commas",
                     name, getenv(name));
        }
        environment.kernel_ns[i] = (uint64_t)(us * 1000.0);
        at = *end == ',' ? end + 1 : at;
    }
    return LVN_OK;
}

static lvn_status read_quickest(void)
{
    static const char name[] = "LEVIN_SIM_QUICKEST";
    const char *text = getenv(name);
    if (text != NULL && strcmp(text, "0") != 0 && strcmp(text, "1") != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s=%s: give the number of a candidate, 0 or 1", name, text);
    }
    environment.quickest = text == NULL ? -1 : text[0] - '0';
    return LVN_OK;
}

/* With the lock held; the environment is read once. */
static lvn_status read_environment(void)
{
    const char *count = getenv("LEVIN_SIM_DEVICES"), *memory = getenv("LEVIN_SIM_MEMORY");
    double copy_gbps;
    if (environment.read) {
        return LVN_OK;
    }
    if (count != NULL) {
        char *end;
        const long n = strtol(count, &end, 10);
        if (end == count || *end != '\0' || n < 0 || n > LVNI_SIM_DEVICES) {
            LVN_FAIL(LVN_ERR_USAGE, "LEVIN_SIM_DEVICES=%s: give a number of devices, 0 to %d",
                     count, LVNI_SIM_DEVICES);
        }
        environment.count = (int)n;
    }
    for (int i = 0; i < LVNI_SIM_DEVICES; i++) {
        environment.bytes[i] = (size_t)DEFAULT_MEMORY_MIB << 20;
    }
    LVN_TRY(memory == NULL ? LVN_OK : read_sizes(memory));
    LVN_TRY(read_kernel_us());
    LVN_TRY(read_quickest());
    LVN_TRY(read_number("LEVIN_SIM_COPY_GBPS", 1e6, &copy_gbps));
    environment.copy_ns_a_byte = copy_gbps > 0.0 ? 1.0 / copy_gbps : 0.0;
    environment.read = true;
    return LVN_OK;
}

lvn_status lvni_sim_count(int *n)
{
    pthread_mutex_lock(&lock);
    const lvn_status s = read_environment();
    *n = s == LVN_OK ? environment.count : 0;
    pthread_mutex_unlock(&lock);
    return s;
}

/* ---- opening ---- */

static lvn_status map_twice(lvni_sim_device *d, size_t bytes)
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

void lvni_sim_close(void *device)
{
    lvni_sim_device *d = device;
    lvni_sim_engines_stop(d);
    atomic_store_explicit(&device_at[d->index], NULL, memory_order_release);
    if (d->base != NULL) {
        munmap(d->base, d->size);
    }
    if (d->alias != 0) {
        munmap(d->base + d->alias, d->size);
    }
    lvni_core_free(d);
}

/* With the lock held. */
static lvn_status open_one(lvni_sim_device *d)
{
    LVN_TRY(read_environment());
    d->kernel_ns = environment.kernel_ns[d->index];
    d->copy_ns_a_byte = environment.copy_ns_a_byte;
    d->quickest = environment.quickest;
    LVN_TRY(map_twice(d, environment.bytes[d->index]));
    LVN_TRY(lvni_sim_engines_start(d));
    static bool first = true;
    if (first) {
        first = false;
        install_handler();
    }
    return LVN_OK;
}

lvn_status lvni_sim_open(int index, void **device, lvn_device_info *info)
{
    *device = NULL;
    lvni_sim_device *d = LVNI_NEW(LVNI_TAG_KERNEL, lvni_sim_device);
    if (d == NULL) {
        return LVN_ERR_MEMORY;
    }
    d->index = index;
    snprintf(d->name, sizeof d->name, "sim:%d", index);
    pthread_mutex_lock(&lock);
    const lvn_status s = open_one(d);
    pthread_mutex_unlock(&lock);
    if (s != LVN_OK) {
        lvni_sim_close(d);
        return s;
    }
    atomic_store_explicit(&device_at[index], d, memory_order_release);
    /* all memory at once: it fills up to the last byte, as a device of this size would */
    *info = (lvn_device_info){.memory = d->size, .segment = d->size};
    snprintf(info->name, sizeof info->name, "simulated accelerator");
    snprintf(info->fingerprint, sizeof info->fingerprint, "sim, %s", lvni_cpu_describe());
    *device = d;
    return LVN_OK;
}

lvn_status lvni_sim_take(void *device, size_t bytes, void **address)
{
    lvni_sim_device *d = device;
    if (bytes > d->size || atomic_exchange(&d->given_out, true)) {
        LVN_FAIL(LVN_ERR_DEVICE_MEMORY, "%s gives its memory in one piece", d->name);
    }
    *address = d->base;
    return LVN_OK;
}

void lvni_sim_give(void *device, void *address, size_t bytes)
{
    lvni_sim_device *d = device;
    (void)address;
    (void)bytes;
    atomic_store(&d->given_out, false);
}

lvn_status lvni_sim_host_take(void *device, size_t bytes, void **p)
{
    (void)device;
    *p = lvni_core_alloc(LVNI_TAG_KERNEL, bytes);
    return *p == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

void lvni_sim_host_give(void *device, void *p, size_t bytes)
{
    (void)device;
    (void)bytes;
    lvni_core_free(p);
}
