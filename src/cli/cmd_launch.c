/* levin launch [options] -- PROGRAM [ARGS...] */
#include "cli/cli.h"
#include "launch/launch.h"
#include "recipes/run_dir.h"

#include <unistd.h>

int lvni_cli_cmd_launch(int n, const char *const *words)
{
    return lvni_launch(n, words, environ, lvni_recipes_run_dir_after_kill);
}
