#!/usr/bin/env python3
"""Writes golden_ops.h: results of PyTorch's functions in double precision, for ops whose options
could be taken for each other (height and width, corners and centres, order of the gates).

usage: golden_ops.py >golden_ops.h     needs torch; the test needs it not

Element e of input k of n elements is ((29 e + 17 k + n) mod 48 - 23.5) / 16. Images are (N, H, W,
C) and convolution weights (O, KH, KW, I) there, as in the test.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)


def given(k, *shape):
    n = torch.Size(shape).numel()
    return torch.tensor([((29 * e + 17 * k + n) % 48 - 23.5) / 16 for e in range(n)]).reshape(shape)


def image(k, *shape):
    """As PyTorch has it: channels before rows and columns."""
    return given(k, *shape).permute(0, 3, 1, 2)


def back(y):
    return y.permute(0, 2, 3, 1)


def step(cls, gates, *more):
    """A cell with 3 inputs and 4 features."""
    cell = cls(3, 4)
    rows = 4 * gates
    for k, (p, shape) in enumerate(
        zip(cell.parameters(), [(rows, 3), (rows, 4), (rows,), (rows,)])
    ):
        p.data = given(2 + k, *shape)
    h = given(1, 2, 4)
    y = cell(given(0, 2, 3), (h, *more) if more else h)
    return tuple(t.detach() for t in y) if more else y.detach()


WINDOW = {"kernel_size": (2, 3), "dilation": (1, 2), "padding": (1, 0), "stride": (2, 1)}
CASES = {
    "conv2d": lambda: back(
        F.conv2d(
            image(0, 1, 5, 6, 2),
            image(1, 3, 2, 3, 2),
            given(2, 3),
            stride=(2, 1),
            padding=(1, 2),
            dilation=(1, 2),
        )
    ),
    "conv_transpose2d": lambda: back(
        F.conv_transpose2d(
            image(0, 1, 3, 2, 2),
            image(1, 2, 2, 3, 3),
            given(2, 3),
            stride=(2, 3),
            padding=(1, 0),
            output_padding=(0, 2),
            dilation=(2, 1),
        )
    ),
    "max_pool2d": lambda: back(F.max_pool2d(image(0, 1, 4, 7, 2), (2, 3), (1, 2), (1, 0))),
    "max_pool2d in two passes": lambda: back(
        F.max_pool2d(image(0, 1, 20, 19, 1), (17, 16), (2, 1), (3, 0))
    ),
    "max_pool2d, stride of the kernel": lambda: back(F.max_pool2d(image(0, 1, 4, 7, 1), (2, 3))),
    "avg_pool2d": lambda: back(F.avg_pool2d(image(0, 1, 5, 4, 2), (3, 2), (2, 1), (1, 0))),
    "conv1d": lambda: F.conv1d(
        given(0, 2, 9, 4).transpose(1, 2),
        given(1, 6, 3, 2).transpose(1, 2),
        given(2, 6),
        stride=2,
        padding=1,
        dilation=2,
        groups=2,
    ).transpose(1, 2),
    # 3 x 2 windows of 2 x 3 pixels
    "unfold": lambda: F.unfold(image(0, 1, 5, 6, 2), **WINDOW)
    .reshape(1, 2, 2, 3, 3, 2)
    .permute(0, 4, 5, 2, 3, 1)
    .flatten(3),
    "fold": lambda: back(
        F.fold(
            given(0, 1, 3, 2, 2, 3, 2).permute(0, 5, 3, 4, 1, 2).reshape(1, 12, 6), (5, 6), **WINDOW
        )
    ),
    "affine_grid": lambda: F.affine_grid(given(0, 2, 2, 3), (2, 1, 3, 4), align_corners=False),
    "affine_grid, corners": lambda: F.affine_grid(
        given(0, 2, 2, 3), (2, 1, 3, 4), align_corners=True
    ),
    "gru_cell": lambda: step(torch.nn.GRUCell, 3),
    "lstm_cell": lambda: torch.cat(step(torch.nn.LSTMCell, 4, given(6, 2, 4)), 1),
}
for mode in ("bilinear", "nearest"):
    for padding in ("zeros", "border", "reflection"):
        for corners in (False, True):
            CASES[f"grid_sample {mode} {padding}{' corners' if corners else ''}"] = (
                lambda mode=mode, padding=padding, corners=corners: back(
                    F.grid_sample(
                        image(0, 2, 3, 4, 2), 3 * given(1, 2, 3, 5, 2), mode, padding, corners
                    )
                )
            )


def numbers(values, per_line=6):
    lines = [
        ", ".join(f"{v:.12g}" for v in values[i : i + per_line])
        for i in range(0, len(values), per_line)
    ]
    return ",\n      ".join(lines)


results = {name: make() for name, make in CASES.items()}
print("/* Written by golden_ops.py. */")
print("/* clang-format off */")
print(
    "typedef struct golden_op {\n    const char *name;\n    int ndim;\n    int64_t shape[4];\n"
    f"    double y[{max(y.numel() for y in results.values())}];\n}} golden_op;\n"
)
print("static const golden_op golden_ops[] = {")
for name, y in results.items():
    shape = ", ".join(map(str, y.shape))
    print(f'    {{"{name}", {y.ndim}, {{{shape}}},\n     {{{numbers(y.flatten().tolist())}}}}},')
print("};")
