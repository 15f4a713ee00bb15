#!/usr/bin/env python3
"""Makes linear.safetensors beside it: a linear classifier on features as lightly trains it, in
double precision.

usage: python3 make_linear_golden.py     by hand, with torch, lightly, lightly-train (its trainer)

lightly's LinearClassifier with its optimizer and schedule, over features that both sides have by
the rule of golden_rule.py; the order of images is that of tests/unit/data/order.py, and the last
batch of an epoch, which is incomplete, is left out. Per case the mean loss of each epoch, weights
and biases at the end, and the logits of all images.
"""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import golden_rule as rule
import torch
from lightly.utils.benchmarking.linear_classifier import LinearClassifier

HERE = Path(__file__).parent
IMAGES, FEATURES, CLASSES, EPOCHS, SEED = 43, 7, 6, 5, 3
ORDER = HERE.parent / "unit" / "data" / "order.py"
# name: images of a batch, learning rate, mean and deviation of the features are 0 and 1
CASES = {"raw": (8, 3.0, False), "standardized": (16, 0.5, True)}


def order(batch, epoch, step):
    command = [sys.executable, ORDER, *(str(x) for x in (IMAGES, batch, SEED, epoch, step))]
    return [int(x) for x in subprocess.check_output(command, text=True).split()]


def run(batch, rate, standardizes):
    n = torch.from_numpy
    x = n(rule.uniform("features", IMAGES * FEATURES)).float().double().reshape(IMAGES, FEATURES)
    x = x * torch.arange(1, FEATURES + 1) + 1
    if standardizes:
        x = (x - x.mean(0)) / x.std(0, unbiased=False)
    label = torch.arange(IMAGES) * 5 % CLASSES
    steps = IMAGES // batch
    LinearClassifier.trainer = SimpleNamespace(
        world_size=1, estimated_stepping_batches=EPOCHS * steps
    )
    probe = LinearClassifier(torch.nn.Identity(), batch, rate, FEATURES, CLASSES, topk=(1, 5))
    probe.double()
    probe.log = probe.log_dict = lambda *_, **__: None
    with torch.no_grad():
        probe.classification_head.weight.zero_()
        probe.classification_head.bias.zero_()
    [optimizer], [schedule] = probe.configure_optimizers()
    losses = []
    for epoch in range(EPOCHS):
        of_epoch = []
        for step in range(steps):
            at = order(batch, epoch, step)
            optimizer.zero_grad()
            loss = probe.training_step((x[at], label[at]), step)
            loss.backward()
            optimizer.step()
            schedule["scheduler"].step()
            of_epoch.append(loss.item())
        losses.append(sum(of_epoch) / steps)
    _, topk = probe.shared_step((x, label), 0)
    return {
        "losses": torch.tensor(losses, dtype=torch.float64),
        "weight": probe.classification_head.weight.detach(),
        "bias": probe.classification_head.bias.detach(),
        "top": torch.tensor([float(topk[1]), float(topk[5])], dtype=torch.float64),
    }


def main():
    rule.seed = 1
    out = {}
    for name, case in CASES.items():
        found = run(*case)
        print(name, found["losses"].tolist(), found["top"].tolist())
        out.update({f"{name}/{k}": v.numpy() for k, v in found.items()})
    rule.write(HERE / "linear.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
