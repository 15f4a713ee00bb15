/* The rows that `predict` writes, as CSV (RFC 4180) or as JSON lines: of each image its name, the
 * most probable class with its probability, on request the next ones (top_k) and the probability of
 * every class. Called by classify_predict.c. */
#ifndef LEVIN_RECIPES_PREDICT_ROWS_H
#define LEVIN_RECIPES_PREDICT_ROWS_H

#include "core/str.h"

typedef struct lvni_recipes_predict_format {
    const char *const *class_names; /* (n_classes) */
    int n_classes;
    int top_k;          /* classes of a row, from 1 to n_classes */
    bool probabilities; /* of every class, in the order of the classes */
    bool json;          /* JSON lines, else CSV */
} lvni_recipes_predict_format;

/* The first line of a table: file, class, probability, class_2, probability_2, ..., p_<class name>,
 * ...; JSON lines have none. */
void lvni_recipes_predict_head(const lvni_recipes_predict_format *format, lvni_core_str *out);
/* p: (n_classes). JSON: {"file", "class", "probability", "top": [{"class", "probability"}, ...]
 * with top_k > 1, "probabilities": {name: p, ...}}. Of equal probabilities the lower class comes
 * first. */
void lvni_recipes_predict_row_write(const lvni_recipes_predict_format *format, const char *file,
                                    const float *p, lvni_core_str *out);

/* A field as RFC 4180 wants it: in quotes when it holds a comma, a quote or a line break. */
void lvni_recipes_csv_field(lvni_core_str *out, const char *text);

#endif
