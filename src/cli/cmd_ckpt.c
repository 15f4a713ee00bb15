/* levin ckpt COMMAND: looks at checkpoints and files of weights. The table of these commands, their
 * arguments, and what they share (ckpt.h). */
#include "cli/ckpt.h"
#include "cli/cli.h"
#include "core/alloc.h"
#include "core/error.h"
#include "core/escape.h"
#include "core/str.h"
#include "run/error_record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* levin ckpt hash FILE|RUN: two hashes of the tensors in a file; damage is reported and gives exit
 * code 1. */
static int print_hashes(const char *file, const lvni_ckpt_hashes *h)
{
    printf("weights %s\nstate %s\n", h->weights, h->state);
    for (int64_t i = 0; i < h->n_damaged; i++) {
        lvni_core_print(stderr,
                        "error: %s: the checksum of %s does not match: the file is damaged\n", file,
                        h->damaged[i]);
    }
    return h->n_damaged > 0 ? LVNI_EXIT_FAILURE : LVNI_EXIT_OK;
}

static int hash(const lvni_cli_ckpt_args *args)
{
    char *file;
    int code = LVNI_EXIT_OK;
    lvni_ckpt_hashes h;
    lvn_status s = lvni_ckpt_file_of(args->paths[0], &file);
    if (s == LVN_OK) {
        s = lvni_ckpt_hash_file(file, &h);
        if (s == LVN_OK) {
            code = print_hashes(file, &h);
            lvni_ckpt_hashes_free(&h);
        }
        lvni_core_free(file);
    }
    return s == LVN_OK ? code : lvni_run_report_status(s);
}

/* ---- shared ---- */

lvn_status lvni_cli_ckpt_open(const char *path, char **name, lvni_ckpt_st_file **file)
{
    *file = NULL;
    LVN_TRY(lvni_ckpt_file_of(path, name));
    return lvni_ckpt_st_open(*name, 0, file);
}

int64_t lvni_cli_ckpt_print_damage(const lvni_ckpt_st_file *file, const char *name)
{
    int64_t n = 0;
    if (!lvni_ckpt_st_header_ok(file)) {
        lvni_core_print(stderr,
                        "error: %s: the checksum of the header (names, types, shapes, metadata) "
                        "does not match: the file is damaged\n",
                        name);
        n++;
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        if (!lvni_ckpt_st_tensor_ok(file, i)) {
            lvni_core_print(stderr,
                            "error: %s: the checksum of %s does not match: the file is damaged\n",
                            name, lvni_ckpt_st_at(file, i)->name);
            n++;
        }
    }
    return n;
}

bool lvni_cli_ckpt_is_checkpoint(const lvni_ckpt_st_file *file)
{
    return lvni_ckpt_st_meta_get(file, LVNI_CKPT_FORMAT) != NULL;
}

int64_t lvni_cli_ckpt_count(const lvni_ckpt_st_file *file)
{
    return lvni_ckpt_st_count(file) + lvni_ckpt_st_count_others(file);
}

lvni_cli_ckpt_entry lvni_cli_ckpt_next(lvni_cli_ckpt_place *at)
{
    const lvni_ckpt_st_tensor *t = lvni_ckpt_st_at(at->file, at->tensor);
    const lvni_ckpt_st_other *o = lvni_ckpt_st_other_at(at->file, at->other);
    if (t != NULL && (o == NULL || strcmp(t->name, o->name) < 0)) {
        at->tensor++;
        return (lvni_cli_ckpt_entry){.name = t->name, .tensor = t};
    }
    at->other += o != NULL;
    return (lvni_cli_ckpt_entry){.name = o == NULL ? NULL : o->name, .other = o};
}

uint64_t lvni_cli_ckpt_bytes(const lvni_ckpt_st_file *file)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < lvni_ckpt_st_count(file); i++) {
        bytes += lvni_ckpt_st_at(file, i)->bytes;
    }
    for (int64_t i = 0; i < lvni_ckpt_st_count_others(file); i++) {
        bytes += lvni_ckpt_st_other_at(file, i)->bytes;
    }
    return bytes;
}

void lvni_cli_ckpt_json_number(lvni_core_str *s, double value)
{
    if (isfinite(value)) {
        lvni_core_str_double(s, value);
    } else {
        lvni_core_str_append(s, "null");
    }
}

lvn_status lvni_cli_ckpt_print_line(lvni_core_str *line)
{
    const lvn_status s = lvni_core_str_status(line);
    if (s == LVN_OK) {
        puts(lvni_core_str_text(line));
    }
    lvni_core_str_free(line);
    return s;
}

/* ---- the table ---- */

typedef struct row {
    const char *name;
    int (*run)(const lvni_cli_ckpt_args *args);
    int least, most; /* paths; most 0: any number */
    bool json, out;  /* takes this key; out= must be given */
    bool key;        /* takes weights.key= */
} row;

static const row rows[] = {
    {.name = "verify", .run = lvni_cli_ckpt_verify, .least = 1, .json = true},
    {.name = "show", .run = lvni_cli_ckpt_show, .least = 1, .most = 1, .json = true},
    {.name = "diff", .run = lvni_cli_ckpt_diff, .least = 2, .most = 2, .json = true},
    {.name = "average", .run = lvni_cli_ckpt_average, .least = 2, .out = true},
    {.name = "convert", .run = lvni_cli_ckpt_convert, .least = 2, .most = 2, .key = true},
    {.name = "hash", .run = hash, .least = 1, .most = 1},
};

static const row *find(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (strcmp(name, rows[i].name) == 0) {
            return &rows[i];
        }
    }
    return NULL;
}

/* The value of key=value or --key=value, "" of a bare --key; NULL: another argument. */
static const char *value_of(const char *arg, const char *key)
{
    const bool dashes = strncmp(arg, "--", 2) == 0;
    const char *name = arg + (dashes ? 2 : 0);
    const size_t n = strlen(key);
    if (strncmp(name, key, n) != 0) {
        return NULL;
    }
    return name[n] == '=' ? name + n + 1 : dashes && name[n] == '\0' ? name + n : NULL;
}

/* 1 and 0; -1: neither. */
static int read_switch(const char *text)
{
    static const char *const on[] = {"", "true", "yes", "on", "1"};
    static const char *const off[] = {"false", "no", "off", "0"};
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        if (strcasecmp(text, on[i]) == 0) {
            return 1;
        }
    }
    for (size_t i = 0; i < sizeof off / sizeof *off; i++) {
        if (strcasecmp(text, off[i]) == 0) {
            return 0;
        }
    }
    return -1;
}

/* One argument; false: reported. paths has room for all. */
static bool take(const row *r, const char *arg, const char **paths, lvni_cli_ckpt_args *out)
{
    const char *json = r->json ? value_of(arg, "json") : NULL;
    const char *file = r->out ? value_of(arg, "out") : NULL;
    const char *key = r->key ? value_of(arg, "weights.key") : NULL;
    if (json != NULL) {
        const int on = read_switch(json);
        out->json = on == 1;
        if (on < 0) {
            lvni_core_print(stderr, "error: json `%s`: expected true or false\n", json);
        }
        return on >= 0;
    }
    if (file != NULL) {
        out->out = file;
        return true;
    }
    if (key != NULL && key[0] != '\0') {
        out->key = key;
        return true;
    }
    /* A path may hold '=': behind a '/', or where such a file is there. */
    if (arg[0] == '-' || arg[0] == '\0' ||
        (arg[strcspn(arg, "=/")] == '=' && access(arg, F_OK) != 0)) {
        lvni_core_print(stderr,
                        "error: levin ckpt %s does not take %s%s; `levin help ckpt` lists what it "
                        "takes\n",
                        r->name, arg[0] == '\0' ? "an empty path" : arg,
                        arg[0] == '\0' || arg[0] == '-' ? "" : " (a file of this name: ./...)");
        return false;
    }
    paths[out->n_paths++] = arg;
    return true;
}

static bool check_count(const row *r, const lvni_cli_ckpt_args *args)
{
    const int n = args->n_paths;
    if (n < r->least || (r->most > 0 && n > r->most)) {
        fprintf(stderr, "error: levin ckpt %s: %d path%s given, it takes %s%d\n", r->name, n,
                lvni_core_plural(n, "", "s"), r->least == r->most ? "" : "at least ", r->least);
        return false;
    }
    if (r->out && (args->out == NULL || args->out[0] == '\0')) {
        fprintf(stderr, "error: levin ckpt %s: out=FILE is missing: where the result goes\n",
                r->name);
        return false;
    }
    return true;
}

static int run_row(const row *r, int n, const char *const *args, const char **paths)
{
    lvni_cli_ckpt_args out = {.paths = paths};
    for (int i = 0; i < n; i++) {
        if (!take(r, args[i], paths, &out)) {
            return LVNI_EXIT_USAGE;
        }
    }
    return check_count(r, &out) ? r->run(&out) : lvni_cli_command_misused("ckpt");
}

static void print_no_row(const char *name)
{
    const char *near = NULL;
    size_t nearest = SIZE_MAX;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const size_t d = lvni_core_edit_distance(name, rows[i].name);
        if (d <= lvni_core_edit_limit(name, rows[i].name) && d < nearest) {
            near = rows[i].name;
            nearest = d;
        }
    }
    lvni_core_print(stderr, "error: there is no levin ckpt %s%s%s%s\n", name,
                    near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                    near != NULL ? "?" : "");
}

int lvni_cli_cmd_ckpt(int n, const char *const *args)
{
    const row *r = n > 0 ? find(args[0]) : NULL;
    if (r == NULL) {
        if (n > 0) {
            print_no_row(args[0]);
        }
        return lvni_cli_command_misused("ckpt");
    }
    const char **paths = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)n, sizeof *paths);
    if (paths == NULL) {
        return lvni_run_report_status(LVN_ERR_MEMORY);
    }
    const int code = run_row(r, n - 1, args + 1, paths);
    lvni_core_free(paths);
    return code;
}
