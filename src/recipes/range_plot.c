/* range_plot.h */
#include "recipes/range_plot.h"

#include <math.h>

enum { WIDTH = 720, HEIGHT = 420, LEFT = 70, RIGHT = 20, TOP = 20, BOTTOM = 50, TICKS = 6 };

typedef struct frame {
    const lvni_recipes_range_test *test;
    double low, high; /* of the losses */
} frame;

static double along(const frame *f, double lr)
{
    const lvni_recipes_range_test *t = f->test;
    const double part = t->linear ? (lr - t->min_lr) / (t->max_lr - t->min_lr)
                                  : log(lr / t->min_lr) / log(t->max_lr / t->min_lr);
    return LEFT + part * (WIDTH - LEFT - RIGHT);
}

static double up(const frame *f, double loss)
{
    const double part = (loss - f->low) / (f->high - f->low);
    return HEIGHT - BOTTOM - part * (HEIGHT - TOP - BOTTOM);
}

/* What the smoothed curve has, and a little more; a step's own loss may lie outside. */
static frame frame_of(const lvni_recipes_range_test *t)
{
    frame f = {.test = t, .low = INFINITY, .high = -INFINITY};
    for (int i = 0; i < t->n; i++) {
        const double loss = t->point[i].smoothed;
        f.low = isfinite(loss) ? fmin(f.low, loss) : f.low;
        f.high = isfinite(loss) ? fmax(f.high, loss) : f.high;
    }
    const double more = f.high > f.low ? 0.05 * (f.high - f.low) : 0.5;
    f.low = isfinite(f.low) ? f.low - more : 0.0;
    f.high = isfinite(f.high) ? f.high + more : 1.0;
    return f;
}

static void draw_axes(const frame *f, lvni_core_str *out)
{
    const lvni_recipes_range_test *t = f->test;
    lvni_core_str_printf(out, "<path d=\"M%d %dV%dH%d\" fill=\"none\" stroke=\"#444\"/>\n", LEFT,
                         TOP, HEIGHT - BOTTOM, WIDTH - RIGHT);
    for (int i = 0; i <= TICKS; i++) {
        const double part = (double)i / TICKS,
                     lr = t->linear ? t->min_lr + part * (t->max_lr - t->min_lr)
                                    : t->min_lr * pow(t->max_lr / t->min_lr, part),
                     loss = f->low + part * (f->high - f->low);
        lvni_core_str_printf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.2g</text>\n",
                             along(f, lr), HEIGHT - BOTTOM + 18, lr);
        lvni_core_str_printf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n",
                             LEFT - 6, up(f, loss) + 4, loss);
    }
    lvni_core_str_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">optim.lr</text>\n",
                         (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10);
    lvni_core_str_printf(out,
                         "<text x=\"14\" y=\"%d\" text-anchor=\"middle\" "
                         "transform=\"rotate(-90 14 %d)\">smoothed loss</text>\n",
                         (TOP + HEIGHT - BOTTOM) / 2, (TOP + HEIGHT - BOTTOM) / 2);
}

static void draw_points(const frame *f, lvni_core_str *out)
{
    const lvni_recipes_range_test *t = f->test;
    for (int i = 0; i < t->n; i++) {
        const lvni_recipes_range_point *p = &t->point[i];
        if (p->loss >= f->low && p->loss <= f->high) {
            lvni_core_str_printf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"#9bc\"/>\n",
                                 along(f, p->lr), up(f, p->loss));
        }
    }
    lvni_core_str_printf(out, "<polyline fill=\"none\" stroke=\"#146\" stroke-width=\"2\" "
                              "points=\"");
    for (int i = 0; i < t->n && isfinite(t->point[i].smoothed); i++) {
        lvni_core_str_printf(out, "%s%.1f,%.1f", i > 0 ? " " : "", along(f, t->point[i].lr),
                             up(f, t->point[i].smoothed));
    }
    lvni_core_str_printf(out, "\"/>\n");
}

void lvni_recipes_range_plot(const lvni_recipes_range_test *test, int suggested, lvni_core_str *out)
{
    const frame f = frame_of(test);
    lvni_core_str_printf(out,
                         "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
                         "font-family=\"sans-serif\" font-size=\"12\">\n"
                         "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
                         WIDTH, HEIGHT);
    draw_axes(&f, out);
    draw_points(&f, out);
    if (suggested >= 0) {
        const lvni_recipes_range_point *p = &test->point[suggested];
        lvni_core_str_printf(out,
                             "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"5\" fill=\"#c30\"/>\n"
                             "<text x=\"%.1f\" y=\"%.1f\" fill=\"#c30\">%.3g</text>\n",
                             along(&f, p->lr), up(&f, p->smoothed), along(&f, p->lr) + 8,
                             up(&f, p->smoothed) - 8, p->lr);
    }
    lvni_core_str_printf(out, "</svg>\n");
}
