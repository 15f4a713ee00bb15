# The sample ids of step t: python3 order.py n E seed epoch t
import sys

n, batch, seed, epoch, t = map(int, sys.argv[1:])
LARGE = n > 2**27  # these are not shuffled: a Feistel network of 6 rounds
M32, M64, purpose = 2**32 - 1, 2**64 - 1, 0xCBF29CE484222325
for byte in b"order/large" if LARGE else b"order":
    purpose = (purpose ^ byte) * 0x100000001B3 & M64
z = seed + 0x9E3779B97F4A7C15 * purpose & M64
z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & M64
z = (z ^ z >> 27) * 0x94D049BB133111EB & M64


def word(e):
    c, k = [e // 4, 0, 0, epoch], [(z ^ z >> 31) & M32, (z ^ z >> 31) >> 32]
    for _ in range(10):
        p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c, k = [q >> 32 ^ c[1] ^ k[0], q & M32, p >> 32 ^ c[3] ^ k[1], p & M32], [
            k[0] + 0x9E3779B9 & M32,
            k[1] + 0xBB67AE85 & M32,
        ]
    return c[e % 4]


def at(p):
    bits = ((n - 1).bit_length() + 1) // 2
    for r in range(6):
        right = p % 2**bits
        p = right << bits | p >> bits ^ word(r << 16 | right) % 2**bits
    return p if p < n else at(p)


if LARGE:
    print(*map(at, range(t * batch, min(n, (t + 1) * batch))))
    sys.exit()
order, draws = list(range(n)), map(word, range(2**62))
for i in range(n - 1, 0, -1):
    j = next(d for d in draws if d >= 2**32 % (i + 1)) % (i + 1)
    order[i], order[j] = order[j], order[i]
print(*order[t * batch : (t + 1) * batch])
