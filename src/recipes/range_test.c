/* range_test.h */
#include "recipes/range_test.h"

#include <math.h>

static const double KEPT = 0.98; /* of the average, from step to step */

double lvni_recipes_range_lr(const lvni_recipes_range_test *t, int i)
{
    const double part = (double)(i + 1) / t->steps;
    if (i == 0) {
        return t->min_lr;
    }
    return t->linear ? t->min_lr + part * (t->max_lr - t->min_lr)
                     : t->min_lr * pow(t->max_lr / t->min_lr, part);
}

bool lvni_recipes_range_add(lvni_recipes_range_test *t, double loss)
{
    t->average = KEPT * t->average + (1.0 - KEPT) * loss;
    const double smoothed = t->average / (1.0 - pow(KEPT, t->n + 1));
    t->point[t->n] = (lvni_recipes_range_point){
        .lr = lvni_recipes_range_lr(t, t->n), .loss = loss, .smoothed = smoothed};
    t->n++;
    if (!isfinite(smoothed) ||
        (t->n > 1 && t->stop_above > 0.0 && smoothed > t->stop_above * t->least)) {
        return false;
    }
    t->least = t->n == 1 || smoothed < t->least ? smoothed : t->least;
    return true;
}

/* Of the smoothed loss, by the power of ten of the rate. */
static double slope_between(const lvni_recipes_range_point *a, const lvni_recipes_range_point *b)
{
    return (b->smoothed - a->smoothed) / log10(b->lr / a->lr);
}

/* The slope at point i of [first, end). */
static double slope_at(const lvni_recipes_range_point *p, int i, int first, int end)
{
    if (i == first || i == end - 1) {
        return slope_between(&p[i == first ? i : i - 1], &p[i == first ? i + 1 : i]);
    }
    const double before = log10(p[i].lr / p[i - 1].lr), after = log10(p[i + 1].lr / p[i].lr);
    return (before * slope_between(&p[i], &p[i + 1]) + after * slope_between(&p[i - 1], &p[i])) /
           (before + after);
}

int lvni_recipes_range_suggest(const lvni_recipes_range_test *t)
{
    const int first = LVNI_RANGE_SKIP_FIRST;
    int end = t->n - LVNI_RANGE_SKIP_LAST, best = -1;
    while (end > first && !isfinite(t->point[end - 1].smoothed)) {
        end--; /* once it is not finite it stays so */
    }
    double least = 0.0;
    for (int i = first; i < end && end - first >= 2; i++) {
        const double slope = slope_at(t->point, i, first, end);
        if (best < 0 || slope < least) {
            best = i;
            least = slope;
        }
    }
    return best;
}
