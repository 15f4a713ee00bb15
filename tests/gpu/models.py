#!/usr/bin/env python3
"""Networks on a GPU against torchvision's: the same random weights, by way of a file of torch.save,
and the same images give the same logits.

usage: models.py LEVIN [ACCELERATOR]; needs torch and torchvision (exit 77 without)
"""

import subprocess
import sys
import tempfile
from pathlib import Path

NETS = [("resnet18", 64, 1e-5), ("resnet50", 96, 1e-5), ("vit_b_16", 224, 1e-5)]


def main():
    levin, accelerator = str(Path(sys.argv[1]).resolve()), (sys.argv[2:] or ["cuda"])[0]
    try:
        import numpy
        import torch
        import torchvision
    except ImportError as reason:
        print("skipped:", reason)
        return 77
    wrong = 0
    for net, size, tolerance in NETS:
        torch.manual_seed(3)
        model = getattr(torchvision.models, net)().eval()
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):  # torchvision's vision transformer starts at 0
                module.reset_parameters()
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.uniform_(-0.2, 0.2)
                module.running_var.uniform_(0.7, 1.3)
        x = torch.randn(6, 3, size, size)
        with torch.no_grad():
            expected = model.double()(x.double()).numpy()
            model.float()
        with tempfile.TemporaryDirectory() as folder:
            torch.save(model.state_dict(), f"{folder}/w.pt")
            numpy.save(f"{folder}/x.npy", x.permute(0, 2, 3, 1).contiguous().numpy())
            subprocess.run(
                [levin, "predict", f"model={net}", f"weights={folder}/w.pt", f"data={folder}/x.npy"]
                + [f"output={folder}/y.npy", f"accelerator={accelerator}", "eval_batch_size=3"],
                check=True,
                cwd=folder,
            )
            y = numpy.load(Path(folder, "y.npy"))
        error = numpy.linalg.norm(y - expected) / numpy.linalg.norm(expected)
        good = error <= tolerance
        wrong += not good
        print(f"{net}: norm-wise error {error:.2e}, at most {tolerance:.0e}: {good}", flush=True)
    return 1 if wrong else 0


sys.exit(main())
