/* Volumes of k-space in a folder: which there are, and the images of a slice. */
#include "core/alloc.h"
#include "core/error.h"
#include "core/str.h"
#include "core/vfs.h"
#include "data/array.h"
#include "hdf5.h"
#include "mri.h"

#include <string.h>

/* ---- the folder ---- */

static lvn_status check_header(const lvni_data_inverse_options *o, const lvni_data_array *a,
                               const char *path)
{
    char text[192];
    const int coils = o->in_chans / 2, n = o->im_size;
    if (a->ndim != 4 || a->type < LVNI_ARRAY_C64 || a->shape[0] < 1) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s holds %s of %s; a volume of k-space is complex64 of (slices, coils, rows, "
                 "columns)",
                 path, lvni_data_array_shape_text(a, text), lvni_data_array_type_name(a->type));
    }
    if (a->shape[1] < coils || a->shape[1] > LVNI_INVERSE_MAX_VOLUME_COILS) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s has %lld coil%s: in_chans=%d needs %d to %d; remove the file or change "
                 "in_chans",
                 path, (long long)a->shape[1], lvni_core_plural(a->shape[1], "", "s"), o->in_chans,
                 coils, LVNI_INVERSE_MAX_VOLUME_COILS);
    }
    if (a->shape[2] < n || a->shape[3] < n) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: slices of %lld x %lld are smaller than im_size=%d; remove the file or choose "
                 "a smaller im_size",
                 path, (long long)a->shape[2], (long long)a->shape[3], n);
    }
    return LVN_OK;
}

/* The transform of this size, made when there is none. */
static lvn_status transform_for(lvni_inverse_volumes *all, lvni_inverse_volume *v)
{
    for (int64_t i = 0; i < all->n; i++) {
        if (all->volume[i].fourier != NULL && all->volume[i].rows == v->rows &&
            all->volume[i].cols == v->cols) {
            v->fourier = all->volume[i].fourier;
            return LVN_OK;
        }
    }
    lvni_data_fourier **grown = lvni_core_realloc(LVNI_TAG_DATA, (void *)all->fourier,
                                                  (size_t)(all->n_fouriers + 1) * sizeof *grown);
    if (grown == NULL) {
        return LVN_ERR_MEMORY;
    }
    all->fourier = grown;
    LVN_TRY(lvni_data_fourier_create(v->rows, v->cols, &grown[all->n_fouriers]));
    v->fourier = grown[all->n_fouriers++];
    return LVN_OK;
}

/* The volume's own name, in the folder of maps. */
static char *maps_of(const char *folder, const char *name)
{
    lvni_core_str s = {0};
    const char *dot = strrchr(name, '.');
    lvni_core_str_append_n(&s, name, dot != NULL ? (size_t)(dot - name) : strlen(name));
    lvni_core_str_append(&s, ".npy");
    char *path = lvni_core_str_status(&s) == LVN_OK
                     ? lvni_inverse_path(folder, lvni_core_str_text(&s))
                     : NULL;
    lvni_core_str_free(&s);
    return path;
}

bool lvni_data_inverse_has_maps(const char *folder)
{
    char **names;
    int64_t n;
    bool found = false;
    if (lvni_inverse_list(folder, &names, &n) != LVN_OK) {
        lvn_clear_error();
        return false;
    }
    for (int64_t i = 0; i < n && !found; i++) {
        const char *dot = strrchr(names[i], '.');
        found = dot != NULL && strcmp(dot, ".npy") == 0;
    }
    lvni_inverse_free_names(names, n);
    return found;
}

static lvn_status check_maps(const lvni_data_inverse_options *o, const lvni_inverse_volume *v)
{
    lvni_data_array a;
    size_t at;
    if (!lvni_core_path_exists(v->maps)) {
        LVN_FAIL(LVN_ERR_NOT_FOUND,
                 "there is no %s, the coil maps of %s: add it, or leave out sense_maps_path, and "
                 "all maps are estimated",
                 v->maps, v->path);
    }
    LVN_TRY(lvni_data_npy_peek(v->maps, &a, &at));
    if (a.ndim != 4 || a.shape[0] < v->slices || a.shape[1] != o->in_chans / 2 ||
        a.shape[2] != o->im_size || a.shape[3] != o->im_size) {
        char text[192];
        LVN_FAIL(LVN_ERR_USAGE, "%s holds %s; maps are complex64 of (%d, %d, %d, %d)", v->maps,
                 lvni_data_array_shape_text(&a, text), v->slices, o->in_chans / 2, o->im_size,
                 o->im_size);
    }
    return LVN_OK;
}

static bool is_axt2(const char *acquisition)
{
    return acquisition[0] == '\0' || strcmp(acquisition, "AXT2") == 0;
}

/* fastMRI's folders hold other contrasts, too, and volumes of fewer coils and columns. */
static bool left_out(const lvni_data_inverse_options *o, const lvni_data_array *a,
                     const char *acquisition)
{
    return !is_axt2(acquisition) || a->ndim != 4 || a->shape[1] < o->in_chans / 2 ||
           a->shape[2] < o->im_size || a->shape[3] < o->im_size;
}

static bool is_as_rcgan(const lvni_data_inverse_options *o)
{
    return o->as_rcgan && o->split != LVNI_INVERSE_TEST && !lvni_inverse_is_file(o);
}

/* Behind the draw it rejects some: as many coils as channels need, and in val as many columns as
 * an image has, are too few. */
static bool rejected(const lvni_data_inverse_options *o, const lvni_data_array *a)
{
    const int least = o->im_size + (o->split == LVNI_INVERSE_VAL ? 1 : 0);
    return a->ndim != 4 || a->shape[1] <= o->in_chans / 2 || a->shape[2] < o->im_size ||
           a->shape[3] < least;
}

/* A volume that is left out has no slices. */
static lvn_status look_at(const lvni_data_inverse_options *o, const char *folder, const char *name,
                          lvni_inverse_volumes *all, lvni_inverse_volume *v)
{
    lvni_data_array a;
    size_t at;
    char acquisition[64];
    v->path = lvni_inverse_path(folder, name);
    v->maps = o->maps_path != NULL ? maps_of(o->maps_path, name) : NULL;
    if (v->path == NULL || (o->maps_path != NULL && v->maps == NULL)) {
        return LVN_ERR_MEMORY;
    }
    v->hdf5 = lvni_inverse_hdf5_is(v->path);
    LVN_TRY(v->hdf5 ? lvni_inverse_hdf5_peek(v->path, &a, acquisition)
                    : lvni_data_npy_peek(v->path, &a, &at));
    if (v->hdf5 && left_out(o, &a, acquisition)) {
        v->in_draw = is_axt2(acquisition) && a.ndim == 4 && a.shape[1] >= o->in_chans / 2;
        return LVN_OK;
    }
    v->in_draw = a.ndim == 4 && a.shape[1] >= o->in_chans / 2;
    if (is_as_rcgan(o) && rejected(o, &a)) {
        return LVN_OK;
    }
    LVN_TRY(check_header(o, &a, v->path));
    const int most = o->split == LVNI_INVERSE_TEST ? 6 : 8;
    v->slices = a.shape[0] < most ? (int)a.shape[0] : most;
    v->coils = (int)a.shape[1];
    v->rows = (int)a.shape[2];
    v->cols = (int)a.shape[3];
    LVN_TRY(v->maps != NULL ? check_maps(o, v) : LVN_OK);
    return transform_for(all, v);
}

/* The first file is passed over, and of those in the draw of val three tenths remain. */
static lvn_status select_as_rcgan(const lvni_data_inverse_options *o, lvni_inverse_volumes *all)
{
    int64_t n = 0, at = 0;
    all->volume[0].slices = 0;
    if (o->split != LVNI_INVERSE_VAL) {
        return LVN_OK;
    }
    bool *drawn = lvni_core_calloc(LVNI_TAG_DATA, (size_t)all->n, sizeof *drawn);
    if (drawn == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 1; i < all->n; i++) {
        n += all->volume[i].in_draw;
    }
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_inverse_mri_draw(n, drawn));
    for (int64_t i = 1; i < all->n; i++) {
        if (all->volume[i].in_draw && !drawn[at++]) {
            all->volume[i].slices = 0;
        }
    }
done:
    lvni_core_free(drawn);
    return s;
}

static lvn_status look_at_all(const lvni_data_inverse_options *o, const char *folder, char **names,
                              int64_t n, lvni_inverse_volumes *out)
{
    out->volume = lvni_core_calloc(LVNI_TAG_DATA, (size_t)n, sizeof *out->volume);
    LVN_TRY(out->volume != NULL ? LVN_OK : LVN_ERR_MEMORY);
    for (int64_t i = 0; i < n; i++) {
        const lvn_status s = look_at(o, folder, names[i], out, &out->volume[i]);
        out->n++; /* the failed one, too: it is freed with the others */
        LVN_TRY(s);
    }
    return is_as_rcgan(o) ? select_as_rcgan(o, out) : LVN_OK;
}

static lvn_status refuse_empty(const lvni_data_inverse_options *o, const char *folder, int64_t n)
{
    const char *files = lvni_core_plural(n, "", "s");
    if (is_as_rcgan(o)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "%s: of its %lld file%s volumes=rcgan takes none: the first one is passed over, "
                 "others need more than %d coils and slices of %d x %d%s; volumes=all takes all "
                 "that fit",
                 folder, (long long)n, files, o->in_chans / 2, o->im_size, o->im_size,
                 o->split == LVNI_INVERSE_VAL ? ", and three tenths of them are drawn" : "");
    }
    LVN_FAIL(LVN_ERR_USAGE,
             "%s: none of its %lld HDF5 file%s has the acquisition AXT2, %d coils and slices of %d "
             "x %d",
             folder, (long long)n, files, o->in_chans / 2, o->im_size, o->im_size);
}

lvn_status lvni_inverse_volumes_open(const lvni_data_inverse_options *o, lvni_inverse_volumes *out)
{
    static const char *const folders[] = {"multicoil_train", "multicoil_val", "small_T2_test"};
    *out = (lvni_inverse_volumes){0};
    char *folder = NULL, **names;
    int64_t n;
    int64_t slices = 0;
    lvn_status s;
    LVNI_TRY_DONE(s, lvni_inverse_list_part(o, folders[o->split], &folder, &names, &n));
    LVNI_TRY_DONE(s, look_at_all(o, folder, names, n, out));
    for (int64_t i = 0; i < out->n; i++) {
        slices += out->volume[i].slices;
    }
    s = slices == 0 ? refuse_empty(o, folder, out->n) : LVN_OK;
done:
    lvni_inverse_free_names(names, n);
    lvni_core_free(folder);
    if (s != LVN_OK) {
        lvni_inverse_volumes_free(out);
    }
    return s;
}

void lvni_inverse_volumes_free(lvni_inverse_volumes *v)
{
    for (int64_t i = 0; i < v->n; i++) {
        lvni_core_free(v->volume[i].path);
        lvni_core_free(v->volume[i].maps);
    }
    for (int i = 0; i < v->n_fouriers; i++) {
        lvni_data_fourier_destroy(v->fourier[i]);
    }
    lvni_core_free(v->volume);
    lvni_core_free((void *)v->fourier);
    *v = (lvni_inverse_volumes){0};
}

const lvni_inverse_volume *lvni_inverse_volumes_at(const lvni_inverse_volumes *v, int64_t sample,
                                                   int *slice)
{
    const lvni_inverse_volume *at = v->volume;
    for (; sample >= at->slices; at++) {
        sample -= at->slices;
    }
    *slice = (int)sample;
    return at;
}

lvn_status lvni_inverse_volumes_names(const lvni_inverse_volumes *v, char ***names, int64_t *n)
{
    int64_t count = 0, at = 0;
    for (int64_t i = 0; i < v->n; i++) {
        count += v->volume[i].slices;
    }
    *names = lvni_core_calloc(LVNI_TAG_DATA, (size_t)count, sizeof **names);
    *n = count;
    if (*names == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < v->n; i++) {
        const char *slash = strrchr(v->volume[i].path, '/');
        for (int slice = 0; slice < v->volume[i].slices; slice++) {
            lvni_core_str text = {0};
            lvni_core_str_printf(&text, "%s slice %d", slash + 1, slice);
            (*names)[at] = lvni_core_str_take(&text);
            if ((*names)[at++] == NULL) {
                lvni_inverse_free_names(*names, count);
                *names = NULL;
                return LVN_ERR_MEMORY;
            }
        }
    }
    return LVN_OK;
}

/* ---- a slice ---- */

/* The middle n x n pixels of coil c. */
static lvn_status read_coil(const lvni_inverse_volume *v, int slice, int c, int n,
                            lvni_data_complex *raw, lvni_data_complex *out)
{
    const int64_t size = (int64_t)v->rows * v->cols;
    const int64_t shape[4] = {v->slices, v->coils, v->rows, v->cols};
    LVN_TRY(v->hdf5 ? lvni_inverse_hdf5_read(v->path, shape, slice, c, raw)
                    : lvni_data_npy_read_part(v->path, ((int64_t)slice * v->coils + c) * size, size,
                                              &raw->re));
    lvni_data_fourier_centred(v->fourier, true, raw, raw + size);
    const int top = (v->rows - n) / 2, left = (v->cols - n) / 2;
    for (int r = 0; r < n; r++) {
        memcpy(out + (size_t)r * (size_t)n,
               raw + (size_t)(top + r) * (size_t)v->cols + (size_t)left, (size_t)n * sizeof *out);
    }
    return LVN_OK;
}

lvn_status lvni_inverse_volume_read(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out)
{
    const size_t plane = (size_t)n * (size_t)n, size = (size_t)v->rows * (size_t)v->cols;
    const size_t all = v->coils > coils ? (size_t)v->coils * plane : 0;
    lvni_data_complex *raw = lvni_core_alloc(
        LVNI_TAG_DATA, (size + lvni_data_fourier_scratch(v->fourier) + all) * sizeof *raw);
    if (raw == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvni_data_complex *images = all > 0 ? raw + size + lvni_data_fourier_scratch(v->fourier) : out;
    lvn_status s = LVN_OK;
    for (int c = 0; c < v->coils; c++) {
        LVNI_TRY_DONE(s, read_coil(v, slice, c, n, raw, images + (size_t)c * plane));
    }
    if (all > 0) {
        s = lvni_inverse_mri_compress(images, v->coils, coils, plane, out);
    }
done:
    lvni_core_free(raw);
    return s;
}

lvn_status lvni_inverse_volume_maps(const lvni_inverse_volume *v, int slice, int coils, int n,
                                    lvni_data_complex *out)
{
    const int64_t count = (int64_t)coils * n * n;
    LVN_TRY(lvni_data_npy_read_part(v->maps, (int64_t)slice * count, count, &out->re));
    return lvni_inverse_check_finite(v->maps, slice, out, (size_t)count, n);
}
