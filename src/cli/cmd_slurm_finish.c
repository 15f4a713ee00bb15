/* levin slurm finish CODE [RUN]: the last words of a job's script. A training that was queued again
 * ends with 85, and the job has not failed by that. */
#include "cli/cli.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "run/requeue.h"
#include "run/run_dir.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where runs without a name are. */
static const char numbered[] = "out";

static bool is_requeued_below(const char *folder)
{
    DIR *d = opendir(folder);
    bool found = false;
    for (const struct dirent *e = NULL; d != NULL && !found && (e = readdir(d)) != NULL;) {
        lvni_core_str path = {0};
        lvni_core_str_printf(&path, "%s/%s", folder, e->d_name);
        found = e->d_name[0] != '.' && !path.failed &&
                lvni_run_dir_is_requeued(lvni_core_str_text(&path));
        lvni_core_str_free(&path);
    }
    if (d != NULL) {
        closedir(d);
    }
    return found;
}

static bool is_code(const char *text)
{
    return text[0] != '\0' && strlen(text) <= 3 && text[strspn(text, "0123456789")] == '\0' &&
           strtol(text, NULL, 10) <= 255;
}

static void explain(int code, const char *run)
{
    static const struct {
        int code;
        const char *text;
    } meanings[] = {
#define ROW(name, number, words) {number, words},
        LVNI_EXIT_LIST(ROW)
#undef ROW
    };
    char id[48] = "";
    const char *text = NULL;
    for (size_t i = 0; i < sizeof meanings / sizeof *meanings; i++) {
        text = meanings[i].code == code ? meanings[i].text : text;
    }
    const bool job = lvni_run_requeue_job(id, sizeof id);
    lvni_core_print(stderr, "levin: %s%s ends with exit code %d: ", job ? "job " : "the job",
                    job ? id : "", code);
    if (text != NULL) {
        fputs(text, stderr);
    } else if (code > 128) {
        fprintf(stderr, "the first failing rank was ended by signal %d (%s)", code - 128,
                strsignal(code - 128));
    } else {
        fputs("the program's own", stderr);
    }
    if (run != NULL) {
        lvni_core_print(stderr, "; its log is %s/train.log", run);
    }
    fputs("\n", stderr);
}

int lvni_cli_slurm_finish(int n, const char *const *args)
{
    if (n < 1 || n > 2 || !is_code(args[0])) {
        fputs("error: levin slurm finish takes the exit code of the training, 0 to 255, "
              "and its run directory, in a job's script: levin slurm finish \"$rc\" "
              "out/run && rc=0\n",
              stderr);
        return LVNI_EXIT_USAGE;
    }
    const int code = (int)strtol(args[0], NULL, 10);
    const char *run = n > 1 ? args[1] : NULL;
    const bool requeued = code == LVNI_EXIT_REQUEUE && (run != NULL ? lvni_run_dir_is_requeued(run)
                                                                    : is_requeued_below(numbered));
    if (requeued) {
        fputs("levin: the job is queued again, and goes on from its checkpoint\n", stderr);
        return LVNI_EXIT_OK;
    }
    if (code != LVNI_EXIT_OK) {
        explain(code, run);
    }
    return code;
}
