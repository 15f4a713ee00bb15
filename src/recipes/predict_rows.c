/* Rows of a prediction as text (predict_rows.h). */
#include "recipes/predict_rows.h"

#include "core/escape.h"

#include <string.h>

void lvni_recipes_csv_field(lvni_core_str *out, const char *text)
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

void lvni_recipes_predict_head(const lvni_recipes_predict_format *f, lvni_core_str *out)
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
        lvni_recipes_csv_field(out, lvni_core_str_text(&name));
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

static void write_csv(const lvni_recipes_predict_format *f, const char *file, const float *p,
                      lvni_core_str *out)
{
    lvni_recipes_csv_field(out, file);
    for (int i = 0, class = -1; i < f->top_k; i++) {
        class = next_class(p, f->n_classes, class);
        lvni_core_str_char(out, ',');
        lvni_recipes_csv_field(out, f->class_names[class]);
        lvni_core_str_printf(out, ",%.6f", (double)p[class]);
    }
    for (int i = 0; f->probabilities && i < f->n_classes; i++) {
        lvni_core_str_printf(out, ",%.6f", (double)p[i]);
    }
    lvni_core_str_char(out, '\n');
}

/* Nine digits give the f32 back. */
static void json_class(const lvni_recipes_predict_format *f, int class, const float *p,
                       lvni_core_str *out)
{
    lvni_core_str_append(out, "\"class\": ");
    lvni_core_str_json(out, f->class_names[class]);
    lvni_core_str_printf(out, ", \"probability\": %.9g", (double)p[class]);
}

static void write_json(const lvni_recipes_predict_format *f, const char *file, const float *p,
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

void lvni_recipes_predict_row_write(const lvni_recipes_predict_format *f, const char *file,
                                    const float *p, lvni_core_str *out)
{
    lvni_core_str name = {0};
    lvni_core_str_escape(&name, file, strlen(file), LVNI_ESCAPE_NAME);
    (f->json ? write_json : write_csv)(f, lvni_core_str_text(&name), p, out);
    out->failed |= name.failed;
    lvni_core_str_free(&name);
}
