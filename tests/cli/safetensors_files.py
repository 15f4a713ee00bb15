"""Safetensors files read and written without levin, for tests. Python's standard library only."""

import json
import struct


def read_safetensors(path):
    """name -> (dtype, shape, bytes), and the metadata."""
    with open(path, "rb") as f:
        whole = f.read()
    n = struct.unpack("<Q", whole[:8])[0]
    head = json.loads(whole[8 : 8 + n])
    meta = head.pop("__metadata__", {})
    return {
        k: (
            v["dtype"],
            v["shape"],
            whole[8 + n + v["data_offsets"][0] : 8 + n + v["data_offsets"][1]],
        )
        for k, v in head.items()
    }, meta


def write_safetensors(path, tensors, meta=None):
    """Metadata without the checksums, which are of other tensors."""
    head, at, data = {}, 0, b""
    if meta is not None:
        head["__metadata__"] = {k: v for k, v in meta.items() if "checksum" not in k}
    for name, (dtype, shape, content) in tensors.items():
        head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
        data += content
    text = json.dumps(head).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)
