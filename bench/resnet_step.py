#!/usr/bin/env python3
"""PyTorch's side of bench_resnet_step: training steps of a torchvision network on the weights and
the batch of a file.

usage: resnet_step.py NET FILE LAYOUT PRECISION THREADS, started by bench_resnet_step. FILE is
safetensors: parameters with
levin's layout (OHWI), image (N, H, W, C), label. For every number n on a line of its input it runs
n steps and answers with one line: seconds per step, seconds of all cores per step, then the n
losses. Before that it answers "ready", or "absent" and the reason.
"""

import json
import struct
import sys
import time


def read(path):
    import numpy

    kinds = {"F32": numpy.float32, "I64": numpy.int64}
    with open(path, "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(size))
        data = f.read()
    header.pop("__metadata__", None)
    return {
        name: numpy.frombuffer(data[e["data_offsets"][0] : e["data_offsets"][1]], kinds[e["dtype"]])
        .reshape(e["shape"])
        .copy()
        for name, e in header.items()
    }


def blas():
    with open("/proc/self/maps") as f:
        return (
            " ".join(sorted({line.split()[-1] for line in f if "blas" in line.split()[-1]}))
            or "none"
        )


def main():
    net, path, layout, precision, threads = sys.argv[1:]
    try:
        import torch
        import torchvision
    except ImportError as reason:
        print("absent", reason, flush=True)
        return
    torch.set_num_threads(int(threads))
    tensors = {name: torch.from_numpy(a) for name, a in read(path).items()}
    x, labels = tensors.pop("image").permute(0, 3, 1, 2), tensors.pop("label")
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    x = x.contiguous(memory_format=form)
    model = getattr(torchvision.models, net)(num_classes=tensors["fc.bias"].shape[0])
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(tensors[name].permute(0, 3, 1, 2) if p.dim() == 4 else tensors[name])
    model = model.to(memory_format=form).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    print("ready torch", torch.__version__, "blas:", blas(), flush=True)
    for line in sys.stdin:
        losses, start, used = [], time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16-mixed"):
                loss = torch.nn.functional.cross_entropy(model(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        print(
            (time.perf_counter() - start) / len(losses),
            (time.process_time() - used) / len(losses),
            *losses,
            flush=True
        )


if __name__ == "__main__":
    main()
