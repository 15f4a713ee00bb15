"""Reads a file of levin with nothing but the standard library, checks the format's rules, and,
where the safetensors package is installed, reads it with that and writes one for levin. Called by
test_safetensors_python: read_back.py FILE OUT. Exit code 0: all held; 3: all held, the package is
missing."""

import json
import struct
import sys

path, out = sys.argv[1:]
raw = open(path, "rb").read()
(length,) = struct.unpack("<Q", raw[:8])
header = json.loads(raw[8 : 8 + length])
data = raw[8 + length :]
assert (8 + length) % 64 == 0 and raw[8:9] == b"{"
meta = header.pop("__metadata__")
assert all(isinstance(v, str) for v in meta.values())
assert meta["levin.step"] == "10" and json.loads(meta["levin.config"]) == {"model": "mlp"}
assert sorted(json.loads(meta["levin.checksums"])) == sorted(header)
at = 0
for begin, end in sorted(t["data_offsets"] for t in header.values()):
    assert begin == at, "a gap"
    at = end
assert at == len(data)
w = header["model/fc.weight"]
assert w["dtype"] == "F32" and w["shape"] == [2, 3] and w["data_offsets"][0] % 4 == 0
assert list(struct.unpack("<6f", data[slice(*w["data_offsets"])])) == [
    1.0,
    -2.0,
    3.5,
    0.25,
    struct.unpack("<f", struct.pack("<f", 1e-3))[0],
    7.0,
]
try:
    import numpy
    from safetensors import safe_open
    from safetensors.numpy import save_file
except ImportError:
    sys.exit(3)
with safe_open(path, framework="numpy") as f:
    assert sorted(f.keys()) == sorted(header) and f.metadata() == meta
    assert f.get_tensor("model/fc.weight").tolist()[1] == [0.25, numpy.float32(1e-3), 7.0]
    assert f.get_tensor("model/bn.count") == 123456789012345
    assert f.get_tensor("trainer/mask").tolist() == [True, False, True]
save_file(
    {"u": numpy.array([1, 2, 3], numpy.uint8), "f": numpy.array([[0.5], [-1.5]], numpy.float64)},
    out,
    {"who": "python"},
)
