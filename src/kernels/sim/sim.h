/* The simulated accelerator (levin/device.h): a backend for machines without one. A device is one
 * piece of memory seen twice: at the addresses that tensors have no thread may read or write, at
 * the same addresses plus a constant the device's own threads may. Two engines, a thread each, run
 * commands in order: kernels (those of cpu/ and ref/, so with their bits), and copies beside them.
 *
 * LEVIN_SIM_DEVICES and LEVIN_SIM_MEMORY set how many and how large. LEVIN_SIM_KERNEL_US makes
 * every kernel take at least that long (a list: one number for each device, the last for all that
 * follow), LEVIN_SIM_COPY_GBPS limits the speed of copies: for measuring whether the host keeps a
 * device busy. LEVIN_SIM_QUICKEST gives gradients of weights two candidates, of which 1 adds with
 * another virtual team (core/pins.def) and so has other bits, and is the one that a measurement
 * finds the quickest (autotune=true): a stand-in for a library with several algorithms.
 *
 *   sim_device.c   memory, opening, the message when the host touches a device
 *   sim_engine.c   engines: what runs commands, and submitting them
 *   sim_stream.c   streams, events, copies
 *   sim_capture.c  captured steps
 *   sim_run.c      kernels of ops and of flat buffers as commands; the table */
#ifndef LEVIN_KERNELS_SIM_SIM_H
#define LEVIN_KERNELS_SIM_SIM_H

#include "kernels/kernels.h"
#include "kernels/sim/sim_native.h"
#include "tensor/ctx.h"

#include <levin/device.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

/* What happened on a device since it was opened; for tests and benchmarks. */
typedef struct lvni_sim_counters {
    uint64_t commands;
    /* The host waited for the newest command of an engine: the engine had nothing left to do. */
    uint64_t drained;
    /* The host waited for an older one: the device goes on meanwhile. */
    uint64_t throttled;
    uint64_t device_ns; /* that kernels take, with the latency that was asked for */
    uint64_t copy_ns;
    uint64_t clock_ns; /* when the newest kernel ended, by the device's own clock */
} lvni_sim_counters;
/* Of device `index`; zeros when it is not open. */
lvni_sim_counters lvni_sim_get_counters(int index);
/* `drained` as far as the calling thread waited, of all devices. */
uint64_t lvni_sim_drained_here(void);

/* ---- for this folder ---- */

enum { LVNI_SIM_DEVICES = LVN_SIM_MOST, LVNI_SIM_COMMAND_BYTES = 3072 };

typedef struct lvni_sim_device lvni_sim_device;
typedef struct lvni_sim_stream lvni_sim_stream;
typedef lvn_status (*lvni_sim_fn)(void *payload);

typedef struct lvni_sim_command {
    lvni_sim_stream *of;
    const char *what;
    lvni_sim_fn fn;
    bool always;      /* also when its stream has failed */
    uint64_t cost_ns; /* that it takes at least */
    uint64_t submitted_ns;
    int team;
    lvni_core_pins pins;
    void *event; /* captured: it is recorded or followed, and nothing below counts; NULL: none */
    bool records;
    uint64_t replay; /* of the captured work that it is from, from 1; 0: none */
    alignas(64) unsigned char payload[LVNI_SIM_COMMAND_BYTES];
} lvni_sim_command;

struct lvni_sim_graph;

typedef struct lvni_sim_engine {
    lvni_sim_device *device;
    lvn_stream_kind kind;
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t filled, room;
    pthread_t thread;
    bool has_thread, ready, good, quit; /* good: its thread has what it needs */
    lvni_sim_command *command;          /* a ring */
    unsigned first, n_commands;
    struct lvni_sim_graph *capture; /* commands go there; NULL: into the ring */
    uint64_t submitted;             /* commands ever */
    _Atomic uint64_t clock_ns;      /* until when it is busy; its thread alone writes */
    _Atomic uint64_t busy_ns;
    _Atomic bool failed; /* with the error; written by its thread, cleared by streams */
    lvn_error error;
} lvni_sim_engine;

struct lvni_sim_stream {
    lvni_sim_native native;
    lvni_sim_engine *engine;
    pthread_mutex_t lock; /* a leaf lock */
    pthread_cond_t done;
    int64_t pending;
    /* number of the last command submitted, and of the last waited for; a device's own streams are
     * used by several threads */
    _Atomic uint64_t newest, waited;
    _Atomic bool failed;
    lvn_error error; /* written before `failed`, under the lock */
};

struct lvni_sim_device {
    char name[16];
    int index;
    char *base;      /* unreadable addresses */
    size_t size;     /* of them */
    ptrdiff_t alias; /* add it to an address and the memory can be touched */
    _Atomic bool given_out;
    uint64_t kernel_ns;    /* latency of a kernel */
    double copy_ns_a_byte; /* 0: as fast as it goes */
    int quickest;          /* candidate; -1: there is one alone */
    lvni_sim_engine engine[LVN_STREAM_KINDS];
    _Atomic uint64_t drained, throttled;
};

/* What commands, and they alone, may touch instead of a device address; host addresses stay as they
 * are. */
void *lvni_sim_alias(const void *address);
/* Let the stream's engine call fn(copy of payload) after all commands before. In the payload device
 * addresses must have become lvni_sim_alias of them. `what` names the work in errors (static).
 * Teams are those of the calling context. */
lvn_status lvni_sim_submit(lvni_sim_stream *stream, const char *what, lvni_sim_fn fn,
                           const void *payload, size_t bytes);

/* The same for a command that takes cost_ns at least. always: also when the stream has failed. */
lvn_status lvni_sim_submit_as(lvni_sim_stream *stream, const char *what, lvni_sim_fn fn,
                              const void *payload, size_t bytes, uint64_t cost_ns, bool always);

void lvni_sim_enqueue(lvni_sim_stream *stream, const lvni_sim_command *head, const void *payload,
                      size_t bytes);
/* In a command: which replay it is part of; 0: none. */
uint64_t lvni_sim_replay(void);
/* Keeps the command, with this payload, when the engine is being captured. */
lvn_status lvni_sim_capture(lvni_sim_engine *engine, lvni_sim_command *command, const void *payload,
                            size_t bytes, bool *captured);

lvn_status lvni_sim_count(int *n);
lvn_status lvni_sim_open(int index, void **device, lvn_device_info *info);
void lvni_sim_close(void *device);
lvn_status lvni_sim_take(void *device, size_t bytes, void **address);
void lvni_sim_give(void *device, void *address, size_t bytes);
lvn_status lvni_sim_host_take(void *device, size_t bytes, void **p);
void lvni_sim_host_give(void *device, void *p, size_t bytes);

lvn_status lvni_sim_engines_start(lvni_sim_device *device);
void lvni_sim_engines_stop(lvni_sim_device *device); /* after what waits has run */
lvn_status lvni_sim_stream_create(void *device, lvn_stream_kind kind, void **stream);
void lvni_sim_stream_destroy(void *stream);
lvn_status lvni_sim_stream_wait(void *stream);
bool lvni_sim_stream_failed(void *stream);
void lvni_sim_stream_clear(void *stream);
lvn_status lvni_sim_event_create(void *device, void **event);
void lvni_sim_event_destroy(void *event);
lvn_status lvni_sim_event_record(void *event, void *stream);
lvn_status lvni_sim_event_follow(void *stream, void *event);
lvn_status lvni_sim_event_wait(void *event);
lvn_status lvni_sim_host_call(void *stream, void (*fn)(void *user), void *user);
lvn_status lvni_sim_copy(void *stream, void *to, const void *from, size_t bytes);
lvn_status lvni_sim_upload(void *stream, void *to, const void *from, size_t bytes);
lvn_status lvni_sim_zero(void *stream, void *p, size_t bytes);
lvn_status lvni_sim_capture_begin(void *stream);
lvn_status lvni_sim_capture_end(void *stream, void **graph);
lvn_status lvni_sim_graph_replay(void *graph, void *stream);
void lvni_sim_graph_destroy(void *graph);
void *lvni_sim_native_stream(void *stream);

#endif
