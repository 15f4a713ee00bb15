/* The inside of a device, for this folder alone. */
#ifndef LEVIN_TENSOR_DEVICE_IMPL_H
#define LEVIN_TENSOR_DEVICE_IMPL_H

#include "tensor/device.h"

#include <pthread.h>

enum { LVNI_DEVICES = 2 * LVNI_SIM_DEVICES };

/* A piece of a device's addresses, described in host memory: what is free cannot hold its own
 * chain. */
typedef struct lvni_tensor_piece {
    struct lvni_tensor_piece *next;
    char *p;
    size_t bytes;
} lvni_tensor_piece;

typedef struct lvni_tensor_command lvni_tensor_command;

struct lvni_tensor_device {
    char name[16];
    int index;
    bool dry;
    char *base;      /* unreadable addresses */
    size_t size;     /* of them */
    ptrdiff_t alias; /* add it to an address and the memory can be touched */

    pthread_mutex_t memory_lock;   /* a leaf lock */
    lvni_tensor_piece **free_list; /* by size class (ctx.h) */
    /* never handed out, or given up: by address, no two adjacent */
    lvni_tensor_piece *holes;
    /* one for every block in use, at least: giving back cannot fail */
    lvni_tensor_piece *spare;
    uint64_t in_use, held, peak;
    int64_t fail_in; /* 0: never */

    pthread_mutex_t queue_lock; /* a leaf lock */
    pthread_cond_t filled, room;
    pthread_t thread;
    bool has_thread, quit;
    lvni_tensor_command *command; /* a ring */
    unsigned first, n_commands;
};

lvn_status lvni_tensor_device_memory_init(lvni_tensor_device *device);
void lvni_tensor_device_memory_free(lvni_tensor_device *device);
lvn_status lvni_tensor_device_stream_start(lvni_tensor_device *device);
void lvni_tensor_device_stream_stop(lvni_tensor_device *device); /* after what waits has run */

#endif
