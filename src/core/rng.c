/* Counter-based random numbers (rng.h). */
#include "core/rng.h"

#include "core/hash.h"
#include "core/math.h"

uint64_t lvni_core_rng_purpose(const char *name)
{
    return lvni_core_hash_text(LVNI_CORE_HASH, name);
}

lvni_core_rng_key lvni_core_rng_make_key(uint64_t seed, uint64_t purpose)
{
    uint64_t z = seed + 0x9e3779b97f4a7c15u * purpose;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z = z ^ (z >> 31);
    return (lvni_core_rng_key){{(uint32_t)z, (uint32_t)(z >> 32)}};
}

void lvni_core_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        const uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        const uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

uint32_t lvni_core_rng_u32(const lvni_core_rng *rng, uint64_t element)
{
    const uint32_t counter[4] = {(uint32_t)(element / 4), rng->c, rng->b, rng->a};
    uint32_t out[4];
    lvni_core_philox(counter, rng->key.k, out);
    return out[element % 4];
}

float lvni_core_rng_uniform(const lvni_core_rng *rng, uint64_t element)
{
    return (float)(lvni_core_rng_u32(rng, element) >> 8) * 0x1p-24f;
}

static double box_muller(uint32_t a, uint32_t b)
{
    const double u1 = ((double)a + 0.5) * 0x1p-32; /* never 0 */
    const double u2 = (double)b * 0x1p-32;
    return lvni_core_sqrt(-2.0 * lvni_core_log(u1)) * lvni_core_cos2pi(u2);
}

double lvni_core_rng_normal(const lvni_core_rng *rng, uint64_t element)
{
    return box_muller(lvni_core_rng_u32(rng, 2 * element), lvni_core_rng_u32(rng, 2 * element + 1));
}

void lvni_core_rng_permute(const lvni_core_rng *rng, int64_t n, int64_t *out)
{
    uint64_t element = 0;
    for (int64_t i = 0; i < n; i++) {
        out[i] = i;
    }
    for (int64_t i = n - 1; i > 0; i--) {
        const int64_t j = lvni_core_rng_below(rng, (uint32_t)i + 1, &element);
        const int64_t swapped = out[i];
        out[i] = out[j];
        out[j] = swapped;
    }
}

uint32_t lvni_core_rng_below(const lvni_core_rng *rng, uint32_t n, uint64_t *element)
{
    const uint32_t reject = (uint32_t)(0x100000000u % n);
    for (;;) {
        const uint32_t x = lvni_core_rng_u32(rng, (*element)++);
        if (x >= reject) {
            return x % n;
        }
    }
}
