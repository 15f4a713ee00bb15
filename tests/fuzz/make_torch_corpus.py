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


def craft(name, state, storage):
    """An archive with a pickle that torch.save would not write: a dict with this text between its
    brackets. Memo 1 is a tensor (storage,) of bytes, memo 2 a long text."""
    tensor = b"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nByteStorage\n"
    tensor += b"X\x01\0\0\0" + b"0X\x03\0\0\0cpuJ" + len(storage).to_bytes(4, "little")
    tensor += b"tQK\0J" + len(storage).to_bytes(4, "little") + b"\x85K\x01\x85\x89}tRq\x01"
    long_text = b"X" + (1000).to_bytes(4, "little") + b"n" * 1000 + b"q\x02"
    with zipfile.ZipFile(OUT / name, "w") as archive:
        pickled = b"\x80\x02" + tensor + b"0" + long_text + b"0}(" + state + b"u."
        archive.writestr(zipfile.ZipInfo("archive/data.pkl"), pickled)
        archive.writestr(zipfile.ZipInfo("archive/data/0"), storage)


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
    z = torch.complex(w, w + 1)
    negated = {
        "f32": z.conj().imag,
        "rows": z.conj().imag[1:],
        "f64": z.to(torch.complex128).conj().imag,
        "i64": torch._neg_view(torch.arange(-2, 2)),
        "i32": torch._neg_view(torch.arange(-2, 2, dtype=torch.int32)),
        "u8": torch._neg_view(torch.tensor([0, 1, 255], dtype=torch.uint8)),
        "conjugated": z.clone().conj(),
    }
    put("negated.pt", negated)
    others = {
        "int8": torch.ones(2, dtype=torch.int8),
        "int16": torch.ones(2, dtype=torch.int16),
        "uint16": torch.ones(2, dtype=torch.uint16),
        "float8": torch.ones(2).to(torch.float8_e4m3fn),
        "complex": z,
        "sparse": torch.eye(2).to_sparse(),
        "quantised": torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
        "deep": torch.ones(1, 1, 1, 1, 1, 1, 1),
        "storage": torch.ones(2).untyped_storage(),
    }
    for protocol in range(1, 6):
        all_kinds = {"others": others, "state_dict": {**weights(), **others}, "on": [True, 1 << 70]}
        put(f"others{protocol}.pt", all_kinds, pickle_protocol=protocol)
    keys = {
        "state_dict": {"w": torch.full((1,), 1.0)},
        "state_dict_ema": {"w": torch.full((1,), 2.0)},
        "ema": {"model": {"w": torch.full((1,), 3.0)}, "a.b": {"w": torch.full((1,), 4.0)}},
        "both": {"student.w": torch.full((1,), 5.0), "teacher.w": torch.full((1,), 6.0)},
    }
    put("keys.pt", keys)
    craft("long_names.pt", b"h\x02h\x01" * 4000, b"s")
    short = b"".join(b"X\x03\0\0\0" + f"{i:03d}".encode() + b"h\x01" for i in range(400))
    craft("shared_storage.pt", short, bytes(4096))
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
