/* levin doctor: what is wrong with this machine for training, above all with its GPUs. A line for
 * each check, then which device accelerator=auto uses. The checks are in doctor_*.c. */
#include "cli/cli.h"
#include "cli/doctor.h"
#include "core/config.h"
#include "core/error.h"
#include "core/escape.h"
#include "recipes/registry.h"
#include "run/devices.h"
#include "run/error_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 2048 };

static const char *level_name(lvni_cli_level level)
{
    return level == LVNI_LEVEL_OK ? "ok" : level == LVNI_LEVEL_WARN ? "warn" : "FAIL";
}

/* `,"key":"text"` */
static void print_json(const char *before, const char *key, const char *text)
{
    lvni_core_str quoted = {0};
    lvni_core_str_json(&quoted, text);
    printf("%s\"%s\":%s", before, key, lvni_core_str_text(&quoted));
    lvni_core_str_free(&quoted);
}

void lvni_cli_doctor_add(lvni_cli_doctor *d, lvni_cli_level level, const char *name,
                         const char *fmt, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, fmt);
    (void)lvni_core_escape_format(text, sizeof text, fmt, args);
    va_end(args);
    d->failed += level == LVNI_LEVEL_FAIL;
    if (d->json) {
        fputs(d->n == 0 ? "{" : "},{", stdout);
        print_json("", "level", level_name(level));
        print_json(",", "name", name);
        print_json(",", "finding", text);
    } else {
        printf("%s %s: %s\n", level_name(level), name, text);
    }
    d->n++;
    fflush(stdout);
}

void lvni_cli_doctor_fix(lvni_cli_doctor *d, const char *fmt, ...)
{
    char text[TEXT];
    va_list args;
    va_start(args, fmt);
    (void)lvni_core_escape_format(text, sizeof text, fmt, args);
    va_end(args);
    if (d->json) {
        print_json(",", "fix", text);
    } else {
        printf("    fix: %s\n", text);
    }
    fflush(stdout);
}

void lvni_cli_doctor_read(const lvni_cli_doctor *d, const char *path, char *out, size_t room)
{
    char whole[1024];
    out[0] = '\0';
    snprintf(whole, sizeof whole, "%s%s", d->root, path);
    FILE *f = fopen(whole, "re");
    if (f == NULL) {
        return;
    }
    out[fread(out, 1, room - 1, f)] = '\0';
    fclose(f);
    const size_t n = strlen(out);
    out[n - (n > 0 && out[n - 1] == '\n')] = '\0';
}

/* ---- the last line ---- */

/* What a training with the defaults runs on: decided where the trainings decide it. */
static lvn_status resolve_auto(char *name, size_t room)
{
    lvni_core_config *config = NULL;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_config_create(lvni_recipes_at(0)->keys, &config));
    LVNI_TRY_DONE(s, lvni_core_config_set(config, "accelerator", "auto", "levin doctor"));
    LVNI_TRY_DONE(s, lvni_run_accelerator_resolve(config));
    snprintf(name, room, "%s", lvni_core_config_str(config, "accelerator"));
done:
    lvni_core_config_destroy(config);
    return s;
}

static void conclude(const lvni_cli_doctor *d, const char *name, char text[TEXT])
{
    const bool cpu = strcmp(name, "cpu") == 0;
    if (!cpu) {
        snprintf(text, TEXT, "accelerator=auto uses %s: %d device%s", name, d->n_usable,
                 lvni_core_plural(d->n_usable, "", "s"));
    } else if (d->n_usable > 0) {
        snprintf(text, TEXT, "accelerator=auto uses cpu; accelerator=cuda uses the GPU%s",
                 lvni_core_plural(d->n_usable, "", "s"));
    } else if (d->n_devices > 0) {
        snprintf(text, TEXT, "accelerator=auto uses cpu, although the driver shows %d GPU%s: %s",
                 d->n_devices, lvni_core_plural(d->n_devices, "", "s"), d->backend_text);
    } else {
        snprintf(text, TEXT, "accelerator=auto uses cpu: %s", d->driver_text);
    }
}

static lvn_status print_conclusion(const lvni_cli_doctor *d)
{
    char name[64], text[TEXT];
    LVN_TRY(resolve_auto(name, sizeof name));
    conclude(d, name, text);
    if (d->json) {
        printf("}],\"failed\":%d", d->failed);
        print_json(",", "accelerator", name);
        print_json(",", "conclusion", text);
        puts("}");
    } else {
        lvni_core_print(stdout, "%s\n", text);
    }
    return LVN_OK;
}

int lvni_cli_cmd_doctor(int n, const char *const *args)
{
    const char *root = getenv("LEVIN_TEST_ROOT");
    lvni_cli_doctor d = {.root = root == NULL ? "" : root};
    for (int i = 0; i < n; i++) {
        if (strcmp(args[i], "--json") != 0) {
            lvni_core_print(stderr, "error: levin doctor does not take %s\n", args[i]);
            return lvni_cli_command_misused("doctor");
        }
        d.json = true;
    }
    if (d.json) {
        fputs("{\"checks\":[", stdout);
    }
    if (root != NULL) {
        lvni_cli_doctor_add(&d, LVNI_LEVEL_WARN, "test", "LEVIN_TEST_ROOT=%s stands for /", root);
    }
    lvni_cli_doctor_machine(&d);
    lvni_cli_doctor_driver(&d);
    lvni_cli_doctor_backend(&d);
    lvni_cli_doctor_variables(&d);
    const lvn_status s = print_conclusion(&d);
    return s != LVN_OK    ? lvni_run_report_status(s)
           : d.failed > 0 ? LVNI_EXIT_FAILURE
                          : LVNI_EXIT_OK;
}
