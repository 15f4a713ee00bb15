/* The rule of std_mult, and the choice of the best epoch (gan_control.h). */
#include "recipes/gan/gan_control.h"

#include "core/str.h"

#include <math.h>
#include <stdio.h>

double lvni_gan_gain(int samples)
{
    return 10.0 * log10(2.0 * samples / (samples + 1.0));
}

void lvni_gan_control_update(lvni_gan_control *c, const lvni_gan_rule *rule, double psnr_1,
                             double psnr_p)
{
    c->d = psnr_1 + rule->target - psnr_p;
    c->is_good = fabs(c->d) <= rule->tolerance;
    c->same_count = fabs(c->d - rule->target) <= 1e-3 ? c->same_count + 1 : 0;
    if (isfinite(c->d)) {
        c->std_mult += rule->step * c->d;
    }
}

bool lvni_gan_control_ignores_noise(const lvni_gan_control *c)
{
    return c->same_count >= LVNI_GAN_SAME_EPOCHS;
}

/* ---- the best epoch ---- */

lvni_gan_choice lvni_gan_choose(const lvni_gan_epoch *e, int n)
{
    lvni_gan_choice c = {-1, -1};
    for (int i = 0; i < n; i++) {
        if (e[i].is_good && isfinite(e[i].score) && (c.best < 0 || e[i].score < e[c.best].score)) {
            c.best = i;
        }
        if (isfinite(e[i].d) && (c.closest < 0 || fabs(e[i].d) < fabs(e[c.closest].d))) {
            c.closest = i;
        }
    }
    return c;
}

static const char *number_text(char text[24], bool fixed, double value)
{
    if (isfinite(value)) {
        lvni_core_format(text, 24, fixed ? "%.4f" : "%.6g", value);
    }
    return isfinite(value) ? text : "-";
}

void lvni_gan_choice_print(const lvni_gan_epoch *e, int n, const char *score, lvni_core_str *out)
{
    const lvni_gan_choice c = lvni_gan_choose(e, n);
    lvni_core_str_printf(out, "  epoch  %12s  psnr_diff  acceptable\n", score);
    for (int i = 0; i < n; i++) {
        char score_text[24], d_text[24];
        lvni_core_str_printf(out, "%s %5lld  %12s  %9s  %s\n", i == c.best ? "*" : " ",
                             (long long)e[i].epoch, number_text(score_text, false, e[i].score),
                             number_text(d_text, true, e[i].d), e[i].is_good ? "yes" : "no");
    }
    if (c.best >= 0) {
        lvni_core_str_printf(out, "best: epoch %lld\n", (long long)e[c.best].epoch);
    } else if (c.closest >= 0) {
        lvni_core_str_printf(out,
                             "no epoch is acceptable; closest: epoch %lld, %.4f dB from the "
                             "target\n",
                             (long long)e[c.closest].epoch, fabs(e[c.closest].d));
    } else {
        lvni_core_str_append(out, "no epoch is acceptable\n");
    }
}

static void json_number(const char *name, double value, lvni_core_str *out)
{
    lvni_core_str_printf(out, ", \"%s\": ", name);
    if (isfinite(value)) {
        lvni_core_str_double(out, value);
    } else {
        lvni_core_str_append(out, "null");
    }
}

static void json_epoch(const char *name, const lvni_gan_epoch *e, int i, lvni_core_str *out)
{
    lvni_core_str_printf(out, ", \"%s\": ", name);
    if (i >= 0) {
        lvni_core_str_printf(out, "%lld", (long long)e[i].epoch);
    } else {
        lvni_core_str_append(out, "null");
    }
}

void lvni_gan_choice_json(const lvni_gan_epoch *e, int n, const char *score, lvni_core_str *out)
{
    const lvni_gan_choice c = lvni_gan_choose(e, n);
    lvni_core_str_append(out, "\"epochs\": [");
    for (int i = 0; i < n; i++) {
        lvni_core_str_printf(out, "%s{\"epoch\": %lld", i > 0 ? ", " : "", (long long)e[i].epoch);
        json_number(score, e[i].score, out);
        json_number("psnr_diff", e[i].d, out);
        lvni_core_str_printf(out, ", \"acceptable\": %s}", e[i].is_good ? "true" : "false");
    }
    lvni_core_str_append(out, "]");
    json_epoch("best", e, c.best, out);
    json_epoch("closest", e, c.closest, out);
}
