"""Writes and reads images for the tests of this folder."""

import struct
import zlib


def write_png(path, size, colour):
    """A square RGB image of one colour."""
    write_pixels(path, size, bytes(colour) * size * size)


def write_pixels(path, size, rgb):
    """A square RGB image (ISO/IEC 15948: signature, IHDR, IDAT, IEND)."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + rgb[3 * size * y : 3 * size * (y + 1)] for y in range(size))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0))
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def read_rows(path):
    """Width, height and the filtered rows of an RGB image; every chunk has its checksum, and the
    pixels are all there."""
    with open(path, "rb") as f:
        whole = f.read()
    assert whole[:8] == b"\x89PNG\r\n\x1a\n", path
    at, data, head, kind = 8, b"", None, b""
    while at < len(whole):
        n, kind = struct.unpack(">I4s", whole[at : at + 8])
        body = whole[at + 8 : at + 8 + n]
        (check,) = struct.unpack(">I", whole[at + 8 + n : at + 12 + n])
        assert check == zlib.crc32(kind + body), (path, kind)
        head = struct.unpack(">IIBBBBB", body) if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        at += 12 + n
    width, height, depth, colour, *_ = head
    assert kind == b"IEND" and depth == 8 and colour == 2, (path, head)
    rows = zlib.decompress(data)
    assert len(rows) == height * (1 + 3 * width), path
    return width, height, rows


def read_colours(path):
    """The colours of an RGB image: how many pixels each has."""
    width, height, rows = read_rows(path)
    step, before, counts = 1 + 3 * width, bytes(3 * width), {}
    for y in range(height):
        kind, row = rows[y * step], bytearray(rows[y * step + 1 : (y + 1) * step])
        for i in range(3 * width) if kind else ():
            left, up = row[i - 3] if i >= 3 else 0, before[i]
            corner = before[i - 3] if i >= 3 else 0
            by_distance = min((left, up, corner), key=lambda v: abs(left + up - corner - v))
            row[i] = (row[i] + (0, left, up, (left + up) // 2, by_distance)[kind]) & 255
        for i in range(0, 3 * width, 3):
            colour = tuple(row[i : i + 3])
            counts[colour] = counts.get(colour, 0) + 1
        before = row
    return counts
