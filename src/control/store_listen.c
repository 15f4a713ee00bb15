/* The listening socket of the store: an address or every interface, the first free one of several
 * ports, and the error when there is none, which names the process that has the port. Called before
 * the store's thread runs, and by the launcher, which hands the socket to its first child. */
#include "store.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Which process has a port ---- */

/* The inode of the socket that listens on the port, 0: none. */
static unsigned long inode_of(const char *table, int port)
{
    FILE *f = fopen(table, "re");
    unsigned long inode = 0;
    char line[512];
    while (f != NULL && inode == 0 && fgets(line, sizeof line, f) != NULL) {
        /* "  0: 00000000:1F90 00000000:0000 0A tx:rx tr:when retransmits uid timeout inode" */
        char *fields[10];
        int n = 0;
        for (char *save = NULL, *field = strtok_r(line, " \n", &save); field != NULL && n < 10;
             field = strtok_r(NULL, " \n", &save)) {
            fields[n++] = field;
        }
        const char *colon = n == 10 ? strchr(fields[1], ':') : NULL;
        if (colon != NULL && strtol(colon + 1, NULL, 16) == port && strcmp(fields[3], "0A") == 0) {
            inode = strtoul(fields[9], NULL, 10);
        }
    }
    if (f != NULL) {
        fclose(f);
    }
    return inode;
}

/* Does the process hold a descriptor of the socket? */
static int holds(const char *pid, const char *socket_name)
{
    char path[64], target[64];
    snprintf(path, sizeof path, "/proc/%.20s/fd", pid);
    DIR *dir = opendir(path);
    int found = 0;
    for (const struct dirent *d = dir == NULL ? NULL : readdir(dir); d != NULL && !found;
         d = readdir(dir)) {
        const ssize_t n = readlinkat(dirfd(dir), d->d_name, target, sizeof target - 1);
        if (n > 0) {
            target[n] = '\0';
            found = strcmp(target, socket_name) == 0;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return found;
}

static void describe(const char *pid, char *out, size_t size)
{
    char path[64], command[80] = "";
    snprintf(path, sizeof path, "/proc/%.20s/cmdline", pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, command, sizeof command - 1);
    if (fd >= 0) {
        close(fd);
    }
    n = n < 0 ? 0 : n;
    while (n > 0 && command[n - 1] == '\0') {
        n--;
    }
    for (ssize_t i = 0; i < n; i++) {
        /* zeros separate the arguments */
        command[i] = isprint((unsigned char)command[i]) ? command[i] : ' ';
    }
    command[n] = '\0';
    snprintf(out, size, "pid %.20s (%s)", pid, command);
}

void lvni_control_port_owner(int port, char *out, size_t size)
{
    snprintf(out, size, "its owner is not visible from here");
    unsigned long inode = inode_of("/proc/net/tcp", port);
    inode = inode == 0 ? inode_of("/proc/net/tcp6", port) : inode;
    char name[64];
    snprintf(name, sizeof name, "socket:[%lu]", inode);
    DIR *dir = inode == 0 ? NULL : opendir("/proc");
    for (const struct dirent *d = dir == NULL ? NULL : readdir(dir); d != NULL; d = readdir(dir)) {
        if (isdigit((unsigned char)d->d_name[0]) && holds(d->d_name, name)) {
            describe(d->d_name, out, size);
            break;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

/* ---- Listening ---- */

enum { BACKLOG = 4096 };

/* A listening socket, or -1 with errno. */
static int listen_at(const struct sockaddr *address, socklen_t size)
{
    const int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    const int on = 1, off = 0;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (address->sa_family == AF_INET6) {
        /* IPv4 too, where the address is the wildcard */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    }
    if (bind(fd, address, size) != 0 || listen(fd, BACKLOG) != 0) {
        const int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

static int listen_everywhere(int port)
{
    const struct sockaddr_in6 six = {
        .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = in6addr_any};
    const int fd = listen_at((const struct sockaddr *)&six, sizeof six);
    if (fd >= 0 || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) {
        return fd;
    }
    const struct sockaddr_in four = {.sin_family = AF_INET,
                                     .sin_port = htons((uint16_t)port),
                                     .sin_addr.s_addr = htonl(INADDR_ANY)};
    return listen_at((const struct sockaddr *)&four, sizeof four); /* a host without IPv6 */
}

static int listen_on(const struct addrinfo *found, int port)
{
    int fd = -1;
    errno = EADDRNOTAVAIL;
    for (const struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
        struct sockaddr_storage at;
        memset(&at, 0, sizeof at);
        memcpy(&at, a->ai_addr, a->ai_addrlen);
        if (a->ai_family == AF_INET6) {
            ((struct sockaddr_in6 *)&at)->sin6_port = htons((uint16_t)port);
        } else if (a->ai_family == AF_INET) {
            ((struct sockaddr_in *)&at)->sin_port = htons((uint16_t)port);
        }
        fd = listen_at((const struct sockaddr *)&at, a->ai_addrlen);
    }
    return fd;
}

static void put_own_addresses(lvni_core_str *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    for (const struct ifaddrs *a = all; a != NULL; a = a->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET) {
            inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr,
                      text, sizeof text);
        } else if (a->ifa_addr != NULL && a->ifa_addr->sa_family == AF_INET6) {
            inet_ntop(AF_INET6,
                      &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr, text,
                      sizeof text);
        }
        lvni_core_str_printf(out, text[0] == '\0' ? "%s" : " %s", text);
    }
    freeifaddrs(all);
}

static lvn_status not_ours(const char *address, const char *why)
{
    lvni_core_str own = {0};
    put_own_addresses(&own);
    lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                  "E111: the master address %s is not this host's (%s)\n  found: own "
                  "addresses:%.500s\n  fix: unset MASTER_ADDR, or start the "
                  "store's rank on that host",
                  address, why, lvni_core_str_text(&own));
    lvni_core_error_number(111);
    lvni_core_str_free(&own);
    return LVN_ERR_USAGE;
}

static lvn_status none_free(const char *address, const int *ports, size_t n, int error)
{
    const char *where = address == NULL ? "every interface" : address;
    if (error != EADDRINUSE) {
        LVNI_CORE_FAIL_NUMBERED(
            LVN_ERR_RESOURCE, 110,
            "E110: cannot listen on port %d of %s: %s\n  fix: another --master-port%s",
            ports[n - 1], where, strerror(error),
            error == EACCES ? "; below 1024 it needs privileges" : "");
    }
    lvni_core_str list = {0};
    for (size_t i = 0; i < n; i++) {
        char owner[120];
        lvni_control_port_owner(ports[i], owner, sizeof owner);
        lvni_core_str_printf(&list, "%s port %d: %s", i > 0 ? ";" : "", ports[i], owner);
    }
    lvn_error_set(LVN_ERR_RESOURCE, __FILE__, __LINE__,
                  "E110: %s on %s\n  found:%.700s\n  fix: another MASTER_PORT (levin launch "
                  "--master-port), or leave it out",
                  n == 1 ? "the port is busy" : "all ports are busy", where,
                  lvni_core_str_text(&list));
    lvni_core_error_number(110);
    lvni_core_str_free(&list);
    return LVN_ERR_RESOURCE;
}

static lvn_status resolve(const char *address, struct addrinfo **out)
{
    const struct addrinfo want = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const int error = address == NULL ? 0 : getaddrinfo(address, NULL, &want, out);
    return error == 0 ? LVN_OK : not_ours(address, gai_strerror(error));
}

lvn_status lvni_control_store_port_of(int fd, int *port)
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
    socklen_t size = sizeof at;
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0 ||
        (at.ss_family != AF_INET && at.ss_family != AF_INET6)) {
        LVN_FAIL(LVN_ERR_IO, "descriptor %d, given for the store, is not a TCP socket", fd);
    }
    *port = ntohs(at.ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)&at)->sin6_port
                                           : ((const struct sockaddr_in *)&at)->sin_port);
    return LVN_OK;
}

lvn_status lvni_control_store_listen(const char *address, const int *ports, size_t n_ports, int *fd,
                                     int *port)
{
    LVN_ARG(n_ports > 0, "no port to listen on was given");
    struct addrinfo *found = NULL;
    LVN_TRY(resolve(address, &found));
    int made = -1, error = 0;
    for (size_t i = 0; i < n_ports && made < 0; i++) {
        made = address == NULL ? listen_everywhere(ports[i]) : listen_on(found, ports[i]);
        error = made < 0 ? errno : 0;
        if (made < 0 && error != EADDRINUSE && error != EACCES) {
            break;
        }
    }
    if (found != NULL) {
        freeaddrinfo(found);
    }
    if (made < 0) {
        return error == EADDRNOTAVAIL && address != NULL
                   ? not_ours(address, strerror(error))
                   : none_free(address, ports, n_ports, error);
    }
    const lvn_status status = lvni_control_store_port_of(made, port);
    if (status != LVN_OK) {
        close(made);
        return status;
    }
    *fd = made;
    return LVN_OK;
}
