/* slurm_conf.h: "Key=Value" in lines, any case; '#' begins a comment, a backslash at the end goes
 * on in the next line. */
#include "launch/slurm_conf.h"

#include "core/alloc.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <string.h>
#include <strings.h>

enum { CONF_MAX = 16 << 20, INCLUDES = 4 };

static void set(lvni_core_str *s, const char *text, size_t n)
{
    lvni_core_str_clear(s);
    lvni_core_str_append_n(s, text, n);
}

/* "socket=/run/munge/munge.socket.2,ttl=60" */
static void take_info(lvni_launch_slurm_auth *a, const char *value)
{
    for (const char *at = value; *at != '\0'; at += strcspn(at, ","), at += *at == ',' ? 1 : 0) {
        if (strncasecmp(at, "socket=", 7) == 0) {
            set(&a->socket, at + 7, strcspn(at + 7, ","));
        }
    }
}

static lvn_status read_conf(const char *path, int depth, lvni_launch_slurm_auth *a);

/* A relative name is beside the file that includes it. */
static lvn_status include(const char *from, const char *name, int depth, lvni_launch_slurm_auth *a)
{
    const char *slash = strrchr(from, '/');
    lvni_core_str path = {0};
    if (name[0] != '/' && slash != NULL) {
        lvni_core_str_append_n(&path, from, (size_t)(slash - from) + 1);
    }
    lvni_core_str_append(&path, name);
    lvn_status s = lvni_core_str_status(&path);
    if (s == LVN_OK && depth < INCLUDES && lvni_core_path_exists(path.data)) {
        s = read_conf(path.data, depth + 1, a);
    }
    lvni_core_str_free(&path);
    return s;
}

static lvn_status take_line(char *line, const char *path, int depth, lvni_launch_slurm_auth *a)
{
    line[strcspn(line, "#")] = '\0';
    line += strspn(line, " \t");
    for (size_t n = strlen(line); n > 0 && strchr(" \t\r", line[n - 1]) != NULL; n--) {
        line[n - 1] = '\0';
    }
    if (strncasecmp(line, "include", 7) == 0 && (line[7] == ' ' || line[7] == '\t')) {
        return include(path, line + 7 + strspn(line + 7, " \t"), depth, a);
    }
    const size_t key = strcspn(line, " \t=");
    const char *value = line + key + strspn(line + key, " \t=");
    if (key == 8 && strncasecmp(line, "AuthType", key) == 0) {
        a->munge = strcasecmp(value, "auth/munge") == 0 || strcasecmp(value, "munge") == 0;
    } else if (key == 8 && strncasecmp(line, "AuthInfo", key) == 0) {
        take_info(a, value);
    }
    return LVN_OK;
}

static lvn_status read_conf(const char *path, int depth, lvni_launch_slurm_auth *a)
{
    char *text = NULL;
    size_t n = 0;
    if (lvni_core_file_read(path, CONF_MAX, &text, &n) != LVN_OK) {
        return lvn_last_error()->code == LVN_ERR_MEMORY ? LVN_ERR_MEMORY : LVN_OK;
    }
    if (depth == 0) {
        set(&a->file, path, strlen(path));
    }
    for (char *at = text; (at = strstr(at, "\\\n")) != NULL;) {
        at[0] = at[1] = ' ';
    }
    lvn_status s = LVN_OK;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); s == LVN_OK && line != NULL;
         line = strtok_r(NULL, "\n", &save)) {
        s = take_line(line, path, depth, a);
    }
    lvni_core_free(text);
    return s;
}

lvn_status lvni_launch_slurm_auth_read(char *const *env, lvni_launch_slurm_auth *out)
{
    const char *const paths[] = {lvni_launch_env_get(env, "SLURM_CONF"), "/etc/slurm/slurm.conf",
                                 "/run/slurm/conf/slurm.conf", "/etc/slurm-llnl/slurm.conf"};
    *out = (lvni_launch_slurm_auth){.munge = true};
    for (size_t i = 0; i < sizeof paths / sizeof *paths && out->file.len == 0; i++) {
        if (paths[i] != NULL && lvni_core_path_exists(paths[i])) {
            LVN_TRY(read_conf(paths[i], 0, out));
        }
    }
    const lvn_status s = lvni_core_str_status(&out->socket);
    return s == LVN_OK ? lvni_core_str_status(&out->file) : s;
}

void lvni_launch_slurm_auth_free(lvni_launch_slurm_auth *auth)
{
    lvni_core_str_free(&auth->socket);
    lvni_core_str_free(&auth->file);
}
