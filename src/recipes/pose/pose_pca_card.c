/* Principal components of keypoints in the card of a model (pose_pca.h), as JSON: predictions are
 * measured without the labels of the training. */
#include "recipes/pose/pose_pca.h"

#include "core/alloc.h"
#include "core/json_read.h"

#include <math.h>
#include <string.h>

static const char *const centrings[] = {[LVNI_POSE_CENTRING_NONE] = "none",
                                        [LVNI_POSE_CENTRING_MEAN] = "mean",
                                        [LVNI_POSE_CENTRING_MEDIAN] = "median"};
enum { CENTRINGS = sizeof centrings / sizeof *centrings };

static void print_numbers(lvni_core_str *out, const char *key, const double *x, int64_t n)
{
    lvni_core_str_printf(out, ",\"%s\":[", key);
    for (int64_t i = 0; i < n; i++) {
        lvni_core_str_append(out, i > 0 ? "," : "");
        lvni_core_str_double(out, x[i]);
    }
    lvni_core_str_char(out, ']');
}

void lvni_pose_pca_print(const lvni_pose_pca *pca, lvni_core_str *json)
{
    const int64_t dim = 2 * (int64_t)pca->points;
    lvni_core_str_printf(json, "{\"keypoints\":%d,\"parts\":%d,\"centering\":\"%s\",\"columns\":[",
                         pca->k, pca->parts, centrings[pca->centring]);
    for (int i = 0; i < pca->points * pca->parts; i++) {
        lvni_core_str_printf(json, "%s%d", i > 0 ? "," : "", pca->column[i]);
    }
    lvni_core_str_append(json, "],\"epsilon\":");
    if (isnan(pca->epsilon)) {
        lvni_core_str_append(json, "null");
    } else {
        lvni_core_str_double(json, pca->epsilon);
    }
    print_numbers(json, "mean", pca->mean, dim);
    print_numbers(json, "explained", pca->explained, dim);
    print_numbers(json, "components", pca->vector, pca->kept * dim);
    lvni_core_str_char(json, '}');
}

/* ---- reading: a file of a model can hold anything ---- */

static bool read_int(const json_t *object, const char *key, int least, int most, int *out)
{
    const json_t *x = json_object_get(object, key);
    const json_int_t value = json_integer_value(x);
    *out = (int)value;
    return json_is_integer(x) && value >= least && value <= most;
}

/* `least` numbers or more, a multiple of it. */
static bool read_numbers(const json_t *object, const char *key, size_t least, size_t most,
                         double **out, size_t *n)
{
    const json_t *array = json_object_get(object, key);
    *n = json_array_size(array);
    if (*n < least || *n > most || *n % least != 0) {
        return false;
    }
    *out = lvni_core_alloc(LVNI_TAG_DATA, *n * sizeof **out);
    for (size_t i = 0; *out != NULL && i < *n; i++) {
        const json_t *x = json_array_get(array, i);
        (*out)[i] = json_number_value(x);
        if (!json_is_number(x)) {
            return false;
        }
    }
    return *out != NULL;
}

static bool read_columns(const json_t *object, lvni_pose_pca *out)
{
    const json_t *array = json_object_get(object, "columns");
    const size_t n = json_array_size(array);
    if (n == 0 || n % (size_t)out->parts != 0 || n / (size_t)out->parts > LVNI_POSE_PCA_MOST) {
        return false;
    }
    out->points = (int)(n / (size_t)out->parts);
    out->column = lvni_core_alloc(LVNI_TAG_DATA, n * sizeof *out->column);
    for (size_t i = 0; out->column != NULL && i < n; i++) {
        const json_t *x = json_array_get(array, i);
        const json_int_t column = json_integer_value(x);
        if (!json_is_integer(x) || column < 0 || column >= out->k) {
            return false;
        }
        out->column[i] = (int)column;
    }
    return out->column != NULL;
}

static bool read_centring(const json_t *object, lvni_pose_pca *out)
{
    const char *name = json_string_value(json_object_get(object, "centering"));
    for (int i = 0; name != NULL && i < CENTRINGS; i++) {
        if (strcmp(name, centrings[i]) == 0) {
            out->centring = (lvni_pose_centring)i;
            return true;
        }
    }
    return false;
}

static bool read_all(const json_t *object, lvni_pose_pca *out)
{
    size_t n;
    const json_t *epsilon = json_object_get(object, "epsilon");
    if (!read_int(object, "keypoints", 1, 1 << 20, &out->k) ||
        !read_int(object, "parts", 1, out->k, &out->parts) || !read_centring(object, out) ||
        !read_columns(object, out) || !(json_is_number(epsilon) || json_is_null(epsilon))) {
        return false;
    }
    out->epsilon = json_is_number(epsilon) ? json_number_value(epsilon) : (double)NAN;
    const size_t dim = 2 * (size_t)out->points;
    if (!read_numbers(object, "mean", dim, dim, &out->mean, &n) ||
        !read_numbers(object, "explained", dim, dim, &out->explained, &n) ||
        !read_numbers(object, "components", dim, dim * dim, &out->vector, &n)) {
        return false;
    }
    out->kept = (int)(n / dim);
    return true;
}

lvn_status lvni_pose_pca_read(const char *json, lvni_pose_pca *out)
{
    json_t *object;
    *out = (lvni_pose_pca){0};
    LVN_TRY(lvni_core_json_read("the model's card", "pca", json, strlen(json), 0, LVNI_JSON_INNER,
                                &object));
    const uint64_t before = lvn_last_error()->serial;
    const bool whole = read_all(object, out);
    json_decref(object);
    if (whole) {
        return LVN_OK;
    }
    lvni_pose_pca_free(out);
    if (lvn_last_error()->serial != before) {
        return LVN_ERR_MEMORY;
    }
    LVN_FAIL(LVN_ERR_CORRUPT, "the principal components of keypoints in the model's card are not "
                              "complete or not of its keypoints");
}
