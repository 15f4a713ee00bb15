#!/usr/bin/env python3
"""PyTorch's side of two_nodes.py: steps of torchvision's ResNet-18 over noise, as one process with
all cores or as a rank (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT) with DistributedDataParallel
over Gloo. usage: two_nodes_step.py BATCH SIDE STEPS WARM; prints the median seconds of a step."""

import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torchvision


def main():
    batch, side, steps, warm = map(int, sys.argv[1:5])
    world = int(os.environ.get("WORLD_SIZE", 1))
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    form = torch.channels_last
    model = torchvision.models.resnet18(num_classes=6).train().to(memory_format=form)
    if world > 1:
        dist.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x = torch.randn(batch // world, 3, side, side).contiguous(memory_format=form)
    labels = torch.arange(batch // world) % 6
    ends = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        ends.append(time.perf_counter())
    print(statistics.median(b - a for a, b in zip(ends[warm:], ends[warm + 1 :])))


if __name__ == "__main__":
    main()
