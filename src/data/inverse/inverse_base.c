/* What the datasets of inverse problems share (inverse_impl.h). */
#include "inverse_impl.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/math.h"
#include "core/str.h"
#include "data/array.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- random numbers ---- */

lvni_core_rng lvni_inverse_rng(const lvni_inverse_random *r)
{
    static const char *const purposes[] = {"inverse/train", "inverse/val", "inverse/test"};
    return (lvni_core_rng){
        lvni_core_rng_make_key(r->seed, lvni_core_rng_purpose(purposes[r->split])), r->epoch,
        r->sample, (uint32_t)r->stream};
}

void lvni_inverse_normals(const lvni_inverse_random *random, size_t n, double *out)
{
    const lvni_core_rng rng = lvni_inverse_rng(random);
    for (size_t first = 0; first < n; first += 4) {
        const uint32_t counter[4] = {(uint32_t)(first / 4), rng.c, rng.b, rng.a};
        uint32_t bits[4];
        double v[4];
        lvni_core_philox(counter, rng.key.k, bits);
        for (int k = 0; k < 4; k += 2) {
            const double u1 = ((double)bits[k] + 0.5) * 0x1p-32; /* never 0 */
            const double u2 = (double)bits[k + 1] * 0x1p-32;
            const double radius = lvni_core_sqrt(-2.0 * lvni_core_log(u1));
            v[k] = radius * lvni_core_cos2pi(u2);
            v[k + 1] = radius * lvni_core_cos2pi(u2 - 0.25);
        }
        memcpy(out + first, v, (n - first < 4 ? n - first : 4) * sizeof *v);
    }
}

lvni_inverse_random lvni_inverse_noise(const lvni_data_inverse_options *o,
                                       const lvn_sample_key *key)
{
    const bool drawn = o->split == LVNI_INVERSE_TRAIN && key->training;
    return (lvni_inverse_random){drawn ? key->seed : o->seed, o->split, drawn ? key->epoch : 0,
                                 (uint32_t)key->sample, LVNI_INVERSE_NOISE};
}

/* ---- the base ---- */

bool lvni_inverse_builtin(const lvni_data_inverse_options *o)
{
    return strncmp(o->path, "builtin:", 8) == 0;
}

const char *lvni_inverse_split_name(lvni_data_inverse_split split)
{
    static const char *const names[] = {"train", "val", "test"};
    return names[split];
}

int lvni_inverse_fields(const lvn_dataset *dataset, lvn_field out[LVN_MAX_FIELDS])
{
    const lvni_data_inverse_options *o = &((const lvni_inverse_base *)dataset)->o;
    const int64_t n = o->im_size;
    out[0] = (lvn_field){"y", LVN_F32, 3, {n, n, o->in_chans}};
    out[1] = (lvn_field){"x", LVN_F32, 3, {n, n, o->out_chans}};
    out[2] = (lvn_field){"mean", LVN_F32, 1, {1}};
    out[3] = (lvn_field){"std", LVN_F32, 1, {1}};
    if (o->experience != LVNI_INVERSE_MRI) {
        return 4;
    }
    out[4] = (lvn_field){"mask", LVN_F32, 1, {n}};
    out[5] = (lvn_field){"maps", LVN_F32, 3, {n, n, o->in_chans}};
    return 6;
}

int64_t lvni_inverse_length(const lvn_dataset *dataset)
{
    return ((const lvni_inverse_base *)dataset)->count;
}

static const char *sample_name(const lvn_dataset *dataset, int64_t sample)
{
    return ((const lvni_inverse_base *)dataset)->names[sample];
}

lvn_status lvni_inverse_check_sample(const lvni_inverse_base *b, const lvn_sample_key *key)
{
    LVN_ARG(key->sample >= 0 && key->sample < b->count, "sample %lld of %lld was asked for",
            (long long)key->sample, (long long)b->count);
    return LVN_OK;
}

static lvn_status copy_path(const char **path)
{
    if (*path == NULL) {
        return LVN_OK;
    }
    *path = lvni_core_strdup(LVNI_TAG_DATA, *path);
    return *path != NULL ? LVN_OK : LVN_ERR_MEMORY;
}

lvn_status lvni_inverse_base_init(lvni_inverse_base *b, const lvni_data_inverse_options *o,
                                  const lvn_dataset_class *cls)
{
    const bool builtin = lvni_inverse_builtin(o);
    b->cls = *cls;
    b->cls.fields = lvni_inverse_fields;
    b->cls.length = lvni_inverse_length;
    b->dataset.cls = &b->cls;
    b->o = *o;
    b->o.path = b->o.cosmo_dir = b->o.maps_path = NULL;
    const char *paths[3] = {o->path, o->cosmo_dir, o->maps_path};
    const char **const own[3] = {&b->o.path, &b->o.cosmo_dir, &b->o.maps_path};
    for (int i = 0; i < 3; i++) {
        LVN_TRY(copy_path(&paths[i]));
        *own[i] = paths[i];
    }
    if (builtin) {
        b->count = o->count > 0 ? o->count : o->split == LVNI_INVERSE_TRAIN ? 256 : 32;
    }
    return lvni_data_fourier_create(o->im_size, o->im_size, &b->fourier);
}

void lvni_inverse_base_names(lvni_inverse_base *b, char **names, int64_t count)
{
    b->names = names;
    b->count = count;
    b->cls.sample_name = sample_name;
}

void lvni_inverse_base_free(lvni_inverse_base *b)
{
    lvni_inverse_free_names(b->names, b->count);
    lvni_data_fourier_destroy(b->fourier);
    lvni_core_free((void *)(uintptr_t)b->o.path);
    lvni_core_free((void *)(uintptr_t)b->o.cosmo_dir);
    lvni_core_free((void *)(uintptr_t)b->o.maps_path);
}

/* ---- files ---- */

char *lvni_inverse_path(const char *folder, const char *name)
{
    lvni_core_str s = {0};
    const size_t n = strlen(folder);
    lvni_core_str_printf(&s, "%s%s%s", folder, n > 0 && folder[n - 1] == '/' ? "" : "/", name);
    return lvni_core_str_take(&s);
}

void lvni_inverse_free_names(char **names, int64_t n)
{
    for (int64_t i = 0; names != NULL && i < n; i++) {
        lvni_core_free(names[i]);
    }
    lvni_core_free((void *)names);
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* One more name; *room grows by doubling. */
static lvn_status add_name(char ***names, int64_t *n, int64_t *room, const char *name)
{
    if (*n == *room) {
        const int64_t more = *room == 0 ? 64 : *room * 2;
        char **grown =
            lvni_core_realloc(LVNI_TAG_DATA, (void *)*names, (size_t)more * sizeof *grown);
        if (grown == NULL) {
            return LVN_ERR_MEMORY;
        }
        *names = grown;
        *room = more;
    }
    (*names)[*n] = lvni_core_strdup(LVNI_TAG_DATA, name);
    return (*names)[*n] != NULL ? ((*n)++, LVN_OK) : LVN_ERR_MEMORY;
}

lvn_status lvni_inverse_list(const char *folder, char ***names, int64_t *n)
{
    *names = NULL;
    *n = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) {
        LVN_FAIL(errno == ENOENT || errno == ENOTDIR ? LVN_ERR_NOT_FOUND : LVN_ERR_IO,
                 "cannot read the folder %s: %s", folder, strerror(errno));
    }
    int64_t room = 0;
    lvn_status s = LVN_OK;
    for (const struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        LVNI_TRY_DONE(s, e->d_name[0] == '.' ? LVN_OK : add_name(names, n, &room, e->d_name));
    }
    if (*names == NULL) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "the folder %s is empty", folder);
        goto done;
    }
    qsort((void *)*names, (size_t)*n, sizeof **names, by_bytes);
done:
    closedir(dir);
    if (s != LVN_OK) {
        lvni_inverse_free_names(*names, *n);
        *names = NULL;
        *n = 0;
    }
    return s;
}

bool lvni_inverse_is_file(const lvni_data_inverse_options *o)
{
    struct stat info;
    return o->one_file && stat(o->path, &info) == 0 && S_ISREG(info.st_mode);
}

lvn_status lvni_inverse_list_part(const lvni_data_inverse_options *o, const char *part,
                                  char **folder, char ***names, int64_t *n)
{
    int64_t room = 0;
    *names = NULL;
    *n = 0;
    if (!lvni_inverse_is_file(o)) {
        *folder = lvni_inverse_path(o->path, part);
        return *folder != NULL ? lvni_inverse_list(*folder, names, n) : LVN_ERR_MEMORY;
    }
    const char *slash = strrchr(o->path, '/'), *name = slash != NULL ? slash + 1 : o->path;
    lvni_core_str text = {0};
    lvni_core_str_append_n(&text, slash != NULL ? o->path : ".",
                           slash != NULL ? (size_t)(slash + 1 - o->path) : 1);
    *folder = lvni_core_str_take(&text);
    return *folder != NULL ? add_name(names, n, &room, name) : LVN_ERR_MEMORY;
}

static lvn_status check_shape(const lvni_data_array *a, const char *path, int n, lvn_status code)
{
    if (a->ndim != 2 || a->shape[0] != n || a->shape[1] != n) {
        char text[192];
        LVN_FAIL(code, "%s holds an array of %s; im_size=%d needs (%d, %d)", path,
                 lvni_data_array_shape_text(a, text), n, n, n);
    }
    return LVN_OK;
}

lvn_status lvni_inverse_check_square(const char *path, int n)
{
    lvni_data_array header;
    size_t at;
    LVN_TRY(lvni_data_npy_peek(path, &header, &at));
    return check_shape(&header, path, n, LVN_ERR_USAGE);
}

lvn_status lvni_inverse_check_finite(const char *path, int64_t of, const lvni_data_complex *x,
                                     size_t pixels, int side)
{
    const size_t n = (size_t)side;
    char sample[40] = "";
    if (of >= 0) {
        snprintf(sample, sizeof sample, "%lld, ", (long long)of);
    }
    for (size_t i = 0; i < pixels; i++) {
        if (!isfinite(x[i].re) || !isfinite(x[i].im)) {
            LVN_FAIL(LVN_ERR_CORRUPT, "%s holds %s at [%s%zu, %zu]", path,
                     isnan(x[i].re) || isnan(x[i].im) ? "NaN" : "an infinite number", sample,
                     i / n % n, i % n);
        }
    }
    return LVN_OK;
}

lvn_status lvni_inverse_read_square(const char *path, int n, lvni_data_complex *out)
{
    lvni_data_array a;
    LVN_TRY(lvni_data_npy_open(path, &a));
    lvn_status s;
    LVNI_TRY_DONE(s, check_shape(&a, path, n, LVN_ERR_CORRUPT));
    LVNI_TRY_DONE(s, lvni_data_array_read_complex(&a, 0, a.count, &out->re));
    s = lvni_inverse_check_finite(path, -1, out, (size_t)a.count, n);
done:
    lvni_data_array_free(&a);
    return s;
}

/* ---- statistics ---- */

lvn_status lvni_inverse_statistics(const lvni_inverse_base *b, int64_t sample, const double *x,
                                   size_t n, lvni_inverse_scale *out)
{
    double sum = 0.0, squares = 0.0;
    for (size_t i = 0; i < n; i++) {
        sum += x[i];
    }
    out->mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        squares += (x[i] - out->mean) * (x[i] - out->mean);
    }
    out->std = lvni_core_sqrt(squares / (double)(n - 1));
    if (!(out->std > 0.0) || !isfinite(out->std)) {
        const bool named = b->names != NULL;
        LVN_FAIL(LVN_ERR_CORRUPT, "%s%ssample %lld of %s%s is %s and cannot be normalised",
                 named ? b->names[sample] : "", named ? " (" : "", (long long)sample, b->o.path,
                 named ? ")" : "", out->std == 0.0 ? "constant" : "not finite");
    }
    return LVN_OK;
}
