#!/usr/bin/env python3
"""Makes pose_augment.safetensors beside it: an image after operations of imgaug, with arguments
that leave nothing to chance.

usage: python3 make_pose_augment_golden.py     by hand, with imgaug (that of lightning-pose), torch

The image is smooth colours with noise, small, and wide in its range of levels. Per case there is
the image that comes out; test_pose_augment_golden.c has the same cases as pipelines' texts.
"""

from pathlib import Path

import golden_rule as rule
import imgaug.augmenters as iaa
import numpy as np

HEIGHT, WIDTH = 20, 24
CASES = {
    "smaller": iaa.Resize({"height": 13, "width": 16}),
    "larger": iaa.Resize({"height": 31, "width": 29}),
    "turned": iaa.Rot90(k=2),
    "rotated": iaa.Affine(rotate=17),
    "padded": iaa.CropAndPad(percent=0.1, keep_size=False),
    "cropped": iaa.CropAndPad(percent=-0.1, keep_size=False),
    "blurred": iaa.MotionBlur(k=5, angle=35, direction=0.4),
    "blurred_upright": iaa.MotionBlur(k=7, angle=0, direction=-1.0),
    "equalized": iaa.AllChannelsHistogramEqualization(),
    "clahe": iaa.AllChannelsCLAHE(clip_limit=2.5, tile_grid_size_px=3),
    "clahe_even": iaa.AllChannelsCLAHE(clip_limit=8, tile_grid_size_px=4),
    "embossed": iaa.Emboss(alpha=0.3, strength=1.2),
}


def make_image():
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    noise = 12 * rule.uniform("noise", HEIGHT * WIDTH * 3).reshape(HEIGHT, WIDTH, 3)
    smooth = [9 * x + 2 * y, 200 - 8 * y + 20 * np.sin(x), 60 + 4 * np.abs(x - y)]
    return np.clip(np.stack(smooth, -1) + noise, 0, 255).astype(np.uint8)


def main():
    image = make_image()
    out = {"image": image} | {name: case(image=image.copy()) for name, case in CASES.items()}
    rule.write(Path(__file__).parent / "pose_augment.safetensors", out, {})


if __name__ == "__main__":
    main()
