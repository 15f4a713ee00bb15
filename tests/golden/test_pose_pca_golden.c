/* test_pose_pca_golden FILE: principal components of keypoints against Lightning Pose's, in double
 * precision (make_pose_pca_golden.py): of the mirror-mouse labels, of which many are missing. */
#include "golden_support.h"
#include "recipes/pose/pose_pca.h"
#include "support/test.h"

#include "core/alloc.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 17 }; /* keypoints */

static lvni_ckpt_st_file *file;
static const char *const names[MOST] = {"0", "1",  "2",  "3",  "4",  "5",  "6",  "7", "8",
                                        "9", "10", "11", "12", "13", "14", "15", "16"};
static const int mouse[] = {0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14};
static const int complete[] = {2, 6, 8, 9, 10, 12, 14};

typedef struct problem {
    const char *prefix; /* of the case's names in the file */
    const char *data;   /* and of its labels and predictions */
    lvni_pose_pca_options o;
} problem;

static void compare(const char *prefix, const char *name, const double *have, int64_t n)
{
    int64_t length;
    const double *want = golden_values(file, prefix, name, &length);
    assert_int_equal(length, n);
    for (int64_t i = 0; i < n; i++) {
        if (isnan(want[i]) ? !isnan(have[i]) : !(fabs(have[i] - want[i]) <= 1e-9)) {
            fail_msg("%s%s %d: %.17g, Lightning Pose %.17g", prefix, name, (int)i, have[i],
                     want[i]);
        }
    }
}

/* The projection on the kept directions, whose signs are anyone's choice. */
static void compare_projection(const char *prefix, const lvni_pose_pca *pca)
{
    const int dim = 2 * pca->points;
    double have[4 * MOST * MOST];
    for (int e = 0; e < dim * dim; e++) {
        have[e] = 0.0;
        for (int i = 0; i < pca->kept; i++) {
            have[e] += pca->vector[i * dim + e / dim] * pca->vector[i * dim + e % dim];
        }
    }
    compare(prefix, "projection", have, dim * dim);
}

static void compare_errors(const problem *p, const lvni_pose_pca *pca)
{
    int64_t n;
    const double *predicted = golden_values(file, p->data, "value", &n);
    float *value = lvni_core_alloc(LVNI_TAG_DATA, (size_t)n * sizeof *value);
    double *error = lvni_core_alloc(LVNI_TAG_DATA, (size_t)(n / 3) * sizeof *error);
    assert_non_null(value);
    assert_non_null(error);
    for (int64_t i = 0; i < n; i++) {
        value[i] = (float)predicted[i];
    }
    lvni_pose_pca_error(pca, value, n / (3 * pca->k), error);
    compare(p->prefix, "error", error, n / 3);
    lvni_core_free(value);
    lvni_core_free(error);
}

static void run(problem p, int k)
{
    lvni_pose_pca pca;
    int64_t n;
    const double *xy = golden_values(file, p.data, "xy", &n);
    p.o.epsilon = (double)NAN;
    p.o.percentile = 95.0;
    p.o.multiplier = 1.0;
    p.o.keypoint = names;
    assert_int_equal(lvni_pose_pca_fit(&p.o, xy, n / (2 * k), k, &pca), LVN_OK);
    compare(p.prefix, "kept", (const double[]){pca.kept}, 1);
    compare(p.prefix, "mean", pca.mean, 2 * (int64_t)pca.points);
    compare(p.prefix, "explained", pca.explained, 2 * (int64_t)pca.points);
    compare(p.prefix, "epsilon", &pca.epsilon, 1);
    compare_projection(p.prefix, &pca);
    compare_errors(&p, &pca);
    lvni_pose_pca_free(&pca);
}

static lvni_pose_pca_options of_mouse(int components, double variance)
{
    return (lvni_pose_pca_options){.column = mouse,
                                   .n_columns = sizeof mouse / sizeof *mouse,
                                   .components = components,
                                   .variance = variance};
}

TEST(a_share_of_the_variance)
{
    run((problem){"mouse/", "mouse/", of_mouse(0, 0.99)}, MOST);
}

TEST(integers_and_the_whole)
{
    run((problem){"five/", "mouse/", of_mouse(5, 0.0)}, MOST);
    run((problem){"one/", "mouse/", of_mouse(1, 0.0)}, MOST);
    run((problem){"whole/", "mouse/", of_mouse(0, 1.0)}, MOST);
}

/* The obstacle is missing in two frames of five: the covariance has negative eigenvalues. */
TEST(all_keypoints_with_gaps)
{
    run((problem){"all/", "mouse/", {.variance = 0.95}}, MOST);
    run((problem){"sparse/", "sparse/", {.variance = 0.8}}, 6);
}

TEST(centred)
{
    lvni_pose_pca_options o = {
        .column = complete, .n_columns = 7, .variance = 0.99, .centring = LVNI_POSE_CENTRING_MEAN};
    run((problem){"mean/", "mouse/", o}, MOST);
    o.n_columns = 6;
    o.variance = 0.9;
    o.centring = LVNI_POSE_CENTRING_MEDIAN;
    run((problem){"median/", "mouse/", o}, MOST);
}

TEST(two_views)
{
    lvni_pose_pca_options o = of_mouse(3, 0.0);
    o.views = 2;
    run((problem){"multiview/", "mouse/", o}, MOST);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: test_pose_pca_golden FILE\n");
        return 2;
    }
    if (lvni_ckpt_st_open(argv[1], LVNI_ST_VERIFY, &file) != LVN_OK) {
        fprintf(stderr, "%s\n", lvn_last_error()->message);
        return 1;
    }
    const int failed = test_main(1, argv);
    lvni_ckpt_st_close(file);
    return failed;
}
