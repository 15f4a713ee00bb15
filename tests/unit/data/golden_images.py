"""Makes golden_images.h: small PNG files of every kind and JPEG files in print colours, with the
RGB, grey and alpha that Pillow's convert gives ("RGB", of that "L", "RGBA"). Two differences are
ours: Pillow clips 16-bit grey at 255, levin takes its high byte, as both do for 16-bit RGB; and
Pillow looks for the transparent colour in samples of 8 bits, levin in those of the file.

usage: golden_images.py > golden_images.h     needs Pillow and numpy
"""

import io
import struct
import zlib

import numpy as np
from PIL import Image

W, H = 7, 5
NAMES = {0: "grey", 2: "rgb", 3: "palette", 4: "grey_alpha", 6: "rgb_alpha"}
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
PASSES = (
    (0, 0, 8, 8),
    (4, 0, 8, 8),
    (0, 4, 4, 8),
    (2, 0, 4, 4),
    (0, 2, 2, 4),
    (1, 0, 2, 2),
    (0, 1, 1, 2),
)
rng = np.random.default_rng(1)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples, depth):
    """Rows with filter 0. samples: (rows, columns, channels)."""
    out = b""
    for row in samples.reshape(samples.shape[0], -1):
        bits = "".join(format(int(v), f"0{depth}b") for v in row)
        bits += "0" * (-len(bits) % 8)
        out += b"\0" + bytes(int(bits[i : i + 8], 2) for i in range(0, len(bits), 8))
    return out


def png(kind, depth, interlaced, transparent):
    samples = rng.integers(0, 1 << depth, (H, W, CHANNELS[kind]))
    out = b"\x89PNG\r\n\x1a\n" + chunk(
        b"IHDR", struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, int(interlaced))
    )
    if kind == 3:
        out += chunk(b"PLTE", rng.integers(0, 256, 3 << depth, dtype=np.uint8).tobytes())
    if transparent:
        out += chunk(b"tRNS", {0: b"\0\1", 2: b"\0\1\0\2\0\3", 3: bytes([0, 128])}[kind])
    parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES] if interlaced else [samples]
    data = b"".join(pack_rows(p, depth) for p in parts if p.size > 0)
    out += chunk(b"IDAT", zlib.compress(data, 9)) + chunk(b"IEND", b"")
    if kind in (0, 2):
        clear = transparent & (samples == np.arange(1, CHANNELS[kind] + 1)).all(axis=2)
        opaque = np.where(clear, 0, 255).astype(np.uint8)
    else:
        opaque = alpha(out)
    if depth == 16 and kind == 0:
        return out, np.repeat(samples >> 8, 3, axis=2).astype(np.uint8), opaque
    return out, pillow(out), opaque


def pillow(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def grey(rgb):
    return np.asarray(Image.fromarray(rgb).convert("L"))


def alpha(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGBA"))[..., 3]


def cmyk():
    x, y = np.meshgrid(np.arange(W), np.arange(H))
    values = np.stack([x * 30, y * 50, (x + y) * 20, x * y * 8], axis=2).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(values, "CMYK").save(out, "JPEG", quality=100, subsampling=0)
    return out.getvalue(), pillow(out.getvalue()), np.full((H, W), 255, np.uint8)


def literal(data):
    return "\n     ".join(
        '"' + "".join(f"\\x{b:02x}" for b in data[i : i + 32]) + '"'
        for i in range(0, len(data), 32)
    )


def main():
    rows = []
    for kind, depths in DEPTHS.items():
        for depth in depths:
            for interlaced in (False, True):
                for transparent in (False, True) if kind in (0, 2, 3) else (False,):
                    name = f"{NAMES[kind]}_{depth}" + "_interlaced" * interlaced
                    name += "_transparent" * transparent
                    rows.append((name, *png(kind, depth, interlaced, transparent)))
    rows.append(("jpeg_cmyk", *cmyk()))
    print("/* Made by golden_images.py with Pillow", Image.__version__ + ". */")
    print("/* clang-format off */")
    print(f"enum {{ GOLDEN_W = {W}, GOLDEN_H = {H} }};")
    print(
        "static const struct golden_image {\n    const char *name;\n    size_t n;\n    "
        "const char *file, *rgb, *grey, *alpha;\n} golden_images[] = {"
    )
    for name, file, rgb, opaque in rows:
        parts = ",\n     ".join(
            literal(part)
            for part in (file, rgb.tobytes(), grey(rgb).tobytes(), opaque.tobytes())
        )
        print(f'    {{"{name}", {len(file)},\n     {parts}}},')
    print("};")


main()
