#!/usr/bin/env python3
"""A training step of two nodes with one core each against one node with both cores, and transports
between the nodes against each other. The nodes are network, UTS and IPC namespaces of this machine,
joined by a pair of virtual Ethernet devices; what crosses them passes the kernel's network stack.

usage: bench/two_nodes.py BUILD [--turns N] [--transports net,ucx] [--torch PYTHON] [KEY=VALUE ...]
  BUILD           build folder
  --turns N       7; all sides in each, in an order that changes
  --transports    between the nodes; net
  --torch PYTHON  a Python with PyTorch: the same step by DistributedDataParallel over Gloo
                  (two_nodes_step.py, over noise that is there already), on one node and on two
  KEY=VALUE       of `levin train classify`; ResNet-18, 64 x 64, batches of 64 unless given

Wants root and two idle cores. Every side trains the same steps, and all weights must be the same
bits. Prints median seconds per step with the least and largest, and the ratio turn by turn to one
node; writes out/bench/two_nodes.json. Exit 1 when a run failed or bits differ.
"""

import argparse
import hashlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

STEPS, WARM = 12, 4
NODES = ("levinbench0", "levinbench1")
PORT = 29977
RUN = [
    "data=builtin:shapes", "data.count=2000", "model=resnet18", "image_size=64", "batch_size=64",
    "micro_batches=2", "val_split=0", "num_workers=0", "log_every_n_steps=1", "quiet=true",
    "optimizer=sgd", "lr=0.01",
]  # fmt: skip
ENTER = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"'


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def make_nodes():
    for node in NODES:
        ip("netns", "add", node)
    ip("link", "add", "lvb0", "netns", NODES[0], "type", "veth", "peer", "lvb1", "netns", NODES[1])
    for i, node in enumerate(NODES):
        ip("-n", node, "address", "add", f"10.213.0.{i + 1}/24", "dev", f"lvb{i}")
        ip("-n", node, "link", "set", f"lvb{i}", "up")
        ip("-n", node, "link", "set", "lo", "up")
    for i, node in enumerate(NODES):  # UCX takes only devices that are
        read = ["ip", "netns", "exec", node, "cat", f"/sys/class/net/lvb{i}/operstate"]
        while subprocess.run(read, stdout=subprocess.PIPE).stdout != b"up\n":
            time.sleep(0.05)


def remove_nodes():
    for node in NODES:
        subprocess.run(["ip", "netns", "delete", node], check=False, stderr=subprocess.DEVNULL)


def command(build, out, extra):
    return [f"{build}/levin", "train", "classify", *RUN, *extra, f"max_steps={STEPS}", f"out={out}"]


def start_on_node(node, cmd, output):
    own = {
        "RANK": node,
        "WORLD_SIZE": len(NODES),
        "LOCAL_RANK": 0,
        "LOCAL_WORLD_SIZE": 1,
        "GROUP_RANK": node,
        "MASTER_ADDR": "10.213.0.1",
        "MASTER_PORT": PORT,
        "LEVIN_TOKEN": "bench/two_nodes.py",
        "GLOO_SOCKET_IFNAME": f"lvb{node}",  # Gloo takes the loopback; levin finds it
    }
    # By setns through `ip netns exec`; a host name of its own makes it another node.
    enter = ["ip", "netns", "exec", NODES[node], "unshare", "--uts", "--ipc", "sh", "-c", ENTER]
    return subprocess.Popen(
        ["taskset", "-c", str(node), *enter, NODES[node], *cmd],
        env={**os.environ, **{k: str(v) for k, v in own.items()}},
        stdout=output,
    )


def run(build, side, out, extra):
    """Whether it trained. side: "one" or the transport between two nodes."""
    if side == "one":
        return subprocess.run(command(build, out, extra), stdout=subprocess.DEVNULL).returncode == 0
    cmd = command(build, out, [f"transport={side}", *extra])
    started = [start_on_node(node, cmd, subprocess.DEVNULL) for node in range(len(NODES))]
    return all([p.wait() == 0 for p in started])


def torch_step_s(python, side):
    """Of PyTorch. side: "torch one" or "torch gloo"."""
    step = pathlib.Path(__file__).parent / "two_nodes_step.py"
    cmd = [python, step, "64", "64", str(STEPS), str(WARM)]
    if side == "torch one":
        return float(subprocess.run(cmd, stdout=subprocess.PIPE, check=True).stdout)
    started = [start_on_node(node, cmd, subprocess.PIPE) for node in range(len(NODES))]
    return max([float(p.communicate(timeout=300)[0]) for p in started])


def step_s(out):
    times = [json.loads(line)["time_s"] for line in open(f"{out}/metrics.jsonl")]
    return statistics.median(b - a for a, b in zip(times[WARM:], times[WARM + 1 :]))


def weights_hash(out):
    """Of all tensors; what stands in the header may name the layout."""
    with open(f"{out}/checkpoints/last.safetensors", "rb") as f:
        f.seek(int.from_bytes(f.read(8), "little"), os.SEEK_CUR)
        return hashlib.sha256(f.read()).hexdigest()


def train(build, side, extra, hashes):
    with tempfile.TemporaryDirectory() as folder:
        if not run(build, side, f"{folder}/run", extra):
            raise SystemExit(f"the run of {side} failed")
        hashes[side] = weights_hash(f"{folder}/run")
        return step_s(f"{folder}/run")


def measure(build, python, sides, turns, extra):
    seconds, hashes = {side: [] for side in sides}, {}
    for turn in range(-1, turns):
        for i in range(len(sides)):
            side = sides[(i + turn) % len(sides)]
            if side.startswith("torch"):
                own = torch_step_s(python, side)
            else:
                own = train(build, side, extra, hashes)
            if turn >= 0:
                seconds[side].append(own)
    return seconds, hashes


def report(seconds, hashes):
    rows = {}
    for side, values in seconds.items():
        ratios = sorted(one / own for one, own in zip(seconds["one"], values))
        name = side if side.startswith("torch") else f"two nodes, one core each, {side}"
        name = "one node, two cores" if side == "one" else name
        rows[side] = {
            "step_s": sorted(values),
            "times_as_fast": ratios,
            "weights": hashes.get(side),
        }
        print(
            f"{name:36} {statistics.median(values):.4f} s [{min(values):.4f}, {max(values):.4f}]"
            f"  times as fast as one node: {statistics.median(ratios):.3f}"
            f" [{ratios[0]:.3f}, {ratios[-1]:.3f}]"
        )
    return rows


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--transports", default="net")
    parser.add_argument("--torch")
    parser.add_argument("extra", nargs="*")
    a = parser.parse_args()
    remove_nodes()
    try:
        make_nodes()
        sides = ["one", *a.transports.split(",")]
        sides += ["torch one", "torch gloo"] if a.torch else []
        seconds, hashes = measure(a.build.resolve(), a.torch, sides, a.turns, a.extra)
    finally:
        remove_nodes()
    rows = report(seconds, hashes)
    os.makedirs("out/bench", exist_ok=True)
    with open("out/bench/two_nodes.json", "w") as f:
        json.dump({"host": socket.gethostname(), "sides": rows}, f, indent=1)
    if len(set(hashes.values())) != 1:
        print("the weights are not the same bits")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
