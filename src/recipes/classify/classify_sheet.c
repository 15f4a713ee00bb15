/* The images of the page of predictions (classify_sheet.h). */
#include "recipes/classify/classify_sheet.h"

#include "core/alloc.h"
#include "core/str.h"
#include "data/image.h"
#include "images/thumbnail.h"
#include "report/contact_sheet.h"
#include "report/page.h"

#include <stdio.h>
#include <string.h>

enum { WRONG, RIGHT, SIDES };

/* The candidates of one class and side, in the order they would be shown. */
typedef struct group {
    int n;
    lvni_classify_sheet_sample pick[LVNI_SHEET];
} group;

struct lvni_classify_sheet_samples {
    int n_classes;
    /* (n_classes, SIDES); NULL until there is a candidate: a model may have far more classes than
     * the data */
    group **groups;
};

lvn_status lvni_classify_sheet_samples_create(int n_classes, lvni_classify_sheet_samples **out)
{
    *out = NULL;
    lvni_classify_sheet_samples *p = LVNI_NEW(LVNI_TAG_DATA, lvni_classify_sheet_samples);
    group **groups = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n_classes * SIDES, sizeof(group *));
    if (p == NULL || groups == NULL) {
        lvni_core_free(p);
        lvni_core_free(groups);
        return LVN_ERR_MEMORY;
    }
    *p = (lvni_classify_sheet_samples){.n_classes = n_classes, .groups = groups};
    *out = p;
    return LVN_OK;
}

void lvni_classify_sheet_samples_destroy(lvni_classify_sheet_samples *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; i < p->n_classes * SIDES; i++) {
        lvni_core_free(p->groups[i]);
    }
    lvni_core_free(p->groups);
    lvni_core_free(p);
}

static bool is_right(const lvni_classify_sheet_sample *pick)
{
    return pick->label < 0 || pick->label == pick->predicted;
}

lvn_status lvni_classify_sheet_samples_offer(lvni_classify_sheet_samples *p,
                                             const lvni_classify_sheet_sample *pick)
{
    const int side = is_right(pick) ? RIGHT : WRONG;
    const int64_t class = pick->label < 0 ? pick->predicted : pick->label;
    LVN_ARG(class >= 0 && class < p->n_classes, "class %lld of %d", (long long)class, p->n_classes);
    group **slot = &p->groups[class * SIDES + side];
    if (*slot == NULL && (*slot = LVNI_NEW(LVNI_TAG_DATA, group)) == NULL) {
        return LVN_ERR_MEMORY;
    }
    group *g = *slot;
    int at = g->n; /* behind all others: they came earlier */
    while (side == WRONG && at > 0 && g->pick[at - 1].probability < pick->probability) {
        at--;
    }
    if (at == LVNI_SHEET) {
        return LVN_OK;
    }
    g->n += g->n < LVNI_SHEET;
    memmove(&g->pick[at + 1], &g->pick[at], (size_t)(g->n - 1 - at) * sizeof g->pick[0]);
    g->pick[at] = *pick;
    return LVN_OK;
}

/* The first of every class, then the second of every class, ... */
static int take_turns(const lvni_classify_sheet_samples *p, int side, int n, int most,
                      lvni_classify_sheet_sample out[LVNI_SHEET])
{
    for (int round = 0; round < LVNI_SHEET; round++) {
        for (int class = 0; class < p->n_classes && n < most; class ++) {
            const group *g = p->groups[class * SIDES + side];
            if (g != NULL && round < g->n) {
                out[n++] = g->pick[round];
            }
        }
    }
    return n;
}

int lvni_classify_sheet_samples_choose(const lvni_classify_sheet_samples *p,
                                       lvni_classify_sheet_sample out[LVNI_SHEET])
{
    const int wrong = take_turns(p, WRONG, 0, LVNI_SHEET_WRONG, out);
    return take_turns(p, RIGHT, wrong, LVNI_SHEET, out);
}

/* ---- drawing ---- */

enum { NAME = 255, TEXT = NAME + 16 }; /* bytes of a class name, of a line with it */

typedef struct page {
    lvni_classify_sheet_sample pick[LVNI_SHEET];
    lvni_report_sheet_item item[LVNI_SHEET];
    char text[LVNI_SHEET][2][TEXT];
    float *image;
    uint8_t *rgb;
} page;

static void describe(const lvni_classify_sheet_sample *pick, const char *const *class_names,
                     char text[2][TEXT], lvni_report_sheet_item *item)
{
    const bool right = is_right(pick);
    const char *name = class_names[pick->predicted];
    lvni_core_format(text[0], TEXT, "%.*s %.0f%%", (int)lvni_core_utf8_cut(name, NAME), name,
                     100.0 * (double)pick->probability);
    if (!right) {
        name = class_names[pick->label];
        snprintf(text[1], TEXT, "is %.*s", (int)lvni_core_utf8_cut(name, NAME), name);
    }
    item->verdict = pick->label < 0 ? LVNI_VERDICT_NONE
                    : right         ? LVNI_VERDICT_RIGHT
                                    : LVNI_VERDICT_WRONG;
    item->line1 = text[0];
    item->line2 = text[1];
}

static lvn_status fill_and_write(page *g, const lvni_classify_sheet_samples *p,
                                 const lvn_dataset *data, const lvni_data_transform *transform,
                                 const char *const *class_names, const char *path)
{
    const size_t pixels = (size_t)transform->size * (size_t)transform->size * 3;
    const int n = lvni_classify_sheet_samples_choose(p, g->pick);
    g->image = lvni_core_alloc(LVNI_TAG_DATA, pixels * sizeof *g->image);
    g->rgb = lvni_core_alloc(LVNI_TAG_DATA, pixels * LVNI_SHEET);
    if (g->image == NULL || g->rgb == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int i = 0; i < n; i++) {
        uint8_t *rgb = g->rgb + pixels * (size_t)i;
        LVN_TRY(lvni_images_thumbnail_fetch(data, transform, g->pick[i].sample, g->image, rgb));
        g->item[i].rgb = rgb;
        describe(&g->pick[i], class_names, g->text[i], &g->item[i]);
    }
    return lvni_report_contact_sheet_write(path, g->item, n, LVNI_SHEET_COLUMNS, transform->size);
}

lvn_status lvni_classify_sheet_samples_draw(const lvni_classify_sheet_samples *p,
                                            const lvn_dataset *data,
                                            const lvni_data_transform *transform,
                                            const char *const *class_names, const char *path)
{
    page *g = LVNI_NEW(LVNI_TAG_DATA, page);
    const lvn_status s =
        g == NULL ? LVN_ERR_MEMORY : fill_and_write(g, p, data, transform, class_names, path);
    if (g != NULL) {
        lvni_core_free(g->image);
        lvni_core_free(g->rgb);
    }
    lvni_core_free(g);
    return s;
}

/* ---- a page ---- */

enum { SMALL = 112 };

static lvn_status write_mistake(const lvni_classify_sheet_sample *pick, const lvn_dataset *data,
                                const char *const *class_names, const uint8_t *rgb, int side,
                                lvni_core_str *out)
{
    void *png;
    size_t n;
    LVN_TRY(lvni_data_png_encode(rgb, side, side, &png, &n));
    const char *name =
        data->cls->sample_name == NULL ? NULL : data->cls->sample_name(data, pick->sample);
    lvni_report_png(out, png, n, name != NULL ? name : "");
    lvni_core_free(png);
    lvni_core_str_append(out, "<figcaption>");
    lvni_report_escape(out, class_names[pick->predicted]);
    lvni_core_str_printf(out, " %.0f%%<br>is ", 100.0 * (double)pick->probability);
    lvni_report_escape(out, class_names[pick->label]);
    lvni_core_str_append(out, "<br><span class=soft>");
    if (name != NULL) {
        lvni_report_escape(out, name);
    } else {
        lvni_core_str_printf(out, "sample %lld", (long long)pick->sample);
    }
    lvni_core_str_append(out, "</span></figcaption></figure>\n");
    return lvni_core_str_status(out);
}

static lvn_status write_mistakes(const lvni_classify_sheet_sample *pick, int n,
                                 const lvn_dataset *data, const lvni_data_transform *transform,
                                 const char *const *class_names, lvni_core_str *out)
{
    const size_t values = (size_t)transform->size * (size_t)transform->size * 3;
    float *image = lvni_core_alloc(LVNI_TAG_DATA, values * sizeof *image);
    uint8_t *rgb = lvni_core_alloc(LVNI_TAG_DATA, values);
    lvn_status s = image == NULL || rgb == NULL ? LVN_ERR_MEMORY : LVN_OK;
    for (int i = 0; i < n && s == LVN_OK; i++) {
        s = lvni_images_thumbnail_fetch(data, transform, pick[i].sample, image, rgb);
        if (s == LVN_OK) {
            const int side = lvni_images_thumbnail_shrink(rgb, transform->size, SMALL);
            s = write_mistake(&pick[i], data, class_names, rgb, side, out);
        }
    }
    lvni_core_free(image);
    lvni_core_free(rgb);
    return s;
}

lvn_status lvni_classify_sheet_samples_html(const lvni_classify_sheet_samples *p,
                                            const lvn_dataset *data,
                                            const lvni_data_transform *transform,
                                            const char *const *class_names, lvni_core_str *out)
{
    lvni_classify_sheet_sample pick[LVNI_SHEET];
    const int n = take_turns(p, WRONG, 0, LVNI_SHEET_WRONG, pick);
    if (n == 0) {
        return LVN_OK;
    }
    lvni_core_str_append(out, "<h3>Mistakes, of each class the most confident</h3>\n"
                              "<div class=mistakes>\n");
    LVN_TRY(write_mistakes(pick, n, data, transform, class_names, out));
    lvni_core_str_append(out, "</div>\n");
    return LVN_OK;
}
