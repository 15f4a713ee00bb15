/* Transforms by cuFFT, which may be absent; it is loaded when a device is opened (3 ms), since its
 * version belongs to the device's fingerprint. A plan per problem, whose work area is levin's
 * scratch memory; which algorithm it has is decided by the library from the sizes, without
 * measuring. Scale and centering are one own kernel in front of it. */
#include "fft.cuh"

#if !__has_include(<cufft.h>)

int lvnc_cufft_version(void)
{
    return 0;
}

size_t lvnc_cufft_bytes(const lvnc_fft &f)
{
    (void)f;
    return 0;
}

bool lvnc_cufft_transform(const lvn_kernel_args *args, const lvnc_fft &f, void *workspace,
                          lvn_status *status)
{
    (void)args, (void)f, (void)workspace, (void)status;
    return false;
}

#else

#include <cufft.h>
#include <dlfcn.h>
#include <stdio.h>

namespace
{
struct functions {
    decltype(&cufftGetVersion) version;
    decltype(&cufftCreate) create;
    decltype(&cufftDestroy) destroy;
    decltype(&cufftSetAutoAllocation) set_auto_allocation;
    decltype(&cufftMakePlanMany64) make_plan;
    decltype(&cufftSetStream) set_stream;
    decltype(&cufftSetWorkArea) set_work_area;
    decltype(&cufftExecC2C) execute;
};

struct problem {
    int64_t batches, m, n;
};

struct plan {
    bool tried, refused;
    cufftHandle handle;
};

struct state {
    pthread_mutex_t lock;
    lvnc_plans<problem, plan> plans;
};

/* ---- the library ---- */

#define TEXT_OF(number) #number
#define LIBRARY(major) "libcufft.so." TEXT_OF(major)

/* NULL: own kernels only. */
const char *library_name(void)
{
#ifdef LEVIN_CUDA_ON_HOST
    return getenv("CUDA_ON_HOST_CUFFT"); /* a stand-in, for tests */
#else
    return lvnc_uses_libraries() ? LIBRARY(CUFFT_VER_MAJOR) : NULL;
#endif
}

template <typename F> bool find(void *from, const char *name, F *to)
{
    *to = reinterpret_cast<F>(dlsym(from, name));
    return *to != NULL;
}

bool find_all(void *from, functions *f)
{
    return find(from, "cufftGetVersion", &f->version) && find(from, "cufftCreate", &f->create) &&
           find(from, "cufftDestroy", &f->destroy) &&
           find(from, "cufftSetAutoAllocation", &f->set_auto_allocation) &&
           find(from, "cufftMakePlanMany64", &f->make_plan) &&
           find(from, "cufftSetStream", &f->set_stream) &&
           find(from, "cufftSetWorkArea", &f->set_work_area) &&
           find(from, "cufftExecC2C", &f->execute);
}

enum presence { ABSENT, THERE, BROKEN };

struct library {
    presence is;
    int version; /* THERE, else 0 */
    functions call;
    char why[256]; /* BROKEN */
};

/* From the folders of this file's RUNPATH, or where the loader looks; never closed. A library that
 * is there and cannot be loaded is an error: own kernels would have other bits than a run, or
 * another rank, in which it can. */
library load(void)
{
    library l = {};
    const char *name = library_name();
    void *from = name == NULL ? NULL : dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (from != NULL && find_all(from, &l.call)) {
        l.is = THERE;
    } else if (name != NULL) {
        const char *why = dlerror();
        snprintf(l.why, sizeof l.why, "%s", why == NULL ? name : why);
        l.is = strncmp(l.why, name, strlen(name)) == 0 && strstr(l.why, "No such file") != NULL
                   ? ABSENT
                   : BROKEN;
    }
    if (l.is == THERE && l.call.version(&l.version) != CUFFT_SUCCESS) {
        l.is = BROKEN;
        snprintf(l.why, sizeof l.why, "%s does not name its version", name);
    }
    if (lvnc_debugs() && l.is == THERE) {
        fprintf(stderr, "levin cuda: cuFFT %d transforms\n", l.version);
    } else if (lvnc_debugs() && name != NULL) {
        fprintf(stderr, "levin cuda: no cuFFT, own kernels transform: %s\n", l.why);
    }
    return l;
}

const library &the_library(void)
{
    static const library l = load();
    return l;
}

const char *name_of(cufftResult e)
{
#define NAME(result)                                                                               \
    case result:                                                                                   \
        return #result;
    switch (e) {
        NAME(CUFFT_SUCCESS)
        NAME(CUFFT_ALLOC_FAILED)
        NAME(CUFFT_INVALID_VALUE)
        NAME(CUFFT_INTERNAL_ERROR)
        NAME(CUFFT_EXEC_FAILED)
        NAME(CUFFT_SETUP_FAILED)
        NAME(CUFFT_INVALID_SIZE)
        NAME(CUFFT_NO_WORKSPACE)
        NAME(CUFFT_NOT_IMPLEMENTED)
        NAME(CUFFT_NOT_SUPPORTED)
    default: return "an error that cufft.h lists";
    }
#undef NAME
}

/* Of the problem alone, or as if there were no library: the own kernel computes it in every run. */
bool is_refusal(cufftResult e)
{
    const int missing_dependency = 0x11; /* without a name in CUDA 12 */
    return e == CUFFT_INVALID_SIZE || e == CUFFT_INVALID_VALUE || e == CUFFT_NOT_SUPPORTED ||
           e == CUFFT_NOT_IMPLEMENTED || (int)e == missing_dependency;
}

/* ---- its state on a device ---- */

/* Plans go with the process: devices close when it ends, and by then the destructors of a library
 * that was loaded after them have run. */
void end_plan(plan *p)
{
    (void)p;
}

void end_state(void *library)
{
    state *s = static_cast<state *>(library);
    s->plans.free_all(end_plan);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* Made with the first transform. NULL: no memory. */
state *state_of(lvnc_device *d)
{
    pthread_mutex_lock(&d->lock);
    state *s = static_cast<state *>(d->library[LVNC_CUFFT]);
    if (s == NULL) {
        s = static_cast<state *>(calloc(1, sizeof *s));
        if (s != NULL) {
            pthread_mutex_init(&s->lock, NULL);
            d->free_library[LVNC_CUFFT] = end_state;
            d->library[LVNC_CUFFT] = s;
        }
    }
    pthread_mutex_unlock(&d->lock);
    return s;
}

/* ---- plans ---- */

cufftResult describe(const functions &cufft, const problem &q, cufftHandle plan, size_t *bytes)
{
    long long sizes[2] = {q.m, q.n};
    const int along = q.m == 1 ? 1 : 2;
    const cufftResult e = cufft.set_auto_allocation(plan, 0);
    return e != CUFFT_SUCCESS ? e
                              : cufft.make_plan(plan, along, sizes + 2 - along, NULL, 1, 0, NULL, 1,
                                                0, CUFFT_C2C, q.batches, bytes);
}

void report_refusal(const problem &q, const char *why, size_t bytes, size_t most)
{
    if (lvnc_debugs()) {
        fprintf(stderr,
                "levin cuda: cuFFT refuses a plan, the own kernel computes: %s; %lld x (%lld, "
                "%lld), %zu bytes of at most %zu\n",
                why, (long long)q.batches, (long long)q.m, (long long)q.n, bytes, most);
    }
}

/* A plan that wants more memory than `most` is refused: CUFFT_NOT_SUPPORTED. */
cufftResult make_plan(const functions &cufft, const problem &q, size_t most, plan *p)
{
    size_t bytes = 0;
    cufftResult e = cufft.create(&p->handle);
    const bool created = e == CUFFT_SUCCESS;
    e = created ? describe(cufft, q, p->handle, &bytes) : e;
    if (e == CUFFT_SUCCESS && bytes <= most) {
        return e;
    }
    if (created) {
        (void)cufft.destroy(p->handle);
    }
    if (e == CUFFT_SUCCESS || is_refusal(e)) {
        report_refusal(q, e == CUFFT_SUCCESS ? "its work area is too large" : name_of(e), bytes,
                       most);
    }
    return e == CUFFT_SUCCESS ? CUFFT_NOT_SUPPORTED : e;
}

/* With the lock. NULL: the library refuses the problem, or *e is an error, after which the next
 * call tries again. To make a plan the library allocates and copies, which a captured step would
 * not do again: the trainer submits steps with the same sizes before it captures one
 * (trainer/graph.c). The plan stays, since captured steps read its tables. */
const plan *plan_of(state *s, const functions &cufft, const problem &q, size_t most, cufftResult *e)
{
    plan *p = s->plans.get(q);
    *e = p == NULL ? CUFFT_ALLOC_FAILED : CUFFT_SUCCESS;
    if (p != NULL && !p->tried) {
        *e = make_plan(cufft, q, most, p);
        p->refused = is_refusal(*e);
        p->tried = p->refused || *e == CUFFT_SUCCESS;
        *e = p->refused ? CUFFT_SUCCESS : *e;
    }
    return p == NULL || p->refused || !p->tried ? NULL : p;
}

/* ---- scale and centering ---- */

struct arrangement {
    divisor by_n, by_m;
    unsigned n, m, shift_n, shift_m;
    float over_n, over_m; /* 1 / size where it is odd, else 0; with the sign of the direction */
    bool centered;
    float scale;
};

/* Centered, number j of a line of n lies at j + s mod n with s = n / 2, and so does its transform:
 *     y[k + s] = sum_j x[j + s] w^(j k), that is y[k] = sum_j (x[j + s] w^(-j s)) w^(j k).
 * With w = e^(-+ 2 pi i / n) the factor is (-1)^j, and for an odd n e^(-+ pi i j / n) times that.
 * So the result of the library lies where it belongs, and this is the only pass beside its own. */
__global__ void arrange(const float2 *x, float2 *y, arrangement a, int64_t all)
{
    FOR_GRID (i, all) {
        unsigned k, r;
        const unsigned row = divide((unsigned)i, a.by_n, &k);
        divide(row, a.by_m, &r);
        const unsigned column = k + a.shift_n < a.n ? k + a.shift_n : k + a.shift_n - a.n,
                       line = r + a.shift_m < a.m ? r + a.shift_m : r + a.shift_m - a.m;
        const float2 v = x[((int64_t)row - r + line) * a.n + column];
        const float scale = a.centered && ((k + r) & 1) != 0 ? -a.scale : a.scale;
        const float turn = (float)k * a.over_n + (float)r * a.over_m;
        float re = 1.0f, im = 0.0f;
        if (turn != 0.0f) {
            re = cosf(3.14159265358979f * turn);
            im = sinf(3.14159265358979f * turn);
        }
        y[i] = make_float2(scale * (v.x * re - v.y * im), scale * (v.x * im + v.y * re));
    }
}

/* Of one axis. */
void center(int64_t n, bool inverse, unsigned *shift, float *over)
{
    *shift = (unsigned)(n / 2);
    *over = n % 2 == 0 ? 0.0f : (inverse ? 1.0f : -1.0f) / (float)n;
}

lvn_status start_arranging(const lvn_kernel_args *args, const lvnc_fft &f)
{
    arrangement a = {};
    a.by_n = make_divisor(f.n);
    a.by_m = make_divisor(f.m);
    a.n = (unsigned)f.n;
    a.m = (unsigned)f.m;
    a.scale = f.scale;
    a.centered = f.centered;
    if (f.centered) {
        center(f.n, f.inverse, &a.shift_n, &a.over_n);
        center(f.m, f.inverse, &a.shift_m, &a.over_m);
    }
    const int64_t all = lvnc_fft_numbers(f);
    return launch(args->stream, "fft", arrange, blocks_for(all, 256), 256, 0, in<float2>(args, 0),
                  out<float2>(args, 0), a, all);
}

/* ---- transforms ---- */

/* With the lock. x may be y. */
cufftResult execute(const functions &cufft, const plan &p, const float2 *x, float2 *y, bool inverse,
                    void *workspace, cudaStream_t stream)
{
    cufftResult e = cufft.set_stream(p.handle, stream);
    e = e == CUFFT_SUCCESS ? cufft.set_work_area(p.handle, workspace) : e;
    return e != CUFFT_SUCCESS ? e
                              : cufft.execute(p.handle, const_cast<float2 *>(x), y,
                                              inverse ? CUFFT_INVERSE : CUFFT_FORWARD);
}

/* With the lock. An error of CUDA is *status. */
cufftResult submit(const lvn_kernel_args *args, const lvnc_fft &f, const functions &cufft,
                   const plan &p, void *workspace, lvn_status *status)
{
    const bool arranged = f.centered || f.scale != 1.0f;
    *status = arranged ? start_arranging(args, f) : LVN_OK;
    if (*status != LVN_OK) {
        return CUFFT_SUCCESS;
    }
    float2 *y = out<float2>(args, 0);
    return execute(cufft, p, arranged ? y : in<float2>(args, 0), y, f.inverse, workspace,
                   lvnc_enter(args->stream));
}

/* Whether all primes in it are among those that cuFFT has kernels for. */
bool is_smooth(int64_t n)
{
    for (int p : {2, 3, 5, 7}) {
        while (n % p == 0) {
            n /= p;
        }
    }
    return n == 1;
}
} // namespace

int lvnc_cufft_version(void)
{
    return the_library().is == BROKEN ? -1 : the_library().version;
}

/* cuFFT's documentation: powers of two take little, large primes up to eight times as much. The
 * latter may get so much only where it is little beside a model; what wants more is refused. */
size_t lvnc_cufft_bytes(const lvnc_fft &f)
{
    const int64_t all = lvnc_fft_numbers(f);
    if (library_name() == NULL || all == 0 || all > INT32_MAX) {
        return 0;
    }
    const size_t data = (size_t)all * sizeof(float2), least = (size_t)1 << 20,
                 limit = (size_t)256 << 20, few = 2 * data + least, many = 8 * data + least;
    if ((is_smooth(f.n) && is_smooth(f.m)) || few > limit) {
        return few;
    }
    return many < limit ? many : limit;
}

bool lvnc_cufft_transform(const lvn_kernel_args *args, const lvnc_fft &f, void *workspace,
                          lvn_status *status)
{
    const size_t most = lvnc_cufft_bytes(f);
    if (most == 0 || the_library().is == ABSENT) {
        return false;
    }
    if (the_library().is == BROKEN) {
        char why[400];
        snprintf(why, sizeof why, "%s; LEVIN_CUDA_LIBRARIES=off computes without libraries",
                 the_library().why);
        *status = lvnc_library_failed(args, "cuFFT", why, false);
        return true;
    }
    const functions *cufft = &the_library().call;
    (void)lvnc_enter(args->stream); /* plans belong to the device of the thread */
    state *s = state_of(lvnc_device_of(args->stream));
    if (s == NULL) {
        *status = lvnc_library_failed(args, "cuFFT", "there is no memory for it", true);
        return true;
    }
    const problem q = {f.batches, f.m, f.n};
    cufftResult e;
    pthread_mutex_lock(&s->lock);
    const plan *p = plan_of(s, *cufft, q, most, &e);
    *status = LVN_OK;
    if (p != NULL) {
        e = submit(args, f, *cufft, *p, workspace, status);
    }
    pthread_mutex_unlock(&s->lock);
    if (p == NULL && e == CUFFT_SUCCESS) {
        return false;
    }
    if (*status == LVN_OK) {
        *status = e == CUFFT_SUCCESS
                      ? lvnc_submitted(args->stream, args->op->name, cudaSuccess)
                      : lvnc_library_failed(args, "cuFFT", name_of(e), e == CUFFT_ALLOC_FAILED);
    }
    return true;
}

#endif
