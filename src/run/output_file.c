/* What predict, eval and export write for others (output_file.h): output=FILE, and rows of
 * predictions as text. */
#include "run/output_file.h"

#include "core/error.h"
#include "core/escape.h"
#include "core/vfs.h"
#include "launch/launch.h"

#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- output=FILE ---- */

bool lvni_run_output_is_stdout(const lvni_core_config *c)
{
    return strcmp(lvni_core_config_str(c, "output"), "-") == 0;
}

const char *lvni_run_output_path(const lvni_core_config *c)
{
    return lvni_run_output_is_stdout(c) ? LVNI_STDOUT_PATH : lvni_core_config_str(c, "output");
}

bool lvni_run_output_ends_in(const char *path, const char *ending, size_t n)
{
    const size_t length = strlen(path);
    return length > n && strncasecmp(path + length - n, ending, n) == 0;
}

static bool is_known(const char *path, const char *endings)
{
    for (const char *p = endings; p != NULL;) {
        const size_t n = strcspn(p, "|");
        if (lvni_run_output_ends_in(path, p, n)) {
            return true;
        }
        p = p[n] == '|' ? p + n + 1 : NULL;
    }
    return false;
}

/* ".csv or .jsonl" */
static void print_endings(const char *endings, lvni_core_str *out)
{
    for (const char *p = endings; *p != '\0'; p++) {
        lvni_core_str_append_n(out, *p == '|' ? " or " : p, *p == '|' ? 4 : 1);
    }
}

static lvn_status check_stdout(const lvni_run_output_kind *kind)
{
    if (kind->binary && isatty(STDOUT_FILENO) == 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=-: %s, which is not for a terminal; send it on with > FILE or |",
                 kind->what);
    }
    if (kind->binary && lvni_launch_is_rank(environ)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "output=-: %s, and a launcher shows lines of text; use devices=1, or the name of "
                 "a file",
                 kind->what);
    }
    return LVN_OK;
}

lvn_status lvni_run_output_check(const lvni_core_config *c, const lvni_run_output_kind *kind)
{
    const char *output = lvni_core_config_str(c, "output");
    if (lvni_run_output_is_stdout(c)) {
        return check_stdout(kind);
    }
    LVN_TRY(lvni_core_file_check(output)); /* a folder or a pipe: whatever the ending */
    if (is_known(output, kind->endings)) {
        return LVN_OK;
    }
    lvni_core_str endings = {0};
    print_endings(kind->endings, &endings);
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&endings));
    s = lvn_error_set(LVN_ERR_USAGE, __FILE__, __LINE__,
                      "output=%s: %s; give a name that ends in %s, or output=- for stdout%s%s",
                      output, kind->what, lvni_core_str_text(&endings),
                      kind->others != NULL ? "; " : "", kind->others != NULL ? kind->others : "");
done:
    lvni_core_str_free(&endings);
    return s;
}

/* ---- rows ---- */

void lvni_run_csv_field(lvni_core_str *out, const char *text)
{
    if (strpbrk(text, ",\"\r\n") == NULL) {
        lvni_core_str_append(out, text);
        return;
    }
    lvni_core_str_char(out, '"');
    for (; *text != '\0'; text++) {
        lvni_core_str_append_n(out, text, 1);
        if (*text == '"') {
            lvni_core_str_char(out, '"');
        }
    }
    lvni_core_str_char(out, '"');
}

void lvni_run_predict_head(const lvni_run_predict_format *f, lvni_core_str *out)
{
    if (f->json) {
        return;
    }
    lvni_core_str_append(out, "file,class,probability");
    for (int i = 2; i <= f->top_k; i++) {
        lvni_core_str_printf(out, ",class_%d,probability_%d", i, i);
    }
    for (int i = 0; f->probabilities && i < f->n_classes; i++) {
        lvni_core_str name = {0};
        lvni_core_str_printf(&name, "p_%s", f->class_names[i]);
        lvni_core_str_char(out, ',');
        lvni_run_csv_field(out, lvni_core_str_text(&name));
        out->failed |= name.failed;
        lvni_core_str_free(&name);
    }
    lvni_core_str_char(out, '\n');
}

/* The most probable class after `before`, in the order of falling probability; -1: the first of
 * all. */
static int next_class(const float *p, int n, int before)
{
    int best = -1;
    for (int i = 0; i < n; i++) {
        const bool left = before < 0 || p[i] < p[before] || (!(p[i] > p[before]) && i > before);
        if (left && (best < 0 || p[i] > p[best])) {
            best = i;
        }
    }
    return best;
}

static void write_csv(const lvni_run_predict_format *f, const char *file, const float *p,
                      lvni_core_str *out)
{
    lvni_run_csv_field(out, file);
    for (int i = 0, class = -1; i < f->top_k; i++) {
        class = next_class(p, f->n_classes, class);
        lvni_core_str_char(out, ',');
        lvni_run_csv_field(out, f->class_names[class]);
        lvni_core_str_printf(out, ",%.6f", (double)p[class]);
    }
    for (int i = 0; f->probabilities && i < f->n_classes; i++) {
        lvni_core_str_printf(out, ",%.6f", (double)p[i]);
    }
    lvni_core_str_char(out, '\n');
}

/* Nine digits give the f32 back. */
static void json_class(const lvni_run_predict_format *f, int class, const float *p,
                       lvni_core_str *out)
{
    lvni_core_str_append(out, "\"class\": ");
    lvni_core_str_json(out, f->class_names[class]);
    lvni_core_str_printf(out, ", \"probability\": %.9g", (double)p[class]);
}

static void write_json(const lvni_run_predict_format *f, const char *file, const float *p,
                       lvni_core_str *out)
{
    int class = next_class(p, f->n_classes, -1);
    lvni_core_str_append(out, "{\"file\": ");
    lvni_core_str_json(out, file);
    lvni_core_str_append(out, ", ");
    json_class(f, class, p, out);
    if (f->top_k > 1) {
        lvni_core_str_append(out, ", \"top\": [");
        for (int i = 0; i < f->top_k; i++, class = next_class(p, f->n_classes, class)) {
            lvni_core_str_append(out, i > 0 ? ", {" : "{");
            json_class(f, class, p, out);
            lvni_core_str_char(out, '}');
        }
        lvni_core_str_char(out, ']');
    }
    for (int i = 0; f->probabilities && i < f->n_classes; i++) {
        lvni_core_str_append(out, i > 0 ? ", " : ", \"probabilities\": {");
        lvni_core_str_json(out, f->class_names[i]);
        lvni_core_str_printf(out, ": %.9g", (double)p[i]);
    }
    lvni_core_str_append(out, f->probabilities ? "}}\n" : "}\n");
}

void lvni_run_predict_row_write(const lvni_run_predict_format *f, const char *file, const float *p,
                                lvni_core_str *out)
{
    lvni_core_str name = {0};
    lvni_core_str_escape(&name, file, strlen(file), LVNI_ESCAPE_NAME);
    (f->json ? write_json : write_csv)(f, lvni_core_str_text(&name), p, out);
    out->failed |= name.failed;
    lvni_core_str_free(&name);
}
