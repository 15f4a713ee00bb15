#!/usr/bin/env python3
"""MNIST's files and .npy images through train, eval and predict; counts that do not match; the same
hash from any number of workers.

usage: test_array_data.py LEVIN
"""

import gzip
import os
import struct
import subprocess
import sys
import tempfile
import zipfile

LEVIN = os.path.abspath(sys.argv[1])
SIDE, CLASSES = 12, 3


def levin(*arguments, status=0):
    done = subprocess.run(
        [LEVIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60
    )
    assert (
        done.returncode == status
    ), f"levin {' '.join(arguments)} left with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def make(n):
    """Images whose bright band is their class, and the classes."""
    labels = [(i * 7 + i // 5) % CLASSES for i in range(n)]
    pixels = bytearray()
    for i, label in enumerate(labels):
        for y in range(SIDE):
            pixels += bytes(
                (200 if y * CLASSES // SIDE == label else 20) + (i * 31 + y * 7 + x * 13) % 40
                for x in range(SIDE)
            )
    return bytes(pixels), bytes(labels)


def idx_header(*shape):
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)


def idx(path, shape, data):
    opened = gzip.open if path.endswith(".gz") else open
    with opened(path, "wb") as f:
        f.write(idx_header(*shape) + data)


def npy(path, shape, data):
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data)


def member(shape, data):
    npy("member.npy", shape, data)
    with open("member.npy", "rb") as f:
        return f.read()


def packed_sets(train, hashes):
    """A .npz file gives what MNIST's files give, stored or compressed, by any of its names; labels
    that leave out numbers are named."""
    (pixels, labels), (val_pixels, val_labels) = make(90), make(30)
    keras = {
        "x_train": ((90, SIDE, SIDE), pixels),
        "y_train": ((90, 1), labels),
        "x_test": ((30, SIDE, SIDE), val_pixels),
        "y_test": ((30, 1), val_labels),
    }
    for how, name in ((zipfile.ZIP_STORED, "stored"), (zipfile.ZIP_DEFLATED, "packed")):
        with zipfile.ZipFile(f"{name}.npz", "w", how) as z:
            for array, content in keras.items():
                z.writestr(f"{array}.npy", member(*content))
    levin(*train, "data=packed.npz", "out=npz")
    assert levin("ckpt", "hash", "npz") in hashes
    plan = ["plan", "train", "classify", "model=mlp", "batch_size=10"]
    text = levin(*plan, "data=stored.npz")
    assert "120 images in 3 classes" in text and "gaps" not in text, text
    assert "30 right" in levin("eval", "data=stored.npz", "model=npz", "split=val")
    with zipfile.ZipFile("other.npz", "w") as z:
        z.writestr("photos.npy", member((90, SIDE, SIDE), pixels))
    text = levin(*plan, "data=other.npz", status=64)
    assert "other.npz holds the arrays photos; " in text and "x_train" in text, text
    with zipfile.ZipFile("other.npz", "a") as z:
        z.writestr("cat/1.jpg", b"")
        z.writestr("a.md", b"")
    text = levin(*plan, "data=other.npz", status=64)
    assert "other.npz holds the arrays photos; " in text, text
    with zipfile.ZipFile("photos.zip", "w") as z:
        for name in ("cat/1.jpg", "dog/2.jpg", ".npy", "a"):
            z.writestr(name, b"")
    text = levin(*plan, "data=photos.zip", status=64)
    assert "photos.zip is a zip archive without arrays (.npy): unpack it" in text, text
    with open("packed.npz", "rb") as f:
        whole = f.read()
    for at in (400, len(whole) // 2):
        with open("bad.npz", "wb") as f:
            f.write(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        assert "bad.npz" in levin(*plan, "data=bad.npz", status=1)
    # zeros that claim 300 MiB: its header alone is unpacked
    with zipfile.ZipFile("large.npz", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x_train.npy", member((300, 1024, 1024), os.urandom(320 << 10)))
        z.writestr("y_train.npy", member((300,), bytes(300)))
    with open("large.npz", "rb") as f:
        whole = bytearray(f.read())
    length = 10 + int.from_bytes(member((300, 1024, 1024), b"")[8:10], "little") + (300 << 20)
    struct.pack_into("<I", whole, whole.index(b"PK\1\2") + 24, length)
    with open("large.npz", "wb") as f:
        f.write(whole)
    text = levin(*plan, "data=large.npz", status=64)
    assert "large.npz: x_train: (300, 1024, 1024) of uint8 take 300 MiB, packed in " in text, text
    assert "above 100 to one" in text and "numpy.savez" in text, text
    struct.pack_into("<I", whole, whole.index(b"PK\1\2") + 24, length - 1)
    with open("large.npz", "wb") as f:
        f.write(whole)
    assert "x_train: damaged: (300, 1024" in levin(*plan, "data=large.npz", status=1)
    # the same in gzip, where the file ends long before what its header claims
    for name in ("large.idx.gz", "large.npy.gz"):
        start = member((300, 1024, 1024), b"") if "npy" in name else idx_header(300, 1024, 1024)
        with open(name, "wb") as f:
            f.write(gzip.compress(start + os.urandom(320 << 10)))
        text = levin(*plan, f"data={name}", "labels=classes.npy", status=64)
        assert f"{name}: (300, 1024, 1024) of uint8 take 300 MiB, packed in 320" in text, text
        assert "above 100 to one" in text and "gunzip" in text, text
    npy("from1.npy", (90,), bytes(x + 1 for x in labels))
    text = levin(*plan, "data=images.npy", "labels=from1.npy")
    assert "the labels begin at 1: no image has the label 0, " in text, text
    npy("gaps.npy", (90,), bytes(2 * x for x in labels))
    text = levin(*plan, "data=images.npy", "labels=gaps.npy")
    assert "the labels have gaps: no image has the label 1, 3, " in text, text


def main():
    os.mkdir("mnist")
    pixels, labels = make(90)
    idx("mnist/train-images-idx3-ubyte.gz", (90, SIDE, SIDE), pixels)
    idx("mnist/train-labels-idx1-ubyte", (90,), labels)
    npy("images.npy", (90, SIDE, SIDE), pixels)
    npy("classes.npy", (90,), labels)
    npy("short.npy", (89,), labels[:89])
    pixels, labels = make(30)
    idx("mnist/t10k-images-idx3-ubyte", (30, SIDE, SIDE), pixels)
    idx("mnist/t10k-labels-idx1-ubyte.gz", (30,), labels)
    train = [
        "train",
        "classify",
        "model=mlp",
        "max_epochs=4",
        "batch_size=10",
        "quiet=true",
        "wgrad_threads=1",
        "micro_batches=2",
    ]
    hashes = set()
    for workers in (0, 2):
        levin(
            *train,
            "data=mnist",
            f"num_workers={workers}",
            f"lanes={1 + workers // 2}",
            f"out=run{workers}",
        )
        hashes.add(levin("ckpt", "hash", f"run{workers}"))
    assert len(hashes) == 1, hashes
    text = levin("eval", "data=mnist", "model=run0", "split=val", "checkpoint=last")
    assert "of 30 right" in text and float(text.split()[1]) > 0.9, text
    assert "120 predictions" in levin("predict", "data=mnist", "model=run0", "output=all.csv")
    levin(*train, "data=images.npy", "labels=classes.npy", "out=npy")
    assert "of 18 right" in levin(
        "eval", "data=images.npy", "labels=classes.npy", "model=npy", "split=val"
    )
    text = levin(*train, "data=images.npy", "labels=short.npy", "out=bad", status=1)
    assert "short.npy holds (89) labels for 90 images" in text and not os.path.exists("bad"), text
    for data in ("mnist", "images.npy", "builtin:shapes"):
        assert "data.index=i keeps the list of a folder" in levin(
            *train, f"data={data}", "data.index=i", "out=bad", status=64
        )
    packed_sets(train, hashes)
    assert "labels= is missing" in levin(*train, "data=images.npy", "out=bad", status=64)
    assert "belongs to data= a .npy or IDX file" in levin(
        *train, "data=mnist", "labels=classes.npy", "out=bad", status=64
    )


with tempfile.TemporaryDirectory(prefix="levin-arrays-") as folder:
    os.chdir(folder)
    main()
    os.chdir("/")
