/* What predict, eval and export write for others: output=FILE, whose ending chooses the format, and
 * rows of predictions as CSV (RFC 4180) or as JSON lines. `-` is standard output, where then
 * nothing else is printed. */
#ifndef LEVIN_RUN_OUTPUT_FILE_H
#define LEVIN_RUN_OUTPUT_FILE_H

#include "core/config.h"
#include "core/str.h"

/* ---- output=FILE ---- */

typedef struct lvni_run_output_kind {
    const char *what;    /* of the error: "predictions of images are a table or JSON lines" */
    const char *endings; /* ".csv|.jsonl" */
    const char *others;  /* what to do for other endings; NULL: nothing */
    bool binary;         /* bytes for no terminal, and for no launcher that shows lines */
} lvni_run_output_kind;

/* Before the work: LVN_ERR_USAGE for an ending that is none of these, and for what cannot be
 * written. */
lvn_status lvni_run_output_check(const lvni_core_config *config, const lvni_run_output_kind *kind);
bool lvni_run_output_is_stdout(const lvni_core_config *config);
/* What to give to lvni_core_file_write, lvni_ckpt_st_save, ... Borrowed. */
const char *lvni_run_output_path(const lvni_core_config *config);
/* Does the path end so, in upper or lower case? */
bool lvni_run_output_ends_in(const char *path, const char *ending, size_t n);

/* ---- rows: of each image its name, the most probable class with its probability, on request the
 * next ones (top_k) and the probability of every class ---- */

typedef struct lvni_run_predict_format {
    const char *const *class_names; /* (n_classes) */
    int n_classes;
    int top_k;          /* classes of a row, from 1 to n_classes */
    bool probabilities; /* of every class, in the order of the classes */
    bool json;          /* JSON lines, else CSV */
} lvni_run_predict_format;

/* The first line of a table: file, class, probability, class_2, probability_2, ..., p_<class name>,
 * ...; JSON lines have none. */
void lvni_run_predict_head(const lvni_run_predict_format *format, lvni_core_str *out);
/* p: (n_classes). JSON: {"file", "class", "probability", "top": [{"class", "probability"}, ...]
 * with top_k > 1, "probabilities": {name: p, ...}}. Of equal probabilities the lower class comes
 * first. */
void lvni_run_predict_row_write(const lvni_run_predict_format *format, const char *file,
                                const float *p, lvni_core_str *out);

/* A field by RFC 4180: in quotes when it holds a comma, a quote or a line break. */
void lvni_run_csv_field(lvni_core_str *out, const char *text);

#endif
