/* Keys of the recipe gan (gan.h). Those of rcGAN's own files are among them, with their spelling
 * (gan_original.c). */
#include "recipes/gan/gan.h"

#include "core/str.h"
#include "core/vfs.h"
#include "log/run_log.h"
#include "recipes/gan/gan_control.h"
#include "run/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EXPERIENCES "mass_mapping|mri|radio" /* in the order of lvni_data_inverse_experience */

enum { SMALL = 128 }; /* pixels, below which the original's critic halves the image too often */

/* ---- the weight of the adversarial term by the epoch: "0:1e-2,5:1e-4" ---- */

/* "0:1e-2", or in the original's form "[0,1e-2]"; NULL: neither. */
static const char *parse_stair(const char *at, bool pairs, lvn_stair *out)
{
    char *end;
    if (pairs && *at++ != '[') {
        return NULL;
    }
    const long long epoch = strtoll(at, &end, 10);
    if (end == at || *end != (pairs ? ',' : ':')) {
        return NULL;
    }
    at = end + 1;
    *out = (lvn_stair){.epoch = epoch, .value = lvni_core_strtod(at, &end)};
    if (end == at || !isfinite(out->value) || (pairs && *end++ != ']')) {
        return NULL;
    }
    return end;
}

/* The stairs, or "[" stairs "]" in the original's form. */
static bool parse_schedule(const char *text, lvn_stair *out, int *n)
{
    const bool pairs = text[0] == '[';
    const char *at = text + (pairs ? 1 : 0);
    for (*n = 0; *n < LVN_MAX_STAIRS;) {
        lvn_stair *stair = &out[*n];
        at = parse_stair(at, pairs, stair);
        if (at == NULL || (*n == 0 ? stair->epoch != 0 : stair->epoch <= stair[-1].epoch)) {
            return false;
        }
        ++*n;
        if (*at != ',') {
            return strcmp(at, pairs ? "]" : "") == 0;
        }
        at += 1 + strspn(at + 1, " ");
    }
    return false;
}

static lvn_status check_schedule(const lvni_core_option *row, const lvni_core_value *value,
                                 const char *origin)
{
    lvn_stair stair[LVN_MAX_STAIRS];
    int n;
    return parse_schedule(value->text, stair, &n)
               ? LVN_OK
               : lvni_core_option_fail(row, value, origin,
                                       "expected weights by the epoch, as in 0:1e-2,5:1e-4 (or "
                                       "[[0,1e-2],[5,1e-4]]): epochs from 0 and ascending, at "
                                       "most %d",
                                       (int)LVN_MAX_STAIRS);
}

/* ---- names of builtin data ---- */

/* in the order of lvni_data_inverse_experience */
static const char *const builtins[] = {"builtin:mass", "builtin:mri", "builtin:radio"};
enum { BUILTINS = sizeof builtins / sizeof *builtins };

static bool is_named(const char *data)
{
    return strncmp(data, "builtin:", 8) == 0;
}

static bool is_known(const char *data)
{
    bool known = !is_named(data);
    for (int i = 0; i < BUILTINS && !known; i++) {
        known = strcmp(data, builtins[i]) == 0;
    }
    return known;
}

/* NULL: none is near, or there is such a folder. */
static const char *nearest_builtin(const char *data)
{
    const char *near = NULL;
    size_t best = SIZE_MAX;
    for (int i = 0; i < BUILTINS && (!is_known(data) || !lvni_core_path_exists(data)); i++) {
        const size_t d = lvni_core_edit_distance(data, builtins[i]);
        if (d > 0 && d < best && d <= lvni_core_edit_limit(data, builtins[i])) {
            best = d;
            near = builtins[i];
        }
    }
    return is_named(data) && is_known(data) ? NULL : near;
}

lvn_status lvni_gan_check_data(const lvni_core_option *row, const lvni_core_value *value,
                               const char *origin)
{
    const char *near = nearest_builtin(value->text), *did = near != NULL ? "; did you mean " : "",
               *what = near != NULL ? near : "", *end = near != NULL ? "?" : "";
    if (!is_known(value->text)) {
        return lvni_core_option_fail(
            row, value, origin,
            "builtin data are builtin:mass, builtin:mri and builtin:radio%s%s%s", did, what, end);
    }
    return near == NULL ? LVN_OK
                        : lvni_core_option_fail(row, value, origin, "there is no such folder%s%s%s",
                                                did, what, end);
}

static const lvni_core_option gan_rows[] = {
    {.name = "experience",
     .type = LVNI_OPT_CHOICE,
     .choices = EXPERIENCES,
     .flags = LVNI_OPT_AUTO,
     .help = "What is measured: mass_mapping (the shear of galaxies), mri (k-space of several "
             "coils), radio (a dirty image); auto: that of builtin data."},
    {.name = "data",
     .type = LVNI_OPT_PATH,
     .no_file = "builtin:",
     .flags = LVNI_OPT_EMPTY,
     .check = lvni_gan_check_data,
     .help = "Folder of the maps (docs/gan-data.md), or builtin:mass, builtin:mri, "
             "builtin:radio: made up, with a truth that is known."},
    LVNI_OPTION_ALIAS("data_path", "data"),
    {.name = "data.count",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .range = LVNI_AT_LEAST(1),
     .flags = LVNI_OPT_AUTO,
     .help = "Builtin data: samples to train on, and an eighth as many to validate with; auto: "
             "256."},
    {.name = "data.sigma",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_ABOVE(0),
     .flags = LVNI_OPT_AUTO,
     .help = "Deviation of the noise that is added to what is measured; auto: of the kind of "
             "data."},
    {.name = "data.mask",
     .type = LVNI_OPT_CHOICE,
     .choices = "none|random",
     .fallback = "none",
     .help = "builtin:mass: random hides a fifth of each map behind discs, as bright stars do."},
    {.name = "cosmo_dir_path",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_EMPTY,
     .help = "mass_mapping: folder with cosmos_mask.npy, cosmos_std1.npy and cosmos_std2.npy, the "
             "mask and the noise of a survey."},
    LVNI_OPTION_ALIAS("cosmos_dir_path", "cosmo_dir_path"),
    {.name = "sense_maps_path",
     .type = LVNI_OPT_PATH,
     .flags = LVNI_OPT_EMPTY,
     .help = "mri: folder of coil maps; unset: they are estimated."},
    {.name = "volumes",
     .type = LVNI_OPT_CHOICE,
     .choices = "all|rcgan",
     .fallback = "all",
     .help = "mri: volumes of a folder to train on and to validate with: all that fit, or those of "
             "rcGAN: more coils than half the channels, without the first, of validation 30 %."},
    {.name = "calib_width",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .fallback = "16",
     .range = LVNI_AT_LEAST(2),
     .help = "mri: side of the middle of k-space that coil maps are estimated from."},
    {.name = "acceleration",
     .type = LVNI_OPT_INT,
     .fallback = "8",
     .range = LVNI_AT_LEAST(1),
     .help = "mri: of so many columns of k-space one is measured."},
    {.name = "mass_norm",
     .type = LVNI_OPT_CHOICE,
     .choices = "sample|constants",
     .flags = LVNI_OPT_AUTO,
     .help = "mass_mapping of 2 channels: a sample is normalised by its own statistics, or the "
             "shear by constants and the map by kappa_mean and kappa_std, with kx along the "
             "columns; auto: constants where one of these is given."},
    {.name = "kappa_mean",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0",
     .help = "mass_mapping by constants: mean of the maps, which are normalised with it."},
    {.name = "kappa_std",
     .type = LVNI_OPT_FLOAT,
     .range = LVNI_ABOVE(0),
     .flags = LVNI_OPT_AUTO,
     .help = "The same, their deviation; auto: of builtin data."},
    {.name = "norm",
     .type = LVNI_OPT_CHOICE,
     .choices = "micro|macro|none", /* in the order of lvni_data_inverse_norm */
     .fallback = "micro",
     .help = "radio of 2 channels: images are normalised by their own statistics, those of the "
             "training set, or not at all."},
    {.name = "in_chans",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Channels of a measurement; auto: 2 of mass_mapping, 3 of radio, 16 of mri."},
    {.name = "out_chans",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Channels of a sample; auto: 2 of mass_mapping and radio, 16 of mri."},
    {.name = "im_size",
     .type = LVNI_OPT_INT,
     .unit = "pixels",
     .range = LVNI_BETWEEN(8, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Side of the square images; auto: 64 of builtin data."},
    {.name = "num_z_train",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .fallback = "2",
     .range = LVNI_BETWEEN(2, LVNI_GAN_SAMPLES),
     .help = "Samples of each measurement in a step of the generator."},
    {.name = "num_z_valid",
     .type = LVNI_OPT_INT,
     .unit = "samples",
     .fallback = "8",
     .range = LVNI_BETWEEN(2, LVNI_GAN_SAMPLES),
     .help = "The same in validation."},
    {.name = "gp_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "10",
     .range = LVNI_AT_LEAST(0),
     .help = "Weight of the critic's gradient penalty."},
    {.name = "drift_weight",
     .type = LVNI_OPT_FLOAT,
     .fallback = "0.001",
     .range = LVNI_AT_LEAST(0),
     .help = "Weight of the square of the critic's score of the truth."},
    {.name = "adv_schedule",
     .type = LVNI_OPT_STRING,
     .fallback = "0:1e-2,5:1e-4,23:1e-5",
     .check = check_schedule,
     .help =
         "Weight of the adversarial term in the generator's loss, EPOCH:WEIGHT,..., with epochs "
         "from 0."},
    {.name = "adv_reduce",
     .type = LVNI_OPT_CHOICE,
     .choices = "sum|mean",
     .fallback = "sum",
     .help = "That term is the sum over a micro-batch's samples, whose number then changes the "
             "balance of the loss, or their mean."},
    {.name = "std_mult_init",
     .type = LVNI_OPT_FLOAT,
     .fallback = "1",
     .help = "Weight of the reward for the deviation of samples, before the first validation."},
    {.name = "std_mult_step",
     .type = LVNI_OPT_FLOAT,
     .unit = "1/dB",
     .fallback = "0.02",
     .range = LVNI_AT_LEAST(0),
     .help = "By how much a validation moves it for each dB that the gain of the mean of samples "
             "over one is below its target."},
    {.name = "psnr_gain_target",
     .type = LVNI_OPT_FLOAT,
     .unit = "dB",
     .fallback = "2.5",
     .flags = LVNI_OPT_AUTO,
     .help = "That target, 2.5 for 8 samples; auto: what num_z_valid samples of the posterior "
             "have, 10 log10(2P / (P + 1))."},
    {.name = "psnr_gain_tol",
     .type = LVNI_OPT_FLOAT,
     .unit = "dB",
     .fallback = "0.25",
     .range = LVNI_AT_LEAST(0),
     .help = "A model whose gain is that near to the target is acceptable (val/is_good)."},
    {.name = "image_every_n_epochs",
     .type = LVNI_OPT_INT,
     .unit = "validations",
     .range = LVNI_BETWEEN(0, 2147483647),
     .flags = LVNI_OPT_AUTO,
     .help = "Of so many validations of the run one, the first at its start, draws the first "
             "measurement into images/; 0: none; auto: 1, of mri 5."},
    {.name = "gen_channels",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(2, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Width of the generator at the image's size; auto: 128, below 128 pixels 16."},
    {.name = "gen_levels",
     .type = LVNI_OPT_INT,
     .fallback = "4",
     .range = LVNI_BETWEEN(1, LVNI_RCGAN_LEVELS),
     .help = "How often the generator halves the image."},
    {.name = "disc_channels",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, 4096),
     .flags = LVNI_OPT_AUTO,
     .help = "Width of the critic at the image's size; auto: 32, below 128 pixels 8."},
    {.name = "disc_stages",
     .type = LVNI_OPT_INT,
     .range = LVNI_BETWEEN(1, LVNI_RCGAN_STAGES),
     .flags = LVNI_OPT_AUTO,
     .help = "How often the critic halves the image; auto: 6, below 128 pixels 4."},
    {.name = "alt_upsample",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The generator enlarges by the nearest pixel and a convolution, in place of a "
             "transposed one."},
    {.name = "unused_layers",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .help = "The generator has the residual layers, too, which the original builds and never "
             "runs."},
    {.name = "gradient",
     .type = LVNI_OPT_BOOL,
     .fallback = "false",
     .flags = LVNI_OPT_LATER,
     .help = "radio: the generator with blocks of the telescope's physics (GriGAN).",
     .later_note = "the generator with blocks of the telescope's physics, GriGAN, comes with a "
                   "later version of levin; train without it"},
};
const lvni_core_option_table lvni_gan_options = LVNI_OPTION_TABLE("gan", gan_rows);

const lvni_core_option_table *const lvni_gan_train_keys[] = {&lvni_gan_options,
                                                             &lvni_gan_original_options,
                                                             &lvni_run_options,
                                                             &lvni_run_batch_options,
                                                             &lvni_run_optim_table,
                                                             &lvni_run_loop_options,
                                                             &lvni_run_checkpoint_options,
                                                             NULL};

/* ---- what does not fit together ---- */

static bool is_builtin(const lvni_core_config *c)
{
    const char *data = lvni_core_config_str(c, "data");
    return data != NULL && is_named(data);
}

/* -1: not known. */
static int experience_of(const lvni_core_config *c)
{
    const char *data = lvni_core_config_str(c, "data");
    if (lvni_core_config_is_set(c, "experience") || data == NULL) {
        return lvni_core_config_choice(c, "experience");
    }
    for (int i = 0; i < BUILTINS; i++) {
        if (strcmp(data, builtins[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static int number(const lvni_core_config *c, const char *key, int otherwise)
{
    return lvni_core_config_is_set(c, key) ? (int)lvni_core_config_int(c, key) : otherwise;
}

static lvni_nn_rcgan_sizes sizes_of(const lvni_core_config *c)
{
    const int e = experience_of(c), size = number(c, "im_size", is_builtin(c) ? 64 : 0);
    const bool small = size < SMALL;
    return (lvni_nn_rcgan_sizes){.in_chans = number(c, "in_chans",
                                                    e == LVNI_INVERSE_MRI     ? 16
                                                    : e == LVNI_INVERSE_RADIO ? 3
                                                                              : 2),
                                 .out_chans =
                                     number(c, "out_chans", e == LVNI_INVERSE_MRI ? 16 : 2),
                                 .im_size = size,
                                 .gen_channels = number(c, "gen_channels", small ? 16 : 128),
                                 .gen_levels = (int)lvni_core_config_int(c, "gen_levels"),
                                 .disc_channels = number(c, "disc_channels", small ? 8 : 32),
                                 .disc_stages = number(c, "disc_stages", small ? 4 : 6),
                                 .alt_upsample = lvni_core_config_is_on(c, "alt_upsample"),
                                 .unused = lvni_core_config_is_on(c, "unused_layers")};
}

/* Of a run or a model that was saved? */
static bool is_saved(const lvni_core_config *c)
{
    return lvni_core_config_layer(c, "recipe") == LVNI_LAYER_SAVED;
}

/* What was saved before there was mass_norm is as it was. */
static bool by_constants(const lvni_core_config *c, const lvni_nn_rcgan_sizes *s)
{
    if (s->in_chans == 4 || lvni_core_config_is_set(c, "mass_norm")) {
        return s->in_chans == 4 || lvni_core_config_choice(c, "mass_norm") == 1;
    }
    return !is_saved(c) && (lvni_core_config_layer(c, "kappa_std") >= LVNI_LAYER_FILE ||
                            lvni_core_config_layer(c, "kappa_mean") >= LVNI_LAYER_FILE);
}

/* What the data will ask of the keys, before there are ranks or files are looked at. */
static void check_data(lvni_core_config *c)
{
    lvni_data_inverse_options o;
    lvni_data_inverse_mistakes mistakes = {.n = 0};
    if (experience_of(c) < 0 || !lvni_core_config_is_set(c, "data")) {
        return;
    }
    lvni_gan_data_options(c, LVNI_INVERSE_VAL, &o);
    /* folders of another machine: lvni_gan_resolve_folders */
    o.maps_path = lvni_gan_is_of_original(c, "sense_maps_path") ? NULL : o.maps_path;
    o.cosmo_dir = lvni_gan_is_of_original(c, "cosmo_dir_path") ? NULL : o.cosmo_dir;
    lvni_data_inverse_check(&o, &mistakes);
    if (o.in_chans == 4 && lvni_core_config_choice(c, "mass_norm") == 0) {
        lvni_core_config_add_mistake(c, "mass_norm=sample is for in_chans=2 out_chans=2  (%s)",
                                     lvni_core_config_origin(c, "mass_norm"));
    }
    for (int i = 0; i < mistakes.n; i++) {
        lvni_core_config_add_mistake(c, "%s  (%s)", mistakes.of[i].text,
                                     lvni_core_config_origin(c, mistakes.of[i].key));
    }
}

static void check_sizes(lvni_core_config *c)
{
    const lvni_nn_rcgan_sizes s = sizes_of(c);
    if (s.im_size == 0 && lvni_core_config_is_mistaken(c, "im_size")) {
        return;
    }
    if (s.im_size == 0) {
        lvni_core_config_add_mistake(c, "`im_size` is missing: the side of the images in pixels");
        return;
    }
    check_data(c);
    if (s.im_size >> s.disc_stages < 2) {
        lvni_core_config_add_mistake(
            c,
            "im_size %d: the critic halves the image %d times, and needs at least 2 pixels then: "
            "give at least %d, or fewer disc_stages  (%s)",
            s.im_size, s.disc_stages, 2 << s.disc_stages, lvni_core_config_origin(c, "im_size"));
    }
}

/* Beside other mistakes: what became of keys that are not where they were. */
static void report_sections(const lvni_core_config *c)
{
    lvni_core_str text = {0};
    if (lvni_core_config_mistakes(c) > 0) {
        lvni_gan_print_sections(c, &text);
    }
    if (text.len > 0) {
        lvni_log_line(LVNI_LOG_INFO, "%s", lvni_core_str_text(&text));
    }
    lvni_core_str_free(&text);
}

lvn_status lvni_gan_prepare(lvni_core_config *c)
{
    LVN_TRY(lvni_gan_take_names(c));
    if (lvni_core_config_is_on(c, "resume")) {
        return lvni_gan_take_resumed(c);
    }
    LVN_TRY(lvni_gan_take_file(c));
    const char *data = lvni_core_config_str(c, "data");
    if (lvni_core_config_is_mistaken(c, "data") ||
        (data != NULL && (!is_known(data) || nearest_builtin(data) != NULL))) {
        return LVN_OK; /* reported; experience and im_size may follow from it */
    }
    if (data == NULL) { /* of a file of the original it is reported */
        if (!lvni_gan_has_original(c)) {
            lvni_core_config_add_mistake(
                c, "`data` is missing: a folder of maps, or builtin:mass%s",
                lvni_core_config_is_set(c, "exp_name")
                    ? "; a file of rcGAN has it, and is given with --config FILE"
                    : "");
        }
    } else if (experience_of(c) < 0 && !lvni_core_config_is_mistaken(c, "experience")) {
        const bool colours = number(c, "in_chans", 0) == 3 && number(c, "out_chans", 0) == 3;
        lvni_core_config_add_mistake(
            c, "`experience` is missing: mass_mapping, mri or radio%s",
            colours ? "; images of 3 colours with a hole to fill are not among them" : "");
    }
    check_sizes(c);
    report_sections(c);
    return LVN_OK;
}

/* ---- settings ---- */

static lvn_status resolve(lvni_core_config *c, const char *key, int value)
{
    char text[16];
    snprintf(text, sizeof text, "%d", value);
    return lvni_core_config_is_set(c, key)
               ? LVN_OK
               : lvni_core_config_set(c, key, text, "resolved at start");
}

/* Before there was mass_norm the noise of 4 to 1 channels was sqrt(2) larger; a run that began so
 * goes on with it. */
static lvn_status resolve_mass(lvni_core_config *c, const lvni_nn_rcgan_sizes *s)
{
    char text[32];
    if (lvni_core_config_is_set(c, "mass_norm")) {
        return LVN_OK;
    }
    if (is_saved(c) && s->out_chans == 1 && !is_builtin(c) &&
        !lvni_core_config_is_set(c, "data.sigma")) {
        lvni_core_format(text, sizeof text, "%.17g", lvni_data_inverse_mass_sigma(s->im_size));
        LVN_TRY(lvni_core_config_set(c, "data.sigma", text, "as the run began"));
    }
    return lvni_core_config_set(c, "mass_norm", by_constants(c, s) ? "constants" : "sample",
                                "resolved at start");
}

static lvn_status resolve_sizes(lvni_core_config *c, const lvni_nn_rcgan_sizes *s)
{
    static const char *const experience[] = {"mass_mapping", "mri", "radio"};
    const int e = experience_of(c);
    if (e < LVNI_INVERSE_MASS || e > LVNI_INVERSE_RADIO) { /* of a saved configuration, by hand */
        LVN_FAIL(LVN_ERR_USAGE, "`experience` is missing: mass_mapping, mri or radio");
    }
    LVN_TRY(e == LVNI_INVERSE_MASS ? resolve_mass(c, s) : LVN_OK);
    LVN_TRY(resolve(c, "in_chans", s->in_chans));
    LVN_TRY(resolve(c, "out_chans", s->out_chans));
    LVN_TRY(resolve(c, "im_size", s->im_size));
    LVN_TRY(resolve(c, "gen_channels", s->gen_channels));
    LVN_TRY(resolve(c, "disc_channels", s->disc_channels));
    LVN_TRY(resolve(c, "disc_stages", s->disc_stages));
    return lvni_core_config_is_set(c, "experience")
               ? LVN_OK
               : lvni_core_config_set(c, "experience", experience[e], "resolved at start");
}

lvn_status lvni_gan_read_settings(lvni_core_config *c, lvni_gan_settings *out)
{
    const int n_valid = (int)lvni_core_config_int(c, "num_z_valid");
    *out =
        (lvni_gan_settings){.experience = (lvni_data_inverse_experience)experience_of(c),
                            .sizes = sizes_of(c),
                            .n_train = (int)lvni_core_config_int(c, "num_z_train"),
                            .n_valid = n_valid,
                            .gp_weight = lvni_core_config_float(c, "gp_weight"),
                            .drift_weight = lvni_core_config_float(c, "drift_weight"),
                            .adv_mean = strcmp(lvni_core_config_str(c, "adv_reduce"), "mean") == 0,
                            .std_mult_init = lvni_core_config_float(c, "std_mult_init"),
                            .std_mult_step = lvni_core_config_float(c, "std_mult_step"),
                            .psnr_target = lvni_core_config_is_set(c, "psnr_gain_target")
                                               ? lvni_core_config_float(c, "psnr_gain_target")
                                               : lvni_gan_gain(n_valid),
                            .psnr_tol = lvni_core_config_float(c, "psnr_gain_tol")};
    if (!parse_schedule(lvni_core_config_str(c, "adv_schedule"), out->adv, &out->n_adv)) {
        return LVN_ERR_INTERNAL; /* the row has checked it */
    }
    return resolve_sizes(c, &out->sizes);
}

void lvni_gan_data_options(const lvni_core_config *c, lvni_data_inverse_split split,
                           lvni_data_inverse_options *out)
{
    const lvni_nn_rcgan_sizes s = sizes_of(c);
    const int64_t count =
        lvni_core_config_is_set(c, "data.count") ? lvni_core_config_int(c, "data.count") : 256;
    *out = (lvni_data_inverse_options){
        .experience = (lvni_data_inverse_experience)experience_of(c),
        .path = lvni_core_config_str(c, "data"),
        .split = split,
        .im_size = s.im_size,
        .in_chans = s.in_chans,
        .out_chans = s.out_chans,
        .seed = (uint64_t)lvni_core_config_int(c, "seed"),
        .count = split == LVNI_INVERSE_TRAIN ? count : (count + 7) / 8,
        .sigma = lvni_core_config_is_set(c, "data.sigma") ? lvni_core_config_float(c, "data.sigma")
                                                          : 0.0,
        .cosmo_dir = lvni_core_config_str(c, "cosmo_dir_path"),
        .random_mask = strcmp(lvni_core_config_str(c, "data.mask"), "random") == 0,
        .by_constants = by_constants(c, &s),
        .kappa_mean = lvni_core_config_float(c, "kappa_mean"),
        .kappa_std =
            lvni_core_config_is_set(c, "kappa_std") ? lvni_core_config_float(c, "kappa_std") : 0.0,
        .acceleration = (int)lvni_core_config_int(c, "acceleration"),
        .calib_width = (int)lvni_core_config_int(c, "calib_width"),
        .maps_path = lvni_core_config_str(c, "sense_maps_path"),
        .as_rcgan = lvni_core_config_choice(c, "volumes") == 1,
        .norm = (lvni_data_inverse_norm)lvni_core_config_choice(c, "norm")};
}
