"""Images of four classes that a small network distinguishes after a few steps."""

import random
from pathlib import Path

from small_png import read_rows, write_pixels


def draw_patterns(folder, each, size=32):
    """Stripes of either direction, checks and rings, of random greys, widths and places."""
    kinds = {
        "across": lambda x, y, w: y // w,
        "checks": lambda x, y, w: x // w + y // w,
        "down": lambda x, y, w: x // w,
        "rings": lambda x, y, w: int((x * x + y * y) ** 0.5) // w,
    }
    draw = random.Random(1)
    for name, kind in kinds.items():
        for i in range(each):
            dark, light = (bytes([draw.randrange(a, a + 40)] * 3) for a in (40, 180))
            colours = [dark, light]
            left, top, width = draw.randrange(size), draw.randrange(size), draw.randrange(3, 6)
            pixels = b"".join(
                colours[kind(x - left, y - top, width) % 2]
                for y in range(size)
                for x in range(size)
            )
            write_pixels(Path(folder, name, f"{i}.png"), size, pixels)


def crop_middle(folder, into, side):
    """Of each image of a folder what `eval knn` takes of it where its resizing changes nothing."""
    for path in Path(folder).rglob("*.png"):
        width, _, rows = read_rows(path)
        half = (width - side) // 2
        at = half if (width - side) % 2 == 0 else half + half % 2
        begins = [(at + y) * (1 + 3 * width) + 1 + 3 * at for y in range(side)]
        middle = b"".join(rows[i : i + 3 * side] for i in begins)
        write_pixels(Path(into, path.relative_to(folder)), side, middle)
