/* Thread names (thread.h). */
#include "core/thread.h"

#include <pthread.h>
#include <stdio.h>

void lvni_thread_name(const char *role, int index)
{
    enum { KEPT = 15 };
    char number[16] = "";
    char name[2 * KEPT + 5]; /* at most KEPT are used: an int has up to 10 digits */
    const int digits = index >= 0 ? snprintf(number, sizeof number, "%d", index) : 0;
    snprintf(name, sizeof name, "lvn-%.*s%s", KEPT - 4 - digits, role, number);
    (void)pthread_setname_np(pthread_self(), name); /* a name is a courtesy: failing changes nothing */
}
