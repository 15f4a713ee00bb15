/* range_test.h */
#include "tune/range_test.h"

#include <math.h>

/* of the mean that ends a test, from step to step */
static const double KEPT = 0.95;
/* Parts of the steps: those on either side of a point that its line goes through, and the first
 * ones, whose rates change nothing yet. */
enum { BESIDE = 12, FIRST = 8, LEAST_BESIDE = 8, LEAST_FIRST = 8 };
/* Of the first losses: differences below this part of them count as none. */
static const double FLOOR = 1e-3;
/* Parts of the fall, and of ways over the logarithm of the rate. Tried on 40 tests of five sets of
 * data (bench/lr_finder.py): suggestions are 0.1 to 7 times the best rate of a grid. */
static const double TENTH = 0.1, MIDDLE = 0.5, TOWARDS_LOW = 0.4, MOST = 0.95;

double lvni_tune_range_lr(const lvni_tune_range_test *t, int i)
{
    const double part = (double)i / (t->steps - 1);
    return t->linear ? t->min_lr + part * (t->max_lr - t->min_lr)
                     : t->min_lr * pow(t->max_lr / t->min_lr, part);
}

bool lvni_tune_range_add(lvni_tune_range_test *t, double loss)
{
    t->average = KEPT * t->average + (1.0 - KEPT) * loss;
    const double mean = t->average / (1.0 - pow(KEPT, t->n + 1));
    t->point[t->n] = (lvni_tune_range_point){.lr = lvni_tune_range_lr(t, t->n), .loss = loss};
    t->n++;
    /* so many times a loss that is positive; one below 0 may rise as much */
    if (!isfinite(mean) || (t->n > 1 && t->stop_above > 0.0 &&
                            mean - t->least > (t->stop_above - 1.0) * fabs(t->least))) {
        return false;
    }
    t->least = t->n == 1 || mean < t->least ? mean : t->least;
    return true;
}

/* ---- the fit ---- */

static int larger(int a, int b)
{
    return a > b ? a : b;
}

/* Points with a finite loss: once it is not it stays so. */
static int count(const lvni_tune_range_test *t)
{
    int n = t->n;
    while (n > 0 && !isfinite(t->point[n - 1].loss)) {
        n--;
    }
    return n;
}

static int count_first(const lvni_tune_range_test *t)
{
    return larger(t->steps / FIRST, LEAST_FIRST);
}

/* 0: the fit is of the losses themselves; else of the logarithm of loss + floor, so that a fall
 * from 0.1 to 0.01 counts as much as one from 1 to 0.1. */
static double find_floor(const lvni_tune_range_test *t)
{
    const int n = count(t), first = count_first(t) < n ? count_first(t) : n;
    double sum = 0.0;
    for (int i = 0; i < first; i++) {
        sum += t->point[i].loss;
    }
    for (int i = 0; i < n; i++) {
        if (t->point[i].loss < 0.0) {
            return 0.0;
        }
    }
    return FLOOR * sum / first;
}

static double scale(double loss, double floor)
{
    return floor > 0.0 ? log(loss + floor) : loss;
}

/* Cleveland's tricube: 1 here, 0 at `beside` + 1 steps. */
static double weigh(int distance, int beside)
{
    const double part = fabs((double)distance) / (beside + 1), rest = 1.0 - part * part * part;
    return rest * rest * rest;
}

/* The line of least squares through the points around i, and by what is left of them its error. */
static void fit_line(const lvni_tune_range_test *t, int n, int i, int beside, double floor)
{
    const int first = larger(i - beside, 0), end = i + beside < n ? i + beside + 1 : n;
    double w = 0.0, wx = 0.0, wxx = 0.0, wy = 0.0, wxy = 0.0, rest = 0.0, own = 0.0;
    for (int j = first; j < end; j++) {
        const double k = weigh(j - i, beside), x = j - i, y = scale(t->point[j].loss, floor);
        w += k;
        wx += k * x;
        wxx += k * x * x;
        wy += k * y;
        wxy += k * x * y;
    }
    lvni_tune_range_point *p = &t->point[i];
    const double d = w * wxx - wx * wx;
    p->value = (wxx * wy - wx * wxy) / d;
    const double slope = (w * wxy - wx * wy) / d;
    for (int j = first; j < end; j++) {
        const double k = weigh(j - i, beside), x = j - i,
                     off = scale(t->point[j].loss, floor) - p->value - slope * x,
                     share = k * (wxx - wx * x) / d; /* of point j in the value */
        rest += k * off * off;
        own += share * share;
    }
    const int used = end - first;
    p->error = sqrt(rest / w * used / (used - 2) * own);
    p->smoothed = floor > 0.0 ? exp(p->value) - floor : p->value;
}

bool lvni_tune_range_fit(lvni_tune_range_test *t)
{
    const int n = count(t), beside = larger(t->steps / BESIDE, LEAST_BESIDE);
    const double floor = n > 0 ? find_floor(t) : 0.0;
    for (int i = 0; i < t->n; i++) { /* where there is no line */
        t->point[i].smoothed = t->point[i].loss;
    }
    for (int i = 0; i < n && n >= LVNI_RANGE_LEAST; i++) {
        fit_line(t, n, i, beside, floor);
    }
    return n >= LVNI_RANGE_LEAST;
}

/* ---- the descent ---- */

/* In units of the fit. */
typedef struct level {
    double mean, error;
} level;

/* Of the first points. */
static level look_at_first(const lvni_tune_range_test *t, int n)
{
    const double floor = find_floor(t);
    const int first = count_first(t) < n ? count_first(t) : n;
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < first; i++) {
        sum += scale(t->point[i].loss, floor);
    }
    for (int i = 0; i < first; i++) {
        const double off = scale(t->point[i].loss, floor) - sum / first;
        squares += off * off;
    }
    return (level){.mean = sum / first, .error = sqrt(squares / (first - 1) / first)};
}

/* In standard errors. */
static double fall_at(const lvni_tune_range_point *p, const level *first)
{
    return (first->mean - p->value) / hypot(first->error, p->error);
}

static int find_lowest(const lvni_tune_range_test *t, int n)
{
    int lowest = 0;
    for (int i = 1; i < n; i++) {
        lowest = t->point[i].value < t->point[lowest].value ? i : lowest;
    }
    return lowest;
}

/* What large rates make of a loss goes up and down, and the lowest point among them is chance. */
static int find_end(const lvni_tune_range_test *t, int lowest)
{
    int end = 0;
    while (t->point[end].value > t->point[lowest].value + t->point[lowest].error) {
        end++;
    }
    return end;
}

/* The end of the low stretch: from the lowest point on while at most a tenth of the fall is lost.
 */
static int find_last_low(const lvni_tune_range_test *t, int n, int lowest, const level *first)
{
    const lvni_tune_range_point *p = t->point;
    const double lost = TENTH * (first->mean - p[lowest].value),
                 most = p[lowest].value + fmax(lost, p[lowest].error);
    int last = lowest;
    while (last + 1 < n && p[last + 1].value <= most) {
        last++;
    }
    return last;
}

/* The first point that lies there or behind, up to `end`, and beyond doubt below the first ones;
 * -1: there is none. */
static int choose(const lvni_tune_range_test *t, double log_lr, int end, const level *first)
{
    for (int i = 0; i <= end; i++) {
        if (log(t->point[i].lr) >= log_lr && fall_at(&t->point[i], first) >= LVNI_RANGE_CLEAR) {
            return i;
        }
    }
    return -1;
}

lvni_tune_range_answer lvni_tune_range_find(const lvni_tune_range_test *t)
{
    const int n = count(t), lowest = find_lowest(t, n), end = find_end(t, lowest);
    const lvni_tune_range_point *p = t->point;
    const level first = look_at_first(t, n);
    int begin = end;
    while (begin > 0 && p[begin].value < first.mean - TENTH * (first.mean - p[end].value)) {
        begin--;
    }
    const double from = log(p[begin].lr), to = log(p[end].lr), middle = from + MIDDLE * (to - from),
                 low = (to + log(p[find_last_low(t, n, lowest, &first)].lr)) / 2.0,
                 wanted = middle + TOWARDS_LOW * (low - middle);
    const int best = choose(t, fmin(wanted, from + MOST * (to - from)), end, &first);
    return (lvni_tune_range_answer){.suggested = best,
                                    .begin = begin,
                                    .end = end,
                                    .fall = fall_at(&p[best < 0 ? end : best], &first),
                                    .open = lowest == t->n - 1};
}
