/* Histograms of the parameters for the loggers, of the values that a checkpoint gets
 * (log_histograms=true). Called by save.c. */
#include "core/error.h"
#include "core/str.h"
#include "log/loggers.h"
#include "trainer/logging_impl.h"

#include <math.h>

enum { BUCKETS = 64 };

typedef struct histogram {
    lvni_log_histogram sums;
    double limit[BUCKETS], count[BUCKETS];
} histogram;

/* Buckets of one width from the smallest value to the largest; what is not finite is left out. */
static void count(const float *value, int64_t n, histogram *h)
{
    lvni_log_histogram *s = &h->sums;
    *h = (histogram){.sums = {.min = INFINITY, .max = -INFINITY}};
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)value[i];
        if (isfinite(x)) {
            s->min = x < s->min ? x : s->min;
            s->max = x > s->max ? x : s->max;
            s->sum += x;
            s->sum_squares += x * x;
            s->n += 1.0;
        }
    }
    s->n_buckets = s->max > s->min ? BUCKETS : 1;
    const double width = (s->max - s->min) / s->n_buckets;
    for (int i = 0; i < s->n_buckets; i++) {
        h->limit[i] = i + 1 < s->n_buckets ? s->min + (i + 1) * width : s->max;
    }
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)value[i];
        if (isfinite(x)) {
            int bucket = width > 0.0 ? (int)ceil((x - s->min) / width) - 1 : 0;
            bucket = bucket < 0 ? 0 : bucket < s->n_buckets ? bucket : s->n_buckets - 1;
            h->count[bucket] += 1.0;
        }
    }
    s->limit = h->limit;
    s->count = h->count;
}

lvn_status lvni_trainer_logging_histograms(const lvni_trainer_logging *r, int64_t step,
                                           const float *values)
{
    if (!r->o->log_histograms || r->loggers == NULL) {
        return LVN_OK;
    }
    const lvni_nn_model *m = r->o->model;
    lvni_core_str name = {0};
    lvn_status s = LVN_OK;
    for (int i = 0; i < m->n_parameters; i++) {
        histogram h;
        count(values + m->offset[i], m->parameters[i].numel, &h);
        lvni_core_str_clear(&name);
        lvni_core_str_printf(&name, "parameters/%s", m->parameters[i].name);
        LVNI_TRY_DONE(s, lvni_core_str_status(&name));
        h.sums.name = lvni_core_str_text(&name);
        if (h.sums.n > 0.0) {
            lvni_log_loggers_histogram(r->loggers, step, &h.sums);
        }
    }
done:
    lvni_core_str_free(&name);
    return s;
}
