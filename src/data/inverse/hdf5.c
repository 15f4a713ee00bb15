/* Reads k-space from HDF5 files with the system's libhdf5 (hdf5.h). Its functions are declared
 * here, with the types of versions 1.10 and later, so that a build needs no header of it. */
#include "hdf5.h"

#include "core/alloc.h"
#include "core/vfs.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int64_t handle; /* below 0: an error */
typedef unsigned long long length;
enum { FLOAT = 1, STRING = 3, COMPOUND = 6 }; /* H5T_class_t */

static struct {
    int (*open)(void);
    int (*version)(unsigned *major, unsigned *minor, unsigned *release);
    int (*silence)(handle stack, void *report, void *data);
    int (*free_memory)(void *p);
    handle (*file_open)(const char *path, unsigned flags, handle access);
    int (*file_close)(handle file);
    handle (*data_open)(handle file, const char *name, handle access);
    handle (*data_space)(handle data);
    handle (*data_type)(handle data);
    int (*data_read)(handle data, handle type, handle to, handle from, handle transfer, void *out);
    int (*data_close)(handle data);
    int (*space_ndims)(handle space);
    int64_t (*space_points)(handle space);
    int (*space_dims)(handle space, length *dims, length *most);
    int (*space_select)(handle space, int how, const length *start, const length *stride,
                        const length *count, const length *block);
    handle (*space_create)(int ndim, const length *dims, const length *most);
    int (*space_close)(handle space);
    handle (*type_create)(int kind, size_t bytes);
    int (*type_insert)(handle type, const char *name, size_t at, handle member);
    int (*type_kind)(handle type);
    size_t (*type_size)(handle type);
    int (*type_is_variable)(handle type);
    int (*type_members)(handle type);
    char *(*member_name)(handle type, unsigned member);
    int (*member_kind)(handle type, unsigned member);
    int (*type_close)(handle type);
    int (*attribute_exists)(handle object, const char *name);
    handle (*attribute_open)(handle object, const char *name, handle access);
    handle (*attribute_type)(handle attribute);
    handle (*attribute_space)(handle attribute);
    int (*attribute_read)(handle attribute, handle type, void *out);
    int (*attribute_close)(handle attribute);
    const handle *native_float;
} api;

static const struct {
    const char *name;
    void *to;
} names[] = {
    {"H5open", &api.open},
    {"H5get_libversion", &api.version},
    {"H5Eset_auto2", &api.silence},
    {"H5free_memory", &api.free_memory},
    {"H5Fopen", &api.file_open},
    {"H5Fclose", &api.file_close},
    {"H5Dopen2", &api.data_open},
    {"H5Dget_space", &api.data_space},
    {"H5Dget_type", &api.data_type},
    {"H5Dread", &api.data_read},
    {"H5Dclose", &api.data_close},
    {"H5Sget_simple_extent_ndims", &api.space_ndims},
    {"H5Sget_simple_extent_npoints", &api.space_points},
    {"H5Sget_simple_extent_dims", &api.space_dims},
    {"H5Sselect_hyperslab", &api.space_select},
    {"H5Screate_simple", &api.space_create},
    {"H5Sclose", &api.space_close},
    {"H5Tcreate", &api.type_create},
    {"H5Tinsert", &api.type_insert},
    {"H5Tget_class", &api.type_kind},
    {"H5Tget_size", &api.type_size},
    {"H5Tis_variable_str", &api.type_is_variable},
    {"H5Tget_nmembers", &api.type_members},
    {"H5Tget_member_name", &api.member_name},
    {"H5Tget_member_class", &api.member_kind},
    {"H5Tclose", &api.type_close},
    {"H5Aexists", &api.attribute_exists},
    {"H5Aopen", &api.attribute_open},
    {"H5Aget_type", &api.attribute_type},
    {"H5Aget_space", &api.attribute_space},
    {"H5Aread", &api.attribute_read},
    {"H5Aclose", &api.attribute_close},
    {"H5T_NATIVE_FLOAT_g", &api.native_float},
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const char *missing; /* why it cannot be used */

static void load(void)
{
    /* Debian's name for the library without MPI, then that of its own build */
    static const char *const libraries[] = {
        "libhdf5_serial.so.103", "libhdf5_serial.so.310", "libhdf5_serial.so.320",
        "libhdf5_serial.so",     "libhdf5.so.103",        "libhdf5.so.200",
        "libhdf5.so.310",        "libhdf5.so.320",        "libhdf5.so"};
    void *library = NULL;
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries && library == NULL; i++) {
        library = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL); /* never closed */
    }
    if (library == NULL) {
        missing = "libhdf5 is not installed";
        return;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *at = dlsym(library, names[i].name);
        memcpy(names[i].to, &at, sizeof at);
        missing = at == NULL ? "libhdf5 is older than 1.10" : missing;
    }
    unsigned major = 0, minor = 0, release;
    if (missing == NULL && (api.open() < 0 || api.version(&major, &minor, &release) < 0 ||
                            major < 1 || (major == 1 && minor < 10))) {
        missing = "libhdf5 is older than 1.10";
    }
    if (missing == NULL) {
        api.silence(0, NULL, NULL); /* else it prints every error */
    }
}

static lvn_status require(const char *path)
{
    pthread_once(&once, load);
    if (missing != NULL) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED,
                 "%s: %s, which HDF5 files are read with; install it (Debian: libhdf5-103), or "
                 "save kspace as .npy files",
                 path, missing);
    }
    return LVN_OK;
}

bool lvni_inverse_hdf5_is(const char *path)
{
    static const char signature[8] = {(char)0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};
    char first[8] = {0};
    int fd;
    uint64_t size;
    if (lvni_core_regular_open(path, &fd, &size) != LVN_OK) {
        lvn_clear_error(); /* opening it as what it is reports why */
        return false;
    }
    const ssize_t n = lvni_core_vfs_get()->read(fd, first, sizeof first);
    lvni_core_vfs_get()->close(fd);
    return n == (ssize_t)sizeof first && memcmp(first, signature, sizeof first) == 0;
}

/* ---- one volume ---- */

typedef struct volume {
    handle file, data, space;
} volume;

static void volume_close(volume *v)
{
    if (v->space >= 0) {
        api.space_close(v->space);
    }
    if (v->data >= 0) {
        api.data_close(v->data);
    }
    if (v->file >= 0) {
        api.file_close(v->file);
    }
}

/* False, with nothing left open: it is damaged, or has no such data set. */
static bool volume_open(const char *path, volume *v)
{
    *v = (volume){-1, -1, -1};
    v->file = api.file_open(path, 0, 0);
    v->data = v->file < 0 ? -1 : api.data_open(v->file, "kspace", 0);
    v->space = v->data < 0 ? -1 : api.data_space(v->data);
    if (v->space < 0) {
        volume_close(v);
        return false;
    }
    return true;
}

/* The members of a record, "real, imag", into out. True: two numbers r and i. */
static bool has_members(handle type, char *out, size_t size)
{
    const int n = api.type_members(type);
    bool good = n == 2;
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        char *name = api.member_name(type, (unsigned)i);
        good = good && name != NULL && strcmp(name, i == 0 ? "r" : "i") == 0 &&
               api.member_kind(type, (unsigned)i) == FLOAT;
        if (name != NULL && at < size) {
            at += (size_t)snprintf(out + at, size - at, "%s%s", i > 0 ? ", " : "", name);
        }
        api.free_memory(name);
    }
    return good;
}

/* As h5py writes complex numbers. HDF5 matches members by name, and leaves those of another name
 * as they are in memory. Else `found` is what the data set holds. */
static bool has_complex(const volume *v, char found[64])
{
    const handle type = api.data_type(v->data);
    const bool compound = type >= 0 && api.type_kind(type) == COMPOUND;
    snprintf(found, 64, "no records");
    const bool good = compound && has_members(type, found, 64);
    if (type >= 0) {
        api.type_close(type);
    }
    return good;
}

static void read_string(handle attribute, handle type, char out[64])
{
    if (api.type_kind(type) != STRING) {
        return;
    }
    if (api.type_is_variable(type) > 0) {
        char *text = NULL;
        if (api.attribute_read(attribute, type, &text) >= 0 && text != NULL) {
            snprintf(out, 64, "%s", text);
            api.free_memory(text);
        }
    } else if (api.type_size(type) < 64) {
        (void)api.attribute_read(attribute, type, out);
    }
}

/* A scalar, or an array of one: reading takes all elements. */
static bool is_single(handle attribute)
{
    const handle space = api.attribute_space(attribute);
    const bool single = space >= 0 && api.space_points(space) == 1;
    if (space >= 0) {
        api.space_close(space);
    }
    return single;
}

/* Empty where there is none, and where it is not one text. */
static void read_acquisition(const volume *v, char out[64])
{
    memset(out, 0, 64);
    if (api.attribute_exists(v->file, "acquisition") <= 0) {
        return;
    }
    const handle attribute = api.attribute_open(v->file, "acquisition", 0);
    const handle type = attribute >= 0 && is_single(attribute) ? api.attribute_type(attribute) : -1;
    if (type >= 0) {
        read_string(attribute, type, out);
        api.type_close(type);
    }
    if (attribute >= 0) {
        api.attribute_close(attribute);
    }
}

/* Axes; -1: kspace is not there, -2: not of complex numbers, but of what `found` names. */
static int read_shape(const char *path, length dims[LVNI_ARRAY_MAX_NDIM], char acquisition[64],
                      char found[64])
{
    volume v;
    if (!volume_open(path, &v)) {
        return -1;
    }
    int ndim = -2;
    if (has_complex(&v, found)) {
        ndim = api.space_ndims(v.space);
        ndim = ndim > LVNI_ARRAY_MAX_NDIM || api.space_dims(v.space, dims, NULL) < 0 ? -1 : ndim;
        read_acquisition(&v, acquisition);
    }
    volume_close(&v);
    return ndim;
}

lvn_status lvni_inverse_hdf5_peek(const char *path, lvni_data_array *out, char acquisition[64])
{
    length dims[LVNI_ARRAY_MAX_NDIM] = {0};
    int64_t shape[LVNI_ARRAY_MAX_NDIM];
    LVN_TRY(require(path));
    pthread_mutex_lock(&lock);
    char found[64] = "";
    const int ndim = read_shape(path, dims, acquisition, found);
    pthread_mutex_unlock(&lock);
    if (ndim == -2) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: its data set kspace does not hold complex numbers, which are records of two "
                 "floats r and i, but %s; write it as complex64, as h5py does",
                 path, found);
    }
    if (ndim < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: a damaged HDF5 file, or one without the data set kspace",
                 path);
    }
    for (int i = 0; i < ndim; i++) {
        shape[i] = (int64_t)dims[i];
    }
    *out = (lvni_data_array){.type = LVNI_ARRAY_C64};
    return lvni_data_array_set_shape(out, path, ndim, shape);
}

/* h5py's complex64: a record of two floats, r and i. */
static handle complex_type(void)
{
    const handle type = api.type_create(COMPOUND, 2 * sizeof(float));
    if (type >= 0 && (api.type_insert(type, "r", 0, *api.native_float) < 0 ||
                      api.type_insert(type, "i", sizeof(float), *api.native_float) < 0)) {
        api.type_close(type);
        return -1;
    }
    return type;
}

static bool read_plane(const volume *v, const length start[4], const length count[4], float *out)
{
    const handle type = complex_type(), to = api.space_create(4, count, NULL);
    const bool good = type >= 0 && to >= 0 &&
                      api.space_select(v->space, 0, start, NULL, count, NULL) >= 0 &&
                      api.data_read(v->data, type, to, v->space, 0, out) >= 0;
    if (to >= 0) {
        api.space_close(to);
    }
    if (type >= 0) {
        api.type_close(type);
    }
    return good;
}

static bool read_locked(const char *path, const length start[4], const length count[4], float *out)
{
    volume v;
    if (!volume_open(path, &v)) {
        return false;
    }
    char found[64]; /* the file may have been replaced since its shape was read */
    const bool good = has_complex(&v, found) && api.space_ndims(v.space) == 4 &&
                      read_plane(&v, start, count, out);
    volume_close(&v);
    return good;
}

lvn_status lvni_inverse_hdf5_read(const char *path, const int64_t shape[4], int slice, int coil,
                                  lvni_data_complex *out)
{
    const length start[4] = {(length)slice, (length)coil, 0, 0},
                 count[4] = {1, 1, (length)shape[2], (length)shape[3]};
    const size_t n = (size_t)shape[2] * (size_t)shape[3];
    LVN_TRY(require(path));
    float *values = lvni_core_calloc(LVNI_TAG_DATA, 2 * n, sizeof *values);
    if (values == NULL) {
        return LVN_ERR_MEMORY;
    }
    pthread_mutex_lock(&lock);
    const bool good = read_locked(path, start, count, values);
    pthread_mutex_unlock(&lock);
    for (size_t i = 0; i < n && good; i++) {
        out[i] = (lvni_data_complex){(double)values[2 * i], (double)values[2 * i + 1]};
    }
    lvni_core_free(values);
    if (!good) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: coil %d of slice %d cannot be read from this HDF5 file",
                 path, coil, slice);
    }
    return LVN_OK;
}
