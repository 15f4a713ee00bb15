/* levin slurm env|expand|compress: the rank of this process, found from its environment, and host
 * lists; without asking Slurm. Job scripts are in cmd_slurm_script.c, what
 * follows a job that was submitted in cmd_slurm_jobs.c. */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "launch/env_vars.h"
#include "launch/host_list.h"
#include "launch/rank_info.h"
#include "run/error_record.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int unknown_argument(const char *command, const char *arg)
{
    lvni_core_print(
        stderr, "error: levin slurm %s does not take %s; `levin help slurm` lists its options\n",
        command, arg);
    return LVNI_EXIT_USAGE;
}

/* Rather than nothing, and 0: the variable that was to hold it is unset. In quotes it is an empty
 * list, which has no hosts. */
static int no_list(const char *command)
{
    fprintf(stderr, "error: levin slurm %s: no list of hosts; give one such as 'n[08-10],login1'\n",
            command);
    return LVNI_EXIT_USAGE;
}

typedef enum form { PLAIN, JSON, EXPORT } form;

static lvn_status print_rank_info(const lvni_launch_rank_info_options *options, form f, bool strict,
                                  lvni_core_notices *notices)
{
    lvni_launch_rank_info info;
    lvni_core_str out = {.len = 0};
    LVN_TRY(lvni_launch_env_strict(environ, strict ? 1 : -1, notices, &strict));
    lvn_status s = lvni_launch_rank_info_detect(environ, options, notices, &info);
    notices->by_hand = true; /* who asks wants an answer, whatever the rank */
    LVN_TRY(s);
    LVNI_TRY_DONE(s, lvni_launch_rank_info_check_address_here(&info, notices));
    LVNI_TRY_DONE(s, strict ? lvni_core_notices_refuse_warnings(notices) : LVN_OK);
    (f == JSON     ? lvni_launch_rank_info_print_json
     : f == EXPORT ? lvni_launch_rank_info_print_export
                   : lvni_launch_rank_info_print)(&info, &out);
    LVNI_TRY_DONE(s, lvni_core_str_status(&out));
    fputs(lvni_core_str_text(&notices->warnings), stderr);
    fputs(lvni_core_str_text(&out), stdout);
done:
    lvni_core_str_free(&out);
    lvni_launch_rank_info_free(&info);
    return s;
}

static int env(int n, const char *const *args)
{
    form f = PLAIN;
    static const char *const command[] = {"levin", "slurm", "env"};
    lvni_launch_rank_info_options options = {.args = command, .n_args = 3};
    lvni_core_notices notices = {.error = 0};
    bool strict = false;
    for (int i = 0; i < n; i++) {
        if (strcmp(args[i], "--strict") == 0) {
            strict = true;
        } else if (strcmp(args[i], "--json") == 0) {
            f = JSON;
        } else if (strcmp(args[i], "--export") == 0) {
            f = EXPORT;
        } else if (strcmp(args[i], "--env-source") == 0 && i + 1 < n) {
            options.source = args[++i];
        } else if (strncmp(args[i], "--env-source=", 13) == 0) {
            options.source = args[i] + 13;
        } else {
            return unknown_argument("env", args[i]);
        }
    }
    const lvn_status s = print_rank_info(&options, f, strict, &notices);
    return lvni_run_report_notices(s, &notices);
}

/* All arguments after the options, as one list of hosts. */
static lvn_status expand_all(int n, const char *const *args, lvni_core_notices *notices,
                             lvni_launch_hosts *hosts)
{
    for (int i = 0; i < n; i++) {
        LVN_TRY(lvni_launch_hosts_expand(hosts, args[i], notices));
    }
    return LVN_OK;
}

static int print_hosts(const lvni_launch_hosts *hosts, bool first, bool count, char ending)
{
    if (count) {
        printf("%zu%c", hosts->n, ending);
        return LVNI_EXIT_OK;
    }
    if (first && hosts->n == 0) {
        return LVNI_EXIT_FAILURE;
    }
    for (size_t i = 0; i < (first ? 1 : hosts->n); i++) {
        lvni_core_print(stdout, "%s", lvni_launch_hosts_name(hosts, i));
        putchar(ending);
    }
    return LVNI_EXIT_OK;
}

static int expand(int n, const char *const *args)
{
    bool first = false, count = false;
    char ending = '\n';
    int i = 0;
    for (; i < n && args[i][0] == '-'; i++) {
        if (strcmp(args[i], "--first") == 0) {
            first = true;
        } else if (strcmp(args[i], "--count") == 0) {
            count = true;
        } else if (strcmp(args[i], "-0") == 0) {
            ending = '\0';
        } else {
            return unknown_argument("expand", args[i]);
        }
    }
    if (i == n) {
        return no_list("expand");
    }
    lvni_launch_hosts hosts = {.n = 0};
    lvni_core_notices notices = {.error = 0};
    const lvn_status s = expand_all(n - i, args + i, &notices, &hosts);
    const int code = s == LVN_OK ? print_hosts(&hosts, first, count, ending) : 0;
    lvni_launch_hosts_free(&hosts);
    return s == LVN_OK ? code : lvni_run_report_notices(s, &notices);
}

static int compress(int n, const char *const *args)
{
    if (n > 0 && args[0][0] == '-') {
        return unknown_argument("compress", args[0]);
    }
    if (n == 0) {
        return no_list("compress");
    }
    lvni_launch_hosts hosts = {.n = 0};
    lvni_core_str out = {.len = 0};
    lvni_core_notices notices = {.error = 0};
    lvn_status s;
    LVNI_TRY_DONE(s, expand_all(n, args, &notices, &hosts));
    lvni_launch_hosts_compress(&hosts, &out);
    LVNI_TRY_DONE(s, lvni_core_str_status(&out));
    lvni_core_print(stdout, "%s\n", lvni_core_str_text(&out));
done:
    lvni_launch_hosts_free(&hosts);
    lvni_core_str_free(&out);
    return lvni_run_report_notices(s, &notices);
}

int lvni_cli_cmd_slurm(int n, const char *const *args)
{
    static const struct {
        const char *name;
        int (*run)(int n, const char *const *args);
    } all[] = {{"env", env},
               {"expand", expand},
               {"compress", compress},
               {"script", lvni_cli_slurm_script},
               {"profiles", lvni_cli_slurm_profiles},
               {"check", lvni_cli_slurm_check},
               {"submit", lvni_cli_slurm_submit},
               {"status", lvni_cli_slurm_status},
               {"logs", lvni_cli_slurm_logs},
               {"why", lvni_cli_slurm_why},
               {"cancel", lvni_cli_slurm_cancel},
               {"requeue", lvni_cli_slurm_requeue},
               {"signal", lvni_cli_slurm_signal},
               {"nodes", lvni_cli_slurm_nodes},
               {"shell", lvni_cli_slurm_shell},
               {"finish", lvni_cli_slurm_finish}};
    for (size_t i = 0; n > 0 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(args[0], all[i].name) == 0) {
            return all[i].run(n - 1, args + 1);
        }
    }
    if (n > 0) {
        lvni_core_print(stderr, "error: there is no levin slurm %s\n", args[0]);
    }
    return lvni_cli_command_misused("slurm");
}
