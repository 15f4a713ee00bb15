#!/usr/bin/env python3
"""How images are prepared for evaluation: keys, what weights= asks for, the card of exported
models, and that training, eval and predict agree on it.

usage: test_preprocess.py LEVIN
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib

LEVIN = os.path.abspath(sys.argv[1])
TRAIN = [
    "train",
    "classify",
    "data=photos",
    "model=cnn",
    "image_size=16",
    "max_epochs=1",
    "batch_size=8",
    "quiet=true",
    "val_split=0.5",
    "num_workers=0",
]
IMAGENET = ["normalize.mean=[0.485,0.456,0.406]", "normalize.std=[0.229,0.224,0.225]"]


def levin(*arguments, status=0, expects=()):
    done = subprocess.run([LEVIN, *arguments], capture_output=True, text=True, timeout=60)
    out = done.stdout + done.stderr
    assert status in (None, done.returncode), f"{arguments} left with {done.returncode}:\n{out}"
    for text in expects:
        assert text in out, f"levin {' '.join(arguments)} does not print {text!r}:\n{out}"
    return out


def png(path, width, height, seed):
    def chunk(kind, data):
        crc = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + crc

    def value(x, y, c):
        return (x * seed * 7 + y * 13 + c * 40 + (x * y) % 31 * 5) % 256

    rows = b"".join(
        b"\0" + bytes(value(x, y, c) for x in range(width) for c in range(3)) for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(
            b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", head)
            + chunk(b"IDAT", zlib.compress(rows))
            + chunk(b"IEND", b"")
        )


def safetensors(path):
    with open(path, "rb") as f:
        whole = f.read()
    n = struct.unpack("<Q", whole[:8])[0]
    return json.loads(whole[8 : 8 + n]), whole[8 + n :]


def write_safetensors(path, head, data):
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def exported(run):
    return f"{run}/exported_models/exported_last.safetensors"


def card(run):
    return json.loads(safetensors(exported(run))[0]["__metadata__"]["classifier"])


def config(run):
    with open(f"{run}/config.yaml", encoding="utf-8") as f:
        return dict(line.strip().split(": ", 1) for line in f if ": " in line)


def last_loss(run):
    with open(f"{run}/metrics.jsonl", encoding="utf-8") as f:
        return [json.loads(line)["val/loss"] for line in f if "val/loss" in line][-1]


def sees(run, resize, crop, name):
    found = card(run)["eval"]
    assert found == {"resize": resize, "crop": crop, "filter": name, "exif": "apply"}, (run, found)


def predict(model, *arguments):
    levin("predict", f"model={model}", "data=photos", "output=p.csv", "num_workers=0", *arguments)
    with open("p.csv", encoding="utf-8") as f:
        return f.read()


def keys_reach_every_use():
    """Validation, eval and predict see the same images, with the default and with every key."""
    other = [
        "eval.crop_pct=0.8",
        "interpolation=bicubic",
        "mean=[0.5,0.4,0.3]",
        "std=[0.2,0.3,0.4]",
        "test_input_size=24",
    ]
    levin(*TRAIN, "out=usual")
    levin(*TRAIN, "out=other", *other)
    sees("usual", 18, 16, "bilinear")
    sees("other", 30, 24, "bicubic")
    colours = card("other")["mean"] + card("other")["std"]
    assert [round(x, 6) for x in colours] == [0.5, 0.4, 0.3, 0.2, 0.3, 0.4]
    for run in ("usual", "other"):
        out = levin("eval", f"model={run}", "data=photos", "split=val", "checkpoint=last")
        measured = re.search(r"loss (\d+\.\d+)", out).group(1)
        assert measured == f"{last_loss(run):.4f}", (run, measured, last_loss(run))
    assert predict("usual", *other) != predict("usual")
    each = predict("other", "eval.crop=16", "eval.resize=18", "eval.filter=bilinear", *IMAGENET)
    assert each == predict("other", "eval.preset=torchvision", "eval.crop=16")


def early_cards():
    """A card without `eval` names the part of the shorter side that was taken."""
    head, data = safetensors(exported("usual"))
    own = json.loads(head["__metadata__"]["classifier"])
    del own["eval"]
    for part, keys in ((0.875, []), (1.0, ["eval.resize=16"])):
        early = json.dumps({**own, "eval_crop": part})
        head["__metadata__"] = {"format": "pt", "classifier": early}
        write_safetensors("early.safetensors", head, data)
        assert predict("early.safetensors") == predict(exported("usual"), *keys)


def weights_bring_theirs():
    """A card, timm's config.json, names of timm's ViT; a resumed run does not need the file."""
    head, data = safetensors(exported("usual"))
    del head["__metadata__"]
    os.mkdir("timm")
    write_safetensors("timm/model.safetensors", head, data)
    keys = {
        "interpolation": "bicubic",
        "crop_pct": 0.9,
        "mean": [0.5] * 3,
        "std": [0.5] * 3,
        "crop_mode": "center",
    }
    with open("timm/config.json", "w", encoding="utf-8") as f:
        json.dump({"architecture": "cnn", "pretrained_cfg": keys}, f)
    timm = "weights=timm/model.safetensors"
    out = levin(*TRAIN, "quiet=false", "out=tuned", timm)
    assert "eval.filter=bicubic" in out and "eval.crop_pct=0.9" in out, out
    sees("tuned", 17, 16, "bicubic")
    assert card("tuned")["mean"] == [0.5] * 3
    assert config("tuned")["eval.filter"] == "bicubic"
    assert config("tuned")["normalize.std"] == "[0.5, 0.5, 0.5]"
    out = levin(*TRAIN, "out=given", timm, "eval.filter=lanczos", "eval.resize=20", "quiet=false")
    assert "as they were for it: normalize.mean=[0.5,0.5,0.5]" in out, out  # the rest was not
    sees("given", 20, 16, "lanczos")
    assert card("given")["std"] == [0.5] * 3
    levin(*TRAIN, "out=preset", timm, "eval.preset=torchvision_v2")
    sees("preset", 16, 16, "bilinear")
    levin(*TRAIN, "out=own", "weights=other")
    sees("own", 20, 16, "bicubic")
    with open("timm/config.json", "w", encoding="utf-8") as f:
        json.dump({"pretrained_cfg": {**keys, "crop_mode": "border"}}, f)
    levin(*TRAIN, "out=no", timm, status=64, expects=["crop_mode=border", "eval.preset="])
    os.remove("timm/config.json")
    os.remove("timm/model.safetensors")
    levin("train", "classify", "out=tuned", "resume=true", "max_epochs=2", "quiet=true")
    sees("tuned", 17, 16, "bicubic")
    assert card("tuned")["mean"] == [0.5] * 3
    qkv = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
    write_safetensors("vit.safetensors", {"model.blocks.0.attn.qkv.weight": qkv}, bytes(4))
    out = levin(*TRAIN, "quiet=false", "out=no", "weights=vit.safetensors", status=None)
    assert "eval.filter=bicubic normalize.mean=[0.5,0.5,0.5]" in out, out


def weights_bring_theirs_for_good():
    """What eval.crop_pct cannot express, or was not followed: the run sees the same when it goes
    on."""
    levin(*TRAIN, "out=padded", "eval.resize=12")
    levin(*TRAIN, "out=far", "eval.resize=400")
    shapes = ["data=builtin:shapes", "data.count=24", "reset_head=true"]
    for run, arguments, resize in (
        ("e16", ["weights=usual", *shapes], 16),
        ("e12", ["weights=padded"], 12),
        ("e400", ["weights=far"], 400),
    ):
        levin(*TRAIN, f"out={run}", *arguments)
        sees(run, resize, 16, "bilinear")
        levin("train", "classify", f"out={run}", "resume=true", "max_epochs=2", "quiet=true")
        sees(run, resize, 16, "bilinear")


def mistakes():
    levin(
        *TRAIN,
        "out=no",
        "eval.resize=30",
        "crop_pct=0.9",
        status=64,
        expects=["eval.resize=30", "eval.crop_pct=0.9", "17", "one of them"],
    )
    levin(
        *TRAIN,
        "out=no",
        "model=vit_s_16",
        "eval.crop=32",
        status=64,
        expects=["eval.crop=32", "vit_s_16", "16"],
    )
    levin(*TRAIN, "out=no", "interpolation=bicubik", status=64, expects=["bicubic"])
    levin(*TRAIN, "out=no", "std=[0,1,1]", status=64, expects=["normalize.std"])
    assert not os.path.exists("no")


def main():
    sizes = ((40, 30), (30, 40), (21, 33), (64, 20), (17, 17), (10, 50))
    for k, name in enumerate(("a", "b")):
        for i in range(12):
            png(f"photos/{name}/{i}.png", *sizes[i % len(sizes)], seed=3 * k + i % 3 + 1)
    for case in (
        keys_reach_every_use,
        early_cards,
        weights_bring_theirs,
        weights_bring_theirs_for_good,
        mistakes,
    ):
        case()
        print("ok", case.__name__)


with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    main()
