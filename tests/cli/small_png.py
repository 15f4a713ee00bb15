"""Writes and reads images for the tests of this folder."""

import struct
import zlib
from collections import Counter


def write_png(path, size, colour):
    """A square RGB image of one colour."""
    write_pixels(path, size, bytes(colour) * size * size)


def write_pixels(path, size, rgb, width=None):
    """An RGB image (ISO/IEC 15948: signature, IHDR, IDAT, IEND), a square where it has no width."""
    width = width or size

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    rows = b"".join(b"\0" + rgb[3 * width * y : 3 * width * (y + 1)] for y in range(size))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", width, size, 8, 2, 0, 0, 0))
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


def add_bytes(a, b):
    """Of two rows, each sum modulo 256."""
    low = int.from_bytes(b"\x7f" * len(a), "big")
    x, y = int.from_bytes(a, "big"), int.from_bytes(b, "big")
    return ((x & low) + (y & low) ^ (x ^ y) & ~low).to_bytes(len(a), "big")


def pixel_rows(path):
    """The rows of an RGB image that levin wrote, from above; a row that is the same as the last is
    the same object."""
    width, height, rows = read_rows(path)
    step, row = 1 + 3 * width, bytes(3 * width)
    for at in range(0, step * height, step):
        assert rows[at] == 2, (path, rows[at])  # the filter Up: what is added to the row above
        more = rows[at + 1 : at + step]
        row = add_bytes(row, more) if any(more) else row
        yield row


def read_colours(path):
    """The colours of an RGB image that levin wrote: how many pixels each has."""
    counts, last, of_row = Counter(), None, Counter()
    for row in pixel_rows(path):
        if row is not last:
            last, of_row = row, Counter(zip(row[::3], row[1::3], row[2::3]))
        counts.update(of_row)
    return counts
