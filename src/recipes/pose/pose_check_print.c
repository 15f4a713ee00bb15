/* What `levin data check` prints (pose_check.h). */
#include "recipes/pose/pose_check.h"

#include "core/escape.h"

#include <string.h>

/* ---- lines ---- */

static void add_labels(const lvni_pose_check *c, lvni_core_str *out)
{
    const lvni_pose_labels *l = &c->labels;
    int64_t points = 0;
    size_t widest = strlen("keypoint");
    for (int k = 0; k < l->k; k++) {
        const size_t n = strlen(l->keypoint[k]);
        points += c->labelled[k];
        widest = n > widest && n <= 40 ? n : widest;
    }
    lvni_core_str_message(out,
                          "labels: %s: %lld frame%s, %d keypoint%s, %lld point%s labelled, %lld "
                          "missing in %lld frame%s\n",
                          l->path, (long long)l->n, lvni_core_plural(l->n, "", "s"), l->k,
                          lvni_core_plural(l->k, "", "s"), (long long)points,
                          lvni_core_plural(points, "", "s"), (long long)(l->n * l->k - points),
                          (long long)c->gaps, lvni_core_plural(c->gaps, "", "s"));
    if (c->divided) {
        lvni_core_str_printf(
            out, "sets: %lld train, %lld validation, %lld test, %lld unused\n",
            (long long)c->count[LVNI_POSE_TRAIN], (long long)c->count[LVNI_POSE_VALIDATION],
            (long long)c->count[LVNI_POSE_TEST], (long long)c->count[LVNI_POSE_UNUSED]);
    }
    lvni_core_str_printf(out, "%-*s  labelled  missing\n", (int)widest, "keypoint");
    for (int k = 0; k < l->k; k++) {
        lvni_core_str_message(out, "%-*s  %8lld  %7lld\n", (int)widest, l->keypoint[k],
                              (long long)c->labelled[k], (long long)(l->n - c->labelled[k]));
    }
}

static void add_sizes(const lvni_pose_sizes *s, lvni_core_str *out)
{
    lvni_core_str_append(out, "frames: ");
    for (int i = 0; i < s->n; i++) {
        lvni_core_str_printf(out, "%s%d x %d (%lld)", i > 0 ? ", " : "", s->size[i].width,
                             s->size[i].height, (long long)s->size[i].frames);
    }
    if (s->others > 0) {
        lvni_core_str_printf(out, ", %lld of other sizes", (long long)s->others);
    }
    lvni_core_str_append(out, s->n == 0 ? "none can be read\n" : "\n");
}

static void add_rows(const lvni_pose_check_rows *r, const char *loss, const char *key,
                     lvni_core_str *out)
{
    lvni_core_str_printf(out, "%s: ", loss);
    if (r->coordinates == 0) {
        lvni_core_str_printf(out, "%s is not set\n", key);
        return;
    }
    lvni_core_str_printf(out, "%lld row%s of training labels for %d coordinates%s",
                         (long long)r->rows, lvni_core_plural(r->rows, "", "s"), r->coordinates,
                         r->named ? "" : " of all keypoints");
    if (r->rows < r->coordinates) {
        lvni_core_str_printf(out, ", too few: label more frames, or give fewer keypoints in %s\n",
                             key);
    } else {
        lvni_core_str_append(out, ", enough\n");
    }
}

static void add_videos(const lvni_pose_check *c, lvni_core_str *out)
{
    lvni_core_str_printf(out, "videos: %d\n", c->paths.n);
    for (int i = 0; i < c->paths.n; i++) {
        const lvni_pose_check_video *v = &c->video[i];
        lvni_core_str_message(out, "  %s: ", c->paths.text[i]);
        if (v->frames > 0) {
            lvni_core_str_message(out, "%s, %d x %d, %.6g frames/s, %lld frame%s", v->codec,
                                  v->width, v->height, v->rate, (long long)v->frames,
                                  lvni_core_plural(v->frames, "", "s"));
        }
        if (v->error != NULL) {
            lvni_core_str_message(out, "%s%s", v->frames > 0 ? "; " : "", v->error);
        }
        lvni_core_str_char(out, '\n');
    }
}

/* What else of a step takes memory: its frames without labels. */
static const char *clip_key(const lvni_pose_settings *s)
{
    bool any = false;
    for (int i = 0; i < LVNI_POSE_UNSUPERVISED; i++) {
        any = any || s->unsupervised[i].used;
    }
    return !any                           ? ""
           : s->type == LVNI_POSE_CONTEXT ? "; so does a smaller dali.context.train.batch_size"
                                          : "; so does a smaller dali.base.train.sequence_length";
}

static void add_memory(const lvni_pose_check *c, lvni_core_str *out)
{
    const lvni_run_memory *m = &c->memory;
    if (m->line.len > 0) {
        lvni_core_str_message(out, "%s\n", lvni_core_str_text(&m->line));
    }
    if (m->scarce.len > 0) {
        lvni_core_str_message(out, "%s%s\n", lvni_core_str_text(&m->scarce),
                              clip_key(&c->settings));
    }
}

void lvni_pose_check_lines(const lvni_pose_check *c, lvni_core_str *out)
{
    if (c->labels.n > 0) {
        add_labels(c, out);
        add_sizes(&c->sizes, out);
        add_rows(&c->singleview, "pca_singleview", "data.columns_for_singleview_pca", out);
        add_rows(&c->multiview, "pca_multiview", "data.mirrored_column_matches", out);
    }
    add_videos(c, out);
    for (int i = 0; i < c->problems.n; i++) { /* but the one that is the error of all */
        if (c->refused == NULL || strstr(c->refused, c->problems.text[i]) == NULL) {
            lvni_core_str_message(out, "problem: %s\n", c->problems.text[i]);
        }
    }
    if (c->more > 0) {
        lvni_core_str_printf(out, "problem: %lld more\n", (long long)c->more);
    }
    add_memory(c, out);
}

/* ---- JSON ---- */

static void add_text(lvni_core_str *out, const char *text)
{
    if (text == NULL) {
        lvni_core_str_append(out, "null");
    } else {
        lvni_core_str_json(out, text);
    }
}

static void json_labels(const lvni_pose_check *c, lvni_core_str *out)
{
    const lvni_pose_labels *l = &c->labels;
    lvni_core_str_append(out, "\"file\": ");
    add_text(out, c->settings.csv_file);
    lvni_core_str_printf(out, ", \"frames\": %lld, \"frames_with_missing\": %lld", (long long)l->n,
                         (long long)c->gaps);
    lvni_core_str_append(out, ", \"keypoints\": [");
    for (int k = 0; k < l->k; k++) {
        lvni_core_str_append(out, k > 0 ? ", {\"name\": " : "{\"name\": ");
        lvni_core_str_json(out, l->keypoint[k]);
        lvni_core_str_printf(out, ", \"labelled\": %lld, \"missing\": %lld}",
                             (long long)c->labelled[k], (long long)(l->n - c->labelled[k]));
    }
    lvni_core_str_append(out, "], \"sets\": {");
    for (int s = 0; s < LVNI_POSE_SETS; s++) {
        lvni_core_str_printf(out, "%s\"%s\": %lld", s > 0 ? ", " : "",
                             lvni_pose_set_name((lvni_pose_set)s), (long long)c->count[s]);
    }
    lvni_core_str_append(out, "}, \"sizes\": [");
    for (int i = 0; i < c->sizes.n; i++) {
        lvni_core_str_printf(out, "%s{\"width\": %d, \"height\": %d, \"frames\": %lld}",
                             i > 0 ? ", " : "", c->sizes.size[i].width, c->sizes.size[i].height,
                             (long long)c->sizes.size[i].frames);
    }
    lvni_core_str_append(out, "]");
}

static void json_rows(const lvni_pose_check_rows *r, const char *name, lvni_core_str *out)
{
    lvni_core_str_printf(out, ", \"%s\": ", name);
    if (r->coordinates == 0) {
        lvni_core_str_append(out, "null");
    } else {
        lvni_core_str_printf(out, "{\"rows\": %lld, \"coordinates\": %d}", (long long)r->rows,
                             r->coordinates);
    }
}

static void json_videos(const lvni_pose_check *c, lvni_core_str *out)
{
    lvni_core_str_append(out, ", \"videos\": [");
    for (int i = 0; i < c->paths.n; i++) {
        const lvni_pose_check_video *v = &c->video[i];
        lvni_core_str_append(out, i > 0 ? ", {\"path\": " : "{\"path\": ");
        lvni_core_str_json(out, c->paths.text[i]);
        lvni_core_str_append(out, ", \"codec\": ");
        add_text(out, v->codec[0] == '\0' ? NULL : v->codec);
        lvni_core_str_printf(out, ", \"width\": %d, \"height\": %d, \"rate\": ", v->width,
                             v->height);
        lvni_core_str_double(out, v->rate);
        lvni_core_str_printf(out, ", \"frames\": %lld, \"error\": ", (long long)v->frames);
        add_text(out, v->error);
        lvni_core_str_append(out, "}");
    }
    lvni_core_str_append(out, "]");
}

void lvni_pose_check_json(const lvni_pose_check *c, lvni_core_str *out)
{
    lvni_core_str_char(out, '{');
    json_labels(c, out);
    json_rows(&c->singleview, "pca_singleview", out);
    json_rows(&c->multiview, "pca_multiview", out);
    json_videos(c, out);
    lvni_core_str_append(out, ", \"problems\": [");
    for (int i = 0; i < c->problems.n; i++) {
        lvni_core_str_append(out, i > 0 ? ", " : "");
        lvni_core_str_json(out, c->problems.text[i]);
    }
    lvni_core_str_printf(out, "], \"memory_bytes\": %llu, \"device_bytes\": %llu, \"scarce\": ",
                         (unsigned long long)c->memory.bytes, (unsigned long long)c->memory.device);
    add_text(out, c->memory.scarce.len == 0 ? NULL : lvni_core_str_text(&c->memory.scarce));
    lvni_core_str_append(out, ", \"refused\": ");
    add_text(out, c->refused);
    lvni_core_str_append(out, "}\n");
}
