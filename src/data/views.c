/* Views of an image (views.h): their fields, their draws, and what of the image they need. */
#include "data/views.h"

#include "core/rng.h"

#include <math.h>

/* ---- settings ---- */

lvni_data_views lvni_data_views_make(const lvni_data_transform *t, int n)
{
    lvni_data_views views = {.n = n};
    for (int v = 0; v < n && v < LVNI_MAX_VIEWS; v++) {
        views.view[v] = *t;
    }
    return views;
}

static bool is_same_shape(const lvni_data_transform *a, const lvni_data_transform *b)
{
    return a->size == b->size && lvni_data_transform_width(a) == lvni_data_transform_width(b) &&
           lvni_data_transform_depth(a) == lvni_data_transform_depth(b);
}

/* Of the field that holds view v - 1. */
static bool shares_field(const lvni_data_views *views, int v)
{
    return v > 0 && views->stacked && is_same_shape(&views->view[v - 1], &views->view[v]);
}

lvni_data_view_place lvni_data_views_place(const lvni_data_views *views, int v, bool label)
{
    lvni_data_view_place p = {0, 0};
    for (int i = 1; i <= v; i++) {
        const bool shares = shares_field(views, i);
        p.field += !shares;
        p.index = shares ? p.index + 1 : 0;
    }
    p.field += label && p.field > 0;
    return p;
}

lvn_status lvni_data_views_check(const lvni_data_views *views, bool label)
{
    if (views->n < 1 || views->n > LVNI_MAX_VIEWS) {
        LVN_FAIL(LVN_ERR_USAGE, "views is %d; it must lie between 1 and %d", views->n,
                 LVNI_MAX_VIEWS);
    }
    for (int v = 0; v < views->n; v++) {
        const lvn_status s = lvni_data_transform_check(&views->view[v]);
        if (s != LVN_OK && views->n > 1) {
            lvn_error_frame("view %d of %d", v + 1, views->n);
        }
        LVN_TRY(s);
        LVN_ARG(lvni_data_views_channels(views) == lvni_data_transform_channels(&views->view[v]),
                "view %d has %d channels and the first %d: all come from one decoded image", v + 1,
                lvni_data_transform_channels(&views->view[v]), lvni_data_views_channels(views));
    }
    const int fields = lvni_data_views_place(views, views->n - 1, label).field + 1;
    if (fields > LVN_MAX_FIELDS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%d views take %d fields%s, and a sample has at most %d: use fewer views%s",
                 views->n, fields, label ? " with the label" : "", LVN_MAX_FIELDS,
                 views->stacked ? ", or put those of one size next to each other" : "");
    }
    return LVN_OK;
}

int lvni_data_views_side(const lvni_data_views *views)
{
    int side = 1;
    for (int v = 0; v < views->n; v++) {
        const int width = lvni_data_transform_width(&views->view[v]);
        side = views->view[v].size > side ? views->view[v].size : side;
        side = width > side ? width : side;
    }
    return side;
}

int lvni_data_views_fields(const lvni_data_views *views, bool label, lvn_field out[LVN_MAX_FIELDS])
{
    static const char *const names[LVN_MAX_FIELDS] = {"image",  "image2", "image3", "image4",
                                                      "image5", "image6", "image7", "image8"};
    int fields = 0;
    for (int v = 0; v < views->n; v++) {
        const lvni_data_transform *t = &views->view[v];
        const lvni_data_view_place p = lvni_data_views_place(views, v, label);
        lvn_field *f = &out[p.field];
        *f = (lvn_field){.name = names[p.field - (label && p.field > 0)], .dtype = LVN_F32};
        if (views->stacked) {
            f->shape[f->ndim++] = p.index + 1; /* the last view of a field has its number */
        }
        f->shape[f->ndim++] = t->size;
        f->shape[f->ndim++] = lvni_data_transform_width(t);
        f->shape[f->ndim++] = lvni_data_transform_depth(t);
        fields = p.field + 1;
    }
    if (label) {
        out[1] = (lvn_field){"label", LVN_I64, 0, {0}};
        fields = fields < 2 ? 2 : fields;
    }
    return fields;
}

/* ---- draws ---- */

lvn_sample_key lvni_data_view_key(const lvn_sample_key *key, int v)
{
    lvn_sample_key own = *key;
    if (v > 0) {
        const lvni_core_rng_key k =
            lvni_core_rng_make_key(key->seed, lvni_core_rng_purpose("view") + (uint64_t)v);
        own.seed = (uint64_t)k.k[1] << 32 | k.k[0];
    }
    return own;
}

static void widen(lvni_data_box *box, const lvni_data_box *with)
{
    const double right = fmax(box->x + box->width, with->x + with->width),
                 bottom = fmax(box->y + box->height, with->y + with->height);
    box->x = fmin(box->x, with->x);
    box->y = fmin(box->y, with->y);
    box->width = right - box->x;
    box->height = bottom - box->y;
}

lvn_status lvni_data_views_draw(const lvni_data_views *views, const lvn_sample_key *key,
                                const lvni_data_image_info *info, lvni_data_views_drawn *out)
{
    const bool swapped = info->orientation >= 5; /* stored lying on its side */
    const int width = swapped ? info->height : info->width,
              height = swapped ? info->width : info->height;
    out->need = 0.0;
    for (int v = 0; v < views->n; v++) {
        const lvni_data_transform *t = &views->view[v];
        const lvn_sample_key own = lvni_data_view_key(key, v);
        LVN_TRY(lvni_data_augment_draw(t, &own, width, height, &out->view[v]));
        const lvni_data_box box = lvni_data_augment_wanted(t, &out->view[v], info);
        out->need = fmax(out->need, lvni_data_augment_need(t, &out->view[v]));
        if (v == 0) {
            out->wanted = box;
        } else {
            widen(&out->wanted, &box);
        }
    }
    return LVN_OK;
}

lvn_status lvni_data_views_render(lvni_data_scratch *scratch, const lvni_data_views *views,
                                  const lvni_data_views_drawn *drawn, const lvni_data_image *image,
                                  const lvni_data_image_info *info, bool label, void *const field[])
{
    for (int v = 0; v < views->n; v++) {
        const lvni_data_transform *t = &views->view[v];
        const lvni_data_view_place p = lvni_data_views_place(views, v, label);
        const size_t values = (size_t)t->size * (size_t)lvni_data_transform_width(t) *
                              (size_t)lvni_data_transform_depth(t);
        float *out = (float *)field[p.field] + (size_t)p.index * values;
        LVN_TRY(lvni_data_augment_render(scratch, t, &drawn->view[v], image, info, out));
    }
    return LVN_OK;
}
