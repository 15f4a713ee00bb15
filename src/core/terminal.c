/* Terminals (terminal.h). */
#include "core/terminal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool lvni_terminal_rewrites(int fd)
{
    const char *kind = getenv("TERM");
    return isatty(fd) == 1 && kind != NULL && kind[0] != '\0' && strcmp(kind, "dumb") != 0;
}

bool lvni_terminal_has_colours(int fd)
{
    const char *none = getenv("NO_COLOR");
    return (none == NULL || none[0] == '\0') && lvni_terminal_rewrites(fd);
}

bool lvni_terminal_same(int a, int b)
{
    struct stat x, y;
    return a == b ||
           (fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino);
}
