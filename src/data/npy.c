/* Reading and writing .npy (array.h). The header is a Python dictionary literal with three keys,
 * which a reader of exactly that takes apart. */
#include "data/array.h"

#include "core/alloc.h"
#include "core/error.h"
#include "core/vfs.h"
#include "core/zip.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char magic[6] = {(char)0x93, 'N', 'U', 'M', 'P', 'Y'};
enum { HEADER_V1 = 10, HEADER_V2 = 12, ALIGN = 64 };

bool lvni_data_npy_is(const void *bytes, size_t n)
{
    return n >= sizeof magic && memcmp(bytes, magic, sizeof magic) == 0;
}

/* ---- the dictionary ---- */

typedef struct text {
    const char *at, *end;
} text;

static void skip_spaces(text *t)
{
    while (t->at < t->end && (*t->at == ' ' || *t->at == '\n' || *t->at == '\t')) {
        t->at++;
    }
}

static bool take(text *t, char c)
{
    skip_spaces(t);
    if (t->at < t->end && *t->at == c) {
        t->at++;
        return true;
    }
    return false;
}

static bool take_constant(text *t, const char *constant)
{
    const size_t n = strlen(constant);
    skip_spaces(t);
    if ((size_t)(t->end - t->at) >= n && memcmp(t->at, constant, n) == 0) {
        t->at += n;
        return true;
    }
    return false;
}

/* A quoted string shorter than `room`, without escapes. */
static bool take_quoted(text *t, char *out, size_t room)
{
    skip_spaces(t);
    if (t->at == t->end || (*t->at != '\'' && *t->at != '"')) {
        return false;
    }
    const char quote = *t->at++;
    size_t n = 0;
    while (t->at < t->end && *t->at != quote && n + 1 < room) {
        out[n++] = *t->at++;
    }
    out[n] = '\0';
    return take(t, quote);
}

static bool take_number(text *t, int64_t *out)
{
    skip_spaces(t);
    const char *const start = t->at;
    *out = 0;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++) {
        if (__builtin_mul_overflow(*out, 10, out) ||
            __builtin_add_overflow(*out, *t->at - '0', out)) {
            return false;
        }
    }
    const bool some = t->at > start;
    (void)take(t, 'L'); /* long integers of Python 2 */
    return some;
}

/* "(3, 4)", "(3,)", "()"; the number of axes, -1 when it is none of these, or too many. */
static int take_shape(text *t, int64_t shape[LVNI_ARRAY_MAX_NDIM])
{
    int n = 0;
    if (!take(t, '(')) {
        return -1;
    }
    while (!take(t, ')')) {
        if (n == LVNI_ARRAY_MAX_NDIM || !take_number(t, &shape[n++])) {
            return -1;
        }
        if (!take(t, ',')) {
            return take(t, ')') ? n : -1;
        }
    }
    return n;
}

/* "<f4": byte order, kind, bytes. */
static bool parse_type(const char *descr, lvni_data_array *out)
{
    static const struct {
        const char *name;
        lvni_data_array_type type;
    } known[] = {
        {"b1", LVNI_ARRAY_BOOL}, {"u1", LVNI_ARRAY_U8},    {"i1", LVNI_ARRAY_I8},
        {"u2", LVNI_ARRAY_U16},  {"i2", LVNI_ARRAY_I16},   {"u4", LVNI_ARRAY_U32},
        {"i4", LVNI_ARRAY_I32},  {"u8", LVNI_ARRAY_U64},   {"i8", LVNI_ARRAY_I64},
        {"f2", LVNI_ARRAY_F16},  {"f4", LVNI_ARRAY_F32},   {"f8", LVNI_ARRAY_F64},
        {"c8", LVNI_ARRAY_C64},  {"c16", LVNI_ARRAY_C128},
    };
    if (descr[0] == '\0' || strchr("<>|=", descr[0]) == NULL) {
        return false;
    }
    out->big_endian = descr[0] == '>';
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(descr + 1, known[i].name) == 0) {
            out->type = known[i].type;
            return true;
        }
    }
    return false;
}

static lvn_status parse_dictionary(text t, const char *name, lvni_data_array *out)
{
    char key[32], descr[32] = "";
    int64_t shape[LVNI_ARRAY_MAX_NDIM] = {0};
    int ndim = -1;
    bool good = take(&t, '{'), order = false;
    while (good && !take(&t, '}')) {
        good = take_quoted(&t, key, sizeof key) && take(&t, ':');
        if (good && strcmp(key, "descr") == 0) {
            if (!take_quoted(&t, descr, sizeof descr) || !parse_type(descr, out)) {
                LVN_FAIL(LVN_ERR_UNSUPPORTED,
                         "%s: elements of the type %s cannot be read; save the array as bool, an "
                         "integer, a float of 2, 4 or 8 bytes or a complex number",
                         name,
                         descr[0] == '\0'              ? "of a record"
                         : strcmp(descr + 1, "O") == 0 ? "object (Python's)"
                                                       : descr);
            }
        } else if (good && strcmp(key, "fortran_order") == 0) {
            out->fortran = take_constant(&t, "True");
            good = order = out->fortran || take_constant(&t, "False");
        } else if (good && strcmp(key, "shape") == 0) {
            ndim = take_shape(&t, shape);
            good = ndim >= 0;
        } else {
            good = false;
        }
        (void)take(&t, ',');
    }
    if (!good || descr[0] == '\0' || !order || ndim < 0) {
        LVN_FAIL(LVN_ERR_CORRUPT,
                 "%s: damaged .npy header (descr, fortran_order and a shape of at most %d axes are "
                 "expected)",
                 name, LVNI_ARRAY_MAX_NDIM);
    }
    return lvni_data_array_set_shape(out, name, ndim, shape);
}

/* ---- reading ---- */

lvn_status lvni_data_npy_parse_header(const void *bytes, size_t n, const char *name,
                                      lvni_data_array *out, size_t *data_at)
{
    const uint8_t *b = bytes;
    *out = (lvni_data_array){0};
    if (!lvni_data_npy_is(bytes, n) || n < HEADER_V2) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: not a .npy file (%zu bytes)", name, n);
    }
    if (b[6] < 1 || b[6] > 3) {
        LVN_FAIL(LVN_ERR_UNSUPPORTED, "%s: .npy format %d.%d is not known; 1.0, 2.0 and 3.0 are",
                 name, b[6], b[7]);
    }
    const size_t start = b[6] == 1 ? HEADER_V1 : HEADER_V2;
    size_t length = (size_t)b[8] | (size_t)b[9] << 8;
    if (b[6] > 1) {
        length |= (size_t)b[10] << 16 | (size_t)b[11] << 24;
    }
    if (length > n - start) {
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: the .npy header ends at byte %zu of a file of %zu", name,
                 start + length, n);
    }
    *data_at = start + length;
    const char *at = (const char *)b + start;
    return parse_dictionary((text){at, at + length}, name, out);
}

/* Are there as many bytes as the shape needs? */
static lvn_status check_room(const lvni_data_array *a, const char *name, size_t bytes)
{
    const size_t need = (size_t)a->count * lvni_data_array_type_bytes(a->type);
    if (need > bytes) {
        char shape[192];
        LVN_FAIL(LVN_ERR_CORRUPT, "%s: cut off: %s of %s needs %zu bytes, %zu are there", name,
                 lvni_data_array_shape_text(a, shape), lvni_data_array_type_name(a->type), need,
                 bytes);
    }
    return LVN_OK;
}

lvn_status lvni_data_npy_parse(const void *bytes, size_t n, const char *name, lvni_data_array *out)
{
    size_t at;
    LVN_TRY(lvni_data_npy_parse_header(bytes, n, name, out, &at));
    LVN_TRY(check_room(out, name, n - at));
    out->data = (const uint8_t *)bytes + at;
    return LVN_OK;
}

lvn_status lvni_data_npy_open(const char *path, lvni_data_array *out)
{
    *out = (lvni_data_array){0};
    char *bytes;
    size_t n;
    LVN_TRY(lvni_core_regular_read(path, (size_t)1 << 40, &bytes, &n));
    const lvn_status s = lvni_data_npy_parse(bytes, n, path, out);
    if (s != LVN_OK) {
        lvni_core_free(bytes);
        *out = (lvni_data_array){0};
        return s;
    }
    out->owned = bytes;
    return LVN_OK;
}

/* ---- parts of a file ---- */

/* A file that is open, and its header. */
typedef struct part {
    const char *path;
    int fd;
    lvni_data_array array; /* without data */
    size_t data_at;
} part;

/* n bytes from here on; *got is less at the end of the file. */
static lvn_status read_bytes(const part *p, void *out, size_t n, size_t *got)
{
    *got = 0;
    while (*got < n) {
        const ssize_t r = lvni_core_vfs_get()->read(p->fd, (char *)out + *got, n - *got);
        if (r < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "cannot read %s: %s", p->path, strerror(errno));
        }
        if (r == 0) {
            break;
        }
        *got += r > 0 ? (size_t)r : 0;
    }
    return LVN_OK;
}

static lvn_status part_header(part *p, size_t size)
{
    enum { MOST = 16384 }; /* NumPy's are 128 bytes */
    size_t got;
    char *bytes = lvni_core_alloc(LVNI_TAG_DATA, MOST);
    if (bytes == NULL) {
        return LVN_ERR_MEMORY;
    }
    lvn_status s = read_bytes(p, bytes, MOST, &got);
    if (s == LVN_OK) {
        s = lvni_data_npy_parse_header(bytes, got, p->path, &p->array, &p->data_at);
    }
    lvni_core_free(bytes);
    LVN_TRY(s);
    return check_room(&p->array, p->path, size > p->data_at ? size - p->data_at : 0);
}

static lvn_status part_open(const char *path, part *out)
{
    *out = (part){.path = path};
    uint64_t size;
    LVN_TRY(lvni_core_regular_open(path, &out->fd, &size));
    const lvn_status s = part_header(out, (size_t)size);
    if (s != LVN_OK) {
        lvni_core_vfs_get()->close(out->fd);
    }
    return s;
}

lvn_status lvni_data_npy_peek(const char *path, lvni_data_array *out, size_t *data_at)
{
    part p;
    LVN_TRY(part_open(path, &p));
    lvni_core_vfs_get()->close(p.fd);
    *out = p.array;
    *data_at = p.data_at;
    return LVN_OK;
}

static lvn_status read_run(part *p, int64_t first, int64_t count, double *out)
{
    const size_t one = lvni_data_array_type_bytes(p->array.type), n = (size_t)count * one;
    if (lseek(p->fd, (off_t)(p->data_at + (size_t)first * one), SEEK_SET) < 0) {
        LVN_FAIL(LVN_ERR_IO, "cannot read %s: %s", p->path, strerror(errno));
    }
    uint8_t *bytes = lvni_core_alloc(LVNI_TAG_DATA, n);
    size_t got;
    lvn_status s;
    LVNI_TRY_DONE(s, bytes == NULL ? LVN_ERR_MEMORY : read_bytes(p, bytes, n, &got));
    if (got < n) {
        s = lvn_error_set(LVN_ERR_CORRUPT, __FILE__, __LINE__, "%s: cut off while it was read",
                          p->path);
        goto done;
    }
    lvni_data_array run = p->array;
    run.data = bytes;
    run.count = count;
    s = lvni_data_array_read_complex(&run, 0, count, out);
done:
    lvni_core_free(bytes);
    return s;
}

lvn_status lvni_data_npy_read_part(const char *path, int64_t first, int64_t count, double *out)
{
    part p;
    LVN_TRY(part_open(path, &p));
    const bool inside = first >= 0 && count >= 0 && first <= p.array.count - count;
    const lvn_status s = inside && !p.array.fortran ? read_run(&p, first, count, out) : LVN_OK;
    lvni_core_vfs_get()->close(p.fd);
    LVN_ARG(inside, "%s: elements %lld to %lld of %lld were asked for", path, (long long)first,
            (long long)first + (long long)count, (long long)p.array.count);
    if (!p.array.fortran) {
        return s;
    }
    lvni_data_array a;
    LVN_TRY(lvni_data_npy_open(path, &a));
    const lvn_status read = lvni_data_array_read_complex(&a, first, count, out);
    lvni_data_array_free(&a);
    return read;
}

/* ---- writing ---- */

/* Magic, version, length, dictionary, spaces and a line end up to a multiple of ALIGN; returns all
 * its bytes. */
static size_t make_header(char header[512], const char *descr, int ndim, const int64_t *shape)
{
    size_t n = HEADER_V1;
    n += (size_t)snprintf(header + n, 512 - n, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                          descr);
    for (int i = 0; i < ndim; i++) {
        n += (size_t)snprintf(header + n, 512 - n,
                              ndim == 1 ? "%lld,"
                              : i > 0   ? ", %lld"
                                        : "%lld",
                              (long long)shape[i]);
    }
    n += (size_t)snprintf(header + n, 512 - n, "), }");
    const size_t all = (n + 1 + ALIGN - 1) / ALIGN * ALIGN;
    memset(header + n, ' ', all - n - 1);
    header[all - 1] = '\n';
    memcpy(header, magic, sizeof magic);
    header[6] = 1;
    header[7] = 0;
    header[8] = (char)((all - HEADER_V1) & 255);
    header[9] = (char)((all - HEADER_V1) >> 8);
    return all;
}

lvn_status lvni_data_npy_write_f32(const char *path, int ndim, const int64_t *shape,
                                   const float *data)
{
    return lvni_data_npy_write(path, LVNI_ARRAY_F32, ndim, shape, data);
}

lvn_status lvni_data_npy_write(const char *path, lvni_data_array_type type, int ndim,
                               const int64_t *shape, const void *data)
{
    const char *const descr = type == LVNI_ARRAY_F32   ? "<f4"
                              : type == LVNI_ARRAY_F64 ? "<f8"
                              : type == LVNI_ARRAY_C64 ? "<c8"
                                                       : NULL;
    LVN_ARG(descr != NULL, "%s: arrays of %s are not written", path,
            lvni_data_array_type_name(type));
    LVN_ARG(ndim >= 0 && ndim <= LVNI_ARRAY_MAX_NDIM,
            "%s: an array of %d axes cannot be written (at most %d)", path, ndim,
            LVNI_ARRAY_MAX_NDIM);
    lvni_data_array a = {0};
    LVN_TRY(lvni_data_array_set_shape(&a, path, ndim, shape));
    char header[512];
    const size_t n = make_header(header, descr, ndim, shape);
    lvni_core_atomic_file *f;
    LVN_TRY(lvni_core_atomic_open(path, &f));
    lvn_status s = lvni_core_atomic_write(f, header, n);
    if (s == LVN_OK) {
        s = lvni_core_atomic_write(f, data, (size_t)a.count * lvni_data_array_type_bytes(type));
    }
    if (s != LVN_OK) {
        lvni_core_atomic_abort(f);
        return s;
    }
    return lvni_core_atomic_commit(f);
}

lvn_status lvni_data_npz_write(const char *path, const lvni_data_npz_array *arrays,
                               const char *instead)
{
    enum { MOST = 4 };
    char header[MOST][512];
    lvni_core_zip_content content[MOST] = {{0}};
    int64_t n = 0;
    for (; arrays[n].name != NULL; n++) {
        const lvni_data_npz_array *a = &arrays[n];
        LVN_ARG(n < MOST && a->ndim >= 0 && a->ndim <= LVNI_ARRAY_MAX_NDIM,
                "%s: at most %d arrays of %d axes", path, MOST, LVNI_ARRAY_MAX_NDIM);
        content[n] = (lvni_core_zip_content){
            .name = a->name,
            .head = header[n],
            .head_bytes = make_header(header[n], a->descr, a->ndim, a->shape),
            .data = a->data,
            .bytes = a->bytes};
    }
    return lvni_core_zip_write(path, content, n, instead);
}
