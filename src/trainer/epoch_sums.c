/* The epoch's metric sums as JSON text, for the metadata of a checkpoint (trainer.h). JSON so that
 * names may have any characters and numbers do not follow the locale. Called by state.c. */
#include "trainer/trainer.h"
#include "core/json_read.h"

#include <jansson.h>
#include <math.h>
#include <string.h>

/* JSON has no numbers that are not finite. */
static json_t *number(double x)
{
    return isnan(x)   ? json_string("nan")
           : isinf(x) ? json_string(x > 0.0 ? "inf" : "-inf")
                      : json_real(x);
}

static bool to_double(const json_t *value, double *out)
{
    const char *text = json_string_value(value);
    if (text == NULL) {
        *out = json_number_value(value);
        return json_is_number(value);
    }
    *out = strcmp(text, "nan") == 0   ? (double)NAN
           : strcmp(text, "inf") == 0 ? (double)INFINITY
                                      : -(double)INFINITY;
    return strcmp(text, "nan") == 0 || strcmp(text, "inf") == 0 || strcmp(text, "-inf") == 0;
}

static int append(const char *bytes, size_t n, void *out)
{
    lvni_core_str_append_n(out, bytes, n);
    return 0;
}

lvn_status lvni_trainer_epoch_sums_write(const lvni_nn_step *sums, lvni_core_str *out)
{
    json_t *all = json_array();
    bool good = all != NULL;
    for (int i = 0; i < sums->n_metrics && good; i++) {
        const lvni_nn_step_metric *m = &sums->metric[i];
        good = json_array_append_new(
                   all, json_pack("[s,o,o]", m->name, number(m->sum), number(m->weight))) == 0;
    }
    good =
        good && json_dump_callback(all, append, out, JSON_COMPACT | JSON_REAL_PRECISION(17)) == 0;
    json_decref(all);
    if (!good) {
        LVN_FAIL(LVN_ERR_MEMORY,
                 "no host memory (or a name that is not UTF-8) for the sums of %d metrics",
                 sums->n_metrics);
    }
    return lvni_core_str_status(out);
}

static bool read_one(const json_t *row, lvni_nn_step_metric *m)
{
    const char *name = json_string_value(json_array_get(row, 0));
    if (name == NULL || json_array_size(row) != 3 || strlen(name) >= sizeof m->name) {
        return false;
    }
    memcpy(m->name, name, strlen(name) + 1);
    return to_double(json_array_get(row, 1), &m->sum) &&
           to_double(json_array_get(row, 2), &m->weight);
}

lvn_status lvni_trainer_epoch_sums_read(const char *text, lvni_nn_step *sums)
{
    *sums = (lvni_nn_step){0};
    json_t *all = lvni_core_json_try(text, LVNI_JSON_INNER);
    const size_t n = json_array_size(all);
    bool good = json_is_array(all) && n <= LVNI_METRICS;
    for (size_t i = 0; i < n && good; i++) {
        good = read_one(json_array_get(all, i), &sums->metric[i]);
    }
    sums->n_metrics = good ? (int)n : 0;
    json_decref(all);
    if (!good) {
        LVN_FAIL(LVN_ERR_CORRUPT, "not sums of metrics: %.200s", text);
    }
    return LVN_OK;
}
