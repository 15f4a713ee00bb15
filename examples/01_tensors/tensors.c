/* Tensors, scopes, gradients: a line fitted by gradient descent, derivatives beside finite
 * differences.
 *
 *   cc -Iinclude examples/01_tensors/tensors.c -Lbuild -llevin -lm \
 *      -Wl,-rpath,$PWD/build -o tensors
 *   ./tensors */
#include <levin/levin.h>

#include <math.h>
#include <stdio.h>

enum { POINTS = 64, STEPS = 200 };

/* p -= rate * gradient, in place: the gradient of a leaf lies beside it after lvn_backward(). */
static void descend(lvn_tensor *p, float rate)
{
    float *value = lvn_data(p);
    const float *slope = lvn_const_data(lvn_gradient(p));
    for (int64_t i = 0; i < lvn_numel(p); i++) {
        value[i] -= rate * slope[i];
    }
    lvn_zero_grad(p);
}

/* One step: what the ops make belongs to the scope and goes with it; an error shows when the scope
 * is closed. */
static lvn_status step(lvn_tensor *x, lvn_tensor *y, lvn_tensor *w, lvn_tensor *b, double *loss)
{
    LVN_TRY(lvn_scope_open());
    lvn_tensor *error = lvn_mean(lvn_square(lvn_sub(lvn_add(lvn_mul(x, w), b), y)));
    *loss = lvn_item(error);
    const lvn_status backward = lvn_backward(error);
    LVN_TRY(lvn_scope_close());
    LVN_TRY(backward);
    descend(w, 0.2f);
    descend(b, 0.2f);
    return LVN_OK;
}

/* y = 3 x - 0.5 and a little ripple, for x from -1 to 1 */
static lvn_status fit_line(lvn_tensor *w, lvn_tensor *b)
{
    float xs[POINTS], ys[POINTS];
    for (int i = 0; i < POINTS; i++) {
        xs[i] = -1.0f + 2.0f * (float)i / (POINTS - 1);
        ys[i] = 3.0f * xs[i] - 0.5f + ((i & 1) != 0 ? 0.05f : -0.05f);
    }
    /* no copy: the arrays stay ours */
    lvn_tensor *x = lvn_tensor_wrap(xs, LVN_F32, LVN_SHAPE(POINTS));
    lvn_tensor *y = lvn_tensor_wrap(ys, LVN_F32, LVN_SHAPE(POINTS));
    lvn_status s = x != NULL && y != NULL ? LVN_OK : lvn_last_error()->code;
    double loss = 0.0;
    for (int t = 0; t < STEPS && s == LVN_OK; t++) {
        s = step(x, y, w, b, &loss);
        if (s == LVN_OK && (t == 0 || (t + 1) % 50 == 0)) {
            printf("step %3d  loss %.4f\n", t + 1, loss);
        }
    }
    lvn_release(y);
    lvn_release(x);
    return s;
}

/* f(x) = mean(exp(-x^2) relu(x) + log(1 + exp(x))) */
static lvn_tensor *formula(lvn_tensor *x)
{
    lvn_tensor *bump = lvn_mul(lvn_exp(lvn_neg(lvn_square(x))), lvn_relu(x));
    return lvn_mean(lvn_add(bump, lvn_log_e(lvn_add_scalar(lvn_exp(x), 1.0))));
}

static double value_at(lvn_tensor *x)
{
    if (lvn_scope_open() != LVN_OK) {
        return (double)NAN;
    }
    const double f = lvn_item(formula(x));
    return lvn_scope_close() == LVN_OK ? f : (double)NAN;
}

/* f64 tensors run on the reference backend: slow, and as exact as doubles are. */
static lvn_status check_derivatives(lvn_tensor *x, double *largest)
{
    const double h = 1e-6;
    double *at = lvn_data(x);
    lvn_require_grad(x);
    LVN_TRY(lvn_scope_open());
    const lvn_status backward = lvn_backward(formula(x));
    LVN_TRY(lvn_scope_close());
    LVN_TRY(backward);
    const double *slope = lvn_const_data(lvn_gradient(x));
    lvn_set_grad_enabled(false);
    for (int64_t i = 0; i < lvn_numel(x); i++) {
        const double middle = at[i];
        at[i] = middle + h;
        const double above = value_at(x);
        at[i] = middle - h;
        const double below = value_at(x);
        at[i] = middle;
        const double difference = (above - below) / (2.0 * h);
        printf("x %5.2f  df/dx %9.6f  finite difference %9.6f\n", middle, slope[i], difference);
        *largest = fmax(*largest, fabs(slope[i] - difference));
    }
    lvn_set_grad_enabled(true);
    return LVN_OK;
}

/* A mistake: the formula is written on, the first op that failed is reported at the end. */
static void show_error(lvn_tensor *x)
{
    lvn_tensor *other = lvn_tensor_create(LVN_F64, LVN_SHAPE(7));
    if (lvn_scope_open() == LVN_OK) {
        lvn_mean(lvn_square(lvn_add(x, other)));
        if (lvn_scope_close() != LVN_OK) {
            printf("a mistake: %s\n", lvn_last_error()->message);
        }
    }
    lvn_release(other);
}

int main(void)
{
    lvn_tensor *w = lvn_require_grad(lvn_tensor_create(LVN_F32, 0, NULL)); /* scalars, 0 */
    lvn_tensor *b = lvn_require_grad(lvn_tensor_create(LVN_F32, 0, NULL));
    double points[5] = {-2.0, -0.5, 0.25, 1.0, 3.0}, largest = 0.0;
    lvn_tensor *x = lvn_tensor_wrap(points, LVN_F64, LVN_SHAPE(5));
    lvn_status s = w != NULL && b != NULL && x != NULL ? fit_line(w, b) : lvn_last_error()->code;
    if (s == LVN_OK) {
        printf("y = %.3f x %+.3f\n", lvn_item(w), lvn_item(b));
        s = check_derivatives(x, &largest);
    }
    if (s == LVN_OK) {
        printf("largest deviation %.1e\n", largest);
        show_error(x);
    } else {
        fprintf(stderr, "error: %s\n", lvn_last_error()->message);
    }
    lvn_release(x);
    lvn_release(b);
    lvn_release(w);
    return s == LVN_OK && largest < 1e-8 ? 0 : 1;
}
