/* Principal components of keypoints: points in a plane, gaps, what cannot be fitted, and the card
 * of a model. Row 32 of the checklist; tests/golden compares them with Lightning Pose's. */
#include "core/alloc.h"
#include "core/rng.h"
#include "recipes/pose/pose.h"
#include "recipes/pose/pose_pca.h"
#include "run/card.h"
#include "support/test.h"

#include <math.h>
#include <string.h>

enum { FRAMES = 40, KEYPOINTS = 6, DIM = 2 * KEYPOINTS, PLANE = 3 };

static const char *const names[KEYPOINTS] = {"paw", "tail", "nose", "ear", "eye", "hip"};

static double draw(int i)
{
    static const lvni_core_rng rng = {.key = {{1, 2}}};
    return 2.0 * (double)lvni_core_rng_uniform(&rng, (uint64_t)i) - 1.0;
}

/* All frames lie in a plane of PLANE directions, of which each later one varies less. */
static void fill(double *xy, int n)
{
    for (int e = 0; e < n * DIM; e++) {
        xy[e] = 100.0 + 10.0 * (e % DIM);
        for (int i = 0; i < PLANE; i++) {
            xy[e] += 40.0 / (1 << (2 * i)) * draw(1000 + e / DIM * PLANE + i) *
                     draw(e % DIM * PLANE + i);
        }
    }
}

static const lvni_pose_pca_options three = {
    .components = 3, .epsilon = NAN, .percentile = 99.0, .multiplier = 1.0, .keypoint = names};

static void fit(const lvni_pose_pca_options *o, const double *xy, int n, lvni_pose_pca *out)
{
    assert_int_equal(lvni_pose_pca_fit(o, xy, n, KEYPOINTS, out), LVN_OK);
}

static void refused(const lvni_pose_pca_options *o, const double *xy, int n, lvn_status status,
                    const char *message)
{
    lvni_pose_pca pca;
    assert_int_equal(lvni_pose_pca_fit(o, xy, n, KEYPOINTS, &pca), status);
    assert_string_equal(lvn_last_error()->message, message);
    assert_null(pca.column);
}

/* Errors of the labels, as predictions. */
static void measure(const lvni_pose_pca *pca, const double *xy, int n, double *error)
{
    static float value[FRAMES * KEYPOINTS * 3];
    for (int i = 0; i < n * KEYPOINTS; i++) {
        value[3 * i] = (float)xy[2 * i];
        value[3 * i + 1] = (float)xy[2 * i + 1];
        value[3 * i + 2] = 0.5f;
    }
    lvni_pose_pca_error(pca, value, n, error);
}

TEST(points_in_a_plane)
{
    double xy[FRAMES * DIM], error[FRAMES * KEYPOINTS];
    lvni_pose_pca pca;
    fill(xy, FRAMES);
    fit(&three, xy, FRAMES, &pca);
    assert_true(pca.epsilon >= 0.0 && pca.epsilon < 1e-9);
    assert_true(pca.explained[PLANE - 1] > 1e-4 && pca.explained[PLANE] < 1e-12);
    xy[0] += 5.0;
    measure(&pca, xy, FRAMES, error);
    for (int i = KEYPOINTS; i < FRAMES * KEYPOINTS; i++) {
        assert_true(error[i] < 1e-3);
    }
    assert_true(error[0] > 1.0 && error[0] < 5.0); /* less than what left the plane */
    lvni_pose_pca_free(&pca);
}

/* 1 is one component, 1.0 all of the variance; a share takes as few as reach it. */
TEST(components_to_keep)
{
    static const struct {
        int components;
        double variance;
        int kept;
    } cases[] = {{1, 0.0, 1}, {0, 1.0, DIM}, {12, 0.0, 12}, {0, 0.0, 1}, {0, 0.5, 1}};
    double xy[FRAMES * DIM];
    lvni_pose_pca pca;
    fill(xy, FRAMES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lvni_pose_pca_options o = three;
        o.components = cases[i].components;
        o.variance = cases[i].variance;
        fit(&o, xy, FRAMES, &pca);
        assert_int_equal(pca.kept, cases[i].kept);
        lvni_pose_pca_free(&pca);
    }
    lvni_pose_pca_options o = three;
    fit(&o, xy, FRAMES, &pca);
    o.components = 0;
    o.variance = pca.explained[0] + 0.5 * pca.explained[1];
    lvni_pose_pca_free(&pca);
    fit(&o, xy, FRAMES, &pca);
    assert_int_equal(pca.kept, 2);
    lvni_pose_pca_free(&pca);
    o.components = 13;
    refused(&o, xy, FRAMES, LVN_ERR_USAGE,
            "losses.pca_singleview.components_to_keep=13: 6 keypoints have 12 components; give "
            "fewer, or a share of the variance such as 0.99");
    o.components = 0;
    o.variance = 1.5;
    refused(&o, xy, FRAMES, LVN_ERR_USAGE,
            "losses.pca_singleview.components_to_keep=1.5: an integer of 1 or more is a number of "
            "components, a number from 0.0 to 1.0 the share of the variance that they explain");
}

/* A frame without a point stays a row: 12 rows are enough for 12 coordinates although no frame has
 * all its points. */
TEST(missing_labels_drop_no_row)
{
    double xy[DIM * DIM];
    lvni_pose_pca pca;
    fill(xy, DIM);
    for (int frame = 0; frame < DIM; frame++) {
        xy[frame * DIM + 2 * (frame % 4) + frame % 2] = NAN; /* one coordinate is enough */
    }
    fit(&three, xy, DIM, &pca);
    assert_true(isnan(pca.epsilon)); /* no frame has an error */
    double sum = 0.0;
    for (int frame = 0; frame < DIM; frame++) {
        sum += frame % 4 == 0 ? 0.0 : xy[frame * DIM + 1];
    }
    assert_true(fabs(pca.mean[1] - sum / 9.0) < 1e-9);
    lvni_pose_pca_free(&pca);
    const lvni_pose_pca_options o = {
        .components = 3, .epsilon = 2.5, .percentile = 99.0, .multiplier = 7.0, .keypoint = names};
    fit(&o, xy, DIM, &pca);
    assert_true(pca.epsilon == 2.5);
    lvni_pose_pca_free(&pca);
}

TEST(too_few_rows)
{
    static const int views[] = {0, 1, 3, 4};
    double xy[(DIM - 1) * DIM];
    fill(xy, DIM - 1);
    refused(&three, xy, DIM - 1, LVN_ERR_INVALID,
            "cannot fit pca_singleview: 11 rows of labels are fewer than the 12 coordinates of a "
            "row; label more frames, or give fewer keypoints in data.columns_for_singleview_pca");
    for (int frame = 0; frame < DIM - 1; frame++) {
        xy[frame * DIM + 2] = frame < 5 ? (double)NAN : 1.0;
        xy[frame * DIM + 4] = frame > 5 ? (double)NAN : 1.0;
        xy[frame * DIM + 6] = frame > 5 ? (double)NAN : 1.0;
        xy[frame * DIM + 9] = frame == 1 ? (double)NAN : 1.0;
    }
    refused(&three, xy, DIM - 1, LVN_ERR_INVALID,
            "cannot fit pca_singleview: 11 rows of labels are fewer than the 12 coordinates of a "
            "row; label more frames, or give fewer keypoints in data.columns_for_singleview_pca; "
            "most often without a label: tail (5 of 11), nose (5 of 11), ear (5 of 11)");
    lvni_pose_pca_options o = three;
    o.column = views;
    o.n_columns = 4;
    o.views = 2;
    refused(&o, xy, 1, LVN_ERR_INVALID,
            "cannot fit pca_multiview: 2 rows of labels are fewer than the 4 coordinates of a row; "
            "label more frames, or give fewer keypoints in data.mirrored_column_matches; most "
            "often without a label: tail (1 of 1)");
    for (int frame = 0; frame < DIM - 1; frame++) {
        xy[frame * DIM + 6] = xy[frame * DIM + 9] = NAN;
    }
    refused(&o, xy, DIM - 1, LVN_ERR_INVALID,
            "cannot fit pca_multiview: in the 11 training frames ear, as every other keypoint of "
            "its view, has no label; take it out of data.mirrored_column_matches, or label it");
    o.n_columns = 3;
    refused(&o, xy, DIM - 1, LVN_ERR_USAGE,
            "data.mirrored_column_matches has 3 keypoints in 2 views: as many in each view, 1 or "
            "more, and at most 256 that belong together");
    o.n_columns = 4;
    o.column = (const int[]){0, 1, 6, 4};
    refused(&o, xy, DIM - 1, LVN_ERR_USAGE,
            "data.mirrored_column_matches has keypoint 6: keypoints are 0 to 5");
}

/* Of a pose that is only moved, points less their centre do not change, whatever is missing. */
TEST(centred_over_the_points_that_are_there)
{
    static const int column[] = {0, 2, 3, 5};
    double xy[FRAMES * DIM], error[FRAMES * KEYPOINTS];
    for (int e = 0; e < FRAMES * DIM; e++) {
        xy[e] = (e % DIM) * (e % DIM) + 30.0 * draw(e / DIM * 2 + e % 2);
    }
    lvni_pose_pca_options o = three;
    o.column = column;
    o.n_columns = 4;
    for (int centring = LVNI_POSE_CENTRING_MEAN; centring <= LVNI_POSE_CENTRING_MEDIAN;
         centring++) {
        lvni_pose_pca pca;
        o.centring = (lvni_pose_centring)centring;
        fit(&o, xy, FRAMES, &pca);
        assert_true(pca.epsilon < 1e-9);
        /* points of x: 0, 16, 36, 100 */
        const double centre = centring == LVNI_POSE_CENTRING_MEAN ? 38.0 : 26.0;
        assert_true(fabs(pca.mean[0] + centre) < 1e-9 && fabs(pca.mean[6] - 100.0 + centre) < 1e-9);
        lvni_pose_pca_free(&pca);
        const double kept[] = {xy[4], xy[5]};
        xy[4] = NAN; /* the first frame's centre is that of three points */
        fit(&o, xy, FRAMES, &pca);
        assert_true(fabs(pca.mean[0] + centre) > 1e-3 && fabs(pca.mean[0] + centre) < 1.0);
        measure(&pca, xy + DIM, FRAMES - 1, error);
        assert_true(isnan(error[1]) && isnan(error[4]) && error[0] < 5.0);
        lvni_pose_pca_free(&pca);
        memcpy(xy + 4, kept, sizeof kept);
    }
}

/* Two views of three body parts: an error goes back to the keypoint that it is of. */
TEST(views)
{
    static const int column[] = {0, 1, 2, 5, 4, 3};
    double xy[FRAMES * DIM], error[FRAMES * KEYPOINTS];
    lvni_pose_pca pca;
    for (int e = 0; e < FRAMES * DIM; e++) {
        xy[e] = 50.0 * draw(e);
    }
    for (int frame = 0; frame < FRAMES; frame++) { /* the second view's y is the first one's x */
        for (int part = 0; part < 3; part++) {
            xy[frame * DIM + 2 * column[3 + part] + 1] = xy[frame * DIM + 2 * column[part]];
        }
    }
    lvni_pose_pca_options o = three;
    o.column = column;
    o.n_columns = KEYPOINTS;
    o.views = 2;
    o.components = 1; /* three all the same */
    fit(&o, xy, FRAMES, &pca);
    assert_int_equal(pca.kept, 3);
    assert_true(pca.epsilon < 1e-9);
    xy[3 * DIM + 2 * 4 + 1] += 8.0; /* body part 1, second view */
    measure(&pca, xy, FRAMES, error);
    for (int i = 0; i < FRAMES * KEYPOINTS; i++) {
        const bool moved = i == 3 * KEYPOINTS + 1 || i == 3 * KEYPOINTS + 4;
        assert_true(moved ? error[i] > 1.0 : error[i] < 1e-3);
    }
    lvni_pose_pca_free(&pca);
}

/* A frame of twice the size has errors of twice the size: nothing else of a frame counts, such as
 * the size to which the network's input is resized. */
TEST(pixels_of_the_frame)
{
    double xy[FRAMES * DIM], error[2][FRAMES * KEYPOINTS];
    lvni_pose_pca pca;
    fill(xy, FRAMES);
    lvni_pose_pca_options o = three;
    o.components = 2;
    for (int i = 0; i < 2; i++) {
        fit(&o, xy, FRAMES, &pca);
        measure(&pca, xy, FRAMES, error[i]);
        lvni_pose_pca_free(&pca);
        for (int e = 0; e < FRAMES * DIM; e++) {
            xy[e] *= 2.0;
        }
    }
    for (int i = 0; i < FRAMES * KEYPOINTS; i++) {
        assert_true(fabs(error[1][i] - 2.0 * error[0][i]) < 1e-9);
    }
}

/* The percentile lies between neighbours of the sorted errors. */
TEST(epsilon)
{
    double xy[FRAMES * DIM], error[FRAMES * KEYPOINTS];
    lvni_pose_pca all, half;
    fill(xy, FRAMES);
    lvni_pose_pca_options o = three;
    o.components = 1;
    o.percentile = 100.0;
    fit(&o, xy, FRAMES, &all);
    o.percentile = 50.0;
    o.multiplier = 3.0;
    fit(&o, xy, FRAMES, &half);
    measure(&all, xy, FRAMES, error);
    double largest = 0.0;
    int below = 0;
    for (int i = 0; i < FRAMES * KEYPOINTS; i++) {
        largest = fmax(largest, error[i]);
        below += error[i] < half.epsilon / 3.0;
    }
    assert_true(fabs(all.epsilon - largest) < 1e-4);
    assert_int_equal(below, FRAMES * KEYPOINTS / 2);
    lvni_pose_pca_free(&all);
    lvni_pose_pca_free(&half);
}

/* ---- the card ---- */

static char *print(const lvni_pose_pca *pca)
{
    lvni_core_str json = {0};
    lvni_pose_pca_print(pca, &json);
    char *text = lvni_core_str_take(&json);
    assert_non_null(text);
    return text;
}

TEST(a_card_gives_the_same_bits)
{
    static const int column[] = {0, 2, 3, 5};
    double xy[FRAMES * DIM], error[2][FRAMES * KEYPOINTS];
    lvni_pose_pca pca, back;
    fill(xy, FRAMES);
    for (int i = 0; i < 2; i++) {
        lvni_pose_pca_options o = three;
        o.column = column;
        o.n_columns = 4;
        o.views = i == 0 ? 2 : 0;
        o.centring = LVNI_POSE_CENTRING_MEDIAN;
        o.epsilon = i == 0 ? (double)NAN : 0.1;
        fit(&o, xy, FRAMES, &pca);
        pca.epsilon = i == 0 ? (double)NAN : pca.epsilon;
        char *text = print(&pca);
        assert_int_equal(lvni_pose_pca_read(text, &back), LVN_OK);
        assert_int_equal(isnan(back.epsilon), i == 0);
        measure(&pca, xy, FRAMES, error[0]);
        measure(&back, xy, FRAMES, error[1]);
        assert_memory_equal(error[0], error[1], sizeof error[0]);
        char *again = print(&back);
        assert_string_equal(again, text);
        lvni_core_free(text);
        lvni_core_free(again);
        lvni_pose_pca_free(&pca);
        lvni_pose_pca_free(&back);
    }
}

/* Whatever a byte is changed to or the text cut, it is read whole or refused. */
TEST(damaged_cards)
{
    static const char bytes[] = "9-,]\"x";
    double xy[FRAMES * DIM], error[FRAMES * KEYPOINTS];
    lvni_pose_pca pca;
    int refusals = 0;
    fill(xy, FRAMES);
    lvni_pose_pca_options o = three;
    o.column = (const int[]){0, 5};
    o.n_columns = 2;
    o.components = 2;
    fit(&o, xy, FRAMES, &pca);
    char *text = print(&pca);
    lvni_pose_pca_free(&pca);
    const size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        const char was = text[i];
        for (size_t b = 0; b < sizeof bytes; b++) { /* with the zero at the end, which cuts it */
            text[i] = bytes[b];
            const lvn_status s = lvni_pose_pca_read(text, &pca);
            assert_true(s == LVN_OK || s == LVN_ERR_CORRUPT);
            refusals += s != LVN_OK;
            if (s == LVN_OK && pca.k == KEYPOINTS) {
                measure(&pca, xy, FRAMES, error);
            }
            lvni_pose_pca_free(&pca);
        }
        text[i] = was;
    }
    assert_true(refusals > (int)n);
    lvni_core_free(text);
}

TEST(a_card_of_other_keypoints)
{
    double xy[FRAMES * DIM];
    lvni_pose_pca pca;
    fill(xy, FRAMES);
    assert_int_equal(lvni_pose_pca_fit(&three, xy, FRAMES, KEYPOINTS, &pca), LVN_OK);
    char *text = print(&pca);
    lvn_card facts = {0};
    assert_int_equal(lvn_card_set(&facts, "pca_singleview", text), LVN_OK);
    for (int k = KEYPOINTS - 1; k <= KEYPOINTS; k++) {
        lvni_pose_fits fits = {0};
        assert_int_equal(lvni_pose_fits_read(&facts, k, &fits),
                         k == KEYPOINTS ? LVN_OK : LVN_ERR_CORRUPT);
        lvni_pose_fits_free(&fits);
    }
    lvni_run_facts_free(&facts);
    lvni_pose_pca_free(&pca);
    lvni_core_free(text);
}

TEST(memory_runs_out)
{
    double xy[FRAMES * DIM];
    lvni_pose_pca pca;
    fill(xy, FRAMES);
    lvn_status s;
    int64_t k = 1;
    do {
        lvni_core_alloc_fail_at(k++);
        s = lvni_pose_pca_fit(&three, xy, FRAMES, KEYPOINTS, &pca);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || (s == LVN_ERR_MEMORY && pca.column == NULL));
    } while (s != LVN_OK);
    assert_true(k > 6);
    char *text = print(&pca);
    lvni_pose_pca_free(&pca);
    k = 1;
    do {
        lvni_core_alloc_fail_at(k++);
        s = lvni_pose_pca_read(text, &pca);
        lvni_core_alloc_fail_at(0);
        assert_true(s == LVN_OK || (s == LVN_ERR_MEMORY && pca.column == NULL));
    } while (s != LVN_OK);
    assert_true(k > 4);
    lvni_pose_pca_free(&pca);
    lvni_core_free(text);
}
