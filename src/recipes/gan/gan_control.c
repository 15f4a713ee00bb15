/* The rule of std_mult (gan_control.h). */
#include "recipes/gan/gan_control.h"

#include <math.h>

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
