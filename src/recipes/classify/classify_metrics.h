/* What `eval` reports of a classifier: accuracy, loss, confusion matrix, and of each class
 * precision, recall and F1. Counts are exact integers, added in the order of the data, so that
 * every layout of ranks reports the same. Called by classify_predict.c.
 *
 * Of class c, with TP images of c labelled c, FP images of other classes labelled c, FN images of c
 * labelled otherwise (van Rijsbergen, Information Retrieval, 1979, chapter 7):
 *   precision = TP / (TP + FP), recall = TP / (TP + FN), F1 = 2 TP / (2 TP + FP + FN).
 * A quotient 0 / 0 is undefined: "-" in the table, null in JSON, and 0 in a mean. Means are over
 * the classes that have images here or were predicted here: macro counts each once, weighted by its
 * images. */
#ifndef LEVIN_RECIPES_CLASSIFY_CLASSIFY_METRICS_H
#define LEVIN_RECIPES_CLASSIFY_CLASSIFY_METRICS_H

#include "core/str.h"

enum {
    LVNI_CONFUSION_CLASSES = 2048, /* more: no matrix (32 MiB) */
    LVNI_CONFUSION_PRINT = 20,     /* more: only in a file or as JSON */
    LVNI_CONFUSION_JSON = 100,     /* more: only in a file */
    LVNI_TOP_K = 5
};

typedef struct lvni_classify_metrics lvni_classify_metrics;

/* The names are borrowed. LVN_ERR_MEMORY. */
lvn_status lvni_classify_metrics_create(const char *const *names, int n_classes,
                                        lvni_classify_metrics **out);
void lvni_classify_metrics_destroy(lvni_classify_metrics *m); /* NULL is fine */
/* One image of class `label`: p (n_classes) are its probabilities, `best` the predicted class. */
void lvni_classify_metrics_add(lvni_classify_metrics *m, int label, int best, const float *p);

#define LVNI_CLASSIFY_SCORES "acc, loss, top5_acc, macro_f1 or weighted_f1"
/* One of them by its name, also as val/acc; *more: of which more is better. False: there is none.
 */
bool lvni_classify_metrics_find(const lvni_classify_metrics *m, const char *name, double *value,
                                bool *more);
/* Text: accuracy and loss, a table of the classes that occur, the confusion matrix
 * of up to LVNI_CONFUSION_PRINT of them. Errors of memory are marked in out (core/str.h). */
void lvni_classify_metrics_print(const lvni_classify_metrics *m, lvni_core_str *out);
/* Members of a JSON object, without its braces: n, right, acc, loss, top5_acc (from 6 classes),
 * macro and weighted (precision, recall, f1), classes (of each: name, n, right, predicted,
 * precision, recall, f1), confusion (rows: true class; columns: predicted; up to
 * LVNI_CONFUSION_JSON classes). */
void lvni_classify_metrics_json(const lvni_classify_metrics *m, lvni_core_str *out);
/* For a page (report/page.h): accuracy and loss, a table of the classes that occur, and the matrix
 * of up to LVNI_CONFUSION_JSON classes as a drawing. */
lvn_status lvni_classify_metrics_html(const lvni_classify_metrics *m, lvni_core_str *out);
/* The matrix of all classes into a file: .png and .svg are a figure (report/matrix.h), any other
 * name is CSV: a row for each true class, a column for each predicted one, names in front and
 * above. LVN_ERR_UNSUPPORTED with more than LVNI_CONFUSION_CLASSES. */
lvn_status lvni_classify_metrics_confusion(const lvni_classify_metrics *m, const char *path);

#endif
