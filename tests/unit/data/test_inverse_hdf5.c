/* Volumes of k-space in HDF5 files, which libhdf5 writes here, too; without it, the error of
 * reading one is tested. */
#include "data/inverse/hdf5.h"
#include "images_support.h"
#include "inverse_support.h"
#include "support/test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICES = 2, ROWS = 12, COLS = 10, SIDE = 8, MOST_COILS = 3 };
static const char signature[] = "\x89HDF\r\n\x1a\n";

/* ---- writing ---- */

typedef int64_t handle;
static void *library;

static void *symbol(const char *name)
{
    void *at = dlsym(library, name);
    assert_non_null(at);
    return at;
}

/* A call of a function of libhdf5 with these types. */
#define CALL(result, name, types, ...)                                                             \
    do {                                                                                           \
        void *at_ = symbol(name);                                                                  \
        handle(*of_handle_) types;                                                                 \
        int(*of_int_) types;                                                                       \
        memcpy(&of_handle_, &at_, sizeof at_);                                                     \
        memcpy(&of_int_, &at_, sizeof at_);                                                        \
        (result) = sizeof(result) == sizeof(handle) ? of_handle_(__VA_ARGS__)                      \
                                                    : (handle)of_int_(__VA_ARGS__);                \
        assert_true((result) >= 0);                                                                \
    } while (0)

static float value(int i)
{
    return (float)((i * 37) % 101) / 50.0F - 1.0F;
}

/* count: 0 for a scalar, else the elements of an array. */
static void write_acquisition(handle file, const char *text, int count)
{
    handle type, space, attribute;
    handle base;
    int done;
    memcpy(&base, symbol("H5T_C_S1_g"), sizeof base);
    CALL(type, "H5Tcopy", (handle), base);
    if (strlen(text) > 4) { /* as text of a fixed length, else as h5py does */
        CALL(done, "H5Tset_size", (handle, size_t), type, strlen(text) + 1);
    } else {
        CALL(done, "H5Tset_size", (handle, size_t), type, SIZE_MAX);
    }
    if (count == 0) {
        CALL(space, "H5Screate", (int), 0);
    } else {
        const unsigned long long dims = (unsigned long long)count;
        CALL(space, "H5Screate_simple",
             (int, const unsigned long long *, const unsigned long long *), 1, &dims, NULL);
    }
    CALL(attribute, "H5Acreate2", (handle, const char *, handle, handle, handle, handle), file,
         "acquisition", type, space, 0, 0);
    const size_t each = strlen(text) > 4 ? strlen(text) + 1 : sizeof text;
    const void *from = strlen(text) > 4 ? (const void *)text : &text;
    char *all = malloc(each * (size_t)(count > 0 ? count : 1));
    assert_non_null(all);
    for (int i = 0; i < (count > 0 ? count : 1); i++) {
        memcpy(all + (size_t)i * each, from, each);
    }
    CALL(done, "H5Awrite", (handle, handle, const void *), attribute, type, all);
    free(all);
    CALL(done, "H5Aclose", (handle), attribute);
    CALL(done, "H5Sclose", (handle), space);
    CALL(done, "H5Tclose", (handle), type);
}

/* What a volume may differ in from those of fastMRI. */
typedef struct oddity {
    bool real;           /* without imaginary parts */
    const char *re, *im; /* names of the members; NULL: r and i */
    int acquisitions;    /* the attribute is an array of so many */
} oddity;

static void write_odd(const char *path, int coils, const char *acquisition, const oddity *odd)
{
    const unsigned long long dims[4] = {SLICES, (unsigned long long)coils, ROWS, COLS};
    static float values[SLICES * MOST_COILS * ROWS * COLS * 2];
    for (int i = 0; i < SLICES * coils * ROWS * COLS * 2; i++) {
        values[i] = value(i);
    }
    handle file, space, type, number, data;
    int done;
    images_write_file(path, "", 0); /* makes the folder */
    CALL(file, "H5Fcreate", (const char *, unsigned, handle, handle), path, 2, 0, 0);
    CALL(space, "H5Screate_simple", (int, const unsigned long long *, const unsigned long long *),
         4, dims, NULL);
    memcpy(&number, symbol("H5T_NATIVE_FLOAT_g"), sizeof number);
    CALL(type, "H5Tcreate", (int, size_t), 6, 8);
    CALL(done, "H5Tinsert", (handle, const char *, size_t, handle), type,
         odd->re != NULL ? odd->re : "r", 0, number);
    CALL(done, "H5Tinsert", (handle, const char *, size_t, handle), type,
         odd->im != NULL ? odd->im : "i", 4, number);
    CALL(data, "H5Dcreate2", (handle, const char *, handle, handle, handle, handle, handle), file,
         "kspace", odd->real ? number : type, space, 0, 0, 0);
    CALL(done, "H5Dwrite", (handle, handle, handle, handle, handle, const void *), data,
         odd->real ? number : type, 0, 0, 0, values);
    CALL(done, "H5Dclose", (handle), data);
    CALL(done, "H5Tclose", (handle), type);
    CALL(done, "H5Sclose", (handle), space);
    if (acquisition != NULL) {
        write_acquisition(file, acquisition, odd->acquisitions);
    }
    CALL(done, "H5Fclose", (handle), file);
}

static void write_volume(const char *path, int coils, const char *acquisition)
{
    const oddity none = {0};
    write_odd(path, coils, acquisition, &none);
}

static bool found(void)
{
    static const char *const names[] = {"libhdf5_serial.so.103", "libhdf5_serial.so.310",
                                        "libhdf5.so.103", "libhdf5.so.200", "libhdf5.so.310"};
    for (size_t i = 0; i < sizeof names / sizeof *names && library == NULL; i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library != NULL) {
        int done;
        CALL(done, "H5open", (void));
    }
    return library != NULL;
}

/* ---- tests ---- */

static lvni_data_inverse_options volumes(const char *folder, int coils)
{
    return (lvni_data_inverse_options){.experience = LVNI_INVERSE_MRI,
                                       .path = folder,
                                       .im_size = SIDE,
                                       .in_chans = 2 * coils,
                                       .out_chans = 2 * coils};
}

TEST(damaged_files_are_named)
{
    const char *folder = images_temp_folder();
    images_write_file(images_path(folder, "multicoil_train/a.h5"), signature, 8);
    const lvni_data_inverse_options o = volumes(folder, 2);
    if (found()) {
        assert_int_equal(inverse_refuses(&o, "a.h5: a damaged HDF5 file"), LVN_ERR_CORRUPT);
        write_odd(images_path(folder, "multicoil_train/a.h5"), 2, "AXT2", &(oddity){.real = true});
        assert_int_equal(inverse_refuses(&o, "a.h5: its data set kspace does not hold complex"),
                         LVN_ERR_CORRUPT);
    } else {
        assert_int_equal(inverse_refuses(&o, "a.h5: libhdf5 is not installed"),
                         LVN_ERR_UNSUPPORTED);
    }
    images_remove_folder(folder);
}

TEST(volumes_are_read_coil_by_coil)
{
    if (!found()) {
        print_message("skipped: there is no libhdf5\n");
        skip();
    }
    const char *folder = images_temp_folder(), *path = images_path(folder, "v.h5");
    write_volume(path, 3, NULL);
    assert_true(lvni_inverse_hdf5_is(path));
    lvni_data_array a;
    char acquisition[64];
    assert_int_equal(lvni_inverse_hdf5_peek(path, &a, acquisition), LVN_OK);
    assert_true(a.ndim == 4 && a.shape[0] == SLICES && a.shape[1] == 3 && a.shape[2] == ROWS &&
                a.shape[3] == COLS && acquisition[0] == '\0');
    lvni_data_complex x[ROWS * COLS];
    assert_int_equal(lvni_inverse_hdf5_read(path, a.shape, 1, 2, x), LVN_OK);
    for (int i = 0; i < ROWS * COLS; i++) {
        const int at = 2 * ((1 * 3 + 2) * ROWS * COLS + i);
        assert_true(x[i].re == (double)value(at) && x[i].im == (double)value(at + 1));
    }
    assert_int_equal(lvni_inverse_hdf5_read(path, a.shape, 2, 0, x), LVN_ERR_CORRUPT);
    images_remove_folder(folder);
}

/* Their values would be those of memory. */
TEST(members_of_other_names_are_an_error)
{
    if (!found()) {
        print_message("skipped: there is no libhdf5\n");
        skip();
    }
    const char *folder = images_temp_folder(), *path = images_path(folder, "v.h5");
    static const oddity odd[] = {{.re = "real", .im = "imag"}, {.re = "r", .im = "j"}};
    static const char *const names[] = {"but real, imag;", "but r, j;"};
    for (int i = 0; i < 2; i++) {
        lvni_data_array a;
        char acquisition[64];
        write_odd(path, 2, "AXT2", &odd[i]);
        assert_int_equal(lvni_inverse_hdf5_peek(path, &a, acquisition), LVN_ERR_CORRUPT);
        assert_non_null(strstr(lvn_last_error()->message, names[i]));
        static const int64_t shape[4] = {SLICES, 2, ROWS, COLS};
        lvni_data_complex x[ROWS * COLS];
        assert_int_equal(lvni_inverse_hdf5_read(path, shape, 0, 0, x), LVN_ERR_CORRUPT);
    }
    images_remove_folder(folder);
}

/* Texts of a fixed and of a variable length, thousands of them: more than there is room for. */
TEST(an_attribute_of_many_is_none)
{
    if (!found()) {
        print_message("skipped: there is no libhdf5\n");
        skip();
    }
    const char *folder = images_temp_folder(), *path = images_path(folder, "v.h5");
    static const char *const texts[] = {"AXT1POST", "AXT2"};
    for (int i = 0; i < 2; i++) {
        for (int count = 1; count <= 4000; count += 3999) {
            lvni_data_array a;
            char acquisition[64];
            write_odd(path, 2, texts[i], &(oddity){.acquisitions = count});
            assert_int_equal(lvni_inverse_hdf5_peek(path, &a, acquisition), LVN_OK);
            assert_string_equal(acquisition, count == 1 ? texts[i] : "");
        }
    }
    images_remove_folder(folder);
}

TEST(other_contrasts_and_small_volumes_are_left_out)
{
    if (!found()) {
        print_message("skipped: there is no libhdf5\n");
        skip();
    }
    const char *folder = images_temp_folder();
    write_volume(images_path(folder, "multicoil_train/a.h5"), 2, "AXT1POST");
    const lvni_data_inverse_options o = volumes(folder, 2);
    assert_int_equal(inverse_refuses(&o, "none of its 1 HDF5 file has"), LVN_ERR_USAGE);
    write_volume(images_path(folder, "multicoil_train/b.h5"), 2, "AXT2");
    write_volume(images_path(folder, "multicoil_train/c.h5"), 1, "AXT2");
    lvn_dataset *d = inverse_open(&o);
    assert_int_equal(d->cls->length(d), SLICES);
    assert_string_equal(d->cls->sample_name(d, 1), "b.h5 slice 1");
    inverse_sample s = inverse_sample_make(d);
    inverse_get(d, 1, 1, 0, true, &s);
    for (size_t i = 0; i < s.size[0]; i++) {
        assert_true(isfinite(s.field[0][i]) && isfinite(s.field[1][i]));
    }
    inverse_sample_free(&s);
    lvn_dataset_destroy(d);
    inverse_check_memory(&o);
    images_remove_folder(folder);
}
