/* MASTER_PORT: rank 0 of a program opens it itself, so the launcher cannot; it holds the port, so
 * that nobody else is given it. */
#ifndef LEVIN_LAUNCH_LAUNCH_PORTS_H
#define LEVIN_LAUNCH_LAUNCH_PORTS_H

#include "core/error.h"

typedef struct lvni_launch_held_port {
    int fd, port; /* -1, 0: none */
    int lock_fd;  /* against other launchers; -1: none */
} lvni_launch_held_port;

#define LVNI_NO_PORT ((lvni_launch_held_port){.fd = -1, .lock_fd = -1})

/* Holds a port: it is bound but does not listen, so a program that sets SO_REUSEADDR (all servers
 * do) may bind it, while the system gives it to nobody who asks for any, and no other launcher
 * takes it. wanted: "auto": any; "random": of 12000 to 31999; else the number: taken is E110. */
lvn_status lvni_launch_port_hold(const char *wanted, lvni_core_notices *notices,
                                 lvni_launch_held_port *h);
/* W205: a port that needs a privilege. */
void lvni_launch_port_warn(const char *wanted, lvni_core_notices *notices);
void lvni_launch_port_release(lvni_launch_held_port *h);
/* "29500" -> 29500; 0: not a number. */
int lvni_launch_port_number(const char *text);

#endif
