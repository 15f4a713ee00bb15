# The positions that sampler=balanced draws in an epoch, and how often each was drawn before:
# python3 balanced.py seed epoch label label ...
import sys

seed, epoch, *labels = map(int, sys.argv[1:])
M32, M64, purpose = 2**32 - 1, 2**64 - 1, 0xCBF29CE484222325
for byte in b"balanced":
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


draws, classes, order = map(word, range(2**62)), sorted(set(labels)), []


def below(n):
    return next(d for d in draws if d >= 2**32 % n) % n


for _ in labels:
    drawn = classes[below(len(classes))]
    members = [i for i, label in enumerate(labels) if label == drawn]
    position = members[below(len(members))]
    print(position, order.count(position))
    order.append(position)
