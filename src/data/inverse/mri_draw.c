/* The volumes that rcGAN validates on: three tenths of those in the folder, by a draw whose seed
 * stands in its source. The same ones need the same generator, Python's: the Mersenne Twister
 * MT19937 (Matsumoto & Nishimura 1998), seeded by an array of one number, and a shuffle from the
 * end. Called by mri_volumes.c. */
#include "core/alloc.h"
#include "mri.h"

enum { N = 624, M = 397 };

typedef struct twister {
    uint32_t state[N];
    int at;
} twister;

static void seed(twister *t, uint32_t key)
{
    t->state[0] = 19650218U;
    for (int i = 1; i < N; i++) {
        t->state[i] = 1812433253U * (t->state[i - 1] ^ (t->state[i - 1] >> 30)) + (uint32_t)i;
    }
    uint32_t *s = t->state;
    int i = 1;
    for (int k = 0; k < N; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1664525U)) + key;
        if (++i == N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    for (int k = 0; k < N - 1; k++) {
        s[i] = (s[i] ^ ((s[i - 1] ^ (s[i - 1] >> 30)) * 1566083941U)) - (uint32_t)i;
        if (++i == N) {
            s[0] = s[N - 1];
            i = 1;
        }
    }
    s[0] = 0x80000000U;
    t->at = N;
}

static uint32_t next(twister *t)
{
    uint32_t *s = t->state;
    if (t->at == N) {
        for (int i = 0; i < N; i++) {
            const uint32_t y = (s[i] & 0x80000000U) | (s[(i + 1) % N] & 0x7FFFFFFFU);
            s[i] = s[(i + M) % N] ^ (y >> 1) ^ ((y & 1U) != 0 ? 0x9908B0DFU : 0U);
        }
        t->at = 0;
    }
    uint32_t y = s[t->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9D2C5680U;
    y ^= (y << 15) & 0xEFC60000U;
    return y ^ (y >> 18);
}

/* 0 .. n - 1, by the top bits of as many numbers as it takes. */
static uint32_t below(twister *t, uint32_t n)
{
    int bits = 0;
    for (uint32_t left = n; left > 0; left >>= 1) {
        bits++;
    }
    for (;;) {
        const uint32_t r = next(t) >> (32 - bits);
        if (r < n) {
            return r;
        }
    }
}

/* 0.3 n, halves to the even number. */
static int64_t three_tenths(int64_t n)
{
    const int64_t down = 3 * n / 10, rest = 3 * n % 10;
    return down + (rest > 5 || (rest == 5 && down % 2 != 0) ? 1 : 0);
}

lvn_status lvni_inverse_mri_draw(int64_t n, bool *drawn)
{
    twister t;
    int64_t *order = lvni_core_alloc(LVNI_TAG_DATA, (size_t)(n > 0 ? n : 1) * sizeof *order);
    if (order == NULL) {
        return LVN_ERR_MEMORY;
    }
    for (int64_t i = 0; i < n; i++) {
        order[i] = i;
        drawn[i] = false;
    }
    seed(&t, 1000);
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = below(&t, (uint32_t)(i + 1)), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int64_t i = 0; i < three_tenths(n); i++) {
        drawn[order[i]] = true;
    }
    lvni_core_free(order);
    return LVN_OK;
}
