/* gethostname, always with a zero at the end (host_name.h). */
#include "core/host_name.h"

#include <stdio.h>
#include <unistd.h>

void lvni_core_host_name(char *out, size_t size)
{
    char whole[256] = "";
    const int failed = gethostname(whole, sizeof whole - 1);
    snprintf(out, size, "%s", failed != 0 || whole[0] == '\0' ? "?" : whole);
}
