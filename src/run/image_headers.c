/* Headers of images before a training (image_headers.h). */
#include "run/image_headers.h"

#include "core/error.h"
#include "core/hash.h"
#include "log/run_log.h"

#include <string.h>

lvn_status lvni_run_report_foreign(const char *folder, const lvni_data_image_scan *scan)
{
    lvni_core_str text = {0};
    for (int k = LVNI_FOREIGN_NONE + 1; k < LVNI_FOREIGN_KINDS; k++) {
        if (scan->foreign.n[k] > 0) {
            lvni_core_str_clear(&text);
            lvni_data_image_scan_print_foreign(scan, (lvni_data_foreign)k, &text);
            lvni_log_line(LVNI_LOG_WARNING, "%s: %s", folder, lvni_core_str_text(&text));
        }
    }
    const lvn_status status = lvni_core_str_status(&text);
    lvni_core_str_free(&text);
    return status;
}

/* Damage ends a training before its first step, not in the middle of an epoch. Prediction may not
 * need the damaged images (split=val): there decoding ends the command. */
lvn_status lvni_run_report_damaged(const lvni_core_config *c, bool training, const char *damaged)
{
    const bool skips = strcmp(lvni_core_config_str(c, "on_error"), "skip") == 0;
    if (training && damaged[0] != '\0' && !skips) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s; repair or remove them, or omit them with on_error=skip",
                 damaged);
    }
    if (damaged[0] != '\0') {
        lvni_log_line(LVNI_LOG_WARNING, "%s%s", damaged, skips ? "; left out (on_error=skip)" : "");
    }
    return LVN_OK;
}

/* ---- a user's job ---- */

enum { MAX_SETS = 2 + LVN_MAX_STREAMS };

/* The folders that its sets are of. */
typedef struct folders {
    lvni_data_image_scan *scan[MAX_SETS];
    int n;
    bool all; /* no set is of anything else */
} folders;

static void add_folder(folders *f, const lvn_dataset *set)
{
    lvni_data_image_scan *scan = set == NULL ? NULL : lvni_data_image_view_scan(set);
    f->all = f->all && (set == NULL || scan != NULL);
    if (scan != NULL) {
        f->scan[f->n++] = scan;
    }
}

/* Training and validation set are opened apart, and usually of one list. */
static lvn_status read_folder(const folders *f, int i, lvni_run_job *request)
{
    lvni_data_image_scan *scan = f->scan[i];
    for (int k = 0; k < i; k++) {
        if (f->scan[k] == scan || lvni_data_image_scan_is_same(f->scan[k], scan)) {
            return lvni_data_image_scan_copy_headers(scan, f->scan[k]);
        }
    }
    lvni_core_str damaged = {0};
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_data_image_scan_read_headers(scan, &damaged));
    LVNI_TRY_DONE(s, lvni_run_report_foreign(scan->root, scan));
    LVNI_TRY_DONE(s, lvni_run_report_damaged(request->config, true, lvni_core_str_text(&damaged)));
    const uint64_t files = lvni_data_image_scan_files(scan);
    request->data_files = request->data_files == 0
                              ? files
                              : lvni_core_hash(request->data_files, &files, sizeof files);
done:
    lvni_core_str_free(&damaged);
    return s;
}

lvn_status lvni_run_look_at_images(const lvn_job *job, lvni_run_job *request)
{
    folders f = {.all = true};
    add_folder(&f, job->train);
    add_folder(&f, job->val);
    for (int i = 0; i < job->n_streams; i++) {
        add_folder(&f, job->streams[i].dataset);
    }
    request->headers_read = f.all && f.n > 0;
    for (int i = 0; i < f.n && request->purpose == LVNI_RUN_TRAIN; i++) {
        LVN_TRY(read_folder(&f, i, request));
    }
    return LVN_OK;
}
