#!/usr/bin/env python3
"""PyTorch's side of bench_ddp: training steps of a torchvision network under
DistributedDataParallel with Gloo, two processes of THREADS threads, on the weights and samples of a
file.

usage: ddp_step.py NET FILE LAYOUT PRECISION THREADS, started by bench_ddp; rank 0 starts rank 1
with its PORT behind that. FILE is
safetensors: parameters with levin's layout (OHWI), image (N, H, W, C), label, order (STEPS, N): the
samples of each step, half of them for each rank. For every number n on a line of its input it runs
n steps and answers with one line: seconds per step, seconds of all cores per step, then the n
losses. Before that it answers "ready", or "absent" and the reason.
"""

import socket
import subprocess
import sys
import time

from resnet_step import blas, read

WORLD = 2


def make_model(torch, torchvision, net, tensors, form):
    model = getattr(torchvision.models, net)(num_classes=tensors["fc.bias"].shape[0])
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(tensors[name].permute(0, 3, 1, 2) if p.dim() == 4 else tensors[name])
    return torch.nn.parallel.DistributedDataParallel(model.to(memory_format=form).train())


def run(torch, torchvision, rank, port, commands, report):
    import torch.distributed as dist

    net, path, layout, _, threads = sys.argv[1:6]
    torch.set_num_threads(int(threads))
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    tensors = {name: torch.from_numpy(a) for name, a in read(path).items()}
    x, labels, order = (
        tensors.pop("image").permute(0, 3, 1, 2),
        tensors.pop("label"),
        tensors.pop("order"),
    )
    part = order.shape[1] // WORLD
    model = make_model(torch, torchvision, net, tensors, form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    step = 0
    if rank == 0:
        print("ready torch", torch.__version__, "blas:", blas(), flush=True)
    for line in commands:
        report(line)
        losses, start, used = [], time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            rows = order[step % order.shape[0]][rank * part : (rank + 1) * part]
            optimizer.zero_grad(set_to_none=True)
            loss = torch.nn.functional.cross_entropy(
                model(x[rows].contiguous(memory_format=form)), labels[rows]
            )
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            step += 1
        seconds = (time.perf_counter() - start) / len(losses)
        printed = torch.tensor(
            [(time.process_time() - used) / len(losses), *losses], dtype=torch.float64
        )
        dist.all_reduce(printed)
        if rank == 0:
            print(seconds, printed[0].item(), *(printed[1:] / WORLD).tolist(), flush=True)


def main():
    try:
        import torch
        import torch.distributed
        import torchvision

        if not torch.distributed.is_gloo_available():
            raise ImportError("torch has no Gloo")
    except (ImportError, AttributeError) as reason:
        print("absent", reason, flush=True)
        return
    if len(sys.argv) > 6:
        run(torch, torchvision, 1, int(sys.argv[6]), sys.stdin, lambda line: None)
        return
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    with subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], str(port)], stdin=subprocess.PIPE, text=True
    ) as other:

        def report(line):
            other.stdin.write(line)
            other.stdin.flush()

        run(torch, torchvision, 0, port, sys.stdin, report)


if __name__ == "__main__":
    main()
