/* levin export model=RUN output=FILE: a trained model for others. */
#include "cli/cli.h"
#include "recipes/classify.h"
#include "recipes/report_error.h"

int lvni_cli_cmd_export(int n, const char *const *words)
{
    return lvni_recipes_report_status(lvni_recipes_export(n, words));
}
