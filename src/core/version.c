/* The version of the library a program runs with; programs compare it with LEVIN_VERSION of their
 * headers. */
#include <levin/version.h>

const char *lvn_version(void)
{
    return LEVIN_VERSION;
}
