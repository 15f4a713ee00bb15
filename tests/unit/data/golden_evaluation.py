"""Makes golden_evaluation.h: what torchvision's Resize and CenterCrop on Pillow images, or timm's
evaluation transform, give for made images of odd shapes and for the clothing photos.

usage: golden_evaluation.py PHOTOS >golden_evaluation.h   needs torchvision, timm, Pillow, numpy
"""

import sys
import zlib
from pathlib import Path

import numpy as np
import PIL
import timm
import torchvision
from PIL import Image
from timm.data.transforms_factory import transforms_imagenet_eval
from torchvision.transforms import CenterCrop, Compose, InterpolationMode, Resize

FILTERS = ["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
SAMPLES = 20
SHAPES_HEAD = """static const struct golden_shape {
    int width, height, shorter, crop;
    lvni_data_filter filter;
    uint32_t crc;
} golden_shapes[] = {"""
PHOTOS_HEAD = f"""}};

/* Colours of photos at evenly spaced places, the default of image_size=224 first; the CRC of
 * all. */
enum {{ GOLDEN_SAMPLES = {SAMPLES} }};
static const struct golden_photo {{
    const char *name;
    int shorter, crop;
    lvni_data_filter filter;
    uint32_t crc;
    const char *samples;
}} golden_photos[] = {{"""


def noise(width, height):
    """The images_noise of the test."""
    n, seed, out = width * height * 3, 7, bytearray()
    for _ in range(n):
        seed = (seed * 1664525 + 1013904223) & 0xFFFFFFFF
        out.append(seed >> 24)
    return Image.frombytes("RGB", (width, height), bytes(out))


def pixels(image, shorter, crop, name):
    return np.asarray(Compose([Resize(shorter, InterpolationMode(name)), CenterCrop(crop)])(image))


def shapes():
    """width, height, shorter, crop, filter"""
    for name in FILTERS:
        for width, height in ((97, 61), (61, 97), (40, 40), (200, 33), (17, 300)):
            for shorter, crop in ((37, 32), (73, 64)):
                yield width, height, shorter, crop, name
    for name in ("bilinear", "bicubic"):
        for width, height in ((1, 1), (1, 50), (50, 1), (2, 3), (1, 700)):
            yield width, height, 37, 32, name
        for crop in (32, 33, 96, 160, 225, 299, 384):
            yield 150, 131, round(crop / 0.875), crop, name
        for shorter, crop in ((20, 31), (21, 32), (20, 33), (30, 64), (64, 64), (33, 32), (34, 31)):
            yield 120, 77, shorter, crop, name
            yield 77, 120, shorter, crop, name


def main(folder):
    vision = torchvision.__version__.split("+")[0]
    print(
        f"/* Made by golden_evaluation.py with torchvision {vision}, timm {timm.__version__}, "
        f"Pillow {PIL.__version__}. */"
    )
    print("/* clang-format off */")
    print(SHAPES_HEAD)
    for width, height, shorter, crop, name in shapes():
        crc = zlib.crc32(pixels(noise(width, height), shorter, crop, name).tobytes())
        print(
            f"    {{{width}, {height}, {shorter}, {crop}, LVNI_FILTER_{name.upper()}, "
            f"0x{crc:08x}}},"
        )
    print(PHOTOS_HEAD)
    photos = sorted(p for p in Path(folder).rglob("*.jpg"))
    for i, photo in enumerate(photos):
        image = Image.open(photo).convert("RGB")
        rows = [(256, 224, "bilinear", pixels(image, 256, 224, "bilinear"))]
        if i % 16 == 0:
            timms = transforms_imagenet_eval(
                224, crop_pct=0.9, interpolation="bicubic", normalize=False
            )
            rows.append((248, 224, "bicubic", timms(image).numpy().transpose(1, 2, 0).copy()))
            rows.append((73, 64, "bilinear", pixels(image, round(64 / 0.875), 64, "bilinear")))
        for shorter, crop, name, out in rows:
            flat = out.reshape(-1)
            places = [flat.size * k // SAMPLES for k in range(SAMPLES)]
            text = "".join(f"\\x{flat[p]:02x}" for p in places)
            where = photo.relative_to(folder)
            print(
                f'    {{"{where}", {shorter}, {crop}, LVNI_FILTER_{name.upper()},\n'
                f'     0x{zlib.crc32(out.tobytes()):08x}, "{text}"}},'
            )
    print("};")


main(sys.argv[1])
