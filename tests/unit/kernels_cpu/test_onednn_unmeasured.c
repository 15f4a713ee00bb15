/* A version of oneDNN that levin was not measured with: named in one sentence, and nothing is taken
 * for independent of the team. This program's own dnnl_version stands for such a library. */
#include "kernels/cpu/onednn_table.h"
#include "kernels/cpu/onednn_version.h"
#include "kernels/kernels.h"
#include "support/test.h"

#include <string.h>

static dnnl_version_t version = {.major = 3, .minor = 99, .patch = 1};

const dnnl_version_t *dnnl_version(void)
{
    return &version;
}

/* A 1 x 1 convolution in f32, whose bits are the same for every team in all measured versions. */
static lvni_cpu_dnn_key pointwise(int64_t rows)
{
    lvni_cpu_dnn_key key;
    memset(&key, 0, sizeof key);
    key.work.op = LVNI_DNN_CONV_FORWARD;
    key.work.shape.conv = (lvni_cpu_dnn_conv_shape){.n = 2,
                                                    .ih = rows,
                                                    .iw = 8,
                                                    .ic = 64,
                                                    .oh = rows,
                                                    .ow = 8,
                                                    .oc = 64,
                                                    .kh = 1,
                                                    .kw = 1,
                                                    .stride = {1, 1},
                                                    .dilation = {1, 1},
                                                    .groups = 1};
    key.team = 2;
    key.fixed_team = 1;
    return key;
}

static int team_of(int64_t rows)
{
    const lvni_cpu_dnn_key key = pointwise(rows);
    lvni_cpu_dnn_found f = {0};
    assert_int_equal(lvni_cpu_dnn_lookup(&key, &f), LVN_OK);
    return f.team;
}

TEST(unmeasured_versions_run_with_the_fixed_team)
{
    version = (dnnl_version_t){.major = 3, .minor = 99, .patch = 1};
    assert_non_null(lvni_cpu_unmeasured());
    assert_non_null(strstr(lvni_cpu_unmeasured(), "oneDNN 3.99.1 is a version"));
    assert_int_equal(team_of(8), 1);
    version = (dnnl_version_t){.major = 3, .minor = 7, .patch = 2};
    assert_null(lvni_cpu_unmeasured());
    if (strstr(lvni_cpu_describe(), "avx512") != NULL) {
        assert_int_equal(team_of(9), 2); /* another shape: the table keeps what it made */
    }
}

BEFORE_ALL()
{
    return lvni_cpu_start() == LVN_OK ? 0 : -1;
}
