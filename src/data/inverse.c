/* lvni_data_inverse_open: what all kinds of inverse problems ask of the options. */
#include "data/inverse.h"

#include "inverse/inverse_impl.h"

#include <string.h>

enum { MIN_SIZE = 8, MAX_SIZE = 4096 };

static const struct {
    const char *builtin;
    lvn_status (*open)(const lvni_data_inverse_options *o, lvn_dataset **out);
} kinds[] = {
    [LVNI_INVERSE_MASS] = {"builtin:mass", lvni_inverse_mass_open},
    [LVNI_INVERSE_MRI] = {"builtin:mri", lvni_inverse_mri_open},
    [LVNI_INVERSE_RADIO] = {"builtin:radio", lvni_inverse_radio_open},
};

lvn_status lvni_data_inverse_open(const lvni_data_inverse_options *o, lvn_dataset **out)
{
    *out = NULL;
    if (o->im_size < MIN_SIZE || o->im_size > MAX_SIZE) {
        LVN_FAIL(LVN_ERR_USAGE, "im_size=%d: it must be %d to %d", o->im_size, MIN_SIZE, MAX_SIZE);
    }
    if (lvni_inverse_builtin(o) && strcmp(o->path, kinds[o->experience].builtin) != 0) {
        LVN_FAIL(LVN_ERR_USAGE, "%s: the samples of this experience that levin makes up are %s",
                 o->path, kinds[o->experience].builtin);
    }
    if (o->count < 0 || o->count > (int64_t)UINT32_MAX) {
        LVN_FAIL(LVN_ERR_USAGE, "%lld samples of %s: there are 1 to 4294967295",
                 (long long)o->count, o->path);
    }
    if (!(o->sigma >= 0.0)) {
        LVN_FAIL(LVN_ERR_USAGE, "the deviation of the noise is %g: it must not be negative",
                 o->sigma);
    }
    return kinds[o->experience].open(o, out);
}
