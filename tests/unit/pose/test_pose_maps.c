/* Coordinates of labels through the maps that are drawn for them and back, against numbers worked
 * out from the formulas in double precision. */
#include "kernels/kernels.h"
#include "support/test.h"

#include <levin/ops.h>
#include <math.h>
#include <stdio.h>

enum { SIDE = 256, MAP = 64, POINTS = 7, NONE = 0, UNIFORM = 1, BUMP = 2 };

static const struct {
    double x, y, kind, peak, at[3];
} rows[POINTS] = {{128.0, 128.0, BUMP, 0.101859, {128.0, 128.0, 0.999698}},
                  {100.0, 60.0, BUMP, 0.101859, {100.0, 60.0, 0.999698}},
                  {101.3, 60.7, BUMP, 0.097514, {101.3010, 60.6925, 0.999036}},
                  {0.0, 0.0, BUMP, 0.234137, {1.5097, 1.5097, 1.0}},
                  {255.0, 255.0, BUMP, 0.405699, {251.4549, 251.4549, 1.0}},
                  {2.0, 130.0, BUMP, 0.109233, {2.5019, 130.0, 0.999975}},
                  {0.0, 0.0, UNIFORM, 1.0 / (MAP * MAP), {126.0, 126.0, 0.000383}}};

static void near(const char *what, int row, double have, double want, double apart)
{
    if (!(fabs(have - want) <= apart)) {
        fail_msg("%s of row %d: %.9g, not %.9g", what, row, have, want);
    }
}

static lvn_tensor *draw(int64_t n, const double (*points)[3], int64_t h, int64_t w, double scale)
{
    lvn_tensor *at = lvn_zeros(LVN_F32, LVN_SHAPE(1, n, 2)),
               *kind = lvn_zeros(LVN_F32, LVN_SHAPE(1, n));
    for (int64_t i = 0; i < n; i++) {
        ((float *)lvn_data(at))[2 * i] = (float)points[i][0];
        ((float *)lvn_data(at))[2 * i + 1] = (float)points[i][1];
        ((float *)lvn_data(kind))[i] = (float)points[i][2];
    }
    return lvn_heatmap2d(at, kind, h, w, scale, 1.25);
}

TEST(labels_return_from_their_maps)
{
    double points[POINTS][3];
    for (int i = 0; i < POINTS; i++) {
        points[i][0] = rows[i].x;
        points[i][1] = rows[i].y;
        points[i][2] = rows[i].kind;
    }
    assert_int_equal(lvn_scope_open(), LVN_OK);
    lvn_tensor *maps = draw(POINTS, points, MAP, MAP, (double)MAP / SIDE),
               *found = lvn_soft_argmax2d(maps, 2);
    assert_non_null(found);
    const float *map = lvn_const_data(maps), *y = lvn_const_data(found);
    for (int i = 0; i < POINTS; i++) {
        double peak = 0.0, sum = 0.0;
        for (int p = 0; p < MAP * MAP; p++) {
            peak = fmax(peak, (double)map[p * POINTS + i]);
            sum += (double)map[p * POINTS + i];
        }
        near("the sum", i, sum, 1.0, 1e-6);
        near("the peak", i, peak, rows[i].peak, 1e-6);
        near("x", i, (double)y[3 * i], rows[i].at[0], 1e-4);
        near("y", i, (double)y[3 * i + 1], rows[i].at[1], 1e-4);
        near("the confidence", i, (double)y[3 * i + 2], rows[i].at[2], 1e-5);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

/* What is not labelled, NaN, or more than a pixel outside of the map is a map of zeros. */
TEST(maps_of_zeros)
{
    static const double points[][3] = {{20.0, 20.0, NONE},  {NAN, 3.0, BUMP},   {-4.1, 20.0, BUMP},
                                       {20.0, 68.2, BUMP},  {20.0, 20.0, 3.0},  {20.0, -4.0, BUMP},
                                       {132.0, 20.0, BUMP}, {132.2, 1.0, BUMP}, {20.0, 68.0, BUMP}};
    static const bool there[] = {false, false, false, false, false, true, true, false, true};
    enum { N = sizeof there / sizeof *there, H = 16, W = 32 };
    assert_int_equal(lvn_scope_open(), LVN_OK);
    const float *map = lvn_const_data(draw(N, points, H, W, 0.25));
    for (int i = 0; i < N; i++) {
        double sum = 0.0;
        for (int p = 0; p < H * W; p++) {
            sum += (double)map[p * N + i];
        }
        near("the sum", i, sum, there[i] ? 1.0 : 0.0, 1e-6);
    }
    assert_int_equal(lvn_scope_close(), LVN_OK);
}

/* One bright pixel of a map is the middle of the pixels that it became, whatever the number of
 * doublings, on oblong maps, too. */
TEST(a_bright_pixel_returns_itself)
{
    enum { H = 16, W = 24, X = 13, Y = 6 };
    for (int d = 0; d <= 3; d++) {
        assert_int_equal(lvn_scope_open(), LVN_OK);
        lvn_tensor *maps = lvn_zeros(LVN_F32, LVN_SHAPE(1, H, W, 2));
        ((float *)lvn_data(maps))[2 * (Y * W + X) + 1] = 1.0f;
        const float *y = lvn_const_data(lvn_soft_argmax2d(maps, d));
        near("x", d, (double)y[3], X << d, 1e-4);
        near("y", d, (double)y[4], Y << d, 1e-4);
        near("the confidence", d, (double)y[5], 1.0, 1e-4);
        assert_int_equal(lvn_scope_close(), LVN_OK);
    }
}
