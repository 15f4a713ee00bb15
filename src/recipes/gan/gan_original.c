/* Configurations of the original, rcGAN, in the recipe gan (gan.h): a file that has keys of rcGAN
 * alone and none of levin's `recipe` is taken as it is. Here are its keys that levin does not
 * have, and what such a file means. */
#include "recipes/gan/gan.h"

#include "core/str.h"
#include "core/vfs.h"
#include "run/options.h"
#include "run/run_dir.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- keys ---- */

/* Never read there, or of no use here. */
#define DEAD(key, text)                                                                            \
    {                                                                                              \
        .name = (key), .type = LVNI_OPT_STRING, .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED,     \
        .help = (text)                                                                             \
    }
/* Flags of its command line that chose the kind of data, and the file of their own. */
#define KIND(key)                                                                                  \
    {                                                                                              \
        .name = (key), .type = LVNI_OPT_BOOL, .fallback = "false",                                 \
        .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED, .help = "The same as experience."           \
    }
/* Of a file with sections, as rcGAN had before it had Lightning; flat: the key in later ones. */
#define SECTION(key, of, flat)                                                                     \
    {                                                                                              \
        .name = (key), .alias_of = (of), .flags = LVNI_OPT_HIDDEN, .help = (flat)                  \
    }

#define SAMPLES "num_samples"

static const char maps_text[] = "coil maps are estimated with calib_width alone",
                  tracker_text[] = "logger= has the trackers that there are",
                  never_text[] = "rcGAN never reads it";

static const lvni_core_option original_rows[] = {
    {.name = "checkpoint_dir",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_NOT_SAVED | LVNI_OPT_EMPTY,
     .help = "With exp_name the run directory, unless out is given."},
    {.name = "exp_name",
     .type = LVNI_OPT_STRING,
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "The same: its name in checkpoint_dir."},
    {.name = "beta_1",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "With beta_2 the same as optim.betas."},
    {.name = "beta_2",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_FROM_TO_BELOW(0, 1),
     .flags = LVNI_OPT_NOT_SAVED,
     .help = "With beta_1 the same as optim.betas."},
    {.name = "lr_scheduler",
     .type = LVNI_OPT_CHOICE,
     .choices = "true|false",
     .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED | LVNI_OPT_OPEN,
     .help = "true: scheduler=step with lr_step_size and lr_drop_rate; or the name of a schedule."},
    KIND("mri"),
    KIND("mass_mapping"),
    KIND("mass_mapping_4"),
    KIND("mass_mapping_6"),
    KIND("mass_mapping_8"),
    KIND("radio"),
    KIND("radio_image"),
    KIND("radio_fourier"),
    {.name = "inpaint",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED | LVNI_OPT_LATER,
     .help = "Images with a hole to fill.",
     .later_note = "images with a hole to fill are not among the data of this version: experience "
                   "is mass_mapping, mri or radio"},
    LVNI_OPTION_ALIAS("keep_checkpoints", "checkpoint.save_top_k"),
    LVNI_OPTION_ALIAS("sanity_val_batches", "num_sanity_val_steps"),
    DEAD("adv_weight", "adv_schedule has the weights of the adversarial term"),
    DEAD("fig_path", "figures are written by levin eval"),
    DEAD("save_path", "arrays are written by levin predict and levin eval"),
    DEAD("num_figs", "levin eval draws that many"),
    DEAD("challenge", never_text),
    DEAD("sample_rate", never_text),
    DEAD("center_fractions", never_text),
    DEAD("num_z_test", SAMPLES),
    DEAD("num_of_top_slices", "the first 8 slices of a volume are taken, of test 6"),
    DEAD("use_middle_slices", "the first 8 slices of a volume are taken, of test 6"),
    DEAD("r", "acceleration"),
    DEAD("num_coils", "in_chans is twice their number"),
    DEAD("ks_input", "in_chans=4 is with the inversion by Kaiser and Squires"),
    DEAD("real_data", "measurements are simulated from a truth; measured ones cannot be used yet"),
    DEAD("randseed", "seed"),
    DEAD("n_percentiles", "levin eval has ten levels"),
    DEAD("wandb_offline", tracker_text),
    DEAD("wandb.offline", tracker_text),
    DEAD("wandboffline", tracker_text),
    DEAD("wandb_mode", tracker_text),
    DEAD("path_to_train_val_dataset", "data_path is a folder with a file for each map"),
    DEAD("path_to_std_noise", "cosmo_dir_path has the deviation of the noise"),
    DEAD("path_to_noise", "cosmo_dir_path has the deviation of the noise"),
    DEAD("path_to_mask", "cosmo_dir_path has the mask"),
    DEAD("nimgs_train", "all maps of kappa_train are taken"),
    DEAD("nimgs_val", "all maps of kappa_val are taken"),
    DEAD("data_parallel", "devices is the number of GPUs"),
    SECTION("data.path", "data", "data_path"),
    SECTION("data.resolution", "im_size", "im_size"),
    {.name = "data.channels",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED,
     .help = "in_chans and out_chans"},
    SECTION("data.num_coils", "num_coils", "num_coils"),
    SECTION("data.num_of_top_slices", "num_of_top_slices", "num_of_top_slices"),
    SECTION("sense.calib_width", "calib_width", "calib_width"),
    DEAD("sense.device", maps_text),
    DEAD("sense.crop", maps_text),
    DEAD("sense.kernel_width", maps_text),
    SECTION("optimizer.lr", "optim.lr", "lr"),
    SECTION("optimizer.beta_1", "beta_1", "beta_1"),
    SECTION("optimizer.beta_2", "beta_2", "beta_2"),
    SECTION("train.batch_size", "batch_size", "batch_size (of all devices)"),
    SECTION("train.n_epochs", "max_epochs", "num_epochs"),
    SECTION("train.p", "num_z_train", "num_z_train"),
    {.name = "train.adv_weight",
     .type = LVNI_OPT_FLOAT,
     .flags = LVNI_OPT_HIDDEN | LVNI_OPT_NOT_SAVED,
     .help = "adv_schedule with adv_reduce=mean"},
    DEAD("train.l1_weight", "it is 1"),
    DEAD("train.num_iters_discriminator", "it is 1"),
    SECTION("train.gp_weight", "gp_weight", "gp_weight"),
    SECTION("train.drift_weight", "drift_weight", "drift_weight"),
    SECTION("validate.p", "num_z_valid", "num_z_valid"),
    SECTION("validate.mu_std", "std_mult_step", "std_mult_step"),
    SECTION("validate.psnr_threshold", "psnr_gain_tol", "psnr_gain_tol"),
    DEAD("validate.batch_size", "eval_batch_size is that number"),
    DEAD("validate.cfid_p", "levin eval has CFID"),
    SECTION("test.p", "num_z_test", "num_z_test"),
    DEAD("test.batch_size", "eval_batch_size is that number"),
    DEAD("test.cfid_p", "levin eval has CFID"),
};
const lvni_core_option_table lvni_gan_original_options =
    LVNI_OPTION_TABLE("names of rcGAN", original_rows);
enum { ROWS = sizeof original_rows / sizeof *original_rows };

/* What lr_scheduler: true of a file has beside it. */
static const struct {
    const char *key, *theirs;
} falls[] = {{"scheduler.step_size", "lr_step_size"}, {"scheduler.gamma", "lr_drop_rate"}};
enum { FALLS = sizeof falls / sizeof *falls };

static const struct {
    const char *flag, *kind;
} kinds[] = {{"mri", "mri"},
             {"mass_mapping", "mass_mapping"},
             {"mass_mapping_4", "mass_mapping"},
             {"mass_mapping_6", "mass_mapping"},
             {"mass_mapping_8", "mass_mapping"},
             {"radio", "radio"},
             {"radio_image", "radio"},
             {"radio_fourier", "radio"}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* ---- its files ---- */

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

/* All its files have these two, and those of some branches no `experience`. */
static const char *const signs[] = {"experience", "num_z_test", "adv_weight"};
enum { SIGNS = sizeof signs / sizeof *signs };

/* A file of the original among those given; 0: none. */
static size_t original_file(const lvni_core_config *c, const char **file)
{
    for (int i = 0; i < SIGNS; i++) {
        const size_t n = file_of(c, signs[i], file);
        if (n > 0 && !stands_in(c, "recipe", *file, n)) {
            return n;
        }
    }
    return 0;
}

bool lvni_gan_has_original(const lvni_core_config *c)
{
    const char *file;
    return original_file(c, &file) > 0;
}

bool lvni_gan_is_of_original(const lvni_core_config *c, const char *key)
{
    const char *file;
    const size_t n = original_file(c, &file);
    return n > 0 && stands_in(c, key, file, n);
}

const char *lvni_gan_sign(int i)
{
    return i < SIGNS ? signs[i] : NULL;
}

bool lvni_gan_is_original(const char *path)
{
    const char *file;
    lvni_core_config *c;
    if (lvni_core_config_create(lvni_gan_train_keys, &c) != LVN_OK) {
        return false;
    }
    lvni_core_config_collect(c);
    /* `experience` alone may be a key of anything */
    const bool is = lvni_core_config_load_file(c, LVNI_LAYER_FILE, path) == LVN_OK &&
                    original_file(c, &file) > 0 &&
                    (lvni_core_config_layer(c, "num_z_train") == LVNI_LAYER_FILE ||
                     lvni_core_config_layer(c, signs[1]) == LVNI_LAYER_FILE);
    lvni_core_config_destroy(c);
    lvn_clear_error();
    return is;
}

/* ---- sections ---- */

/* Was the row's value given by a key of a section? */
static bool is_from_section(const lvni_core_config *c, const lvni_core_option *row)
{
    const char *name = row->alias_of != NULL ? row->alias_of : row->name;
    return strchr(row->name, '.') != NULL && strncmp(row->name, "wandb", 5) != 0 &&
           lvni_core_config_layer(c, name) == LVNI_LAYER_FILE &&
           strcasecmp(lvni_core_config_spelled(c, name), row->name) == 0;
}

/* Of the row `name`; NULL: of any. */
static bool has_section(const lvni_core_config *c, const char *name)
{
    for (int i = 0; i < ROWS; i++) {
        const lvni_core_option *row = &original_rows[i];
        const char *of = row->alias_of != NULL ? row->alias_of : row->name;
        if ((name == NULL || strcmp(of, name) == 0) && is_from_section(c, row)) {
            return true;
        }
    }
    return false;
}

/* Is the key, or what it is an alias of, without effect? */
static bool is_dead(const lvni_core_option *row)
{
    for (int i = 0; row->alias_of != NULL && i < ROWS; i++) {
        if (strcmp(original_rows[i].name, row->alias_of) == 0) {
            return is_dead(&original_rows[i]);
        }
    }
    return row->type == LVNI_OPT_STRING && (row->flags & LVNI_OPT_HIDDEN) != 0 &&
           row->alias_of == NULL;
}

/* One line for all of them. */
void lvni_gan_print_sections(const lvni_core_config *c, lvni_core_str *out)
{
    const char *file = NULL;
    lvni_core_str flat = {0}, dead = {0};
    for (int i = 0; i < ROWS; i++) {
        const lvni_core_option *row = &original_rows[i];
        if (!is_from_section(c, row)) {
            continue;
        }
        lvni_core_str *list = is_dead(row) ? &dead : &flat;
        const char *of = row->alias_of != NULL ? row->alias_of : row->name;
        lvni_core_str_printf(list, "%s%s", list->len > 0 ? ", " : "",
                             lvni_core_config_spelled(c, of));
        if (list == &flat) {
            lvni_core_str_printf(list, " is %s", row->help);
        }
        file = lvni_core_config_origin(c, of);
    }
    if (file != NULL) {
        const char *colon = strrchr(file, ':');
        lvni_core_str_printf(out,
                             "%snote: sections of an older rcGAN, whose keys are flat now: %s%s%s"
                             "  (%.*s)",
                             out->len > 0 ? "\n" : "", lvni_core_str_text(&flat),
                             dead.len > 0 ? "; without effect: " : "",
                             dead.len > 0 ? lvni_core_str_text(&dead) : "",
                             (int)(colon != NULL ? colon - file : (ptrdiff_t)strlen(file)), file);
    }
    lvni_core_str_free(&flat);
    lvni_core_str_free(&dead);
}

static int chans(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_is_set(c, key) ? (int)lvni_core_config_int(c, key) : 0;
}

static bool is_given(const lvni_core_config *c, const char *key)
{
    return lvni_core_config_layer(c, key) >= LVNI_LAYER_FILE;
}

static lvn_status set_unless_given(lvni_core_config *c, const char *key, const char *text,
                                   const char *origin)
{
    return is_given(c, key) || lvni_core_config_is_mistaken(c, key)
               ? LVN_OK
               : lvni_core_config_set(c, key, text, origin);
}

/* The weight was constant then, of the mean over the batch; and every fourth column was measured.
 */
static lvn_status take_sections(lvni_core_config *c)
{
    char text[48], origin[400];
    if (lvni_core_config_is_set(c, "data.channels")) {
        snprintf(text, sizeof text, "%lld", (long long)lvni_core_config_int(c, "data.channels"));
        snprintf(origin, sizeof origin, "%s", lvni_core_config_origin(c, "data.channels"));
        LVN_TRY(set_unless_given(c, "in_chans", text, origin));
        LVN_TRY(set_unless_given(c, "out_chans", text, origin));
    }
    if (lvni_core_config_is_set(c, "train.adv_weight")) {
        lvni_core_format(text, sizeof text, "0:%.17g",
                         lvni_core_config_float(c, "train.adv_weight"));
        snprintf(origin, sizeof origin, "%s", lvni_core_config_origin(c, "train.adv_weight"));
        LVN_TRY(set_unless_given(c, "adv_schedule", text, origin));
        LVN_TRY(set_unless_given(c, "adv_reduce", "mean", origin));
    }
    return lvni_core_config_is_set(c, "num_coils")
               ? set_unless_given(c, "acceleration", "4", "sections of rcGAN")
               : LVN_OK;
}

/* ---- notes ---- */

/* Why a key without effect has none: its help, or with its value in the key of here that it would
 * be. */
static void print_reason(const lvni_core_config *c, const lvni_core_option *row, lvni_core_str *out)
{
    const char *value = lvni_core_config_str(c, row->name);
    const bool number = value[0] != '\0' && value[strspn(value, "0123456789")] == '\0';
    char now[24];
    if (strcmp(row->help, SAMPLES) == 0) {
        lvni_core_str_printf(out, "levin predict and levin eval take num_samples=%s",
                             number ? value : "N");
        return;
    }
    if (!lvni_core_config_has(c, row->help)) {
        lvni_core_str_append(out, row->help);
        return;
    }
    snprintf(now, sizeof now, "%lld", (long long)lvni_core_config_int(c, row->help));
    if (strcmp(now, value) == 0) {
        lvni_core_str_printf(out, "%s is %s by itself", row->help, now);
    } else {
        lvni_core_str_printf(out, "%s stays %s; give %s=%s", row->help, now, row->help,
                             number ? value : "N");
    }
}

/* Where batch_size of a file of the original came from, and what it is behind that. */
#define PER_DEVICE "batch_size of rcGAN, "
#define BY_KEYS "keys of rcGAN, "
#define DROPS "files of rcGAN, "
#define NO_FALL "no schedule of rcGAN, "

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
    const size_t n = original_file(c, &file);
    if (n == 0 || !lvni_core_config_is_set(c, "batch_size") ||
        lvni_core_config_layer(c, "batch_size") != LVNI_LAYER_ARGUMENTS) {
        return;
    }
    const long long size = (long long)lvni_core_config_int(c, "batch_size");
    lvni_core_str_printf(out,
                         "note: batch_size=%lld of the command line is of all devices; "
                         "batch_size_per_device=%lld is what the file's batch_size means  (%.*s)",
                         size, size, (int)n, file);
}

/* Its --resume-epoch counts from 0. */
static void print_epoch(const lvni_core_config *c, lvni_core_str *out)
{
    if (lvni_gan_has_original(c) && lvni_core_config_is_on(c, "resume") &&
        lvni_core_config_is_set(c, "resume_epoch")) {
        const long long epoch = (long long)lvni_core_config_int(c, "resume_epoch");
        lvni_core_str_printf(out,
                             "%snote: resume_epoch=%lld counts from 1, as the names of checkpoints "
                             "do: it is what rcGAN calls epoch %lld  (%s)",
                             out->len > 0 ? "\n" : "", epoch, epoch - 1,
                             lvni_core_config_origin(c, "resume_epoch"));
    }
}

/* What follows from the file being one of the original. */
static void print_meaning(const lvni_core_config *c, lvni_core_str *out)
{
    const char *kind = lvni_core_config_origin(c, "experience"),
               *drops = lvni_core_config_origin(c, "val_drop_last");
    if (strncmp(kind, BY_KEYS, sizeof BY_KEYS - 1) == 0) {
        lvni_core_str_printf(out, "%snote: experience is %s by the other keys  (%s)",
                             out->len > 0 ? "\n" : "", lvni_core_config_str(c, "experience"),
                             kind + sizeof BY_KEYS - 1);
    }
    if (lvni_core_config_choice(c, "mass_norm") == 1 && chans(c, "in_chans") == 2 &&
        lvni_core_config_layer(c, "mass_norm") == LVNI_LAYER_RESOLVED) {
        lvni_core_str_printf(out,
                             "%snote: kappa_mean and kappa_std: shear by constants and kx along "
                             "the columns, as in the branch of rcGAN whose files have them: "
                             "mass_norm is constants  (%s)",
                             out->len > 0 ? "\n" : "", lvni_core_config_origin(c, "kappa_std"));
    }
    if (strncmp(lvni_core_config_origin(c, "volumes"), DROPS, sizeof DROPS - 1) == 0) {
        lvni_core_str_printf(out,
                             "%snote: volumes are those of rcGAN, which passes over the first file "
                             "of a folder by accident and validates on 30 %% of the others: "
                             "volumes is rcgan  (%s)",
                             out->len > 0 ? "\n" : "",
                             lvni_core_config_origin(c, "volumes") + sizeof DROPS - 1);
    }
    if (strncmp(drops, DROPS, sizeof DROPS - 1) == 0) {
        lvni_core_str_printf(out,
                             "%snote: a last, short batch is left out in training and validation, "
                             "as in rcGAN: drop_last and val_drop_last are true  (%s)",
                             out->len > 0 ? "\n" : "", drops + sizeof DROPS - 1);
    }
}

/* The schedule of a file, or its numbers where that is not switched on. */
static void print_schedule(const lvni_core_config *c, lvni_core_str *out)
{
    if (lvni_core_config_choice(c, "lr_scheduler") == 0 &&
        strcmp(lvni_core_config_str(c, "scheduler.name"), "step") == 0) {
        const long long size = (long long)lvni_core_config_int(c, falls[0].key);
        lvni_core_str_printf(out, "%snote: the learning rate is multiplied by ",
                             out->len > 0 ? "\n" : "");
        lvni_core_str_double(out, lvni_core_config_float(c, falls[1].key));
        lvni_core_str_printf(out, " every %lld epoch%s, as in rcGAN: scheduler is step  (%s)", size,
                             lvni_core_plural(size, "", "s"),
                             lvni_core_config_origin(c, "lr_scheduler"));
    }
    for (int i = 0; i < FALLS; i++) {
        const char *origin = lvni_core_config_origin(c, falls[i].key);
        if (strncmp(origin, NO_FALL, sizeof NO_FALL - 1) == 0) {
            lvni_core_str_printf(out, "%snote: %s has no effect: lr_scheduler is not true  (%s)",
                                 out->len > 0 ? "\n" : "", falls[i].theirs,
                                 origin + sizeof NO_FALL - 1);
        }
    }
}

static void print_kinds(const lvni_core_config *c, lvni_core_str *out)
{
    const char *is = lvni_core_config_str(c, "experience");
    for (int i = 0; i < KINDS; i++) {
        const char *flag = kinds[i].flag, *kind = kinds[i].kind;
        if (lvni_core_config_is_on(c, flag) && is != NULL) {
            const bool same = strcmp(is, kind) == 0;
            lvni_core_str_printf(out, "%snote: %s %s experience%s%s  (%s)",
                                 out->len > 0 ? "\n" : "", flag,
                                 same ? "is" : "has no effect:", same ? "=" : " is ", is,
                                 lvni_core_config_origin(c, flag));
        }
    }
}

void lvni_gan_print_notes(const lvni_core_config *c, lvni_core_str *out)
{
    print_per_device(c, out);
    print_batch_size(c, out);
    print_meaning(c, out);
    print_epoch(c, out);
    print_kinds(c, out);
    print_schedule(c, out);
    lvni_gan_print_sections(c, out);
    for (int i = 0; i < ROWS; i++) {
        const lvni_core_option *row = &original_rows[i];
        if (row->alias_of == NULL && is_dead(row) && lvni_core_config_is_set(c, row->name) &&
            !has_section(c, row->name)) {
            lvni_core_str_printf(out, "%snote: %s has no effect: ", out->len > 0 ? "\n" : "",
                                 lvni_core_config_spelled(c, row->name));
            print_reason(c, row, out);
            lvni_core_str_printf(out, "  (%s)", lvni_core_config_origin(c, row->name));
        }
    }
}

/* ---- what a file means ---- */

static void require(lvni_core_config *c, const char *key, const char *theirs, const char *file,
                    size_t n)
{
    if (!lvni_core_config_is_mistaken(c, key) &&
        (!is_given(c, key) || !lvni_core_config_is_set(c, key))) {
        lvni_core_config_add_mistake(c, "`%s` is missing, and has no default in rcGAN  (%.*s)",
                                     theirs, (int)n, file);
    }
}

/* Whose default would quietly be another training. */
static void require_keys(lvni_core_config *c, const char *file, size_t n)
{
    static const char *const needed[][2] = {{"in_chans", "in_chans"},
                                            {"out_chans", "out_chans"},
                                            {"im_size", "im_size"},
                                            {"optim.lr", "lr"},
                                            {"max_epochs", "num_epochs"}};
    /* the sentence about a file of HDF5 has what to do about its folder, too */
    const bool hdf5 = lvni_core_config_is_mistaken(c, "experience") &&
                      lvni_core_config_is_set(c, "path_to_train_val_dataset");
    if (!hdf5 && lvni_core_config_is_set(c, "path_to_train_val_dataset") &&
        !lvni_core_config_is_set(c, "data") && !lvni_core_config_is_mistaken(c, "data")) {
        lvni_core_config_add_mistake(c,
                                     "`data_path` is missing, and path_to_train_val_dataset, maps "
                                     "in one HDF5 file, is not read: write them as .npy files into "
                                     "kappa_train and kappa_val of a folder  (%.*s)",
                                     (int)n, file);
    } else if (!hdf5) {
        require(c, "data", "data_path", file, n);
    }
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++) {
        require(c, needed[i][0], needed[i][1], file, n);
    }
    if (!lvni_core_config_is_set(c, "batch_size_per_device") &&
        !lvni_core_config_is_mistaken(c, "batch_size_per_device")) {
        require(c, "batch_size", "batch_size", file, n);
    }
    for (int i = 0; i < FALLS && lvni_core_config_choice(c, "lr_scheduler") == 0; i++) {
        require(c, falls[i].key, falls[i].theirs, file, n);
    }
}

static bool has_entry(const char *folder, const char *name)
{
    char path[4096];
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && lvni_core_path_exists(path);
}

/* What is in the folder of data shows which kind it is; else which keys there are, and then the
 * channels. NULL: nothing does. */
static const char *kind_of(const lvni_core_config *c)
{
    static const char mass[] = "mass_mapping", mri[] = "mri", radio[] = "radio";
    static const struct {
        const char *entry, *kind;
    } folders[] = {{"kappa_train", mass}, {"multicoil_train", mri}, {"train/x.npy", radio}};
    static const struct {
        const char *key, *kind;
    } keys[] = {{"sense_maps_path", mri},
                {"calib_width", mri},
                {"num_coils", mri},
                {"r", mri},
                {"num_of_top_slices", mri},
                {"cosmo_dir_path", mass},
                {"kappa_mean", mass},
                {"kappa_std", mass},
                {"ks_input", mass},
                {"gradient", radio},
                {"norm", radio}};
    const char *data = lvni_core_config_str(c, "data");
    for (size_t i = 0; data != NULL && i < sizeof folders / sizeof *folders; i++) {
        if (has_entry(data, folders[i].entry)) {
            return folders[i].kind;
        }
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (lvni_core_config_layer(c, keys[i].key) == LVNI_LAYER_FILE) {
            return keys[i].kind;
        }
    }
    const int in = chans(c, "in_chans"), out = chans(c, "out_chans");
    return (in == 2 && out == 2) || (in == 4 && (out == 1 || out == 2)) ? mass
           : (in == 3 && out == 2) || (in == 2 && out == 1)             ? radio
           : in == out && in > 4 && in % 2 == 0                         ? mri
                                                                        : NULL;
}

/* Channels beside those that in_chans counts? */
static void check_inversion(lvni_core_config *c)
{
    const char *text = lvni_core_config_str(c, "ks_input");
    const bool off = text == NULL || strcasecmp(text, "false") == 0 ||
                     strcasecmp(text, "no") == 0 || strcasecmp(text, "off") == 0 ||
                     strcmp(text, "0") == 0;
    if (!off && chans(c, "in_chans") == 2) {
        lvni_core_config_add_mistake(c,
                                     "ks_input %s with in_chans=2: the shear and its inversion by "
                                     "Kaiser and Squires are 4 channels: give in_chans=4  (%s)",
                                     text, lvni_core_config_origin(c, "ks_input"));
    }
}

static lvn_status take_kind(lvni_core_config *c, const char *file, size_t n)
{
    char origin[400];
    const char *data = lvni_core_config_str(c, "data"),
               *kind = data != NULL && strncmp(data, "builtin:", 8) == 0 ? NULL : kind_of(c);
    snprintf(origin, sizeof origin, BY_KEYS "%.*s", (int)n, file);
    return kind != NULL ? set_unless_given(c, "experience", kind, origin) : LVN_OK;
}

/* Data loaders of rcGAN leave out a last batch that is not whole, of each device. */
static lvn_status take_drops(lvni_core_config *c, const char *file, size_t n)
{
    char origin[400];
    snprintf(origin, sizeof origin, DROPS "%.*s", (int)n, file);
    LVN_TRY(set_unless_given(c, "drop_last", "true", origin));
    const char *data = lvni_core_config_str(c, "data");
    if (lvni_core_config_choice(c, "experience") == LVNI_INVERSE_MRI && data != NULL &&
        strncmp(data, "builtin:", 8) != 0) {
        LVN_TRY(set_unless_given(c, "volumes", "rcgan", origin));
    }
    return set_unless_given(c, "val_drop_last", "true", origin);
}

/* Does the run that is resumed count as many samples of a device? *batch: then that of all its
 * devices, which it keeps on any number of them. */
static lvn_status read_kept_batch(const lvni_core_config *c, int64_t per_device, int64_t *batch)
{
    const char *out = lvni_core_config_str(c, "out");
    const bool resumes = lvni_core_config_is_on(c, "resume") ||
                         (out != NULL && lvni_run_dir_is_of_attempt_before(out));
    lvni_core_config *saved = NULL;
    *batch = 0;
    if (!resumes || is_given(c, "batch_size_per_device")) {
        return LVN_OK;
    }
    const lvn_status s = lvni_gan_load_saved(c, &saved);
    if (saved != NULL && lvni_core_config_is_set(saved, "batch_size") &&
        lvni_core_config_is_set(saved, "batch_size_per_device") &&
        lvni_core_config_int(saved, "batch_size_per_device") == per_device) {
        *batch = lvni_core_config_int(saved, "batch_size");
    }
    lvni_core_config_destroy(saved);
    return s;
}

/* The number of a device; of a file with sections it was of all. */
static lvn_status take_batch_size(lvni_core_config *c, const char *file, size_t n)
{
    char text[32], origin[400];
    int64_t kept;
    if (!stands_in(c, "batch_size", file, n) || !lvni_core_config_is_set(c, "batch_size")) {
        return LVN_OK;
    }
    const int64_t size = lvni_core_config_int(c, "batch_size");
    const bool resumes =
        lvni_core_config_is_on(c, "resume"); /* else a new run, or a restarted one */
    snprintf(text, sizeof text, "%lld", (long long)size);
    snprintf(origin, sizeof origin, PER_DEVICE "%s", lvni_core_config_origin(c, "batch_size"));
    if (!resumes) {
        LVN_TRY(set_unless_given(c, "eval_batch_size", text, origin));
    }
    if (has_section(c, "batch_size")) {
        return LVN_OK;
    }
    LVN_TRY(read_kept_batch(c, size, &kept));
    if (kept > 0) {
        snprintf(text, sizeof text, "%lld", (long long)kept);
        return lvni_core_config_set(c, "batch_size", text, origin);
    }
    if (!lvni_core_config_is_set(c, "batch_size_per_device")) {
        LVN_TRY(lvni_core_config_set(c, "batch_size_per_device", text, origin));
    }
    return lvni_core_config_set(c, "batch_size", "auto", origin);
}

/* All else is in the saved configuration. */
lvn_status lvni_gan_take_resumed(lvni_core_config *c)
{
    const char *named;
    char file[400];
    const size_t n = original_file(c, &named);
    if (n == 0 || n >= sizeof file) {
        return LVN_OK;
    }
    memcpy(file, named, n);
    return take_batch_size(c, file, n);
}

lvn_status lvni_gan_take_file(lvni_core_config *c)
{
    const char *named;
    char file[400];
    const size_t n = original_file(c, &named);
    if (n == 0 || n >= sizeof file) {
        return LVN_OK;
    }
    memcpy(file, named, n); /* values that are set below have other origins */
    file[n] = '\0';
    LVN_TRY(has_section(c, NULL) ? take_sections(c) : LVN_OK);
    require_keys(c, file, n);
    check_inversion(c);
    LVN_TRY(take_kind(c, file, n));
    LVN_TRY(take_drops(c, file, n));
    return take_batch_size(c, file, n);
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
    lvni_core_format(text, sizeof text, "[%.17g,%.17g]",
                     one ? lvni_core_config_float(c, "beta_1") : 0.0,
                     two ? lvni_core_config_float(c, "beta_2") : 0.99);
    return lvni_core_config_set(c, "optim.betas", text, "beta_1, beta_2");
}

/* Without a schedule its numbers are none of the run's. */
static lvn_status leave_falls(lvni_core_config *c)
{
    char origin[400];
    for (int i = 0; i < FALLS; i++) {
        if (lvni_gan_is_of_original(c, falls[i].key)) {
            snprintf(origin, sizeof origin, NO_FALL "%s", lvni_core_config_origin(c, falls[i].key));
            LVN_TRY(lvni_core_config_set(c, falls[i].key,
                                         lvni_core_config_row(c, falls[i].key)->fallback, origin));
        }
    }
    return LVN_OK;
}

/* true: the rate of both networks falls by lr_drop_rate every lr_step_size epochs. */
static lvn_status take_schedule(lvni_core_config *c)
{
    const char *text = lvni_core_config_str(c, "lr_scheduler");
    const int on = lvni_core_config_choice(c, "lr_scheduler");
    char origin[400];
    if (text != NULL) {
        snprintf(origin, sizeof origin, "%s", lvni_core_config_origin(c, "lr_scheduler"));
        const lvn_status s = set_unless_given(c, "scheduler.name",
                                              on == 0   ? "step"
                                              : on == 1 ? "constant"
                                                        : text,
                                              origin);
        if (s == LVN_ERR_USAGE) { /* beside others */
            lvni_core_config_add_mistake(c, "%s", lvn_last_error()->message);
            lvn_clear_error();
        } else if (s != LVN_OK) {
            return s;
        }
    }
    return on != 0 && strcmp(lvni_core_config_str(c, "scheduler.name"), "constant") == 0
               ? leave_falls(c)
               : LVN_OK;
}

static lvn_status take_kinds(lvni_core_config *c)
{
    for (int i = 0; i < KINDS; i++) {
        if (lvni_core_config_is_on(c, kinds[i].flag) && !lvni_core_config_is_set(c, "experience") &&
            !lvni_core_config_is_mistaken(c, "experience")) {
            LVN_TRY(lvni_core_config_set(c, "experience", kinds[i].kind, kinds[i].flag));
        }
    }
    return LVN_OK;
}

/* The size of a batch that the recipe has by itself gives way to any other. */
static lvn_status take_size(lvni_core_config *c)
{
    return lvni_core_config_layer(c, "batch_size") == LVNI_LAYER_JOB &&
                   lvni_core_config_is_set(c, "batch_size_per_device")
               ? lvni_core_config_set(c, "batch_size", "auto", "batch_size_per_device")
               : LVN_OK;
}

lvn_status lvni_gan_take_names(lvni_core_config *c)
{
    LVN_TRY(take_out(c));
    LVN_TRY(take_size(c));
    LVN_TRY(take_schedule(c));
    LVN_TRY(take_kinds(c));
    return take_betas(c);
}
