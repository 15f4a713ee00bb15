/* rdzv_file.h. A signal that ends this process removes its file as well: ranks that wait for each
 * other are mostly ended so, and never come to lvni_control_store_destroy. What runs in the handler
 * is limited to what a handler may do: it reads atomics and calls stat, unlink and rmdir. */
#include "rdzv_file.h"

#include "message.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- Removing the file when a signal ends the process ---- */

static const int handled[] = {SIGINT, SIGTERM, SIGHUP};
enum { HANDLED = sizeof handled / sizeof *handled, FREE = 0, CHANGING, BEGUN, WRITTEN };

static _Atomic int state; /* only the thread that made it CHANGING may touch what follows */
static char guarded[4096], temporary[4096 + 32];
static size_t made_from;
static bool was_there;        /* a file of another run (`old`): not this process's to remove */
static struct stat old, ours; /* ours: from WRITTEN on */
static pid_t owner;           /* not one of its children */
static struct sigaction before[HANDLED];

static bool same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The directories that were made for the file, as far as nothing else is in them; path is cut.
 * May run in a signal handler. */
static void remove_dirs(char *path, size_t made)
{
    for (char *slash;
         made > 0 && (slash = strrchr(path, '/')) != NULL && (size_t)(slash - path) >= made;) {
        *slash = '\0';
        if (rmdir(path) != 0 && errno != ENOENT) {
            /* only some were made: the deeper ones do not exist yet */
            return;
        }
    }
}

static void remove_guarded(void)
{
    struct stat there;
    int now = atomic_load(&state);
    if (getpid() != owner || (now != BEGUN && now != WRITTEN) ||
        !atomic_compare_exchange_strong(&state, &now, CHANGING)) {
        return;
    }
    unlink(temporary);
    if (stat(guarded, &there) == 0 &&
        (now == WRITTEN ? same_file(&there, &ours) : !was_there || !same_file(&there, &old))) {
        unlink(guarded);
    }
    remove_dirs(guarded, made_from);
    atomic_store(&state, FREE);
}

static void on_signal(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    int i = 0;
    while (i < HANDLED - 1 && handled[i] != number) {
        i++;
    }
    remove_guarded();
    if ((before[i].sa_flags & SA_SIGINFO) != 0) {
        before[i].sa_sigaction(number, info, context);
    } else if (before[i].sa_handler == SIG_DFL) {
        sigaction(number, &before[i], NULL);
        raise(number); /* ends the process when this handler returns */
    } else {
        before[i].sa_handler(number);
    }
    errno = error;
}

static bool is_ours(const struct sigaction *action)
{
    return (action->sa_flags & SA_SIGINFO) != 0 && action->sa_sigaction == on_signal;
}

static void install(int i)
{
    struct sigaction now, action;
    if (sigaction(handled[i], NULL, &now) != 0 || is_ours(&now) ||
        ((now.sa_flags & SA_SIGINFO) == 0 && now.sa_handler == SIG_IGN)) {
        return;
    }
    before[i] = now;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_signal;
    action.sa_mask = now.sa_mask;
    action.sa_flags = SA_SIGINFO | (now.sa_flags & (SA_RESTART | SA_ONSTACK));
    sigaction(handled[i], &action, NULL);
}

/* Before the file is written, and its directories are made. From now on SIGINT, SIGTERM and SIGHUP
 * remove what this process puts at path and the directories that are made for it (made: as in
 * lvni_control_rdzv_file_write), and then do what they did before. Ignored signals stay ignored.
 * One file per process: a signal leaves a second one that is guarded at the same time. */
static void guard_begin(const char *path, size_t made)
{
    int want = FREE;
    if (strlen(path) >= sizeof guarded ||
        !atomic_compare_exchange_strong(&state, &want, CHANGING)) {
        return;
    }
    made_from = made;
    owner = getpid();
    snprintf(guarded, sizeof guarded, "%s", path);
    /* as write_private names it */
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)owner);
    was_there = stat(path, &old) == 0;
    for (int i = 0; i < HANDLED; i++) {
        install(i);
    }
    atomic_store(&state, BEGUN);
}

/* The file at path is this process's: another one that replaces it is not. */
static void guard_written(const char *path)
{
    int want = BEGUN;
    if (atomic_load(&state) == BEGUN && strcmp(guarded, path) == 0 && stat(path, &ours) == 0) {
        atomic_compare_exchange_strong(&state, &want, WRITTEN);
    }
}

/* The signals get back their earlier handlers, unless another handler was installed since. */
static void guard_end(const char *path)
{
    if (strcmp(guarded, path) != 0) {
        return;
    }
    for (int i = 0; i < HANDLED; i++) { /* also where a signal has removed the file already */
        struct sigaction is;
        if (sigaction(handled[i], NULL, &is) == 0 && is_ours(&is)) {
            sigaction(handled[i], &before[i], NULL);
        }
    }
    int now = atomic_load(&state);
    if (now == BEGUN || now == WRITTEN) {
        atomic_compare_exchange_strong(&state, &now, FREE);
    }
}

/* ---- The file ---- */

lvn_status lvni_control_rdzv_file_path(const char *dir, const char *job_key, const char *run_id,
                                       const char *secret, int world, lvni_core_str *out)
{
    lvni_control_token key;
    char text[48];
    LVN_TRY(lvni_control_token_of_run(NULL, job_key, run_id, secret, &key));
    const int n =
        snprintf(text, sizeof text, "name of %d ranks, protocol %d", world, LVNI_CONTROL_PROTOCOL);
    /* reveals nothing about the key */
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

/* Can only this user read and write it? why: 96 bytes. */
static bool is_private(int fd, char *why)
{
    struct stat info;
    why[0] = '\0';
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        snprintf(why, 96, "it is not a file");
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
 * others. guard_begin knows the temporary name. */
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

/* The file with its directories; *made as in lvni_control_rdzv_file_write. */
static lvn_status put_file(const char *path, const lvni_core_str *dir, const lvni_core_str *text,
                           bool keyed, size_t *made)
{
    LVN_TRY(lvni_core_str_status(text));
    LVN_TRY(lvni_core_str_status(dir));
    *made = dir->len > 0 ? first_missing(dir->data) : 0;
    guard_begin(path, *made);
    if (dir->len > 0) {
        LVN_TRY(lvni_core_mkdirs(dir->data));
    }
    LVN_TRY(write_private(path, text, keyed));
    guard_written(path);
    return LVN_OK;
}

static const char *boot_id_or_none(const lvni_control_facts_room *room)
{
    return room->boot_id[0] == '\0' ? "-" : room->boot_id;
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
                         boot_id_or_none(&room));
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

/* Up to size - 1 bytes, and whether only this user can have written or read them. */
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

/* The directory is shared: a process of another host may have the same number. */
static bool is_own(const lvni_control_rdzv_where *where, int port)
{
    lvni_control_facts facts;
    lvni_control_facts_room room;
    lvni_control_facts_init(&facts, &room);
    return where->port == port && where->pid == getpid() && strcmp(where->host, room.host) == 0 &&
           strcmp(where->boot_id, boot_id_or_none(&room)) == 0;
}

void lvni_control_rdzv_file_remove(const char *path, int port, size_t made)
{
    lvni_control_rdzv_where where;
    char cut[4096];
    if (lvni_control_rdzv_file_read(path, &where) && is_own(&where, port)) {
        unlink(path);
    }
    if (snprintf(cut, sizeof cut, "%s", path) < (int)sizeof cut) {
        remove_dirs(cut, made);
    }
    guard_end(path);
}
