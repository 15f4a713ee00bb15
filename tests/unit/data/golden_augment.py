"""Makes golden_augment.h: a small image and what torchvision makes of it (blur, solarize), and
Pillow (grey).

usage: golden_augment.py > golden_augment.h     needs torch, torchvision, numpy, Pillow
"""

import numpy as np
import torch
import torchvision
import torchvision.transforms.functional as f
from PIL import Image

W, H = 11, 9
BLURS = ((5, 0.7), (7, 1.3), (9, 2.0))
image = np.random.default_rng(7).integers(0, 256, (H, W, 3), dtype=np.uint8)


def array(kind, name, values, digits):
    text = ", ".join(
        f"{v:.{digits}f}f" if digits else str(int(v)) for v in np.asarray(values).ravel()
    )
    print(f"static const {kind} {name}[] = {{{text}}};")


def main():
    print(f"/* Made by golden_augment.py with torchvision {torchvision.__version__}. */")
    print("/* clang-format off */")
    print(f"enum {{ GOLDEN_W = {W}, GOLDEN_H = {H} }};")
    array("uint8_t", "golden_image", image, 0)
    planes = torch.from_numpy(image).permute(2, 0, 1)
    for kernel, sigma in BLURS:
        blurred = f.gaussian_blur(planes.float(), [kernel, kernel], [sigma, sigma]).permute(1, 2, 0)
        array("float", f"golden_blur_{kernel}_{int(sigma * 10)}", blurred, 4)
    array("uint8_t", "golden_solarize_128", f.solarize(planes, 128).permute(1, 2, 0), 0)
    array("uint8_t", "golden_grey", np.asarray(Image.fromarray(image).convert("L")), 0)


main()
