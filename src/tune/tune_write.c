/* The answer of a finder into the file of config=: its values are replaced, and all else, comments
 * included, stays as it is. */
#include "tune/tune.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t FILE_MAX = (size_t)1 << 20; /* as of a configuration */

typedef struct edit {
    const lvni_run_recipe *recipe;
    const char *path;
    char *text;
    size_t bytes;
    lvni_core_config *config; /* for the names of keys */
    const char *key;          /* that gets the number */
    int64_t number;
    bool of_device; /* though the key is batch_size */
    lvni_core_config_place place;
    lvni_core_str out;
} edit;

static lvn_status create(const lvni_run_recipe *recipe, lvni_core_config **out)
{
    lvni_tune_key_list keys;
    return lvni_core_config_create(lvni_tune_keys(recipe, &lvni_tune_size_options, &keys), out);
}

static lvn_status find(const edit *e, const char *key, lvni_core_config_place *out)
{
    return lvni_core_config_has(e->config, key)
               ? lvni_core_config_find_place(e->config, key, e->path, e->text, e->bytes, out)
               : LVN_OK;
}

/* Of a file of another program, where batch_size counts per device; in its sections, of all
 * devices. */
static lvn_status is_original(const edit *e, bool *original)
{
    const char *sign;
    lvni_core_config_place place = {0};
    *original = false;
    if (e->recipe->sign == NULL) {
        return LVN_OK;
    }
    for (int i = 0; (sign = e->recipe->sign(i)) != NULL && !*original; i++) {
        LVN_TRY(find(e, sign, &place));
        *original = place.found;
    }
    LVN_TRY(find(e, "recipe", &place));
    *original = *original && !place.found && strchr(e->place.key, '.') == NULL;
    return LVN_OK;
}

static lvn_status choose_key(edit *e, int64_t size, int world)
{
    static const char own[] = "batch_size_per_device", shared[] = "batch_size";
    e->key = own;
    e->number = size;
    LVN_TRY(find(e, own, &e->place));
    if (e->place.found) {
        return LVN_OK;
    }
    LVN_TRY(find(e, shared, &e->place));
    if (e->place.found) {
        LVN_TRY(is_original(e, &e->of_device));
        e->key = shared;
        e->number = e->of_device ? size : size * world;
    }
    return LVN_OK;
}

static lvn_status refuse(const edit *e, const char *what)
{
    char line[24] = "";
    if (e->place.found) {
        snprintf(line, sizeof line, ":%zu", e->place.line);
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "tune.write=true: %s%s: %s; without tune.write the answer is printed, and goes %s "
             "`%s` there by hand",
             e->path, line, what, e->place.found ? "behind" : "into a line", e->key);
}

static void change(edit *e)
{
    const lvni_core_config_place *p = &e->place;
    if (p->found) {
        lvni_core_str_append_n(&e->out, e->text, p->at);
        lvni_core_str_printf(&e->out, "%s%" PRId64,
                             p->at > 0 && e->text[p->at - 1] == ':' ? " " : "", e->number);
        lvni_core_str_append_n(&e->out, e->text + p->end, e->bytes - p->end);
    } else {
        lvni_core_str_append_n(&e->out, e->text, e->bytes);
        lvni_core_str_printf(&e->out, "%s%s: %" PRId64 "\n",
                             e->bytes > 0 && e->text[e->bytes - 1] != '\n' ? "\n" : "", e->key,
                             e->number);
    }
}

/* accumulate_grad_batches is a text, as it may also be a list of epochs. */
static bool is_number(const lvni_core_config *c, const char *key, int64_t number)
{
    char text[24];
    if (lvni_core_config_row(c, key)->type == LVNI_OPT_INT) {
        return lvni_core_config_int(c, key) == number;
    }
    snprintf(text, sizeof text, "%" PRId64, number);
    return strcmp(lvni_core_config_str(c, key), text) == 0;
}

/* Does a training read the number in the new text? */
static bool reads_back(const edit *e)
{
    lvni_core_config *c = NULL;
    bool good = create(e->recipe, &c) == LVN_OK &&
                lvni_core_config_load_yaml(c, LVNI_LAYER_FILE, e->path, lvni_core_str_text(&e->out),
                                           e->out.len) == LVN_OK &&
                lvni_core_config_is_set(c, e->key) && is_number(c, e->key, e->number);
    lvni_core_config_destroy(c);
    lvn_clear_error();
    return good;
}

/* The key's number, in place of the text. */
static lvn_status set_number(edit *e)
{
    if (e->place.flow) {
        return refuse(e, "it is written as JSON, in braces, and is not changed");
    }
    if (e->place.found && !e->place.plain) {
        return refuse(e, "the value is not a number on the line of its key");
    }
    lvni_core_str_clear(&e->out);
    change(e);
    LVN_TRY(lvni_core_str_status(&e->out));
    if (!reads_back(e)) {
        return refuse(e, "with the number in it, it cannot be read any more");
    }
    lvni_core_free(e->text);
    e->bytes = e->out.len;
    e->text = lvni_core_strdup(LVNI_TAG_CONFIG, lvni_core_str_text(&e->out));
    return e->text == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* As the file calls it. */
static void print_number(const edit *e, lvni_core_str *note)
{
    const bool section = e->place.found && strchr(e->place.key, '.') != NULL;
    lvni_core_str_printf(note, "%s: %" PRId64, section ? e->place.key : e->key, e->number);
}

static lvn_status make(edit *e, const lvni_tune_answer *answer, lvni_core_str *note)
{
    LVN_TRY(create(e->recipe, &e->config));
    LVN_TRY(lvni_core_file_read(e->path, FILE_MAX, &e->text, &e->bytes));
    LVN_TRY(choose_key(e, answer->size, answer->world));
    LVN_TRY(set_number(e));
    print_number(e, note);
    lvni_core_str_append(note, e->of_device ? " (of a device)" : "");
    if (answer->accumulate > 0) {
        e->key = "accumulate_grad_batches";
        e->number = answer->accumulate;
        e->place = (lvni_core_config_place){0};
        LVN_TRY(find(e, e->key, &e->place));
        LVN_TRY(set_number(e));
        lvni_core_str_append(note, ", ");
        print_number(e, note);
    }
    lvni_core_str_printf(note, " in %s", e->path);
    return lvni_core_str_status(note);
}

static void free_edit(edit *e)
{
    lvni_core_config_destroy(e->config);
    lvni_core_free(e->text);
    lvni_core_str_free(&e->out);
}

lvn_status lvni_tune_show(const lvni_run_recipe *recipe, const char *path,
                          const lvni_tune_answer *answer, lvni_core_str *note)
{
    edit e = {.recipe = recipe, .path = path};
    const lvn_status s = make(&e, answer, note);
    free_edit(&e);
    return s;
}

lvn_status lvni_tune_check_file(const lvni_run_recipe *recipe, const char *path, bool accumulates)
{
    lvni_core_str note = {0};
    const lvni_tune_answer answer = {1, 1, accumulates ? 1 : 0};
    const lvn_status s = lvni_tune_show(recipe, path, &answer, &note);
    lvni_core_str_free(&note);
    return s;
}

lvn_status lvni_tune_write(const lvni_run_recipe *recipe, const char *path,
                           const lvni_tune_answer *answer, lvni_core_str *note)
{
    edit e = {.recipe = recipe, .path = path};
    lvn_status s;
    LVNI_TRY_DONE(s, make(&e, answer, note));
    s = lvni_core_file_rewrite(path, e.text, e.bytes);
done:
    free_edit(&e);
    return s;
}
