"""Makes golden_area.h: what OpenCV's INTER_AREA makes of boxes of the image of golden_augment.h,
and SciPy of rotations of it.

usage: golden_area.py > golden_area.h     needs numpy, opencv-python-headless, scipy
"""

import cv2
import numpy as np
import scipy
from scipy import ndimage

W, H = 11, 9
# x, y, width, height of a box, then width and height of what it becomes
BOXES = (
    (0, 0, 11, 9, 5, 4),
    (0, 0, 11, 9, 3, 9),
    (2, 1, 8, 6, 4, 2),
    (1, 1, 10, 7, 7, 7),
    (0, 0, 11, 9, 22, 18),
    (1, 0, 9, 6, 21, 10),
    (3, 2, 5, 4, 12, 9),
    (0, 0, 11, 9, 7, 14),
    (1, 0, 4, 9, 9, 5),
    (4, 4, 1, 1, 3, 2),
)
DEGREES = (10.0, -37.0, 90.0, 180.0, 135.0)
image = np.random.default_rng(7).integers(0, 256, (H, W, 3), dtype=np.uint8)


def array(name, values):
    text = ", ".join(f"{v:.4f}f" for v in np.asarray(values).ravel())
    print(f"static const float {name}[] = {{{text}}};")


def rotated(degrees):
    """Pixel (x, y) comes from where it lay before a turn about the middle."""
    a = np.deg2rad(degrees)
    turn = np.array([[np.cos(a), np.sin(a)], [-np.sin(a), np.cos(a)]])  # of (y, x)
    middle = np.array([(H - 1) / 2, (W - 1) / 2])
    planes = [
        ndimage.affine_transform(
            image[..., c].astype(np.float64), turn, middle - turn @ middle, order=1, mode="mirror"
        )
        for c in range(3)
    ]
    return np.stack(planes, axis=-1)


def main():
    print(f"/* Made by golden_area.py with OpenCV {cv2.__version__}, SciPy {scipy.__version__}. */")
    print("/* clang-format off */")
    boxes = ", ".join("{" + ", ".join(map(str, b)) + "}" for b in BOXES)
    print(f"static const int golden_boxes[][6] = {{{boxes}}};")
    print(f"static const float golden_degrees[] = {{{', '.join(f'{d}f' for d in DEGREES)}}};")
    for i, (x, y, w, h, width, height) in enumerate(BOXES):
        part = np.ascontiguousarray(image[y : y + h, x : x + w].astype(np.float32))
        array(f"golden_area_{i}", cv2.resize(part, (width, height), interpolation=cv2.INTER_AREA))
    names = ", ".join(f"golden_area_{i}" for i in range(len(BOXES)))
    print(f"static const float *const golden_areas[] = {{{names}}};")
    for i, degrees in enumerate(DEGREES):
        array(f"golden_turn_{i}", rotated(degrees))
    names = ", ".join(f"golden_turn_{i}" for i in range(len(DEGREES)))
    print(f"static const float *const golden_turns[] = {{{names}}};")


main()
