#!/usr/bin/env python3
"""PyTorch's side of bench_gpt2_step: training steps of GPT-2 on the weights and the batch of a
file.

usage: gpt2_step.py HEADS FILE OPTIMIZER PRECISION THREADS, started by bench_gpt2_step. FILE is
safetensors: parameters with levin's
names and layout (weights (out, in)), ids (N, T), label (N, T). OPTIMIZER: loop or foreach,
PyTorch's two ways of AdamW. For every number n on a line of its input it runs n steps and answers
with one line: seconds per step, seconds of all cores per step, then the n losses. Before that it
answers "ready", or "absent" and the reason.
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


def logits(torch, p, ids, heads, layers, mask):
    F = torch.nn.functional
    n, t = ids.shape
    width = p["wte.weight"].shape[1]

    def dense(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    def norm(name, x):
        return F.layer_norm(x, (width,), p[name + ".weight"], p[name + ".bias"], 1e-5)

    x = F.embedding(ids, p["wte.weight"]) + p["wpe.weight"][:t]
    for i in range(layers):
        h = f"h.{i}."
        q, k, v = (
            a.view(n, t, heads, width // heads).transpose(1, 2)
            for a in dense(h + "attn.c_attn", norm(h + "ln_1", x)).split(width, 2)
        )
        scores = (q @ k.transpose(2, 3)) * (width // heads) ** -0.5
        y = torch.softmax(scores.masked_fill(mask, float("-inf")), -1) @ v
        x = x + dense(h + "attn.c_proj", y.transpose(1, 2).reshape(n, t, width))
        x = x + dense(
            h + "mlp.c_proj", F.gelu(dense(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh")
        )
    return F.linear(norm("ln_f", x), p["wte.weight"])


def main():
    heads, path, optimizer, precision, threads = sys.argv[1:]
    try:
        import torch
    except ImportError as reason:
        print("absent", reason, flush=True)
        return
    torch.set_num_threads(int(threads))
    tensors = {name: torch.from_numpy(a) for name, a in read(path).items()}
    ids, labels = tensors.pop("ids"), tensors.pop("label")
    p = {name: a.requires_grad_() for name, a in tensors.items()}
    layers = sum(name.endswith("ln_1.weight") for name in p)
    t = ids.shape[1]
    mask = torch.ones(t, t, dtype=torch.bool).triu(1)
    adamw = torch.optim.AdamW(
        p.values(), lr=1e-4, weight_decay=0.01, foreach=optimizer == "foreach"
    )
    print("ready torch", torch.__version__, "blas:", blas(), flush=True)
    for line in sys.stdin:
        losses, start, used = [], time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            adamw.zero_grad(set_to_none=True)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16-mixed"):
                y = logits(torch, p, ids, int(heads), layers, mask)
                loss = torch.nn.functional.cross_entropy(y.view(-1, y.shape[-1]), labels.view(-1))
            loss.backward()
            adamw.step()
            losses.append(loss.item())
        print(
            (time.perf_counter() - start) / len(losses),
            (time.process_time() - used) / len(losses),
            *losses,
            flush=True,
        )


main()
