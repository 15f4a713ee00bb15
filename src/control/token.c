/* Keys, proofs and SipHash of token.h. */
#include "token.h"

#include "core/str.h"
#include "frame.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

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
static uint64_t word(const unsigned char *p, size_t n)
{
    uint64_t w = 0;
    for (size_t i = 0; i < n; i++) {
        w |= (uint64_t)p[i] << (8 * i);
    }
    return w;
}

lvni_control_token lvni_control_siphash(const lvni_control_token *key, const void *bytes, size_t n)
{
    const uint64_t k0 = word(key->b, 8), k1 = word(key->b + 8, 8);
    uint64_t v[4] = {k0 ^ 0x736f6d6570736575U, k1 ^ 0x646f72616e646f6dU ^ 0xee,
                     k0 ^ 0x6c7967656e657261U, k1 ^ 0x7465646279746573U};
    const unsigned char *p = bytes;
    for (size_t i = 0; i <= n / 8; i++) { /* the last word holds what is left and the length */
        const uint64_t m =
            i < n / 8 ? word(p + 8 * i, 8) : word(p + 8 * i, n % 8) | (uint64_t)n << 56;
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

lvn_status lvni_control_token_given(const char *text, lvni_control_token *out)
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
