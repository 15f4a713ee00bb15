/* Terminals (terminal.h). */
#include "core/terminal.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lvni_core_terminal_rewrites(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && kind != NULL && kind[0] != '\0' && strcmp(kind, "dumb") != 0;
}

bool lvni_core_terminal_has_colours(int fd)
{
    const char *none = getenv("NO_COLOR");
    return (none == NULL || none[0] == '\0') && lvni_core_terminal_rewrites(fd);
}

bool lvni_core_terminal_same(int a, int b)
{
    struct stat x, y;
    return a == b ||
           (fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}

void lvni_core_terminal_put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, text, n);
        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return;
        }
        text += done;
        n -= (size_t)done;
    }
}

static volatile sig_atomic_t status_fd = -1; /* read in signal handlers */

void lvni_core_terminal_set_status_fd(int fd)
{
    status_fd = fd;
}

int lvni_core_terminal_status_fd(void)
{
    return status_fd;
}

void lvni_core_terminal_print_from_signal(bool keyboard, const char *text)
{
    static const char own_line[] = LVNI_TERMINAL_ERASE "^C\n";
    const int line_fd = status_fd;
    const int screen = line_fd >= 0                 ? line_fd
                       : isatty(STDERR_FILENO) == 1 ? STDERR_FILENO
                       : isatty(STDOUT_FILENO) == 1 ? STDOUT_FILENO
                                                    : -1;
    if (line_fd >= 0) {
        const char *first = keyboard ? own_line : LVNI_TERMINAL_ERASE;
        lvni_core_terminal_put(screen, first, strlen(first));
    } else if (keyboard && screen >= 0) {
        lvni_core_terminal_put(screen, "\n", 1);
    }
    lvni_core_terminal_put(STDERR_FILENO, text, strlen(text));
}
