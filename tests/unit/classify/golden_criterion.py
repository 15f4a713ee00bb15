#!/usr/bin/env python3
"""Writes golden_criterion.h: torch.nn.CrossEntropyLoss with weights per class and label smoothing,
in double precision.

usage: golden_criterion.py >golden_criterion.h     needs torch; the test needs it not

Twelve samples, feature f of sample i is ((5 i + 3 f) mod 13 - 6) / 8, its label LABELS[i]; a linear
layer of three features and four classes, weight (k, f) is ((7 k + 5 f) mod 11 - 5) / 8, bias k is
(k - 1) / 4.
"""

import torch

LABELS = [0, 0, 1, 0, 2, 0, 3, 1, 0, 2, 0, 1]
CASES = [
    ("none", 0.0),
    ("none", 0.1),
    ("auto", 0.0),
    ("[1,0.5,3,7]", 0.0),
    ("[1,0.5,3,7]", 0.1),
    ("auto", 0.3),
]
torch.set_default_dtype(torch.float64)
x = torch.tensor([[((5 * i + 3 * f) % 13 - 6) / 8 for f in range(3)] for i in range(12)])
labels = torch.tensor(LABELS)


def weights(text):
    if text == "none":
        return None
    if text == "auto":  # scikit-learn's balanced: n / (k count)
        return 12 / (4 * torch.bincount(labels, minlength=4).double())
    return torch.tensor([float(w) for w in text.strip("[]").split(",")])


print("/* Written by golden_criterion.py. */")
print("/* clang-format off */")
print("static const int64_t golden_labels[12] = {" + ", ".join(map(str, LABELS)) + "};")
print(
    "static const struct {\n    const char *weights;\n    const char *smoothing;\n    "
    "double loss, gradient[16]; /* of the weights, then the biases */"
)
print("} golden[] = {")
for text, smoothing in CASES:
    w = torch.tensor(
        [[((7 * k + 5 * f) % 11 - 5) / 8 for f in range(3)] for k in range(4)], requires_grad=True
    )
    b = torch.tensor([(k - 1) / 4 for k in range(4)], requires_grad=True)
    loss = torch.nn.CrossEntropyLoss(weight=weights(text), label_smoothing=smoothing)(
        x @ w.T + b, labels
    )
    loss.backward()
    numbers = [f"{v:.9f}" for v in torch.cat([w.grad.ravel(), b.grad]).tolist()]
    print(f'    {{"class_weights={text}", "label_smoothing={smoothing:g}", {loss.item():.9f},')
    print("     {" + ", ".join(numbers[:8]) + ",\n      " + ", ".join(numbers[8:]) + "}},")
print("};")
