/* lvni_data_inverse_open, and what all kinds of inverse problems ask of the options. */
#include "data/inverse.h"

#include "core/str.h"
#include "inverse/inverse_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MIN_SIZE = 8, MAX_SIZE = 4096 };

static const struct {
    const char *builtin;
    void (*check)(const lvni_data_inverse_options *o, lvni_data_inverse_mistakes *out);
    lvn_status (*open)(const lvni_data_inverse_options *o, lvn_dataset **out);
} kinds[] = {
    [LVNI_INVERSE_MASS] = {"builtin:mass", lvni_inverse_mass_check, lvni_inverse_mass_open},
    [LVNI_INVERSE_MRI] = {"builtin:mri", lvni_inverse_mri_check, lvni_inverse_mri_open},
    [LVNI_INVERSE_RADIO] = {"builtin:radio", lvni_inverse_radio_check, lvni_inverse_radio_open},
};

void lvni_inverse_mistake(lvni_data_inverse_mistakes *out, const char *key, const char *fmt, ...)
{
    va_list args;
    if (out->n == LVNI_INVERSE_MISTAKES) {
        return;
    }
    out->of[out->n].key = key;
    va_start(args, fmt);
    lvni_core_format_args(out->of[out->n].text, sizeof out->of[0].text, fmt, args);
    va_end(args);
    out->n++;
}

void lvni_data_inverse_check(const lvni_data_inverse_options *o, lvni_data_inverse_mistakes *out)
{
    out->n = 0;
    if (o->im_size < MIN_SIZE || o->im_size > MAX_SIZE) {
        lvni_inverse_mistake(out, "im_size", "im_size=%d: it must be %d to %d", o->im_size,
                             MIN_SIZE, MAX_SIZE);
    }
    if (lvni_inverse_builtin(o) && strcmp(o->path, kinds[o->experience].builtin) != 0) {
        lvni_inverse_mistake(out, "data",
                             "%s: the samples of this experience that levin makes up are %s",
                             o->path, kinds[o->experience].builtin);
    }
    if (o->count < 0 || o->count > (int64_t)UINT32_MAX) {
        lvni_inverse_mistake(out, "data.count", "%lld samples of %s: there are 1 to 4294967295",
                             (long long)o->count, o->path);
    }
    if (!(o->sigma >= 0.0)) {
        lvni_inverse_mistake(out, "data.sigma",
                             "the deviation of the noise is %g: it must not be negative", o->sigma);
    }
    if (o->random_mask &&
        (o->experience != LVNI_INVERSE_MASS || !lvni_inverse_builtin(o) || o->cosmo_dir != NULL)) {
        lvni_inverse_mistake(out, "data.mask",
                             "data.mask=random is for builtin:mass without cosmo_dir_path");
    }
    kinds[o->experience].check(o, out);
}

lvn_status lvni_data_inverse_open(const lvni_data_inverse_options *o, lvn_dataset **out)
{
    lvni_data_inverse_mistakes mistakes;
    *out = NULL;
    lvni_data_inverse_check(o, &mistakes);
    if (mistakes.n > 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s", mistakes.of[0].text);
    }
    return kinds[o->experience].open(o, out);
}
