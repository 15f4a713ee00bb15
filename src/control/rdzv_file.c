/* rdzv_file.h */
#include "rdzv_file.h"

#include "control.h"
#include "message.h"
#include "rdzv_guard.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

lvn_status lvni_rdzv_file_path(const char *dir, const char *job_key, const char *run_id, const char *secret, int world, lvni_str *out)
{
    lvni_token key;
    char text[48];
    LVN_TRY(lvni_token_of_run(job_key, run_id, secret, &key));
    const int n = snprintf(text, sizeof text, "name of %d ranks, protocol %d", world, LVNI_CONTROL_PROTOCOL);
    const lvni_token name = lvni_siphash(&key, text, (size_t)n); /* tells nothing about the key */
    lvni_str_printf(out, "%s/", dir);
    for (size_t i = 0; i < sizeof name.b; i++) {
        lvni_str_printf(out, "%02x", name.b[i]);
    }
    lvni_str_append(out, ".addr");
    return lvni_str_status(out);
}

/* The addresses that others may reach: IPv4 first, neither loopback nor those of one link alone. */
static void put_addresses(lvni_str *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    int n = 0;
    for (int family = 0; family < 2; family++) {
        for (const struct ifaddrs *a = all; a != NULL && n < LVNI_RDZV_ADDRESSES; a = a->ifa_next) {
            char text[INET6_ADDRSTRLEN] = "";
            if (a->ifa_addr == NULL || a->ifa_addr->sa_family != (family == 0 ? AF_INET : AF_INET6) || (a->ifa_flags & IFF_LOOPBACK) != 0) {
                continue;
            }
            if (family == 0) {
                inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, text, sizeof text);
            } else {
                const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
                inet_ntop(AF_INET6, IN6_IS_ADDR_LINKLOCAL(six) ? &in6addr_any : six, text, sizeof text);
            }
            if (strcmp(text, "::") != 0) {
                lvni_str_printf(out, "%s\n", text);
                n++;
            }
        }
    }
    freeifaddrs(all);
}

/* The only one at which a socket is reached. False: it takes connections at every interface. */
static bool put_bound(lvni_str *out, int fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    char text[64] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0 ||
        getnameinfo((const struct sockaddr *)&at, size, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0 || strcmp(text, "0.0.0.0") == 0 ||
        strcmp(text, "::") == 0) {
        return false;
    }
    lvni_str_printf(out, "%s\n", text);
    return true;
}

lvn_status lvni_rdzv_file_check(const char *dir)
{
    struct stat info;
    const bool there = stat(dir, &info) == 0;
    if (there ? !S_ISDIR(info.st_mode) : errno == ENOTDIR) {
        LVN_FAIL(LVN_ERR_USAGE, "rdzv=file:%s: %s; give a directory that all ranks see, which is made where it is not there", dir,
                 there ? "this is a file" : "a part of this path is a file");
    }
    return LVN_OK;
}

/* How long the beginning of dir is that names the first directory that is not there; 0: all are. */
static size_t first_missing(char *dir)
{
    for (char *slash = dir; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        const bool there = lvni_path_exists(dir);
        *slash = '/';
        if (!there) {
            return (size_t)(slash - dir);
        }
    }
    return lvni_path_exists(dir) ? 0 : strlen(dir);
}

lvn_status lvni_rdzv_file_write(const char *path, int port, int fd, size_t *made)
{
    lvni_facts facts;
    lvni_facts_room room;
    lvni_str s = {0}, dir = {0};
    lvni_facts_init(&facts, &room);
    lvni_str_append_n(&dir, path, (size_t)(strrchr(path, '/') - path));
    lvni_str_printf(&s, "%s %d %lld %s\n", room.host, port, (long long)getpid(), room.boot_id[0] == '\0' ? "-" : room.boot_id);
    if (!put_bound(&s, fd)) {
        put_addresses(&s);
    }
    lvn_status status = lvni_str_status(&s);
    status = status == LVN_OK ? lvni_str_status(&dir) : status;
    *made = status == LVN_OK && dir.len > 0 ? first_missing(dir.data) : 0;
    if (status == LVN_OK) {
        lvni_rdzv_guard_begin(path, *made);
    }
    status = status == LVN_OK && dir.len > 0 ? lvni_mkdirs(dir.data) : status;
    status = status == LVN_OK ? lvni_file_write(path, s.data, s.len) : status;
    if (status == LVN_OK) {
        lvni_rdzv_guard_written(path);
    }
    lvni_str_free(&s);
    lvni_str_free(&dir);
    return status;
}

bool lvni_rdzv_file_read(const char *path, lvni_rdzv_where *out)
{
    char *text = NULL;
    size_t n = 0;
    if (!lvni_path_exists(path) || lvni_file_read(path, 4096, &text, &n) != LVN_OK) {
        return false;
    }
    long long pid = 0;
    int port = 0;
    char *save = NULL;
    const char *line = strtok_r(text, "\n", &save);
    *out = (lvni_rdzv_where){.n = 0};
    const bool good = line != NULL && sscanf(line, "%63s %d %lld %63s", out->host, &port, &pid, out->boot_id) == 4 && port > 0 && port < 65536;
    out->port = port;
    out->pid = pid;
    for (line = strtok_r(NULL, "\n", &save); good && line != NULL && out->n < LVNI_RDZV_ADDRESSES; line = strtok_r(NULL, "\n", &save)) {
        snprintf(out->address[out->n++], sizeof out->address[0], "%s", line);
    }
    lvni_free(text);
    return good;
}

void lvni_rdzv_remove_dirs(char *path, size_t made)
{
    for (char *slash; made > 0 && (slash = strrchr(path, '/')) != NULL && (size_t)(slash - path) >= made;) {
        *slash = '\0';
        if (rmdir(path) != 0 && errno != ENOENT) { /* made half way: those below are not there yet */
            return;
        }
    }
}

void lvni_rdzv_file_remove(const char *path, int port, size_t made)
{
    lvni_rdzv_where where;
    char cut[4096];
    if (lvni_rdzv_file_read(path, &where) && where.port == port && where.pid == getpid()) {
        unlink(path);
    }
    if (snprintf(cut, sizeof cut, "%s", path) < (int)sizeof cut) {
        lvni_rdzv_remove_dirs(cut, made);
    }
    lvni_rdzv_guard_end(path);
}
