/* auth.h. Of libmunge only a few functions are called; they are declared here, as <munge.h> of
 * MUNGE 0.5 has them, so that building needs nothing of it. The library is loaded at the first
 * call and never closed. */
#include "auth.h"

#include "core/alloc.h"
#include "frame.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- Keys and proofs ---- */

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void rounds(uint64_t v[4], int n)
{
    for (int i = 0; i < n; i++) {
        v[0] += v[1];
        v[2] += v[3];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] = rotate(v[0], 32);
        v[2] += v[1];
        v[0] += v[3];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] = rotate(v[2], 32);
    }
}

/* Up to eight bytes, little endian. */
static uint64_t load_u64(const unsigned char *p, size_t n)
{
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) {
        w |= (uint64_t)p[i] << (8 * i);
    }
    return w;
}

lvni_control_token lvni_control_siphash(const lvni_control_token *key, const void *bytes, size_t n)
{
    const uint64_t k0 = load_u64(key->b, 8), k1 = load_u64(key->b + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU ^ 0xee,
                     k0 ^ 0x6c7967656e657261U, k1 ^ 0x7465646279746573U};
    const unsigned char *p = bytes;
    for (size_t i = 0; i <= n / 8; i++) { /* the last one: what is left, and the length */
        const uint64_t m =
            i < n / 8 ? load_u64(p + 8 * i, 8) : load_u64(p + 8 * i, n % 8) | (uint64_t)n << 56;
        v[3] ^= m;
        rounds(v, 2);
        v[0] ^= m;
    }
    lvni_control_token out;
    for (int half = 0; half < 2; half++) {
        if (half == 0) {
            v[2] ^= 0xee;
        } else {
            v[1] ^= 0xdd;
        }
        rounds(v, 4);
        const uint64_t h = v[0] ^ v[1] ^ v[2] ^ v[3];
        for (int i = 0; i < 8; i++) {
            out.b[8 * half + i] = (unsigned char)(h >> (8 * i));
        }
    }
    return out;
}

lvn_status lvni_control_token_of_run(const lvni_control_token *random, const char *job_key,
                                     const char *run_id, const char *secret,
                                     lvni_control_token *out)
{
    static const lvni_control_token levin = {"levin run key 1"};
    lvni_core_str s = {0};
    lvni_control_put_text(&s, job_key);
    lvni_control_put_text(&s, run_id);
    lvni_control_put_text(&s, secret);
    const lvn_status status = lvni_core_str_status(&s);
    if (status == LVN_OK) {
        *out =
            lvni_control_siphash(random != NULL ? random : &levin, lvni_core_str_text(&s), s.len);
    }
    lvni_core_str_free(&s);
    return status;
}

lvn_status lvni_control_token_random(lvni_control_token *out)
{
    size_t got = 0;
    while (got < sizeof out->b) {
        const ssize_t n = getrandom(out->b + got, sizeof out->b - got, 0);
        if (n < 0 && errno != EINTR) {
            LVN_FAIL(LVN_ERR_IO, "the system gives no random bytes: %s", strerror(errno));
        }
        got += n < 0 ? 0 : (size_t)n;
    }
    return LVN_OK;
}

void lvni_control_token_print(const lvni_control_token *token, char out[LVNI_TOKEN_TEXT])
{
    for (size_t i = 0; i < sizeof token->b; i++) {
        snprintf(out + 2 * i, 3, "%02x", token->b[i]);
    }
}

bool lvni_control_token_scan(const char *text, lvni_control_token *out)
{
    static const char digits[] = "0123456789abcdef";
    const size_t n = 2 * sizeof out->b;
    if (strlen(text) != n || strspn(text, digits) != n) {
        return false;
    }
    for (size_t i = 0; i < n; i += 2) {
        const size_t high = (size_t)(strchr(digits, text[i]) - digits);
        out->b[i / 2] = (unsigned char)(high << 4 | (size_t)(strchr(digits, text[i + 1]) - digits));
    }
    return true;
}

lvn_status lvni_control_token_of_run_key(const char *text, lvni_control_token *out)
{
    if (!lvni_control_token_scan(text, out)) {
        LVN_FAIL(LVN_ERR_USAGE,
                 "LEVIN_RUN_KEY must be 32 hexadecimal digits, which the launcher sets: unset it");
    }
    return LVN_OK;
}

bool lvni_control_token_equal(const lvni_control_token *a, const lvni_control_token *b)
{
    unsigned different = 0;
    for (size_t i = 0; i < sizeof a->b; i++) {
        different |= a->b[i] ^ b->b[i];
    }
    return different == 0;
}

/* ---- MUNGE ---- */

typedef struct munge_ctx munge_ctx;
/* Values of munge_opt_t, munge_cipher_t and munge_err_t. */
enum { OPT_CIPHER = 0, OPT_SOCKET = 8, OPT_UID = 9, CIPHER_AES128 = 4 };
enum { SUCCESS = 0, FIRST_OF_CREDENTIAL = 8, UNAUTHORIZED = 18 };

static struct {
    munge_ctx *(*ctx_create)(void);
    void (*ctx_destroy)(munge_ctx *ctx);
    int (*ctx_set)(munge_ctx *ctx, int option, ...);
    const char *(*ctx_strerror)(munge_ctx *ctx);
    const char *(*strerror)(int error);
    int (*encode)(char **credential, munge_ctx *ctx, const void *bytes, int n);
    int (*decode)(const char *credential, munge_ctx *ctx, void **bytes, int *n, uid_t *uid,
                  gid_t *gid);
} api;
/* What libmunge allocates is malloc's, not core/alloc.h's. */
static void (*const release)(void *) = free;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[256]; /* why there is none */

static void load(void)
{
    static const struct {
        void *to;
        const char *name;
    } symbols[] = {{&api.ctx_create, "munge_ctx_create"}, {&api.ctx_destroy, "munge_ctx_destroy"},
                   {&api.ctx_set, "munge_ctx_set"},       {&api.ctx_strerror, "munge_ctx_strerror"},
                   {&api.strerror, "munge_strerror"},     {&api.encode, "munge_encode"},
                   {&api.decode, "munge_decode"}};
    void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL); /* never closed */
    bool whole = library != NULL;
    for (size_t i = 0; whole && i < sizeof symbols / sizeof *symbols; i++) {
        void *at = dlsym(library, symbols[i].name);
        memcpy(symbols[i].to, &at, sizeof at);
        whole = at != NULL;
    }
    if (!whole) {
        const char *why = dlerror();
        strncpy(missing, why != NULL ? why : "libmunge.so.2 cannot be loaded", sizeof missing - 1);
    }
}

static lvn_status open_context(const char *socket, munge_ctx **out)
{
    *out = NULL;
    pthread_once(&once, load);
    if (missing[0] != '\0') {
        LVN_FAIL(LVN_ERR_NOT_FOUND, "the library of MUNGE (libmunge2): %s", missing);
    }
    munge_ctx *ctx = api.ctx_create();
    if (ctx == NULL) {
        return LVN_ERR_MEMORY;
    }
    if (socket != NULL && api.ctx_set(ctx, OPT_SOCKET, socket) != SUCCESS) {
        lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "MUNGE takes no socket %s", socket);
        api.ctx_destroy(ctx);
        return LVN_ERR_NOT_FOUND;
    }
    *out = ctx;
    return LVN_OK;
}

static lvn_status fail(munge_ctx *ctx, int error, const char *socket)
{
    const char *text = api.ctx_strerror(ctx);
    return lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__, "MUNGE%s%s: %s",
                         socket != NULL ? " at " : "", socket != NULL ? socket : "",
                         text != NULL ? text : api.strerror(error));
}

lvn_status lvni_control_munge_encode(const char *socket, const void *bytes, size_t n,
                                     lvni_core_str *out)
{
    munge_ctx *ctx;
    char *credential = NULL; /* of libmunge */
    LVN_TRY(open_context(socket, &ctx));
    int error = api.ctx_set(ctx, OPT_UID, geteuid());
    error = error == SUCCESS ? api.ctx_set(ctx, OPT_CIPHER, CIPHER_AES128)
                             : error; /* what it carries is secret */
    error = error == SUCCESS ? api.encode(&credential, ctx, bytes, (int)n) : error;
    lvn_status s = LVN_OK;
    if (error != SUCCESS || credential == NULL) {
        s = fail(ctx, error, socket);
    } else if (strlen(credential) > LVNI_CREDENTIAL_MAX) {
        s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                          "a credential of MUNGE has %zu bytes, %d are taken", strlen(credential),
                          LVNI_CREDENTIAL_MAX);
    } else {
        lvni_core_str_append(out, credential);
        s = lvni_core_str_status(out);
    }
    release(credential);
    api.ctx_destroy(ctx);
    return s;
}

lvni_control_munge_result lvni_control_munge_decode(const char *socket, const char *credential,
                                                    void *bytes, size_t n)
{
    munge_ctx *ctx;
    void *found = NULL; /* of libmunge */
    int size = 0;
    uid_t uid = 0;
    gid_t gid = 0;
    lvni_control_munge_result result = LVNI_MUNGE_DAEMON;
    if (open_context(socket, &ctx) != LVN_OK) {
        return result;
    }
    const int error = api.decode(credential, ctx, &found, &size, &uid, &gid);
    if (error == SUCCESS) {
        result = uid != geteuid()                ? LVNI_MUNGE_USER
                 : size < 0 || (size_t)size != n ? LVNI_MUNGE_INVALID
                                                 : LVNI_MUNGE_OK;
    } else if (error >= FIRST_OF_CREDENTIAL) {
        result = error == UNAUTHORIZED ? LVNI_MUNGE_USER : LVNI_MUNGE_INVALID;
    } else {
        fail(ctx, error, socket);
    }
    if (result == LVNI_MUNGE_OK) {
        memcpy(bytes, found, n);
    }
    release(found);
    api.ctx_destroy(ctx);
    return result;
}

lvn_status lvni_control_munge_probe(const char *socket)
{
    lvni_control_token sent, got;
    lvni_core_str credential = {0};
    LVN_TRY(lvni_control_token_random(&sent));
    lvn_status s = lvni_control_munge_encode(socket, sent.b, sizeof sent.b, &credential);
    if (s == LVN_OK) {
        const lvni_control_munge_result r =
            lvni_control_munge_decode(socket, lvni_core_str_text(&credential), got.b, sizeof got.b);
        if (r == LVNI_MUNGE_DAEMON) {
            s = lvn_last_error()->code;
        } else if (r != LVNI_MUNGE_OK || !lvni_control_token_equal(&sent, &got)) {
            s = lvn_error_set(LVN_ERR_NOT_FOUND, __FILE__, __LINE__,
                              "MUNGE does not take a credential of its own");
        }
    }
    lvni_core_str_free(&credential);
    return s;
}
