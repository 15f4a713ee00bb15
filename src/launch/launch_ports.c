/* Holding a port for others (launch_ports.h). */
#include "launch/launch_ports.h"

#include "control/store.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { RANDOM_FIRST = 12000, RANDOM_COUNT = 20000, RANDOM_TRIES = 200 };

/* A socket bound to the address, which gets its port. errno on failure, as -1. */
static int bind_to(int family, struct sockaddr *address, socklen_t size)
{
    const int on = 1, off = 0;
    const int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (family == AF_INET6) {
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address, size) == 0 && getsockname(fd, address, &size) == 0) {
        return fd;
    }
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
}

/* Of both families where there are two: programs bind either. errno on failure, as -1. */
static int bind_any(int wanted, int *port)
{
    struct sockaddr_in6 six = {.sin6_family = AF_INET6,
                               .sin6_port = htons((uint16_t)wanted),
                               .sin6_addr = IN6ADDR_ANY_INIT};
    struct sockaddr_in four = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)wanted),
                               .sin_addr.s_addr = htonl(INADDR_ANY)};
    int fd = bind_to(AF_INET6, (struct sockaddr *)&six, sizeof six);
    if (fd >= 0) {
        *port = ntohs(six.sin6_port);
    } else if (errno != EADDRINUSE && errno != EACCES) {
        fd = bind_to(AF_INET, (struct sockaddr *)&four, sizeof four);
        *port = ntohs(four.sin_port);
    }
    return fd;
}

/* Sockets with SO_REUSEADDR that do not listen share a port: among launchers a name that only one
 * can have keeps it. It goes with its process, and belongs to the network the port belongs to. Is
 * it another's? Without sockets of that kind nothing is locked. */
static bool lock(int port, int *lock_fd)
{
    /* sun_path begins with '\0': a name that is no file */
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "levin-port-%d", port);
    const socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    *lock_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (*lock_fd < 0 || bind(*lock_fd, (const struct sockaddr *)&name, size) == 0) {
        return true;
    }
    const int error = errno;
    close(*lock_fd);
    *lock_fd = -1;
    errno = error;
    return error != EADDRINUSE;
}

static bool hold(int wanted, lvni_launch_held_port *h)
{
    h->lock_fd = -1;
    h->fd = bind_any(wanted, &h->port);
    if (h->fd >= 0 && !lock(h->port, &h->lock_fd)) {
        const int error = errno;
        close(h->fd);
        h->fd = -1;
        errno = error;
    }
    return h->fd >= 0;
}

static bool hold_one_of(bool random, lvni_launch_held_port *h)
{
    for (int i = 0; i < RANDOM_TRIES; i++) {
        uint32_t drawn;
        if (getrandom(&drawn, sizeof drawn, 0) != (ssize_t)sizeof drawn) {
            return false;
        }
        if (hold(random ? RANDOM_FIRST + (int)(drawn % RANDOM_COUNT) : 0, h)) {
            return true;
        }
    }
    return false;
}

int lvni_launch_port_number(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

void lvni_launch_port_warn(const char *wanted, lvni_core_notices *notices)
{
    const int number = lvni_launch_port_number(wanted);
    if (number > 0 && number < 1024) {
        lvni_core_notice_warn(notices, 205, "port %d is below 1024, which needs a privilege",
                              number);
    }
}

void lvni_launch_port_release(lvni_launch_held_port *h)
{
    if (h->fd >= 0) {
        close(h->fd);
    }
    if (h->lock_fd >= 0) {
        close(h->lock_fd);
    }
    *h = LVNI_NO_PORT;
}

static lvn_status busy(int number, lvni_core_notices *notices)
{
    const lvn_status s = lvni_core_notice_error(
        notices, 110,
        "port %d is busy: another program listens on it, or another launcher holds it", number);
    char owner[120];
    lvni_control_port_owner(number, owner, sizeof owner);
    lvni_core_notice_found(notices, "port %d: %s", number, owner);
    lvni_core_notice_fix(notices, "give another --master-port, or leave it out");
    return s;
}

lvn_status lvni_launch_port_hold(const char *wanted, lvni_core_notices *notices,
                                 lvni_launch_held_port *h)
{
    const int number = lvni_launch_port_number(wanted); /* 0 of "auto": any */
    if (strcmp(wanted, "random") == 0) {
        if (!hold_one_of(true, h)) {
            LVN_FAIL(LVN_ERR_IO, "no free port of %d to %d was found: %s", RANDOM_FIRST,
                     RANDOM_FIRST + RANDOM_COUNT - 1, strerror(errno));
        }
        return LVN_OK;
    }
    if (number > 0 ? hold(number, h) : hold_one_of(false, h)) {
        return LVN_OK;
    }
    if (number > 0 && errno == EADDRINUSE) {
        return busy(number, notices);
    }
    LVN_FAIL(LVN_ERR_IO, "port %s cannot be had: %s", wanted, strerror(errno));
}
