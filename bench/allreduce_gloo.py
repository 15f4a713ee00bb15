"""Gloo's side of bench_allreduce.c, which starts it: torch.distributed's all_reduce of floats,
sizes as there, one line "bytes microseconds" each.

usage: allreduce_gloo.py WORLD LEAST_BYTES MOST_BYTES BUDGET_S [RANK PORT]
"""

import socket
import subprocess
import sys
import time

LEAST_TURNS, MOST_TURNS = 7, 400


def rank_main(world, least, most, budget, rank, port):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    data = torch.arange(most // 4) % 1000 * 1e-3
    size = least
    while size <= most:
        part = data[: size // 4]
        for _ in range(2):
            dist.all_reduce(part)
        took, spent, go_on = [], 0.0, torch.ones(1)
        while go_on.item():
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(part)
            took.append(time.perf_counter() - start)
            spent += took[-1]
            go_on[0] = len(took) < LEAST_TURNS or (len(took) < MOST_TURNS and spent < budget)
            dist.broadcast(go_on, 0)
        slowest = torch.tensor(took, dtype=torch.float64)
        dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
        if rank == 0:
            print(size, f"{sorted(slowest.tolist())[len(took) // 2] * 1e6:.3f}", flush=True)
        data.copy_(torch.arange(most // 4) % 1000 * 1e-3)
        size *= 2


def main():
    world, least, most, budget = (
        int(sys.argv[1]),
        int(sys.argv[2]),
        int(sys.argv[3]),
        float(sys.argv[4]),
    )
    if len(sys.argv) > 5:
        rank_main(world, least, most, budget, int(sys.argv[5]), int(sys.argv[6]))
        return 0
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, __file__, *sys.argv[1:5], str(r), str(port)])
        for r in range(world)
    ]
    return max(r.wait() for r in ranks)


if __name__ == "__main__":
    sys.exit(main())
