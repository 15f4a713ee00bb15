/* Configurations of the original, rcGAN, in the recipe gan (gan.h): a file that has the key
 * `experience` and none of levin's `recipe` is taken as it is. */
#include "recipes/gan.h"

#include "core/str.h"
#include "recipes/options.h"

#include <stdio.h>
#include <string.h>

/* ---- its keys ---- */

/* The file of "FILE:12"; 0: another layer. */
static size_t file_of(const lvni_core_config *c, const char *key, const char **name)
{
    const char *origin = *name = lvni_core_config_origin(c, key), *colon = strrchr(origin, ':');
    return lvni_core_config_layer(c, key) == LVNI_LAYER_FILE && colon != NULL
               ? (size_t)(colon - origin)
               : 0;
}

static bool stands_in(const lvni_core_config *c, const char *key, const char *file, size_t n)
{
    const char *name;
    return file_of(c, key, &name) == n && memcmp(name, file, n) == 0;
}

bool lvni_recipes_gan_is_of_original(const lvni_core_config *c, const char *key)
{
    const char *file;
    const size_t n = file_of(c, "experience", &file);
    return n > 0 && !stands_in(c, "recipe", file, n) && stands_in(c, key, file, n);
}

/* ---- notes ---- */

/* Where batch_size of a file of the original came from, and what it is behind that. */
#define PER_DEVICE "batch_size of rcGAN, "

static void print_per_device(const lvni_core_config *c, lvni_core_str *out)
{
    const char *origin = lvni_core_config_origin(c, "batch_size");
    if (strncmp(origin, PER_DEVICE, sizeof PER_DEVICE - 1) == 0) {
        lvni_core_str_printf(out,
                             "note: batch_size counts the samples of a device, as in rcGAN: "
                             "batch_size_per_device is %lld  (%s)",
                             (long long)lvni_core_config_int(c, "batch_size_per_device"),
                             origin + sizeof PER_DEVICE - 1);
    }
}

/* The same key is of all devices on the command line, and of one in a file of rcGAN. */
static void print_batch_size(const lvni_core_config *c, lvni_core_str *out)
{
    const char *file;
    const size_t n = file_of(c, "experience", &file);
    if (n == 0 || stands_in(c, "recipe", file, n) || !lvni_core_config_is_set(c, "batch_size") ||
        lvni_core_config_layer(c, "batch_size") != LVNI_LAYER_ARGUMENTS) {
        return;
    }
    const long long size = (long long)lvni_core_config_int(c, "batch_size");
    lvni_core_str_printf(out,
                         "note: batch_size=%lld of the command line is of all devices; "
                         "batch_size_per_device=%lld is what the file's batch_size means  (%.*s)",
                         size, size, (int)n, file);
}

void lvni_recipes_gan_print_notes(const lvni_core_config *c, lvni_core_str *out)
{
    print_per_device(c, out);
    print_batch_size(c, out);
    for (size_t i = 0; i < lvni_recipes_gan_options.n; i++) {
        const lvni_core_option *row = &lvni_recipes_gan_options.rows[i];
        if ((row->flags & LVNI_OPT_HIDDEN) != 0 && lvni_core_config_is_set(c, row->name)) {
            lvni_core_str_printf(out, "%snote: %s has no effect: %s  (%s)",
                                 out->len > 0 ? "\n" : "", lvni_core_config_spelled(c, row->name),
                                 row->help, lvni_core_config_origin(c, row->name));
        }
    }
}

bool lvni_recipes_gan_is_original(const char *path)
{
    size_t n;
    lvni_core_config *c;
    const lvni_core_option_table *tables = lvni_recipes_gan_train_tables(&n);
    if (lvni_core_config_create(tables, n, &c) != LVN_OK) {
        return false;
    }
    lvni_core_config_collect(c);
    const bool is = lvni_core_config_load_file(c, LVNI_LAYER_FILE, path) == LVN_OK &&
                    lvni_core_config_layer(c, "experience") == LVNI_LAYER_FILE &&
                    lvni_core_config_layer(c, "num_z_train") == LVNI_LAYER_FILE;
    lvni_core_config_destroy(c);
    lvn_clear_error();
    return is;
}

/* Whose default would quietly be another training. */
static void require_keys(lvni_core_config *c, const char *file, size_t n)
{
    static const char *const needed[] = {"data",     "in_chans",   "out_chans", "im_size",
                                         "optim.lr", "batch_size", "max_epochs"};
    static const char *const theirs[] = {"data_path", NULL, NULL, NULL, "lr", NULL, "num_epochs"};
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        const lvni_core_layer layer = lvni_core_config_layer(c, needed[i]);
        const bool size = strcmp(needed[i], "batch_size") == 0,
                   given = lvni_core_config_is_mistaken(c, needed[i]) || layer == LVNI_LAYER_FILE ||
                           layer == LVNI_LAYER_ARGUMENTS ||
                           (size && (lvni_core_config_is_set(c, "batch_size_per_device") ||
                                     lvni_core_config_is_mistaken(c, "batch_size_per_device")));
        if (!given) {
            lvni_core_config_add_mistake(c, "`%s` is missing, and has no default in rcGAN  (%.*s)",
                                         theirs[i] != NULL ? theirs[i] : needed[i], (int)n, file);
        }
    }
}

lvn_status lvni_recipes_gan_take_file(lvni_core_config *c)
{
    char text[32], origin[400];
    const char *file;
    const size_t n = file_of(c, "experience", &file);
    if (n == 0 || stands_in(c, "recipe", file, n)) {
        return LVN_OK;
    }
    require_keys(c, file, n);
    if (!stands_in(c, "batch_size", file, n) || !lvni_core_config_is_set(c, "batch_size")) {
        return LVN_OK;
    }
    snprintf(text, sizeof text, "%lld", (long long)lvni_core_config_int(c, "batch_size"));
    snprintf(origin, sizeof origin, PER_DEVICE "%s", lvni_core_config_origin(c, "batch_size"));
    if (!lvni_core_config_is_set(c, "batch_size_per_device")) {
        LVN_TRY(lvni_core_config_set(c, "batch_size_per_device", text, origin));
    }
    return lvni_core_config_set(c, "batch_size", "auto", origin);
}

static lvn_status take_out(lvni_core_config *c)
{
    const char *dir = lvni_core_config_str(c, "checkpoint_dir"),
               *name = lvni_core_config_str(c, "exp_name");
    if (lvni_core_config_is_set(c, "out") || name == NULL) {
        return LVN_OK;
    }
    lvni_core_str out = {0};
    const size_t n = dir == NULL ? 0 : strlen(dir);
    lvni_core_str_printf(&out, "%s%s%s", dir == NULL ? "" : dir,
                         n == 0 || dir[n - 1] == '/' ? "" : "/", name);
    lvn_status s = lvni_core_str_status(&out);
    s = s == LVN_OK
            ? lvni_core_config_set(c, "out", lvni_core_str_text(&out), "checkpoint_dir, exp_name")
            : s;
    lvni_core_str_free(&out);
    return s;
}

static lvn_status take_betas(lvni_core_config *c)
{
    char text[64];
    const bool one = lvni_core_config_is_set(c, "beta_1"),
               two = lvni_core_config_is_set(c, "beta_2");
    if ((!one && !two) || lvni_core_config_layer(c, "optim.betas") >= LVNI_LAYER_FILE) {
        return LVN_OK;
    }
    snprintf(text, sizeof text, "[%.17g,%.17g]", one ? lvni_core_config_float(c, "beta_1") : 0.0,
             two ? lvni_core_config_float(c, "beta_2") : 0.99);
    return lvni_core_config_set(c, "optim.betas", text, "beta_1, beta_2");
}

lvn_status lvni_recipes_gan_take_names(lvni_core_config *c)
{
    LVN_TRY(take_out(c));
    return take_betas(c);
}
