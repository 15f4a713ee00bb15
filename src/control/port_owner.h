/* Which process listens on a port of this host, as far as /proc tells: for messages. */
#ifndef LEVIN_CONTROL_PORT_OWNER_H
#define LEVIN_CONTROL_PORT_OWNER_H

#include <stddef.h>

/* "pid 4711 (python3 train.py)", or "its owner is not visible from here". */
void lvni_control_port_owner(int port, char *out, size_t size);

#endif
