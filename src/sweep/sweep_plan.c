/* The plan of a sweep on disk (sweep_plan.h): its two kinds of files, and the command of a trial.
 */
#include "sweep/sweep_plan.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/json_read.h"
#include "core/vfs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char format[] = "levin sweep 1";
enum { FILE_MOST = 64 << 20, FILES_MODE = 0666, FOLDERS_MODE = 0777 };

/* ---- lists of texts ---- */

int64_t lvni_sweep_texts_count(char *const *texts)
{
    int64_t n = 0;
    while (texts != NULL && texts[n] != NULL) {
        n++;
    }
    return n;
}

void lvni_sweep_texts_free(char **texts)
{
    for (int64_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        lvni_core_free(texts[i]);
    }
    lvni_core_free(texts);
}

/* Room doubles: it is full where the number is a power of two. */
lvn_status lvni_sweep_texts_add(char ***texts, const char *text, size_t n)
{
    const size_t count = (size_t)lvni_sweep_texts_count(*texts);
    if (*texts == NULL || (count & (count + 1)) == 0) {
        char **more = lvni_core_realloc(LVNI_TAG_CONFIG, *texts, (2 * count + 2) * sizeof **texts);
        if (more == NULL) {
            return LVN_ERR_MEMORY;
        }
        more[count] = NULL;
        *texts = more;
    }
    char *copy = lvni_core_alloc(LVNI_TAG_CONFIG, n + 1);
    if (copy == NULL) {
        return LVN_ERR_MEMORY;
    }
    memcpy(copy, text, n);
    copy[n] = '\0';
    (*texts)[count] = copy;
    (*texts)[count + 1] = NULL;
    return LVN_OK;
}

static lvn_status copy_text(char **out, const char *text)
{
    *out = lvni_core_strdup(LVNI_TAG_CONFIG, text);
    return *out == NULL ? LVN_ERR_MEMORY : LVN_OK;
}

/* ---- paths ---- */

static void trial_path(const lvni_sweep_plan *plan, int64_t index, const char *file,
                       lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/trials/%06lld%s%s", plan->dir, (long long)index,
                         file[0] != '\0' ? "/" : "", file);
}

static void plan_path(const lvni_sweep_plan *plan, lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s/sweep.json", plan->dir);
}

/* ---- reading ---- */

static lvn_status corrupt(const char *path, const char *what)
{
    LVN_FAIL(LVN_ERR_CORRUPT, "%s: %s; it is not a file that levin sweep plan has written", path,
             what);
}

/* The whole file as an object, the caller's. */
static lvn_status read_object(const char *path, json_t **out)
{
    char *text = NULL;
    size_t bytes;
    LVN_TRY(lvni_core_regular_read(path, FILE_MOST, &text, &bytes));
    if (bytes == 0) {
        lvni_core_free(text);
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: it is empty, as after a power cut: remove sweep.json and plan the sweep "
                 "again, which gives the same trials",
                 path);
    }
    lvn_status s = lvni_core_json_read(path, "the file", text, bytes, JSON_REJECT_DUPLICATES,
                                       LVNI_JSON_FILE, out);
    lvni_core_free(text);
    if (s == LVN_OK && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
        s = corrupt(path, "not an object");
    }
    return s;
}

static lvn_status get_text(const char *path, const json_t *j, const char *key, char **out)
{
    const char *text = json_string_value(json_object_get(j, key));
    return text == NULL ? corrupt(path, key) : copy_text(out, text);
}

static lvn_status get_number(const char *path, const json_t *j, const char *key, int64_t most,
                             int64_t *out)
{
    const json_t *value = json_object_get(j, key);
    *out = json_integer_value(value);
    return !json_is_integer(value) || *out < 0 || *out > most ? corrupt(path, key) : LVN_OK;
}

/* A list of texts; with `pairs` of lists of two of them, one after the other. */
static lvn_status get_texts(const char *path, const char *key, const json_t *list, bool pairs,
                            char ***out)
{
    if (!json_is_array(list)) {
        return corrupt(path, key);
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        const char *text = json_string_value(one);
        if (pairs) {
            if (json_array_size(one) != 2) {
                return corrupt(path, key);
            }
            LVN_TRY(get_texts(path, key, one, false, out));
        } else if (text == NULL) {
            return corrupt(path, key);
        } else {
            LVN_TRY(lvni_sweep_texts_add(out, text, strlen(text)));
        }
    }
    return LVN_OK;
}

static const char *const style_names[] = {"keys", "dashes", "equals"};

static lvn_status get_words(const char *path, const json_t *j, lvni_sweep_plan *out)
{
    const char *found = json_string_value(json_object_get(j, "format")),
               *style = json_string_value(json_object_get(j, "style")),
               *mode = json_string_value(json_object_get(j, "mode"));
    if (found == NULL || strcmp(found, format) != 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: its format is `%.40s`, and this levin reads `%s`", path,
                 found != NULL ? found : "", format);
    }
    if (mode == NULL || (strcmp(mode, "min") != 0 && strcmp(mode, "max") != 0)) {
        return corrupt(path, "mode");
    }
    out->maximize = strcmp(mode, "max") == 0;
    for (int i = 0; i < 3; i++) {
        if (style != NULL && strcmp(style, style_names[i]) == 0) {
            out->style = (lvni_sweep_style)i;
            return LVN_OK;
        }
    }
    return corrupt(path, "style");
}

static lvn_status get_asha(const char *path, const json_t *j, lvni_sweep_plan *out)
{
    if (!lvni_sweep_plan_prunes(out)) {
        return LVN_OK;
    }
    const json_t *asha = json_object_get(j, "asha");
    LVN_TRY(get_number(path, asha, "eta", LVNI_SWEEP_MOST_EPOCHS, &out->asha.eta));
    LVN_TRY(get_number(path, asha, "min", LVNI_SWEEP_MOST_EPOCHS, &out->asha.min));
    LVN_TRY(get_number(path, asha, "max", LVNI_SWEEP_MOST_EPOCHS, &out->asha.max));
    return out->asha.eta < 2 || out->asha.min < 1 ? corrupt(path, "asha") : LVN_OK;
}

static lvn_status get_plan(const char *path, const json_t *j, lvni_sweep_plan *out)
{
    int64_t seed;
    LVN_TRY(get_words(path, j, out));
    LVN_TRY(get_text(path, j, "name", &out->name));
    LVN_TRY(get_text(path, j, "strategy", &out->strategy));
    LVN_TRY(get_text(path, j, "metric", &out->metric));
    LVN_TRY(get_number(path, j, "seed", INT64_MAX, &seed));
    out->seed = (uint64_t)seed;
    LVN_TRY(get_number(path, j, "trials", LVNI_SWEEP_MOST_TRIALS, &out->n_trials));
    LVN_TRY(get_number(path, j, "most", LVNI_SWEEP_MOST_TRIALS, &out->most));
    LVN_TRY(get_number(path, j, "dead_after", INT32_MAX, &out->dead_after_s));
    LVN_TRY(
        get_texts(path, "parameters", json_object_get(j, "parameters"), false, &out->parameters));
    LVN_TRY(get_texts(path, "command", json_object_get(j, "command"), false, &out->command));
    LVN_TRY(get_texts(path, "space", json_object_get(j, "space"), true, &out->space));
    LVN_TRY(get_asha(path, j, out));
    out->training = json_is_true(json_object_get(j, "training"));
    return lvni_sweep_texts_count(out->command) == 0 ? corrupt(path, "command") : LVN_OK;
}

bool lvni_sweep_plan_prunes(const lvni_sweep_plan *plan)
{
    return strcmp(plan->strategy, "asha") == 0;
}

bool lvni_sweep_plan_asks(const lvni_sweep_plan *plan)
{
    return strncmp(plan->strategy, "exec:", 5) == 0;
}

lvn_status lvni_sweep_plan_count(lvni_sweep_plan *plan)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    for (bool there = true; there && s == LVN_OK; plan->n_trials += there ? 1 : 0) {
        lvni_core_str_clear(&path);
        trial_path(plan, plan->n_trials, "trial.json", &path);
        s = lvni_core_str_status(&path);
        there = s == LVN_OK && plan->n_trials < LVNI_SWEEP_MOST_TRIALS &&
                lvni_core_path_exists(lvni_core_str_text(&path));
    }
    lvni_core_str_free(&path);
    return s;
}

static lvn_status set_dir(lvni_sweep_plan *plan, const char *dir)
{
    size_t n = strlen(dir);
    LVN_TRY(copy_text(&plan->dir, n > 0 ? dir : "."));
    while (n > 1 && plan->dir[n - 1] == '/') {
        plan->dir[--n] = '\0';
    }
    return LVN_OK;
}

lvn_status lvni_sweep_plan_read(const char *dir, lvni_sweep_plan *out)
{
    lvni_core_str path = {0};
    json_t *j = NULL;
    lvn_status s;
    *out = (lvni_sweep_plan){.dir = NULL};
    LVNI_TRY_DONE(s, set_dir(out, dir));
    plan_path(out, &path);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    if (!lvni_core_path_exists(lvni_core_str_text(&path))) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "%s: %s; levin sweep plan and levin sweep train make a sweep's folder",
                          lvni_core_str_text(&path),
                          lvni_core_path_is_folder(out->dir) ? "the folder has no plan of a sweep"
                                                             : "there is not such a folder");
        goto done;
    }
    LVNI_TRY_DONE(s, read_object(lvni_core_str_text(&path), &j));
    LVNI_TRY_DONE(s, get_plan(lvni_core_str_text(&path), j, out));
    s = lvni_sweep_plan_asks(out) ? lvni_sweep_plan_count(out) : LVN_OK;
done:
    json_decref(j);
    lvni_core_str_free(&path);
    if (s != LVN_OK) {
        lvni_sweep_plan_free(out);
    }
    return s;
}

void lvni_sweep_plan_free(lvni_sweep_plan *plan)
{
    lvni_core_free(plan->dir);
    lvni_core_free(plan->name);
    lvni_core_free(plan->strategy);
    lvni_core_free(plan->metric);
    lvni_sweep_texts_free(plan->parameters);
    lvni_sweep_texts_free(plan->command);
    lvni_sweep_texts_free(plan->space);
    *plan = (lvni_sweep_plan){.dir = NULL};
}

/* ---- a trial ---- */

static lvn_status get_parameters(const char *path, json_t *j, lvni_sweep_trial *out)
{
    json_t *all = json_object_get(j, "parameters");
    const json_t *index = json_object_get(j, "trial");
    if (!json_is_integer(index) || json_integer_value(index) != out->index) {
        return corrupt(path, "trial is not the folder's number");
    }
    if (!json_is_object(all)) {
        return corrupt(path, "parameters");
    }
    for (void *at = json_object_iter(all); at != NULL; at = json_object_iter_next(all, at)) {
        const char *name = json_object_iter_key(at),
                   *value = json_string_value(json_object_iter_value(at));
        if (value == NULL) {
            return corrupt(path, name);
        }
        LVN_TRY(lvni_sweep_texts_add(&out->names, name, strlen(name)));
        LVN_TRY(lvni_sweep_texts_add(&out->values, value, strlen(value)));
    }
    return LVN_OK;
}

lvn_status lvni_sweep_trial_read(const lvni_sweep_plan *plan, int64_t index, lvni_sweep_trial *out)
{
    lvni_core_str path = {0}, dir = {0};
    json_t *j = NULL;
    lvn_status s;
    *out = (lvni_sweep_trial){.index = index};
    trial_path(plan, index, "trial.json", &path);
    trial_path(plan, index, "", &dir);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&dir));
    out->dir = lvni_core_str_take(&dir);
    LVNI_TRY_DONE(s, read_object(lvni_core_str_text(&path), &j));
    LVNI_TRY_DONE(s, get_parameters(lvni_core_str_text(&path), j, out));
    s = lvni_sweep_trial_command(plan, out);
done:
    json_decref(j);
    lvni_core_str_free(&path);
    lvni_core_str_free(&dir);
    if (s != LVN_OK) {
        lvni_sweep_trial_free(out);
    }
    return s;
}

void lvni_sweep_trial_free(lvni_sweep_trial *trial)
{
    lvni_core_free(trial->dir);
    lvni_sweep_texts_free(trial->names);
    lvni_sweep_texts_free(trial->values);
    lvni_sweep_texts_free(trial->argv);
    *trial = (lvni_sweep_trial){.dir = NULL};
}

/* ---- the command of a trial ---- */

/* What replaces names in its words. */
typedef struct words {
    const lvni_sweep_plan *plan;
    const lvni_sweep_trial *trial;
    char run[4096], index[24], seed[24];
    bool *used; /* of the trial's parameters */
} words;

static bool is_name(const char *a, size_t n, const char *name)
{
    return strlen(name) == n && memcmp(a, name, n) == 0;
}

/* What stands for the n bytes between braces. "" with *absent: a parameter that this trial does not
 * have; NULL: none of these. */
static const char *value_of(const words *w, const char *name, size_t n, bool *absent)
{
    const lvni_sweep_trial *t = w->trial;
    for (int64_t i = 0; t->names != NULL && t->names[i] != NULL; i++) {
        if (is_name(name, n, t->names[i])) {
            w->used[i] = true;
            return t->values[i];
        }
    }
    for (char *const *p = w->plan->parameters; p != NULL && *p != NULL; p++) {
        if (is_name(name, n, *p)) {
            *absent = true;
            return "";
        }
    }
    return is_name(name, n, "trial")       ? w->index
           : is_name(name, n, "trial_dir") ? w->run
           : is_name(name, n, "seed")      ? w->seed
                                           : NULL;
}

/* `{name}` becomes its value, `{{name}}` is `{name}`; other braces stay, and those of a shell's
 * ${name}. A word without blanks, one of whose parameters this trial does not have, is left out. */
static lvn_status add_word(const words *w, const char *word, char ***argv)
{
    lvni_core_str out = {0};
    bool absent = false;
    for (const char *p = word; *p != '\0';) {
        const bool twice = p[0] == '{' && p[1] == '{';
        const char *name = p + (twice ? 2 : 1);
        const size_t n = p[0] == '{' ? strcspn(name, "{}") : 0;
        const bool closed = n > 0 && name[n] == '}' && (!twice || name[n + 1] == '}');
        bool gone = false;
        const char *value =
            closed && (p == word || p[-1] != '$') ? value_of(w, name, n, &gone) : NULL;
        if (value == NULL) {
            lvni_core_str_char(&out, *p++);
            continue;
        }
        if (twice) {
            lvni_core_str_append_n(&out, name - 1, n + 2);
        } else {
            lvni_core_str_append(&out, value);
            absent = absent || gone;
        }
        p = name + n + (twice ? 2 : 1);
    }
    lvn_status s = lvni_core_str_status(&out);
    if (s == LVN_OK && (!absent || word[strcspn(word, " \t\n")] != '\0')) {
        s = lvni_sweep_texts_add(argv, lvni_core_str_text(&out), out.len);
    }
    lvni_core_str_free(&out);
    return s;
}

static lvn_status add_parameter(const lvni_sweep_plan *plan, const char *name, const char *value,
                                char ***argv)
{
    lvni_core_str out = {0};
    const bool dashes = plan->style == LVNI_SWEEP_DASHES;
    lvni_core_str_printf(&out, "%s%s", plan->style == LVNI_SWEEP_KEYS ? "" : "--", name);
    if (!dashes) {
        lvni_core_str_printf(&out, "=%s", value);
    }
    lvn_status s = lvni_core_str_status(&out);
    if (s == LVN_OK) {
        s = lvni_sweep_texts_add(argv, lvni_core_str_text(&out), out.len);
    }
    if (s == LVN_OK && dashes) {
        s = lvni_sweep_texts_add(argv, value, strlen(value));
    }
    lvni_core_str_free(&out);
    return s;
}

static lvn_status make_words(words *w)
{
    lvni_core_str path = {0};
    lvni_core_path_absolute(w->trial->dir, &path);
    lvni_core_str_append(&path, "/run");
    const lvn_status s = lvni_core_str_status(&path);
    const bool fits = path.len < sizeof w->run;
    memcpy(w->run, lvni_core_str_text(&path), fits ? path.len + 1 : 1);
    lvni_core_str_free(&path);
    if (s == LVN_OK && !fits) {
        LVN_FAIL(LVN_ERR_USAGE, "%.200s...: the path of a trial is longer than %d bytes",
                 w->trial->dir, (int)sizeof w->run - 1);
    }
    lvni_core_format(w->index, sizeof w->index, "%lld", (long long)w->trial->index);
    lvni_core_format(w->seed, sizeof w->seed, "%llu", (unsigned long long)w->plan->seed);
    return s;
}

lvn_status lvni_sweep_trial_command(const lvni_sweep_plan *plan, lvni_sweep_trial *trial)
{
    words w = {.plan = plan, .trial = trial};
    char **argv = NULL;
    lvn_status s;
    w.used = lvni_core_calloc(LVNI_TAG_CONFIG, (size_t)lvni_sweep_texts_count(trial->names) + 1,
                              sizeof *w.used);
    LVNI_TRY_DONE(s, w.used == NULL ? LVN_ERR_MEMORY : make_words(&w));
    for (int64_t i = 0; plan->command[i] != NULL; i++) {
        LVNI_TRY_DONE(s, add_word(&w, plan->command[i], &argv));
    }
    for (int64_t i = 0; trial->names != NULL && trial->names[i] != NULL; i++) {
        LVNI_TRY_DONE(s, w.used[i] ? LVN_OK
                                   : add_parameter(plan, trial->names[i], trial->values[i], &argv));
    }
    s = plan->training
            ? add_parameter(&(lvni_sweep_plan){.style = LVNI_SWEEP_KEYS}, "out", w.run, &argv)
            : LVN_OK;
done:
    lvni_core_free(w.used);
    if (s != LVN_OK) {
        lvni_sweep_texts_free(argv);
        return s;
    }
    trial->argv = argv;
    return LVN_OK;
}

/* ---- writing ---- */

static void texts_json(char *const *texts, lvni_core_str *out)
{
    lvni_core_str_char(out, '[');
    for (int64_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        lvni_core_str_append(out, i > 0 ? ", " : "");
        lvni_core_str_json(out, texts[i]);
    }
    lvni_core_str_char(out, ']');
}

static void pairs_json(char *const *texts, lvni_core_str *out)
{
    lvni_core_str_char(out, '[');
    for (int64_t i = 0; texts != NULL && texts[i] != NULL; i += 2) {
        lvni_core_str_append(out, i > 0 ? ", [" : "[");
        lvni_core_str_json(out, texts[i]);
        lvni_core_str_append(out, ", ");
        lvni_core_str_json(out, texts[i + 1]);
        lvni_core_str_char(out, ']');
    }
    lvni_core_str_char(out, ']');
}

static void text_json(const char *key, const char *text, lvni_core_str *out)
{
    lvni_core_str_printf(out, "  \"%s\": ", key);
    lvni_core_str_json(out, text);
    lvni_core_str_append(out, ",\n");
}

static void plan_json(const lvni_sweep_plan *plan, int64_t n_trials, lvni_core_str *out)
{
    lvni_core_str_append(out, "{\n");
    text_json("format", format, out);
    text_json("name", plan->name, out);
    text_json("strategy", plan->strategy, out);
    lvni_core_str_printf(out, "  \"seed\": %llu,\n  \"trials\": %lld,\n  \"most\": %lld,\n",
                         (unsigned long long)plan->seed, (long long)n_trials,
                         (long long)plan->most);
    if (lvni_sweep_plan_prunes(plan)) {
        lvni_core_str_printf(out, "  \"asha\": {\"eta\": %lld, \"min\": %lld, \"max\": %lld},\n",
                             (long long)plan->asha.eta, (long long)plan->asha.min,
                             (long long)plan->asha.max);
    }
    lvni_core_str_append(out, "  \"parameters\": ");
    texts_json(plan->parameters, out);
    lvni_core_str_append(out, ",\n  \"command\": ");
    texts_json(plan->command, out);
    lvni_core_str_append(out, ",\n");
    text_json("style", style_names[plan->style], out);
    lvni_core_str_printf(out, "  \"training\": %s,\n", plan->training ? "true" : "false");
    text_json("metric", plan->metric, out);
    text_json("mode", plan->maximize ? "max" : "min", out);
    lvni_core_str_printf(out,
                         "  \"dead_after\": %lld,\n  \"space\": ", (long long)plan->dead_after_s);
    pairs_json(plan->space, out);
    lvni_core_str_append(out, "\n}\n");
}

static void trial_json(int64_t index, char *const *names, char *const *values, int64_t n,
                       lvni_core_str *out)
{
    bool first = true;
    lvni_core_str_printf(out, "{\"trial\": %lld, \"parameters\": {", (long long)index);
    for (int64_t k = 0; k < n; k++) {
        if (values[k] != NULL) {
            lvni_core_str_append(out, first ? "" : ", ");
            lvni_core_str_json(out, names[k]);
            lvni_core_str_append(out, ": ");
            lvni_core_str_json(out, values[k]);
            first = false;
        }
    }
    lvni_core_str_append(out, "}}\n");
}

static lvn_status io_error(const char *path, const char *what)
{
    LVN_FAIL(LVN_ERR_IO, "%s: %s: %s", path, what, strerror(errno));
}

/* Not synced: thousands of them would take minutes. A power cut within seconds can leave empty
 * ones, which read_object reports; planned again, they are the same. */
static lvn_status write_unsynced(const char *path, const lvni_core_str *text)
{
    const lvni_core_vfs *v = lvni_core_vfs_get();
    const int fd = v->open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, FILES_MODE);
    if (fd < 0) {
        return io_error(path, "cannot be made");
    }
    lvn_status s = LVN_OK;
    for (size_t at = 0; s == LVN_OK && at < text->len;) {
        const ssize_t n = v->write(fd, text->data + at, text->len - at);
        if (n < 0 && errno != EINTR) {
            s = io_error(path, "cannot be written");
        }
        at += n > 0 ? (size_t)n : 0;
    }
    if (v->close(fd) != 0 && s == LVN_OK) {
        s = io_error(path, "cannot be written");
    }
    return s;
}

static lvn_status make_folder(const char *path)
{
    if (lvni_core_vfs_get()->mkdir(path, FOLDERS_MODE) != 0 && errno != EEXIST) {
        return io_error(path, "the folder cannot be made");
    }
    return LVN_OK;
}

/* The rest of a plan that was killed: a number beyond those that were planned means nothing, but
 * strategy exec would count it. */
static lvn_status remove_rest(const lvni_sweep_plan *plan, int64_t from)
{
    lvni_core_str path = {0};
    lvn_status s = LVN_OK;
    for (bool there = true; there && s == LVN_OK; from++) {
        lvni_core_str_clear(&path);
        trial_path(plan, from, "trial.json", &path);
        s = lvni_core_str_status(&path);
        there = s == LVN_OK && lvni_core_path_exists(lvni_core_str_text(&path));
        s = there ? lvni_core_file_remove(lvni_core_str_text(&path)) : s;
    }
    lvni_core_str_free(&path);
    return s;
}

static lvn_status write_points(const lvni_sweep_plan *plan, const lvni_sweep_points *points)
{
    lvni_core_str path = {0}, text = {0};
    lvn_status s = LVN_OK;
    for (int64_t i = 0; i < points->n; i++) {
        const int64_t index = plan->n_trials + i;
        lvni_core_str_clear(&path);
        lvni_core_str_clear(&text);
        trial_path(plan, index, "", &path);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        LVNI_TRY_DONE(s, make_folder(lvni_core_str_text(&path)));
        lvni_core_str_append(&path, "/trial.json");
        trial_json(index, plan->parameters, points->values + i * points->n_parameters,
                   points->n_parameters, &text);
        LVNI_TRY_DONE(s, lvni_core_str_status(&path));
        LVNI_TRY_DONE(s, lvni_core_str_status(&text));
        LVNI_TRY_DONE(s, write_unsynced(lvni_core_str_text(&path), &text));
    }
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return s;
}

lvn_status lvni_sweep_plan_write(lvni_sweep_plan *plan, const lvni_sweep_points *points)
{
    lvni_core_str path = {0}, text = {0};
    lvn_status s;
    lvni_core_str_printf(&path, "%s/trials", plan->dir);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_mkdirs(lvni_core_str_text(&path)));
    LVNI_TRY_DONE(s, write_points(plan, points));
    LVNI_TRY_DONE(s, remove_rest(plan, plan->n_trials + points->n));
    lvni_core_str_clear(&path);
    plan_path(plan, &path);
    plan_json(plan, plan->n_trials + points->n, &text);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, lvni_core_file_write(lvni_core_str_text(&path), text.data, text.len));
    plan->n_trials += points->n;
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return s;
}

/* Written under a name of this process, then linked, so that it is whole where it is. */
static lvn_status link_trial(const char *path, const lvni_core_str *text, bool *taken)
{
    char host[65] = "";
    lvni_core_str own = {0};
    (void)gethostname(host, sizeof host - 1);
    lvni_core_str_printf(&own, "%s.%s.%lld", path, host, (long long)getpid());
    lvn_status s = lvni_core_str_status(&own);
    if (s == LVN_OK) {
        s = lvni_core_file_write(lvni_core_str_text(&own), text->data, text->len);
    }
    if (s == LVN_OK) {
        *taken = lvni_core_vfs_get()->link(lvni_core_str_text(&own), path) != 0;
        if (*taken && errno != EEXIST) {
            s = io_error(path, "cannot be linked");
        }
        const lvn_status removed = lvni_core_file_remove(lvni_core_str_text(&own));
        s = s == LVN_OK ? removed : s;
    }
    lvni_core_str_free(&own);
    return s;
}

lvn_status lvni_sweep_trial_add(lvni_sweep_plan *plan, char *const *names, char *const *values,
                                bool *taken)
{
    lvni_core_str path = {0}, text = {0};
    lvn_status s;
    trial_path(plan, plan->n_trials, "", &path);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, make_folder(lvni_core_str_text(&path)));
    lvni_core_str_append(&path, "/trial.json");
    trial_json(plan->n_trials, names, values, lvni_sweep_texts_count(names), &text);
    LVNI_TRY_DONE(s, lvni_core_str_status(&path));
    LVNI_TRY_DONE(s, lvni_core_str_status(&text));
    LVNI_TRY_DONE(s, link_trial(lvni_core_str_text(&path), &text, taken));
    plan->n_trials++;
done:
    lvni_core_str_free(&path);
    lvni_core_str_free(&text);
    return s;
}

void lvni_sweep_points_free(lvni_sweep_points *points)
{
    for (int64_t i = 0; points->values != NULL && i < points->n * points->n_parameters; i++) {
        lvni_core_free(points->values[i]);
    }
    lvni_core_free(points->values);
    *points = (lvni_sweep_points){.n = 0};
}
