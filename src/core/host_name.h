/* The name of this host, for people: in messages, and where several hosts are told apart. */
#ifndef LEVIN_CORE_HOST_NAME_H
#define LEVIN_CORE_HOST_NAME_H

#include <stddef.h>

/* Cut where it does not fit into `size` bytes; "?" where the host does not know. */
void lvni_core_host_name(char *out, size_t size);

#endif
