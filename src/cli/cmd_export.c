/* levin export model=RUN output=FILE: a trained model for others. */
#include "cli/cli.h"
#include "recipes/export.h"
#include "recipes/report_error.h"

int lvni_cmd_export(int n, const char *const *words)
{
    return lvni_report_status(lvni_export(n, words));
}
