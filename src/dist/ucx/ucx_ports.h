/* Is there a network here that UCX serves better than sockets do? */
#ifndef LEVIN_DIST_UCX_UCX_PORTS_H
#define LEVIN_DIST_UCX_UCX_PORTS_H

#include <stdbool.h>

#define LVNI_UCX_PORTS "/sys/class/infiniband"

/* Has a device of InfiniBand or RoCE in the folder (LVNI_UCX_PORTS, or what stands in for it in a
 * test) a port that is active? The folder is there, and empty, as soon as the kernel's modules are
 * loaded, and a port without a cable is down. */
bool lvni_ucx_has_active_port(const char *folder);

#endif
