/* Counts of right and wrong predictions, and what follows from them (classify_metrics.h). */
#include "recipes/classify/classify_metrics.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/vfs.h"
#include "report/canvas.h"
#include "report/matrix.h"
#include "report/page.h"
#include "run/output_file.h"

#include <stdio.h>
#include <string.h>

typedef struct class_count {
    int64_t n, predicted, right; /* images of the class; images labelled with it; both */
} class_count;

struct lvni_classify_metrics {
    const char *const *names;
    int n_classes;
    class_count *count; /* (n_classes) */
    int64_t *confusion; /* (n_classes true, n_classes predicted); NULL: too many classes */
    int64_t n, right, top_k;
    double loss; /* sum of -log p[label] */
};

/* Of one class, or a mean of several. A negative number: undefined. */
typedef struct scores {
    double precision, recall, f1;
} scores;

lvn_status lvni_classify_metrics_create(const char *const *names, int n_classes,
                                        lvni_classify_metrics **out)
{
    *out = NULL;
    const size_t k = (size_t)n_classes;
    const bool matrix = n_classes <= LVNI_CONFUSION_CLASSES;
    lvni_classify_metrics *m = LVNI_NEW(LVNI_TAG_DATA, lvni_classify_metrics);
    if (m == NULL) {
        return LVN_ERR_MEMORY;
    }
    m->names = names;
    m->n_classes = n_classes;
    m->count = lvni_core_calloc(LVNI_TAG_DATA, k, sizeof *m->count);
    m->confusion = matrix ? lvni_core_calloc(LVNI_TAG_DATA, k * k, sizeof *m->confusion) : NULL;
    if (m->count == NULL || (matrix && m->confusion == NULL)) {
        lvni_classify_metrics_destroy(m);
        return LVN_ERR_MEMORY;
    }
    *out = m;
    return LVN_OK;
}

void lvni_classify_metrics_destroy(lvni_classify_metrics *m)
{
    if (m != NULL) {
        lvni_core_free(m->count);
        lvni_core_free(m->confusion);
    }
    lvni_core_free(m);
}

/* Among the k most probable; of equal probabilities the lower class comes first, as in
 * `predict`. */
static bool is_in_top(const float *p, int n, int label, int k)
{
    int before = 0;
    for (int i = 0; i < n && before < k; i++) {
        before += p[i] > p[label] || (!(p[i] < p[label]) && i < label);
    }
    return before < k;
}

void lvni_classify_metrics_add(lvni_classify_metrics *m, int label, int best, const float *p)
{
    const double least = 1e-38; /* a finite loss for a probability that is 0 in f32 */
    m->n++;
    m->right += best == label;
    m->top_k += is_in_top(p, m->n_classes, label, LVNI_TOP_K);
    m->count[label].n++;
    m->count[label].right += best == label;
    m->count[best].predicted++;
    m->loss -= lvni_core_log((double)p[label] > least ? (double)p[label] : least);
    if (m->confusion != NULL) {
        m->confusion[(size_t)label * (size_t)m->n_classes + (size_t)best]++;
    }
}

/* ---- scores ---- */

static bool occurs(const class_count *c)
{
    return c->n > 0 || c->predicted > 0;
}

static double quotient(int64_t a, int64_t b)
{
    return b > 0 ? (double)a / (double)b : -1.0;
}

static scores scores_of(const class_count *c)
{
    return (scores){.precision = quotient(c->right, c->predicted),
                    .recall = quotient(c->right, c->n),
                    .f1 = quotient(2 * c->right, c->n + c->predicted)};
}

static double defined(double score)
{
    return score > 0.0 ? score : 0.0;
}

static scores mean_of(const lvni_classify_metrics *m, bool weighted)
{
    scores sum = {0};
    double weights = 0.0;
    for (int i = 0; i < m->n_classes; i++) {
        const class_count *c = &m->count[i];
        if (occurs(c)) {
            const double w = weighted ? (double)c->n : 1.0;
            const scores s = scores_of(c);
            sum.precision += w * defined(s.precision);
            sum.recall += w * defined(s.recall);
            sum.f1 += w * defined(s.f1);
            weights += w;
        }
    }
    return (scores){sum.precision / weights, sum.recall / weights, sum.f1 / weights};
}

bool lvni_classify_metrics_find(const lvni_classify_metrics *m, const char *name, double *value,
                                bool *more)
{
    const double n = (double)m->n;
    name += strncmp(name, "val/", 4) == 0 ? 4 : 0;
    *more = strcmp(name, "loss") != 0;
    if (strcmp(name, "acc") == 0) {
        *value = (double)m->right / n;
    } else if (strcmp(name, "loss") == 0) {
        *value = m->loss / n;
    } else if (strcmp(name, "top5_acc") == 0 && m->n_classes > LVNI_TOP_K) {
        *value = (double)m->top_k / n;
    } else if (strcmp(name, "macro_f1") == 0 || strcmp(name, "weighted_f1") == 0) {
        *value = mean_of(m, name[0] == 'w').f1;
    } else {
        return false;
    }
    return true;
}

/* ---- text ---- */

/* Characters, not bytes: continuation bytes of UTF-8 take no room. */
static int width_of(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++) {
        n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

static int digits_of(int64_t n)
{
    return snprintf(NULL, 0, "%lld", (long long)n);
}

static int larger(int a, int b)
{
    return a > b ? a : b;
}

static void print_name(lvni_core_str *out, const char *name, int width)
{
    lvni_core_str_printf(out, "%s%*s", name, larger(0, width - width_of(name)), "");
}

static void print_score(lvni_core_str *out, int width, double score)
{
    if (score < 0.0) {
        lvni_core_str_printf(out, "  %*s", width, "-");
    } else {
        lvni_core_str_printf(out, "  %*.4f", width, score);
    }
}

static void print_scores(lvni_core_str *out, const scores *s)
{
    print_score(out, 9, s->precision);
    print_score(out, 6, s->recall);
    print_score(out, 6, s->f1);
    lvni_core_str_char(out, '\n');
}

static void print_table(const lvni_classify_metrics *m, int name, lvni_core_str *out)
{
    int digits = 1;
    for (int i = 0; i < m->n_classes; i++) {
        digits = larger(digits, digits_of(m->count[i].n));
    }
    const int fraction = larger(2 * digits + 1, 7);
    const scores macro = mean_of(m, false), weighted = mean_of(m, true);
    lvni_core_str_printf(out, "  %-*s  %*s  precision  recall      F1\n", name, "class", fraction,
                         "right/n");
    for (int i = 0; i < m->n_classes; i++) {
        const class_count *c = &m->count[i];
        if (occurs(c)) {
            const scores s = scores_of(c);
            lvni_core_str_append(out, "  ");
            print_name(out, m->names[i], name);
            lvni_core_str_printf(out, "  %*lld/%*lld", fraction - digits - 1, (long long)c->right,
                                 digits, (long long)c->n);
            print_scores(out, &s);
        }
    }
    lvni_core_str_printf(out, "  %-*s  %*s", name, "macro mean", fraction, "");
    print_scores(out, &macro);
    lvni_core_str_printf(out, "  %-*s  %*s", name, "weighted", fraction, "");
    print_scores(out, &weighted);
}

/* Columns are headed by the number in front of the class's row. */
static void print_confusion(const lvni_classify_metrics *m, int name, lvni_core_str *out)
{
    const int k = m->n_classes;
    int width = digits_of(k);
    for (int i = 0; i < k * k; i++) {
        width = larger(width, digits_of(m->confusion[i]));
    }
    lvni_core_str_append(out, "confusion matrix (row: true class, column: predicted)\n");
    lvni_core_str_printf(out, "  %*s", digits_of(k) + 2 + name, "");
    for (int i = 0; i < k; i++) {
        lvni_core_str_printf(out, "  %*d", width, i + 1);
    }
    lvni_core_str_char(out, '\n');
    for (int i = 0; i < k; i++) {
        lvni_core_str_printf(out, "  %*d  ", digits_of(k), i + 1);
        print_name(out, m->names[i], name);
        for (int j = 0; j < k; j++) {
            lvni_core_str_printf(out, "  %*lld", width, (long long)m->confusion[i * k + j]);
        }
        lvni_core_str_char(out, '\n');
    }
}

void lvni_classify_metrics_print(const lvni_classify_metrics *m, lvni_core_str *out)
{
    int name = width_of("macro mean");
    for (int i = 0; i < m->n_classes; i++) {
        name = occurs(&m->count[i]) ? larger(name, width_of(m->names[i])) : name;
    }
    lvni_core_str_printf(out, "acc %.4f  loss %.4f", (double)m->right / (double)m->n,
                         m->loss / (double)m->n);
    if (m->n_classes > LVNI_TOP_K) {
        lvni_core_str_printf(out, "  top-5 acc %.4f", (double)m->top_k / (double)m->n);
    }
    lvni_core_str_printf(out, "  (%lld of %lld right)\n", (long long)m->right, (long long)m->n);
    print_table(m, name, out);
    if (m->n_classes <= LVNI_CONFUSION_PRINT) {
        print_confusion(m, name, out);
    }
}

/* ---- page ---- */

static void html_scores(lvni_core_str *out, const scores *s)
{
    const double value[3] = {s->precision, s->recall, s->f1};
    for (int i = 0; i < 3; i++) {
        if (value[i] < 0.0) {
            lvni_core_str_append(out, "<td class=n>\xe2\x80\x93</td>");
        } else {
            lvni_core_str_printf(out, "<td class=n>%.4f</td>", value[i]);
        }
    }
    lvni_core_str_append(out, "</tr>\n");
}

static void html_table(const lvni_classify_metrics *m, lvni_core_str *out)
{
    const scores mean[2] = {mean_of(m, false), mean_of(m, true)};
    lvni_core_str_append(
        out, "<div class=\"wide w\"><table>\n<tr><th>class</th><th>right</th><th>of</th>"
             "<th>precision</th><th>recall</th><th>F1</th></tr>\n");
    for (int i = 0; i < m->n_classes; i++) {
        const class_count *c = &m->count[i];
        if (occurs(c)) {
            const scores s = scores_of(c);
            lvni_core_str_append(out, "<tr><th>");
            lvni_report_escape(out, m->names[i]);
            lvni_core_str_printf(out, "</th><td class=n>%lld</td><td class=n>%lld</td>",
                                 (long long)c->right, (long long)c->n);
            html_scores(out, &s);
        }
    }
    for (int i = 0; i < 2; i++) {
        lvni_core_str_printf(out, "<tr><th>%s</th><td></td><td></td>",
                             i == 0 ? "macro mean" : "weighted mean");
        html_scores(out, &mean[i]);
    }
    lvni_core_str_append(out, "</table></div>\n");
}

/* Without cairo the page has a sentence in its place. */
static lvn_status html_confusion(const lvni_classify_metrics *m, lvni_core_str *out)
{
    lvni_core_str svg = {0};
    const lvn_status s = lvni_report_matrix_embed(m->names, m->n_classes, m->confusion, &svg);
    if (s == LVN_OK) {
        lvni_core_str_append(out, "<figure class=drawn>");
        lvni_core_str_append(out, lvni_core_str_text(&svg));
        lvni_core_str_append(out, "</figure>\n");
    } else if (s == LVN_ERR_UNSUPPORTED) {
        lvni_core_str_append(out, "<p class=soft>");
        lvni_report_escape(out, lvn_last_error()->message);
        lvni_core_str_append(out, "</p>\n");
        lvn_clear_error();
    }
    lvni_core_str_free(&svg);
    return s == LVN_ERR_UNSUPPORTED ? LVN_OK : s;
}

lvn_status lvni_classify_metrics_html(const lvni_classify_metrics *m, lvni_core_str *out)
{
    lvni_core_str_printf(out, "<p>%lld of %lld right: accuracy %.4f, loss %.4f",
                         (long long)m->right, (long long)m->n, (double)m->right / (double)m->n,
                         m->loss / (double)m->n);
    if (m->n_classes > LVNI_TOP_K) {
        lvni_core_str_printf(out, ", top-5 accuracy %.4f", (double)m->top_k / (double)m->n);
    }
    lvni_core_str_append(out, "</p>\n");
    if (m->n_classes <= LVNI_CONFUSION_JSON) {
        LVN_TRY(html_confusion(m, out));
    }
    html_table(m, out);
    return LVN_OK;
}

/* ---- JSON and CSV ---- */

static void json_score(lvni_core_str *out, const char *key, double score)
{
    lvni_core_str_printf(out, ", \"%s\": ", key);
    if (score < 0.0) {
        lvni_core_str_append(out, "null");
    } else {
        lvni_core_str_double(out, score);
    }
}

static void json_scores(lvni_core_str *out, const scores *s)
{
    json_score(out, "precision", s->precision);
    json_score(out, "recall", s->recall);
    json_score(out, "f1", s->f1);
    lvni_core_str_char(out, '}');
}

static void json_mean(const lvni_classify_metrics *m, const char *key, bool weighted,
                      lvni_core_str *out)
{
    const scores s = mean_of(m, weighted);
    int classes = 0;
    for (int i = 0; i < m->n_classes; i++) {
        classes += occurs(&m->count[i]);
    }
    lvni_core_str_printf(out, ", \"%s\": {\"classes\": %d", key, classes);
    json_scores(out, &s);
}

static void json_class(const lvni_classify_metrics *m, int i, lvni_core_str *out)
{
    const class_count *c = &m->count[i];
    const scores s = scores_of(c);
    lvni_core_str_append(out, i > 0 ? ", {\"name\": " : "{\"name\": ");
    lvni_core_str_json(out, m->names[i]);
    lvni_core_str_printf(out, ", \"n\": %lld, \"right\": %lld, \"predicted\": %lld",
                         (long long)c->n, (long long)c->right, (long long)c->predicted);
    json_scores(out, &s);
}

static void json_confusion(const lvni_classify_metrics *m, lvni_core_str *out)
{
    lvni_core_str_append(out, ", \"confusion\": [");
    for (int i = 0; i < m->n_classes; i++) {
        lvni_core_str_append(out, i > 0 ? ", [" : "[");
        for (int j = 0; j < m->n_classes; j++) {
            lvni_core_str_printf(out, "%s%lld", j > 0 ? ", " : "",
                                 (long long)m->confusion[i * m->n_classes + j]);
        }
        lvni_core_str_char(out, ']');
    }
    lvni_core_str_char(out, ']');
}

void lvni_classify_metrics_json(const lvni_classify_metrics *m, lvni_core_str *out)
{
    lvni_core_str_printf(out, "\"n\": %lld, \"right\": %lld", (long long)m->n, (long long)m->right);
    json_score(out, "acc", (double)m->right / (double)m->n);
    json_score(out, "loss", m->loss / (double)m->n);
    if (m->n_classes > LVNI_TOP_K) {
        json_score(out, "top5_acc", (double)m->top_k / (double)m->n);
    }
    json_mean(m, "macro", false, out);
    json_mean(m, "weighted", true, out);
    lvni_core_str_append(out, ", \"classes\": [");
    for (int i = 0; i < m->n_classes; i++) {
        json_class(m, i, out);
    }
    lvni_core_str_char(out, ']');
    if (m->n_classes <= LVNI_CONFUSION_JSON) {
        json_confusion(m, out);
    }
}

static lvn_status write_csv(const lvni_classify_metrics *m, const char *path)
{
    lvni_core_str out = {0};
    lvni_core_str_append(&out, "true\\predicted");
    for (int j = 0; j < m->n_classes; j++) {
        lvni_core_str_char(&out, ',');
        lvni_run_csv_field(&out, m->names[j]);
    }
    for (int i = 0; i < m->n_classes; i++) {
        lvni_core_str_char(&out, '\n');
        lvni_run_csv_field(&out, m->names[i]);
        for (int j = 0; j < m->n_classes; j++) {
            lvni_core_str_printf(&out, ",%lld", (long long)m->confusion[i * m->n_classes + j]);
        }
    }
    lvni_core_str_char(&out, '\n');
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_core_str_status(&out));
    s = lvni_core_file_write(path, lvni_core_str_text(&out), out.len);
done:
    lvni_core_str_free(&out);
    return s;
}

lvn_status lvni_classify_metrics_confusion(const lvni_classify_metrics *m, const char *path)
{
    if (m->confusion == NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "confusion=: the model has %d classes, a confusion matrix at most %d",
                 m->n_classes, LVNI_CONFUSION_CLASSES);
    }
    return lvni_report_canvas_writes(path)
               ? lvni_report_matrix_write(path, m->names, m->n_classes, m->confusion)
               : write_csv(m, path);
}
