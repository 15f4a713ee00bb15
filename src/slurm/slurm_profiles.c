/* Profiles of clusters (slurm_profiles.h). */
#include "slurm/slurm_profiles.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "launch/env_vars.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const char ending[] = ".yaml";
enum { PROFILE_MOST = 1 << 20 };

typedef struct folders {
    lvni_core_str project, user; /* empty: there is none */
} folders;

/* The nearest .levin/slurm.d; empty where there is none. */
static lvn_status find_project(lvni_core_str *out)
{
    lvni_core_str here = {0};
    lvni_core_path_absolute(".", &here);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&here));
    for (char *end;; *end = '\0') {
        lvni_core_str_clear(out);
        lvni_core_str_printf(out, "%s/.levin/slurm.d", here.data);
        LVNI_TRY_DONE(s, lvni_core_str_status(out));
        if (lvni_core_path_is_folder(lvni_core_str_text(out))) {
            break;
        }
        lvni_core_str_clear(out);
        end = strrchr(here.data, '/');
        if (end == NULL || here.data[0] == '\0') {
            break;
        }
    }
done:
    lvni_core_str_free(&here);
    return s;
}

static lvn_status find(char *const *environment, folders *out)
{
    *out = (folders){.project = {0}};
    const char *config = lvni_launch_env_get(environment, "XDG_CONFIG_HOME"),
               *home = lvni_launch_env_get(environment, "HOME");
    if (config != NULL || home != NULL) {
        lvni_core_str_printf(&out->user, "%s%s/levin/slurm.d", config != NULL ? config : home,
                             config != NULL ? "" : "/.config");
    }
    LVN_TRY(lvni_core_str_status(&out->user));
    return find_project(&out->project);
}

static void folders_free(folders *f)
{
    lvni_core_str_free(&f->project);
    lvni_core_str_free(&f->user);
}

/* Its keys under `slurm:`, as a configuration has them, would be passed over. */
static lvn_status refuse_section(const char *path)
{
    char *text;
    size_t bytes;
    LVN_TRY(lvni_core_file_read(path, PROFILE_MOST, &text, &bytes));
    const bool section = strncmp(text, "slurm:", 6) == 0 || strstr(text, "\nslurm:") != NULL;
    lvni_core_free(text);
    if (section) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "profile %.300s: the keys of a profile stand at its top, without `slurm:`", path);
    }
    return LVN_OK;
}

static lvn_status load_from(lvni_core_config *config, lvni_core_layer layer,
                            const lvni_core_str *folder, const char *name, bool *found)
{
    lvni_core_str path = {0};
    lvn_status s;
    lvni_core_str_printf(&path, "%s/%s%s", lvni_core_str_text(folder), name, ending);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (folder->len > 0 && lvni_core_path_exists(lvni_core_str_text(&path))) {
        *found = true;
        LVNI_TRY_DONE(s, refuse_section(lvni_core_str_text(&path)));
        s = lvni_core_config_load_file(config, layer, lvni_core_str_text(&path));
    }
done:
    lvni_core_str_free(&path);
    return s;
}

lvn_status lvni_slurm_profile_load(lvni_core_config *config, const char *name,
                                   char *const *environment)
{
    folders in;
    bool found = false;
    lvn_status s;
    LVNI_TRY_DONE(s, find(environment, &in));
    if (strchr(name, '/') == NULL) {
        LVNI_TRY_DONE(s, load_from(config, LVNI_LAYER_JOB, &in.user, name, &found));
        LVNI_TRY_DONE(s, load_from(config, LVNI_LAYER_SAVED, &in.project, name, &found));
    }
    if (!found) {
        s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                          "profile `%.80s`: there is no %.80s%s in %s%s%s; `levin slurm profiles` "
                          "lists them",
                          name, name, ending,
                          in.project.len > 0 ? lvni_core_str_text(&in.project)
                                             : ".levin/slurm.d here or above",
                          in.user.len > 0 ? " or " : "", lvni_core_str_text(&in.user));
    }
done:
    folders_free(&in);
    return s;
}

/* ---- the list ---- */

enum { NAME = 256 };

static bool is_profile(const char *name)
{
    const size_t n = strlen(name);
    return name[0] != '.' && n > strlen(ending) && n < NAME &&
           strcmp(name + n - strlen(ending), ending) == 0;
}

/* The first profile of the folder behind `last` in the order of names; "": there is none. */
static void find_next(const char *folder, const char *last, char next[NAME])
{
    DIR *dir = opendir(folder);
    next[0] = '\0';
    for (struct dirent *e; dir != NULL && (e = readdir(dir)) != NULL;) {
        const bool nearer = next[0] == '\0' || strcmp(e->d_name, next) < 0;
        if (is_profile(e->d_name) && strcmp(e->d_name, last) > 0 && nearer) {
            snprintf(next, NAME, "%.255s", e->d_name);
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
}

static void print_folder(const lvni_core_str *folder, lvni_core_str *out)
{
    char name[NAME] = "", next[NAME];
    const char *path = lvni_core_str_text(folder);
    for (;;) {
        find_next(path, name, next);
        if (next[0] == '\0') {
            return;
        }
        memcpy(name, next, sizeof name);
        lvni_core_str_message(out, "%.*s  %s/%s\n", (int)(strlen(name) - strlen(ending)), name,
                              path, name);
    }
}

lvn_status lvni_slurm_profiles_print(char *const *environment, lvni_core_str *out)
{
    folders in;
    lvn_status s;
    LVNI_TRY_DONE(s, find(environment, &in));
    print_folder(&in.project, out);
    print_folder(&in.user, out);
    if (out->len == 0) {
        lvni_core_str_message(out,
                              "no profiles: no NAME.yaml in .levin/slurm.d here or above%s%s\n",
                              in.user.len > 0 ? ", nor in " : "", lvni_core_str_text(&in.user));
    }
    s = lvni_core_str_status(out);
done:
    folders_free(&in);
    return s;
}
