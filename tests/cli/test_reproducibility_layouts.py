"""One hash for lanes, cores, loader threads, resumes; another for another pixel or bit.

usage: test_reproducibility_layouts.py LEVIN [DATA]
"""

import json
import os
import shutil
import struct
import subprocess
import zlib

from reproducibility_lines import reproducibility_lines
from reproducibility_case import (
    check,
    CORES,
    hashes,
    LEVIN,
    main,
    resume,
    same,
    SHAPES,
    train,
    work,
)


def layouts(team, some=slice(None), data=None):
    """some: of the layouts below; where a resume goes on from is tested for all teams. data: other
    than the photos."""
    pinned = [f"wgrad_threads={team}", "batch_size=32", "max_epochs=2", "eval_batch_size=32"]
    first = train(pinned + ["lanes=1", "num_workers=0"], data)
    print("team {}: weights {} state {}".format(team, *hashes(first)))
    hostile = {"OMP_DYNAMIC": "true", "OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "7"}
    for name, arguments, how in [
        ("2 lanes, 1 worker", ["lanes=2", "num_workers=1"], {}),
        ("3 lanes, 2 workers", ["lanes=3", "num_workers=2"], {}),
        ("3 lanes, 3 workers, one core", ["lanes=3", "num_workers=3"], {"cores": CORES[:1]}),
        ("1 lane, one core", ["lanes=1", "num_workers=0"], {"cores": CORES[:1]}),
        ("hostile OpenMP variables", ["lanes=2"], {"env": hostile}),
    ][some]:
        same(train(pinned + arguments, data, **how), first, f"team {team}: {name}")
    # Step 7 of epoch 2: an epoch has 11 steps.
    stopped = train(pinned + ["lanes=1", "max_steps=18"], data)
    resume(stopped, "max_steps=-1", "lanes=2", "num_workers=2")
    same(stopped, first, f"team {team}: resumed at step 7 of epoch 2, with other lanes")
    means = reproducibility_lines(stopped, only="train/loss")
    check(
        [step for step, _ in means] == [11, 22],
        "the interrupted epoch has its means, over all of its steps",
    )
    return first


def team_of_one():
    damage(layouts(1))


def team_of_two():
    layouts(2, slice(2, None, 2), SHAPES)  # what differs is which threads sum the gradients


def one_pixel():
    """The same folder with one image changed by one pixel gives another hash; a copy the same."""
    size = 16

    def png(path, value, changed=False):
        rows = bytearray(
            b"".join(
                b"\0" + bytes((x * 7 + y * 3 + value) % 256 for x in range(size * 3))
                for y in range(size)
            )
        )
        rows[size * 3 * 5 + 20] ^= 64 if changed else 0

        def chunk(kind, body):
            return (
                struct.pack(">I", len(body))
                + kind
                + body
                + struct.pack(">I", zlib.crc32(kind + body))
            )

        header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
        with open(path, "wb") as f:
            f.write(
                b"\x89PNG\r\n\x1a\n"
                + chunk(b"IHDR", header)
                + chunk(b"IDAT", zlib.compress(bytes(rows)))
                + chunk(b"IEND", b"")
            )

    folder = f"{work}/images"
    for k in range(2):
        os.makedirs(f"{folder}/class{k}")
        for i in range(8):
            png(f"{folder}/class{k}/{i}.png", 40 * i + 100 * k)
    shutil.copytree(folder, f"{folder}-copy")
    shutil.copytree(folder, f"{folder}-other")
    png(f"{folder}-other/class1/3.png", 40 * 3 + 100, changed=True)
    arguments = ["batch_size=12", "wgrad_threads=1", "max_epochs=2"]
    first, copy, other = (
        hashes(train(arguments, data=[f"data={folder}{end}"])) for end in ("", "-copy", "-other")
    )
    check(first == copy, "a copy of the images elsewhere gives the same hash")
    check(first[0] != other[0], "one changed pixel gives another hash")


def damage(run):
    want = hashes(run)
    renamed = f"{work}/renamed"
    shutil.copytree(run, renamed)
    check(hashes(renamed) == want, "renaming the run keeps both hashes")
    path = f"{renamed}/checkpoints/last.safetensors"
    with open(path, "rb") as f:
        raw = bytearray(f.read())
    header = struct.unpack("<Q", raw[:8])[0]
    begin = json.loads(raw[8 : 8 + header])["model/head.weight"]["data_offsets"][0]
    raw[8 + header + begin + 1] ^= 1  # a mantissa bit
    with open(path, "wb") as f:
        f.write(raw)
    done = subprocess.run([LEVIN, "ckpt", "hash", path], capture_output=True, text=True)
    check(
        done.returncode == 1 and "model/head.weight" in done.stderr,
        "a flipped mantissa bit is reported and gives exit code 1",
    )
    check(done.stdout.split()[1] != want[0], "a flipped mantissa bit changes `weights`")


main(team_of_one, team_of_two, one_pixel)
