/* levin report RUN: the page of a run, or its curves as a figure (report/run_page.h); the page of a
 * sweep (sweep/sweep_page.h). */
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "recipes/registry.h"
#include "report/page.h"
#include "report/run_page.h"
#include "run/error_record.h"
#include "run/inference.h"
#include "run/recipe.h"
#include "run/run_dir.h"
#include "sweep/sweep_page.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const size_t MOST_CONFIG = (size_t)1 << 22;

/* "KEY=VALUE" of the data that a run was trained on. */
enum { OWN = 4 };
typedef struct own_data {
    lvni_core_str argument[OWN];
    int n;
} own_data;

static void find_data(const char *config, own_data *out)
{
    static const char *const keys[OWN] = {"data", "data.count", "data.classes", "data.seed"};
    lvni_core_str value = {0};
    const bool shapes = lvni_report_config_value(config, "data", &value) &&
                        strcmp(lvni_core_str_text(&value), "builtin:shapes") == 0;
    for (int i = 0; i < (shapes ? OWN : 1); i++) {
        lvni_core_str_clear(&value);
        (void)lvni_report_config_value(config, keys[i], &value);
        lvni_core_str_printf(&out->argument[out->n++], "%s=%s", keys[i],
                             lvni_core_str_text(&value));
    }
    lvni_core_str_free(&value);
}

static void free_data(own_data *data)
{
    for (int i = 0; i < OWN; i++) {
        lvni_core_str_free(&data->argument[i]);
    }
}

/* That config.yaml names; NULL: none of levin's own, or it cannot be read. */
static lvn_status find_recipe(const char *run, const lvni_run_recipe **out, own_data *data)
{
    lvni_core_str path = {0}, name = {0};
    char *config = NULL;
    size_t n;
    lvn_status s;
    *out = NULL;
    lvni_core_str_printf(&path, "%s/config.yaml", run);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (lvni_core_path_exists(lvni_core_str_text(&path))) {
        LVNI_TRY_DONE(s,
                      lvni_core_regular_read(lvni_core_str_text(&path), MOST_CONFIG, &config, &n));
    }
    if (config != NULL && lvni_report_config_value(config, "recipe", &name)) {
        *out = lvni_recipes_find(lvni_core_str_text(&name));
    }
    if (config != NULL) {
        find_data(config, data);
    }
done:
    lvni_core_free(config);
    lvni_core_str_free(&path);
    lvni_core_str_free(&name);
    return s;
}

static const lvni_core_option rows[] = {
    {.name = "format",
     .type = LVNI_OPT_CHOICE,
     .choices = "html|png|svg",
     .fallback = "html",
     .help = "html: the page. png, svg: its curves as one figure. Not given: as output=FILE ends."},
    {.name = "output",
     .type = LVNI_OPT_PATH,
     .no_file = "-",
     .help = "The file; - prints the page. Default: report.html, report.png or report.svg in the "
             "run directory."},
};
static const lvni_core_option_table table = LVNI_OPTION_TABLE("report", rows);
const lvni_core_option_table *const lvni_cli_report_keys[] = {&table, NULL};

/* RUN, its keys, and what eval is given. */
typedef struct arguments {
    const char *run;
    lvni_core_str folder; /* of a file that was given as RUN */
    lvni_core_config *config;
    const char **eval; /* room for OWN + 1 more than the command has */
    int n_eval;
} arguments;

/* In this process alone, whatever config=FILE has: other ranks would do what eval does. leaves_out:
 * images that cannot be read, unless on_error is given. Takes `config`. */
static lvn_status measure_here(const lvni_run_recipe *recipe, const lvni_run_measurement *of,
                               bool leaves_out, lvni_core_config *config)
{
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_config_set(config, "devices", "1", "levin report"));
    LVNI_TRY_DONE(s, lvni_core_config_set(config, "strategy", "auto", "levin report"));
    if (leaves_out && lvni_core_config_layer(config, "on_error") == LVNI_LAYER_DEFAULT) {
        LVNI_TRY_DONE(s, lvni_core_config_set(config, "on_error", "skip", "levin report"));
    }
    return lvni_run_inference_run(recipe, "eval", of, config);
done:
    lvni_core_config_destroy(config);
    return s;
}

/* Is the key of this "KEY=VALUE" given? */
static bool has_key(const arguments *a, const char *argument)
{
    const size_t n = strcspn(argument, "=") + 1;
    bool found = false;
    for (int i = 0; i < a->n_eval; i++) {
        found = found || strncmp(a->eval[i], argument, n) == 0;
    }
    return found;
}

/* The model of the run measured on data=, or on its own, as sections of the page. */
static lvn_status measure(const lvni_run_recipe *recipe, const own_data *own, arguments *a,
                          lvni_core_str *sections)
{
    const lvni_run_recipe *shown = recipe == NULL ? NULL : recipe->shown;
    lvni_core_config *config;
    lvni_core_str model = {0};
    lvn_status s;
    if (recipe == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %s: its config.yaml names no recipe that can measure it: give the directory "
                 "of a run, as out/NAME",
                 a->run, a->eval[0]);
    }
    recipe = shown != NULL ? shown : recipe;
    if (recipe->page == NULL) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: %s: the page of a run of %s shows what is in its directory alone: leave the "
                 "key out%s%s%s",
                 a->run, a->eval[0], recipe->name,
                 recipe->predict != NULL ? "; what the model finds in other data is written by "
                                           "levin predict "
                                         : "",
                 recipe->predict != NULL ? recipe->name : "",
                 recipe->predict != NULL ? " model=RUN data=..." : "");
    }
    lvni_core_str_printf(&model, "model=%s", a->run);
    int n = a->n_eval;
    for (int i = 0; i < own->n && shown != NULL && !has_key(a, "data="); i++) {
        const char *one = lvni_core_str_text(&own->argument[i]);
        if (!has_key(a, one)) {
            a->eval[n++] = one;
        }
    }
    a->eval[n++] = lvni_core_str_text(&model);
    const lvni_run_measurement of = {
        .results = recipe->page, .user = sections, .n = n, .args = a->eval};
    LVNI_TRY_DONE(s, lvni_core_str_status(&model));
    LVNI_TRY_DONE(s, lvni_run_inference_read(recipe, "eval", of.n, of.args, &config));
    s = measure_here(recipe, &of, shown != NULL, config);
done:
    lvni_core_str_free(&model);
    return s;
}

/* Data that has moved, or a run without a model, must not cost the page. */
static lvn_status measure_own(const lvni_run_recipe *recipe, const own_data *own, arguments *a,
                              lvni_core_str *sections)
{
    lvn_status s = measure(recipe, own, a, sections);
    if (s != LVN_OK && s != LVN_ERR_MEMORY) {
        lvni_core_str_clear(sections);
        lvni_report_heading(sections, "Features");
        lvni_core_str_append(sections, "<p class=soft>They are missing: ");
        lvni_report_escape(sections, lvn_last_error()->message);
        lvni_core_str_append(sections, ". levin report RUN data=DIR shows those of other "
                                       "images.</p>\n");
        lvn_clear_error();
        s = lvni_core_str_status(sections);
    }
    return s;
}

static lvn_status write_page(arguments *a, const char *output)
{
    const lvni_run_recipe *recipe;
    lvni_core_str sections = {0};
    own_data own = {.n = 0};
    lvn_status s = find_recipe(a->run, &recipe, &own);
    if (s != LVN_OK && s != LVN_ERR_MEMORY && a->n_eval == 0) {
        lvn_clear_error(); /* the page has it as a warning */
        s = LVN_OK;
    }
    LVNI_TRY_DONE(s, s);
    LVNI_TRY_DONE(s, a->n_eval > 0 ? measure(recipe, &own, a, &sections)
                     : recipe != NULL && recipe->shown != NULL
                         ? measure_own(recipe, &own, a, &sections)
                         : LVN_OK);
    s = lvni_run_page_write(recipe, a->run, lvni_core_str_text(&sections), output);
done:
    lvni_core_str_free(&sections);
    free_data(&own);
    return s;
}

static lvn_status write_sweep(const arguments *a, const char *format, const char *output)
{
    lvni_core_str page = {0};
    lvn_status s;
    if (a->n_eval > 0 || strcmp(format, "html") != 0) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s is a sweep, whose page takes output=FILE.html alone, and not %s%s; that of a "
                 "trial: levin report %s/trials/000000/run",
                 a->run, a->n_eval > 0 ? "" : "format=", a->n_eval > 0 ? a->eval[0] : format,
                 a->run);
    }
    LVNI_TRY_DONE(s, lvni_sweep_page(a->run, &page));
    s = lvni_core_file_write(strcmp(output, "-") == 0 ? LVNI_STDOUT_PATH : output,
                             lvni_core_str_text(&page), page.len);
done:
    lvni_core_str_free(&page);
    return s;
}

static bool ends(const char *text, const char *with)
{
    const size_t n = strlen(text), k = strlen(with);
    return n > k + 1 && text[n - k - 1] == '.' && strcmp(text + n - k, with) == 0;
}

/* Where it is not given, that of the file. */
static const char *format_of(const arguments *a, const char *output)
{
    const char *format = lvni_core_config_str(a->config, "format");
    if (output == NULL || lvni_core_config_layer(a->config, "format") != LVNI_LAYER_DEFAULT) {
        return format;
    }
    return ends(output, "png") ? "png" : ends(output, "svg") ? "svg" : format;
}

static lvn_status write_figure(const arguments *a, const char *format, const char *output)
{
    if (a->n_eval > 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s with format=%s: predictions are on the page alone: format=html",
                 a->eval[0], format);
    }
    if (!ends(output, format)) {
        LVN_FAIL(LVN_ERR_USAGE, "output=%s with format=%s: give a file name that ends in .%s",
                 output, format, format);
    }
    return lvni_report_run_figure(a->run, output);
}

/* Keys of eval alone: what it writes, and ranks, which would print what it does. */
static bool is_of_eval_alone(const char *key)
{
    static const char *const names[] = {"devices=",   "gpus=",  "num_gpus=", "strategy=", "json=",
                                        "confusion=", "sheet=", "choose=",   "model="};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strncmp(key, names[i], strlen(names[i])) == 0) {
            return true;
        }
    }
    return false;
}

/* *taken: how many arguments the key at args[0] has; 0: it is none of `levin report`. */
static lvn_status read_key(int n, const char *const *args, lvni_core_config *config, int *taken)
{
    const char *name, *text;
    *taken = lvni_core_config_arguments_of(config, n, args, &name, &text);
    if (name == NULL) {
        *taken = 0;
    }
    return *taken == 0 ? LVN_OK : lvni_core_config_load_arguments(config, *taken, args);
}

/* RUN, the command's keys and keys of eval in any order; *good false: reported. */
static lvn_status read_arguments(int n, const char *const *args, arguments *out, bool *good)
{
    *good = true;
    for (int i = 0, taken; i<n && * good; i += taken> 0 ? taken : 1) {
        const char *a = args[i];
        LVN_TRY(read_key(n - i, args + i, out->config, &taken));
        if (taken > 0) {
            continue;
        }
        if (out->run == NULL && a[0] != '-' && a[0] != '\0' &&
            (strchr(a, '=') == NULL || access(a, F_OK) == 0)) {
            out->run = a;
        } else if (strchr(a, '=') != NULL && a[0] != '-' && !is_of_eval_alone(a)) {
            out->eval[out->n_eval++] = a;
        } else {
            lvni_core_print(stderr, "error: levin report does not take %s\n",
                            a[0] == '\0' ? "an empty path" : a);
            *good = false;
        }
    }
    if (*good && out->run == NULL) {
        fputs("error: levin report: the directory of a run is missing\n", stderr);
        *good = false;
    }
    return LVN_OK;
}

/* RUN/metrics.jsonl stands for RUN. */
static lvn_status find_folder(arguments *a)
{
    static const char *const files[] = {"metrics.jsonl", "train.log", "config.yaml", "sweep.json"};
    const char *slash = strrchr(a->run, '/'), *name = slash == NULL ? a->run : slash + 1;
    if (lvni_core_path_is_folder(a->run) || !lvni_core_path_exists(a->run)) {
        return LVN_OK;
    }
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        if (strcmp(name, files[i]) == 0) {
            const size_t n = slash == NULL || slash == a->run ? 1 : (size_t)(slash - a->run);
            lvni_core_str_append_n(&a->folder, slash == NULL ? "." : a->run, n);
            a->run = lvni_core_str_text(&a->folder);
            return lvni_core_str_status(&a->folder);
        }
    }
    LVN_FAIL(LVN_ERR_USAGE, "%s is a file: give the directory of a run, as out/NAME", a->run);
}

static lvn_status report(arguments *a)
{
    lvni_core_str beside = {0};
    const char *output = lvni_core_config_str(a->config, "output"), *format = format_of(a, output);
    lvn_status s;
    LVN_TRY(find_folder(a));
    if (output == NULL) {
        lvni_core_str_printf(&beside, "%s%sreport.%s", a->run,
                             a->run[strlen(a->run) - 1] == '/' ? "" : "/", format);
        LVNI_TRY_DONE(s, lvni_core_str_status(&beside));
        output = lvni_core_str_text(&beside);
    }
    LVNI_TRY_DONE(s, lvni_sweep_is_sweep(a->run)   ? write_sweep(a, format, output)
                     : strcmp(format, "html") == 0 ? write_page(a, output)
                                                   : write_figure(a, format, output));
    if (strcmp(output, "-") != 0) {
        lvni_core_print(stdout, "%s\n", output);
    }
done:
    lvni_core_str_free(&beside);
    return s;
}

static lvn_status read_and_report(int n, const char *const *args, arguments *a, bool *good)
{
    LVN_TRY(lvni_core_config_create(lvni_cli_report_keys, &a->config));
    LVN_TRY(read_arguments(n, args, a, good));
    return *good ? report(a) : LVN_OK;
}

int lvni_cli_cmd_report(int n, const char *const *args)
{
    bool good = true;
    arguments a = {.eval = lvni_core_calloc(LVNI_TAG_CORE, (size_t)n + OWN + 1, sizeof *a.eval)};
    const lvn_status s = a.eval == NULL ? LVN_ERR_MEMORY : read_and_report(n, args, &a, &good);
    lvni_core_config_destroy(a.config);
    lvni_core_str_free(&a.folder);
    lvni_core_free(a.eval);
    return !good         ? lvni_cli_command_misused("report")
           : s == LVN_OK ? LVNI_EXIT_OK
                         : lvni_run_report_status(s);
}
