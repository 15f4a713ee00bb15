/* rdzv_file.h */
#include "rdzv_file.h"

#include "control.h"
#include "message.h"
#include "rdzv_guard.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

lvn_status lvni_control_rdzv_file_path(const char *dir, const char *job_key, const char *run_id,
                                       const char *secret, int world, lvni_core_str *out)
{
    lvni_control_token key;
    char text[48];
    LVN_TRY(lvni_control_token_of_run(NULL, job_key, run_id, secret, &key));
    const int n =
        snprintf(text, sizeof text, "name of %d ranks, protocol %d", world, LVNI_CONTROL_PROTOCOL);
    /* tells nothing about the key */
    const lvni_control_token name = lvni_control_siphash(&key, text, (size_t)n);
    lvni_core_str_printf(out, "%s/", dir);
    for (size_t i = 0; i < sizeof name.b; i++) {
        lvni_core_str_printf(out, "%02x", name.b[i]);
    }
    lvni_core_str_append(out, ".addr");
    return lvni_core_str_status(out);
}

/* The addresses that others may reach: IPv4 first, neither loopback nor those of one link alone. */
static void put_addresses(lvni_core_str *out)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0) {
        return;
    }
    int n = 0;
    for (int family = 0; family < 2; family++) {
        for (const struct ifaddrs *a = all; a != NULL && n < LVNI_RDZV_ADDRESSES; a = a->ifa_next) {
            char text[INET6_ADDRSTRLEN] = "";
            if (a->ifa_addr == NULL ||
                a->ifa_addr->sa_family != (family == 0 ? AF_INET : AF_INET6) ||
                (a->ifa_flags & IFF_LOOPBACK) != 0) {
                continue;
            }
            if (family == 0) {
                inet_ntop(AF_INET,
                          &((const struct sockaddr_in *)(const void *)a->ifa_addr)->sin_addr, text,
                          sizeof text);
            } else {
                const struct in6_addr *six =
                    &((const struct sockaddr_in6 *)(const void *)a->ifa_addr)->sin6_addr;
                inet_ntop(AF_INET6, IN6_IS_ADDR_LINKLOCAL(six) ? &in6addr_any : six, text,
                          sizeof text);
            }
            if (strcmp(text, "::") != 0) {
                lvni_core_str_printf(out, "%s\n", text);
                n++;
            }
        }
    }
    freeifaddrs(all);
}

/* The only one at which a socket is reached. False: it takes connections at every interface. */
static bool put_bound(lvni_core_str *out, int fd)
{
    struct sockaddr_storage at;
    socklen_t size = sizeof at;
    char text[64] = "";
    if (getsockname(fd, (struct sockaddr *)&at, &size) != 0 ||
        getnameinfo((const struct sockaddr *)&at, size, text, sizeof text, NULL, 0,
                    NI_NUMERICHOST) != 0 ||
        strcmp(text, "0.0.0.0") == 0 || strcmp(text, "::") == 0) {
        return false;
    }
    lvni_core_str_printf(out, "%s\n", text);
    return true;
}

lvn_status lvni_control_rdzv_file_check(const char *dir)
{
    struct stat info;
    const bool there = stat(dir, &info) == 0;
    if (there ? !S_ISDIR(info.st_mode) : errno == ENOTDIR) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "rdzv=file:%s: %s; give a directory that all ranks see, which is made where it is "
                 "not there",
                 dir, there ? "this is a file" : "a part of this path is a file");
    }
    return LVN_OK;
}

/* How long the beginning of dir is that names the first directory that is not there; 0: all are. */
static size_t first_missing(char *dir)
{
    for (char *slash = dir; (slash = strchr(slash + 1, '/')) != NULL;) {
        *slash = '\0';
        const bool there = lvni_core_path_exists(dir);
        *slash = '/';
        if (!there) {
            return (size_t)(slash - dir);
        }
    }
    return lvni_core_path_exists(dir) ? 0 : strlen(dir);
}

/* Is it this user's alone? why: 96 bytes. */
static bool is_private(int fd, char *why)
{
    struct stat info;
    why[0] = '\0';
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(why, 96, "it is no file");
    } else if (info.st_uid != geteuid()) {
        snprintf(why, 96, "it belongs to the user %u", (unsigned)info.st_uid);
    } else if ((info.st_mode & 077) != 0) {
        snprintf(why, 96, "others can read it (mode %04o)", (unsigned)info.st_mode & 07777);
    }
    return why[0] == '\0';
}

static lvn_status write_all(int fd, const char *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = write(fd, bytes + done, n - done);
        if (k < 0 && errno != EINTR) {
            return LVN_ERR_IO;
        }
        done += k < 0 ? 0 : (size_t)k;
    }
    return LVN_OK;
}

/* A new file of mode 0600 takes the place of what is there; nothing of it is written into a file of
 * others. The temporary name is the one that rdzv_guard.c knows. */
static lvn_status write_private(const char *path, const lvni_core_str *text, bool has_key)
{
    lvni_core_str tmp = {0};
    char why[96] = "";
    lvni_core_str_printf(&tmp, "%s.tmp-%ld", path, (long)getpid());
    LVN_TRY(lvni_core_str_status(&tmp));
    unlink(tmp.data); /* of an earlier process with this number */
    const int fd = open(tmp.data, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    bool good = fd >= 0 && write_all(fd, text->data, text->len) == LVN_OK;
    good =
        good && (!has_key || is_private(fd, why)) && fsync(fd) == 0 && rename(tmp.data, path) == 0;
    const int error = errno;
    if (!good) {
        unlink(tmp.data);
    }
    if (fd >= 0) {
        close(fd);
    }
    lvni_core_str_free(&tmp);
    if (why[0] != '\0') {
        LVN_FAIL(LVN_ERR_IO,
                 "the key of the run cannot be kept in %s: %s; set LEVIN_TOKEN to one secret text "
                 "for all ranks, or use another directory",
                 path, why);
    }
    if (!good) {
        LVN_FAIL(LVN_ERR_IO, "cannot write %s: %s", path, strerror(error));
    }
    return LVN_OK;
}

/* The file with its directories; *made as in lvni_control_rdzv_guard_begin. */
static lvn_status put_file(const char *path, const lvni_core_str *dir, const lvni_core_str *text,
                           bool keyed, size_t *made)
{
    LVN_TRY(lvni_core_str_status(text));
    LVN_TRY(lvni_core_str_status(dir));
    *made = dir->len > 0 ? first_missing(dir->data) : 0;
    lvni_control_rdzv_guard_begin(path, *made);
    if (dir->len > 0) {
        LVN_TRY(lvni_core_mkdirs(dir->data));
    }
    LVN_TRY(write_private(path, text, keyed));
    lvni_control_rdzv_guard_written(path);
    return LVN_OK;
}

lvn_status lvni_control_rdzv_file_write(const char *path, int port, int fd,
                                        const lvni_control_token *key, size_t *made)
{
    lvni_control_facts facts;
    lvni_control_facts_room room;
    lvni_core_str s = {0}, dir = {0};
    lvni_control_facts_init(&facts, &room);
    lvni_core_str_append_n(&dir, path, (size_t)(strrchr(path, '/') - path));
    lvni_core_str_printf(&s, "%s %d %lld %s\n", room.host, port, (long long)getpid(),
                         room.boot_id[0] == '\0' ? "-" : room.boot_id);
    if (key != NULL) {
        char text[LVNI_TOKEN_TEXT];
        lvni_control_token_print(key, text);
        lvni_core_str_printf(&s, "key %s\n", text);
    }
    if (!put_bound(&s, fd)) {
        put_addresses(&s);
    }
    *made = 0;
    const lvn_status status = put_file(path, &dir, &s, key != NULL, made);
    lvni_core_str_free(&s);
    lvni_core_str_free(&dir);
    return status;
}

/* Up to so many bytes; private: nobody else can have written or read them. */
static bool read_text(const char *path, char *out, size_t size, lvni_control_rdzv_where *where)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    size_t n = 0;
    ssize_t k = fd < 0 ? 0 : 1;
    while (k > 0 && n < size - 1) {
        k = read(fd, out + n, size - 1 - n);
        n += k > 0 ? (size_t)k : 0;
    }
    out[n] = '\0';
    if (fd >= 0) {
        where->has_key = is_private(fd, where->no_key);
        close(fd);
    }
    return fd >= 0;
}

static void take_key(const char *line, lvni_control_rdzv_where *out)
{
    if (out->has_key && !lvni_control_token_scan(line, &out->key)) {
        out->has_key = false;
        snprintf(out->no_key, sizeof out->no_key, "its key cannot be read");
    }
}

bool lvni_control_rdzv_file_read(const char *path, lvni_control_rdzv_where *out)
{
    char text[4096];
    *out = (lvni_control_rdzv_where){.n = 0};
    if (!read_text(path, text, sizeof text, out)) {
        return false;
    }
    long long pid = 0;
    int port = 0;
    bool key = false;
    char *save = NULL;
    const char *line = strtok_r(text, "\n", &save);
    const bool good =
        line != NULL &&
        sscanf(line, "%63s %d %lld %63s", out->host, &port, &pid, out->boot_id) == 4 && port > 0 &&
        port < 65536;
    out->port = port;
    out->pid = pid;
    for (line = strtok_r(NULL, "\n", &save); good && line != NULL && out->n < LVNI_RDZV_ADDRESSES;
         line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "key ", 4) == 0 && !key) {
            key = true;
            take_key(line + 4, out);
        } else {
            snprintf(out->address[out->n++], sizeof out->address[0], "%s", line);
        }
    }
    if (!key && out->has_key) {
        out->has_key = false;
        snprintf(out->no_key, sizeof out->no_key, "it has no key");
    }
    return good;
}

void lvni_control_rdzv_remove_dirs(char *path, size_t made)
{
    for (char *slash;
         made > 0 && (slash = strrchr(path, '/')) != NULL && (size_t)(slash - path) >= made;) {
        *slash = '\0';
        if (rmdir(path) != 0 && errno != ENOENT) {
            /* made half way: those below are not there yet */
            return;
        }
    }
}

void lvni_control_rdzv_file_remove(const char *path, int port, size_t made)
{
    lvni_control_rdzv_where where;
    char cut[4096];
    if (lvni_control_rdzv_file_read(path, &where) && where.port == port && where.pid == getpid()) {
        unlink(path);
    }
    if (snprintf(cut, sizeof cut, "%s", path) < (int)sizeof cut) {
        lvni_control_rdzv_remove_dirs(cut, made);
    }
    lvni_control_rdzv_guard_end(path);
}
