/* Ports of a run on one node. The store of rank 0 gets a socket that listens already; for programs that open MASTER_PORT themselves a
 * port is held, so that nobody else is given it. */
#ifndef LEVIN_LAUNCH_LAUNCH_PORTS_H
#define LEVIN_LAUNCH_LAUNCH_PORTS_H

#include "core/notice.h"

/* A socket listening on 127.0.0.1 at a port the system chose. */
lvn_status lvni_port_listen(int *fd, int *port);
/* Holds a port: it is bound but does not listen, so a program that sets SO_REUSEADDR (all servers do) may bind it, while the system
 * gives it to nobody who asks for any. wanted: "auto": any; "random": of 12000 to 31999; else the number: taken is E110. */
lvn_status lvni_port_hold(const char *wanted, lvni_notices *notices, int *fd, int *port);
/* "29500" -> 29500; 0: not a number. */
int lvni_port_number(const char *text);

#endif
