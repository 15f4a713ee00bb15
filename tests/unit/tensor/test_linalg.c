/* Eigenvalues and singular values against PyTorch's (golden_linalg.py), their signs, equal values,
 * principal components of data in a plane, and what is refused. */
#include "core/alloc.h"
#include "golden_linalg.h"
#include "tensor/ctx.h"
#include "tensor/tensor.h"
#include "support/test.h"

#include <levin/device.h>
#include <levin/linalg.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static lvn_tensor *given(lvn_dtype dtype, int64_t m, int64_t n, bool symmetric)
{
    lvn_tensor *t = lvn_tensor_create(dtype, LVN_SHAPE(m, n));
    assert_non_null(t);
    for (int64_t e = 0; e < m * n; e++) {
        const int64_t other = e % n * n + e / n;
        double x = ((double)((29 * e + m * n) % 48) - 23.5) / 16.0;
        x += symmetric ? ((double)((29 * other + m * n) % 48) - 23.5) / 16.0 : 0.0;
        lvni_tensor_number_set((char *)lvn_data(t) + (size_t)e * lvn_dtype_size(dtype), dtype, x);
    }
    return t;
}

static const double *numbers(const lvn_tensor *t)
{
    assert_non_null(t);
    assert_int_equal(lvn_tensor_dtype(t), LVN_F64);
    return lvn_const_data(t);
}

static void check(const char *name, const double *want, size_t n, const lvn_tensor *t)
{
    const double *have = numbers(t);
    assert_int_equal(lvn_numel(t), n);
    for (size_t e = 0; e < n; e++) {
        if (!(fabs(have[e] - want[e]) <= 1e-12)) {
            fail_msg("%s, element %d: %.17g, expected %.17g", name, (int)e, have[e], want[e]);
        }
    }
}
#define CHECK(name, t) check(#name, name, sizeof name / sizeof *name, t)

static void release(lvn_tensor *a, lvn_tensor *b, lvn_tensor *c)
{
    lvn_release(a);
    lvn_release(b);
    lvn_release(c);
}

/* The numbers are fractions of a power of two: f32 holds them exactly. */
TEST(values_and_vectors_are_those_of_torch)
{
    for (int f32 = 0; f32 < 2; f32++) {
        const lvn_dtype dtype = f32 != 0 ? LVN_F32 : LVN_F64;
        lvn_tensor *a = given(dtype, 6, 6, true), *values, *vectors, *u, *s, *vt;
        assert_int_equal(lvn_eigh(a, &values, &vectors), LVN_OK);
        CHECK(eigen_values, values);
        CHECK(eigen_vectors, vectors);
        release(a, values, vectors);
        a = given(dtype, 7, 4, false);
        assert_int_equal(lvn_svd(a, &u, &s, &vt), LVN_OK);
        CHECK(tall_u, u);
        CHECK(tall_s, s);
        CHECK(tall_vt, vt);
        release(u, s, vt);
        lvn_release(a);
        a = given(dtype, 3, 8, false);
        assert_int_equal(lvn_svd(a, &u, &s, &vt), LVN_OK);
        CHECK(wide_u, u);
        CHECK(wide_s, s);
        CHECK(wide_vt, vt);
        release(u, s, vt);
        lvn_release(a);
    }
}

/* The factors multiplied, the rows of `vt` of length 1 and at right angles. */
static void check_factors(const lvn_tensor *a, const lvn_tensor *u, const lvn_tensor *s,
                          const lvn_tensor *vt)
{
    const int64_t m = lvn_size(a, 0), n = lvn_size(a, 1), k = lvn_size(vt, 0);
    const double *x = numbers(a), *v = numbers(vt), *d = numbers(s),
                 *left = u == NULL ? v : numbers(u);
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t e = 0; e < k; e++) {
                sum += (u == NULL ? left[e * n + i] : left[i * k + e]) * d[e] * v[e * n + j];
            }
            assert_true(fabs(sum - x[i * n + j]) < 1e-11);
        }
    }
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = 0; j < k; j++) {
            double product = 0.0;
            for (int64_t e = 0; e < n; e++) {
                product += v[i * n + e] * v[j * n + e];
            }
            assert_true(fabs(product - (i == j ? 1.0 : 0.0)) < 1e-12);
        }
        int64_t first = 0;
        for (int64_t e = 1; e < n; e++) {
            first = fabs(v[i * n + e]) > fabs(v[i * n + first]) * (1.0 + 2e-6) ? e : first;
        }
        assert_true(v[i * n + first] > 0.0);
        assert_true(i == 0 || d[i] <= d[i - 1]);
    }
}

TEST(factors_of_many_sizes)
{
    static const int64_t sizes[][2] = {{1, 1}, {2, 2}, {28, 28}, {100, 30}, {30, 100}, {65, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        lvn_tensor *a = given(LVN_F64, sizes[i][0], sizes[i][1], false), *u, *s, *vt;
        assert_int_equal(lvn_svd(a, &u, &s, &vt), LVN_OK);
        check_factors(a, u, s, vt);
        release(u, s, vt);
        lvn_release(a);
        a = given(LVN_F64, sizes[i][0], sizes[i][0], true);
        assert_int_equal(lvn_eigh(a, &s, &vt), LVN_OK);
        check_factors(a, NULL, s, vt);
        release(a, s, vt);
    }
    lvn_tensor *none = lvn_tensor_create(LVN_F64, LVN_SHAPE(0, 0)),
               *rows = lvn_tensor_create(LVN_F64, LVN_SHAPE(0, 3)), *u, *s, *vt;
    assert_int_equal(lvn_eigh(none, &s, &vt), LVN_OK);
    assert_true(lvn_numel(s) == 0 && lvn_size(vt, 0) == 0);
    release(none, s, vt);
    assert_int_equal(lvn_svd(rows, &u, &s, &vt), LVN_OK);
    assert_true(lvn_numel(u) == 0 && lvn_numel(s) == 0 && lvn_size(vt, 1) == 3);
    release(u, s, vt);
    lvn_release(rows);
}

/* (1, 1) and (1, -1): the sizes of the elements are equal except for rounding, and the first is
 * positive; so are those of a matrix with each eigenvalue twice. */
TEST(signs_do_not_hang_on_the_last_digit)
{
    const double half = sqrt(0.5);
    for (int i = -3; i < 4; i++) {
        lvn_tensor *a = lvn_tensor_create(LVN_F64, LVN_SHAPE(2, 2)), *values, *vectors;
        double *x = lvn_data(a);
        x[0] = 2.0 + i * 1e-15;
        x[1] = x[2] = -1.0;
        x[3] = 2.0;
        assert_int_equal(lvn_eigh(a, &values, &vectors), LVN_OK);
        const double *v = numbers(vectors);
        assert_true(fabs(v[0] - half) < 1e-6 && fabs(v[1] + half) < 1e-6);
        assert_true(fabs(v[2] - half) < 1e-6 && fabs(v[3] - half) < 1e-6);
        release(a, values, vectors);
    }
}

/* Rows in a plane: two components explain all of them, whichever way they are found. */
TEST(components_of_data_in_a_plane)
{
    enum { ROWS = 40, D = 6 };
    lvn_tensor *data = lvn_tensor_create(LVN_F64, LVN_SHAPE(ROWS, D)),
               *covariance = lvn_tensor_create(LVN_F64, LVN_SHAPE(D, D)), *values, *vectors, *s,
               *vt;
    double *x = lvn_data(data), *c = lvn_data(covariance);
    for (int i = 0; i < ROWS; i++) {
        for (int j = 0; j < D; j++) {
            x[i * D + j] = (i - 19.5) * (j + 1) + sin(i) * (j % 2 == 0 ? 3.0 : -2.0);
        }
    }
    for (int j = 0; j < D; j++) {
        double mean = 0.0;
        for (int i = 0; i < ROWS; i++) {
            mean += x[i * D + j] / ROWS;
        }
        for (int i = 0; i < ROWS; i++) {
            x[i * D + j] -= mean;
        }
    }
    for (int e = 0; e < D * D; e++) {
        for (int i = 0; i < ROWS; i++) {
            c[e] += x[i * D + e / D] * x[i * D + e % D] / (ROWS - 1);
        }
    }
    assert_int_equal(lvn_eigh(covariance, &values, &vectors), LVN_OK);
    assert_int_equal(lvn_svd(data, NULL, &s, &vt), LVN_OK);
    const double *explained = numbers(values), *sigma = numbers(s);
    for (int i = 0; i < D; i++) {
        assert_true(fabs(explained[i] - sigma[i] * sigma[i] / (ROWS - 1)) < 1e-9 * explained[0]);
        assert_true(i < 2 ? explained[i] > 1.0 : fabs(explained[i]) < 1e-9);
    }
    for (int e = 0; e < 2 * D; e++) {
        assert_true(fabs(numbers(vectors)[e] - numbers(vt)[e]) < 1e-9);
    }
    release(data, covariance, NULL);
    release(values, vectors, NULL);
    release(s, vt, NULL);
}

static void refused(lvn_status s, lvn_status want, const char *text)
{
    if (s != want || strstr(lvn_last_error()->message, text) == NULL) {
        fail_msg("status %d: %s; expected %d: %s", (int)s, lvn_last_error()->message, (int)want,
                 text);
    }
}

TEST(wrong_matrices_are_refused)
{
    lvn_tensor *a = given(LVN_F64, 2, 3, false), *square = given(LVN_F64, 3, 3, true), *values = a,
               *vectors = a, *u = a, *s = a, *vt = a;
    refused(lvn_eigh(a, &values, &vectors), LVN_ERR_SHAPE,
            "eigh: the matrix is (2, 3), it must be square");
    assert_true(values == NULL && vectors == NULL);
    refused(lvn_eigh(NULL, &values, NULL), LVN_ERR_INVALID, "eigh was given NULL");
    ((double *)lvn_data(square))[1] += 0.01;
    refused(lvn_eigh(square, &values, NULL), LVN_ERR_INVALID, "it must be symmetric");
    ((double *)lvn_data(a))[4] = (double)NAN;
    refused(lvn_svd(a, &u, &s, &vt), LVN_ERR_INVALID,
            "svd: element (1, 1) of the matrix is nan, it must be finite");
    assert_true(u == NULL && s == NULL && vt == NULL);
    lvn_tensor *whole = lvn_tensor_create(LVN_I64, LVN_SHAPE(2, 2)),
               *vector = lvn_tensor_create(LVN_F64, LVN_SHAPE(4));
    refused(lvn_svd(whole, &u, NULL, NULL), LVN_ERR_DTYPE, "svd: the matrix is i64");
    refused(lvn_svd(vector, &u, NULL, NULL), LVN_ERR_SHAPE,
            "svd: the matrix is (4), it must have 2 axes of up to 8192");
    a->requires_grad = true;
    refused(lvn_svd(a, &u, NULL, NULL), LVN_ERR_INVALID, "requires a gradient");
    a->requires_grad = false;
    lvni_tensor_ctx_get()->at.training = true;
    refused(lvn_svd(a, &u, NULL, NULL), LVN_ERR_INVALID, "svd in a training step");
    lvni_tensor_ctx_get()->at.training = false;
    release(a, square, whole);
    lvn_release(vector);
}

/* Started again with a library that cannot be loaded in place of LAPACK's. */
TEST(a_missing_library_is_named)
{
    if (getenv("LEVIN_DEPS") != NULL) { /* tools/install-deps --prefix */
        print_message("skipped: with LEVIN_DEPS, LAPACK is found before LD_LIBRARY_PATH\n");
        skip();
    }
    char folder[] = "/tmp/levin-linalg-XXXXXX", file[64];
    assert_non_null(mkdtemp(folder));
    snprintf(file, sizeof file, "%s/liblapacke.so.3", folder);
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    fputs("not a library\n", f);
    fclose(f);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        setenv("LD_LIBRARY_PATH", folder, 1);
        execl("/proc/self/exe", "test_linalg", "missing", (char *)NULL);
        _exit(9);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    remove(file);
    rmdir(folder);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int without_library(void)
{
    lvn_tensor *a = lvn_tensor_create(LVN_F64, LVN_SHAPE(2, 2)), *values, *vectors;
    const bool named = lvn_eigh(a, &values, &vectors) == LVN_ERR_NOT_FOUND && values == NULL &&
                       strstr(lvn_last_error()->message, "liblapacke") != NULL;
    lvn_release(a);
    return named ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "missing") == 0) {
        return without_library();
    }
    return test_main(argc, argv);
}
