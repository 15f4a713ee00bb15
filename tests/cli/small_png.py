"""Writes images for the tests of this folder."""

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
