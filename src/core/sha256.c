/* SHA-256 (sha256.h). The names are those of FIPS 180-4. */
#include "core/sha256.h"

#include <stdio.h>
#include <string.h>

static const uint32_t start[8] = {
    /* fractions of the square roots of the first primes */
    0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
    0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u,
};
static const uint32_t k_of[64] = {
    /* and of their cube roots */
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u,
    0xab1c5ed5u, 0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu,
    0x9bdc06a7u, 0xc19bf174u, 0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu,
    0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau, 0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u,
    0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u, 0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu,
    0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u, 0xa2bfe8a1u, 0xa81a664bu,
    0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u, 0x19a4c116u,
    0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u,
    0xc67178f2u,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void take_block(lvni_core_sha256 *s, const uint8_t *block)
{
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++) {
        const uint8_t *b = block + 4 * t;
        w[t] = (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
    }
    for (int t = 16; t < 64; t++) {
        const uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3,
                       s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    memcpy(v, s->state, sizeof v); /* a to h */
    for (int t = 0; t < 64; t++) {
        const uint32_t s1 = rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25),
                       ch = (v[4] & v[5]) ^ (~v[4] & v[6]), t1 = v[7] + s1 + ch + k_of[t] + w[t],
                       s0 = rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22),
                       maj = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + s0 + maj;
    }
    for (int i = 0; i < 8; i++) {
        s->state[i] += v[i];
    }
}

void lvni_core_sha256_begin(lvni_core_sha256 *s)
{
    *s = (lvni_core_sha256){.bytes = 0};
    memcpy(s->state, start, sizeof start);
}

void lvni_core_sha256_add(lvni_core_sha256 *s, const void *data, size_t n)
{
    const uint8_t *from = data;
    size_t used = s->bytes % sizeof s->block;
    s->bytes += n;
    while (n > 0) {
        const size_t room = sizeof s->block - used, take = n < room ? n : room;
        if (take == sizeof s->block) {
            take_block(s, from);
        } else {
            memcpy(s->block + used, from, take);
            used += take;
            if (used == sizeof s->block) {
                take_block(s, s->block);
                used = 0;
            }
        }
        from += take;
        n -= take;
    }
}

void lvni_core_sha256_end(lvni_core_sha256 *s, char hex[LVNI_SHA256_HEX])
{
    static const uint8_t padding[64] = {0x80};
    const uint64_t bits = 8 * s->bytes;
    uint8_t length[8];
    for (int i = 0; i < 8; i++) {
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    }
    lvni_core_sha256_add(s, padding, 1 + (119 - s->bytes % 64) % 64);
    lvni_core_sha256_add(s, length, sizeof length);
    for (int i = 0; i < 8; i++) {
        snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
    }
}
