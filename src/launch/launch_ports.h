/* MASTER_PORT: rank 0 of a program opens it itself, so the launcher cannot; it holds the port, so that nobody else is given it. */
#ifndef LEVIN_LAUNCH_LAUNCH_PORTS_H
#define LEVIN_LAUNCH_LAUNCH_PORTS_H

#include "core/notice.h"

/* Holds a port: it is bound but does not listen, so a program that sets SO_REUSEADDR (all servers do) may bind it, while the system
 * gives it to nobody who asks for any. wanted: "auto": any; "random": of 12000 to 31999; else the number: taken is E110. */
lvn_status lvni_port_hold(const char *wanted, lvni_notices *notices, int *fd, int *port);
/* "29500" -> 29500; 0: not a number. */
int lvni_port_number(const char *text);

#endif
