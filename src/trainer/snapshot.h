/* A copy of a large buffer in the shortest time: by all threads of the calling context's team, and
 * past the caches, which it would empty. Called by save.c between two steps. */
#ifndef LEVIN_TRAINER_SNAPSHOT_H
#define LEVIN_TRAINER_SNAPSHOT_H

#include <levin/status.h>

/* As lvni_tensor_mem_copy; to: memory of the host. */
lvn_status lvni_trainer_snapshot_copy(void *to, const void *from, size_t bytes);

#endif
