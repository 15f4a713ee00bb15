"""Writes the files of tests/fuzz/corpus/torch: what torch.save makes of small objects, which
tests/unit/ckpt/test_torch.c reads, too. Needs PyTorch. Run it where it stands; its output is
committed."""

import argparse
import collections
import pathlib
import sys
import zipfile

import torch

OUT = pathlib.Path(__file__).parent / "corpus" / "torch"


class Runs:
    """What would run a command where the pickle is executed."""

    def __reduce__(self):
        import os

        return os.system, ("touch /tmp/levin-test-was-executed",)


def weights(prefix=""):
    w = torch.arange(6.0).reshape(2, 3)
    return collections.OrderedDict({f"{prefix}w": w, f"{prefix}b": w[1], f"{prefix}t": w.t()})


def put(name, what, **options):
    torch.save(what, OUT / name, **options)


def main():
    OUT.mkdir(exist_ok=True)
    w = torch.arange(12.0).reshape(3, 4)
    types = {
        "f32": w,
        "f64": w.double() / 8,
        "f16": w.half(),
        "bf16": w.bfloat16(),
        "i64": torch.arange(-2, 2),
        "i32": torch.arange(-2, 2, dtype=torch.int32),
        "u8": torch.arange(250, 256).to(torch.uint8),
        "bool": torch.tensor([True, False, True]),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 3),
        "parameter": torch.nn.Parameter(w[0]),
    }
    views = {
        "all": w,
        "rows": w[1:],
        "columns": w[:, 1:3],
        "transposed": w.t(),
        "one": w[:, 2:3],
        "repeated": w[0:1].expand(3, 4),
        "deep": w.reshape(1, 3, 2, 2).permute(3, 0, 2, 1),
    }
    put("types.pt", types)
    put("views.pt", views)
    put("protocol4.pt", weights(), pickle_protocol=4)
    put("module_state.pt", torch.nn.BatchNorm2d(2).state_dict())
    lightning = {
        "epoch": 3,
        "pytorch-lightning_version": "2.6.0",
        "state_dict": weights("model."),
        "optimizer_states": [{"state": {0: {"step": torch.tensor(2.0)}}, "lr": 0.1}],
        "hyper_parameters": argparse.Namespace(folder=pathlib.PurePosixPath("/x"), rates={1, 2}),
        "big": 1 << 80,
        "raw": b"\x00\x01",
    }
    put("lightning.ckpt", lightning)
    others = {"loss": torch.ones(1), "x": Runs(), "y": [None, True, 2.5, -3]}
    put("executes.pt", {**others, "state_dict": weights()})
    put("old.pt", weights(), _use_new_zipfile_serialization=False)
    put("old4.pt", weights(), _use_new_zipfile_serialization=False, pickle_protocol=4)
    put("whole.pt", torch.nn.Linear(2, 1))
    put("int8.pt", {"a": torch.zeros(2, dtype=torch.int8)})
    put("uint16.pt", {"a": torch.zeros(2, dtype=torch.uint16)})
    put("sparse.pt", {"w": torch.ones(1), "a": torch.eye(2).to_sparse()})
    put("list.pt", [torch.ones(1)])
    put("other.pt", {"student": weights(), "epoch": 1})
    for name in ("lightning.ckpt", "protocol4.pt"):
        with zipfile.ZipFile(OUT / name) as archive:
            pickled = archive.read(name.split(".")[0] + "/data.pkl")
        (OUT / name.replace(".", "_")).with_suffix(".pkl").write_bytes(pickled)
    with zipfile.ZipFile(OUT / "protocol4.pt") as stored:
        with zipfile.ZipFile(OUT / "compressed.pt", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in stored.namelist():
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, stored.read(name))


if __name__ == "__main__":
    sys.exit(main())
