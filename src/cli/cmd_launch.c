/* levin launch [options] -- PROGRAM [ARGS...] */
#include "cli/cli.h"
#include "launch/launch.h"

#include <unistd.h>

int lvni_cmd_launch(int n, const char *const *words)
{
    return lvni_launch(n, words, environ);
}
