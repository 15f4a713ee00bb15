#!/usr/bin/env python3
"""Made old_checkpoint.tar.xz beside it, with the levin of commit bd50d45, which knew the key
micro_batches= as shards= only: a run directory of that program, stopped in the middle of an epoch.

usage: make_old_checkpoint.py LEVIN   by hand; a present LEVIN would make another file

The run starts from weights that are zero except for a few, which keeps the rest at zero for good,
so that the archive is small: best.safetensors is from the end of the first epoch, last.safetensors
from the middle of the second.
"""

import io
import json
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

UNITS = 6  # of 256 in each hidden layer
SHAPES = {
    "fc1.weight": (256, 48),
    "fc1.bias": (256,),
    "fc2.weight": (256, 256),
    "fc2.bias": (256,),
    "head.weight": (6, 256),
    "head.bias": (6,),
}


def few_weights(path):
    numbers, entries, data = random.Random(1), {}, b""
    for name, shape in SHAPES.items():
        columns = shape[1] if len(shape) == 2 else 1
        used = columns if name == "fc1.weight" else min(columns, UNITS)
        for row in range(shape[0]):
            here = used if row < UNITS else 0
            row = [numbers.uniform(-0.4, 0.4) for _ in range(here)] + [0.0] * (columns - here)
            data += struct.pack(f"<{columns}f", *row)
        entries[name] = {
            "dtype": "F32",
            "shape": shape,
            "data_offsets": [len(data) - 4 * columns * shape[0], len(data)],
        }
    head = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(head)) + head + data)


def main():
    work = Path(tempfile.mkdtemp(prefix="levin-old-"))
    few_weights(work / "few.safetensors")
    subprocess.run(
        [
            sys.argv[1],
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            "model=mlp",
            "image_size=4",
            "batch_size=12",
            "shards=4",
            "group=2",
            "wgrad_threads=1",
            "ema.decay=0.9",
            "max_epochs=3",
            "max_steps=6",
            "weights=few.safetensors",
            "out=run",
        ],
        cwd=work,
        check=True,
    )
    names = [
        "checkpoints/best.safetensors",
        "checkpoints/last.safetensors",
        "config.yaml",
        "exported_models/exported_last.safetensors",
        "metrics.jsonl",
        "run_id",
    ]
    with tarfile.open(Path(__file__).parent / "old_checkpoint.tar.xz", "w:xz", preset=9) as tar:
        for name in names:
            data = (work / "run" / name).read_bytes()
            entry = tarfile.TarInfo(f"run/{name}")
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


main()
