"""One hash for ranks of several nodes, in two levels or over messages alone: ddp, sharded, and ddp2
with ranks that are threads; resumed on others.

usage: test_reproducibility_nodes.py LEVIN
"""

import subprocess
import sys

from node_processes import end_all, missing, start_on_nodes
from rank_processes import drop_identity
from reproducibility_case import check, hashes, LEVIN, main, resume, same, train, work
from ucx import HAS_UCX

drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
DATA = ["data=builtin:shapes", "data.count=90", "image_size=16"]
COMMON = [
    "train",
    "classify",
    "model=cnn",
    "batch_size=16",
    "micro_batches=8",
    "wgrad_threads=1",
    "eval_batch_size=16",
    "max_epochs=1",
    "model.dropout=0.1",
    "gradient_clip_val=1",
    "bucket_bytes=65536",
    "log_every_n_steps=1",
    "seed=3",
]
ONE = ["group=8"]
SYNC = ["sync_batchnorm=true"]
IN_TWO_LEVELS = "transport shm+net: {} ranks on {} nodes share memory within a node"
FLAT = "ranks exchange messages, as those of a node do not follow each other"
# nodes of the ranks, arguments, what is reported
LAYOUTS = [
    ("2 x 2, ddp", [0, 0, 1, 1], [], IN_TWO_LEVELS.format(4, 2)),
    ("3 and 1, lanes", [0, 0, 0, 1], ["lanes=2"], IN_TWO_LEVELS.format(4, 2)),
    ("1 and 2 and 2", [0, 1, 1, 2, 2], [], IN_TWO_LEVELS.format(5, 3)),
    ("alternating", [0, 1, 0, 1], [], FLAT),
    ("a rank each, dp that becomes ddp", [0, 1], ["strategy=dp"], "W211: strategy=dp is for one"),
    ("2 x 2, ddp2", [0, 1], ["strategy=ddp2", "devices=2"], IN_TWO_LEVELS.format(4, 2)),
    ("3 and 1, sharded", [0, 0, 0, 1], ["strategy=sharded"], IN_TWO_LEVELS.format(4, 2)),
    ("alternating, sharded", [0, 1, 0], ["strategy=sharded"], FLAT),
    ("3 x 2, ddp2", [0, 1, 2], ["strategy=ddp2", "devices=2"], IN_TWO_LEVELS.format(6, 3)),
]
if HAS_UCX:
    LAYOUTS += [
        ("a rank each, UCX", [0, 1], ["transport=ucx"], "transport ucx: 2 ranks exchange messages"),
        ("3 and 1, UCX", [0, 0, 0, 1], ["transport=ucx"], "transport shm+ucx: 4 ranks on 2 nodes"),
    ]
runs = 0


def train_on(nodes, arguments, env=None, out=None):
    """Returns the run directory and what rank 0 has written."""
    global runs
    runs += 1
    out = out or f"{work}/nodes{runs}"
    command = [LEVIN, *COMMON, *DATA, *arguments, f"out={out}"]
    ended = end_all(start_on_nodes(nodes, command, env))
    if any(code != 0 for code, _ in ended):
        raise SystemExit(f"{command} on nodes {nodes}: {ended}")
    return out, ended[0][1]


def alone(*arguments, **how):
    return train([*arguments, "quiet=true"], data=DATA, common=COMMON, **how)


def all_layouts():
    first = alone(*ONE)
    for name, nodes, arguments, expects in LAYOUTS:
        out, written = train_on(nodes, ONE + arguments)
        check(expects in written, f"{name}: {expects}" + ("" if expects in written else written))
        same(out, first, name)


def groups_that_cross_nodes():
    """Batch norm over all micro-batches, over pairs of ranks, and over those of a node."""
    for group, layouts in (
        ("group=8", [([0, 0, 1], [])]),
        ("group=4", [([0, 0, 0, 1], []), ([0, 1], ["strategy=ddp2", "devices=2"])]),
    ):
        first = alone(*SYNC, group)
        for nodes, arguments in layouts:
            same(train_on(nodes, SYNC + [group] + arguments)[0], first, f"{group} on {nodes}")


def devices_of_16_bits():
    mixed = ["precision=16-mixed", *SYNC, "group=8"]
    first = alone(*mixed)
    for name, nodes, arguments in (
        ("ddp", [0, 0, 1, 1], []),
        ("ddp2", [0, 1], ["strategy=ddp2", "devices=2"]),
    ):
        out, _ = train_on(nodes, mixed + ["accelerator=sim", *arguments], SIM)
        same(out, first, f"16-mixed on simulated devices, {name}")


def resumed():
    """From nodes of processes to nodes of threads, and by one rank."""
    first = alone(*ONE)
    for name, nodes, arguments in (
        ("ddp, then ddp2", [0, 1], ["strategy=ddp2", "devices=2"]),
        ("ddp, then other nodes", [0, 1, 1], []),
        ("ddp, then alone", None, []),
    ):
        out, _ = train_on([0, 0, 1, 1], ONE + ["max_steps=2"])
        if nodes is None:
            resume(out, "max_steps=-1")
        else:
            train_on(nodes, ["resume=true", "max_steps=-1", *arguments], out=out)
        check(hashes(out) == hashes(first), name)


def default_group_of_ddp2():
    out, _ = train_on([0, 1], ["strategy=ddp2", "devices=2", "max_steps=1"])
    with open(f"{out}/config.yaml", encoding="utf-8") as f:
        check("group: 4" in f.read(), "ddp2: the group is the micro-batches of a node")


if missing():
    print(f"skipped: {missing()}")
    subprocess.run(["rm", "-rf", work], check=False)
    sys.exit(77)
main(all_layouts, groups_that_cross_nodes, devices_of_16_bits, resumed, default_group_of_ddp2)
