/* port_owner.h: the socket's inode from /proc/net, then the process that holds a descriptor of
 * it. */
#include "port_owner.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The inode of the socket that listens on the port, 0: none. */
static unsigned long inode_of(const char *table, int port)
{
    FILE *f = fopen(table, "re");
    unsigned long inode = 0;
    char line[512];
    while (f != NULL && inode == 0 && fgets(line, sizeof line, f) != NULL) {
        /* "  0: 00000000:1F90 00000000:0000 0A tx:rx tr:when retransmits uid timeout inode" */
        char *words[10];
        int n = 0;
        for (char *save = NULL, *w = strtok_r(line, " \n", &save); w != NULL && n < 10;
             w = strtok_r(NULL, " \n", &save)) {
            words[n++] = w;
        }
        const char *colon = n == 10 ? strchr(words[1], ':') : NULL;
        if (colon != NULL && strtol(colon + 1, NULL, 16) == port && strcmp(words[3], "0A") == 0) {
            inode = strtoul(words[9], NULL, 10);
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
        /* zeros stand between the words */
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
