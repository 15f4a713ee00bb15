"""Writes the binary files of tests/fuzz/corpus: small, valid, one of each kind. Run it where it
stands; its output is committed."""

import gzip
import io
import json
import struct
import sys
import zipfile
import zlib
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
sys.path.insert(0, str(CORPUS.parent.parent / "cli"))
sys.argv = sys.argv[:1]
from case import GREY_JPEG, JPEG, with_orientation  # noqa: E402


def put(name, data):
    (CORPUS / name).write_bytes(data)


def png(width, height, colour, samples, depth=8, extra=b""):
    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    stride = (width * samples * depth + 7) // 8
    rows = b"".join(
        bytes([y % 5]) + bytes((x * 37 + y * 11) % 256 for x in range(stride))
        for y in range(height)
    )
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + extra
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def extra_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def safetensors(header, data=b""):
    text = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text)) + text + data


def idx(kind, shape, data):
    return bytes([0, 0, kind, len(shape)]) + b"".join(struct.pack(">I", n) for n in shape) + data


def npy(descr, fortran, shape, data, version=1):
    text = f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    size = 10 if version == 1 else 12
    text += b" " * (-(size + len(text) + 1) % 64) + b"\n"
    return (
        b"\x93NUMPY"
        + bytes([version, 0])
        + struct.pack("<H" if version == 1 else "<I", len(text))
        + text
        + data
    )


for colour, samples in ((0, 1), (2, 3), (4, 2), (6, 4)):
    put(f"image/colour{colour}.png", png(7, 5, colour, samples))
put("image/palette.png", png(6, 3, 3, 1, 2, extra_chunk(b"PLTE", bytes(range(12)))))
XMP = b"XML:com.adobe.xmp"
TURNED = b"<x tiff:Orientation='5'/>"
for name, kind, body in (
    ("text", b"tEXt", XMP + b"\0" + TURNED),
    ("packed_text", b"zTXt", XMP + b"\0\0" + zlib.compress(TURNED)),
    ("utf8_text", b"iTXt", XMP + bytes(5) + TURNED),
    ("text_without_zero", b"tEXt", XMP),
):
    put(f"image/{name}.png", png(2, 2, 0, 1, 8, extra_chunk(kind, body)))
put("image/deep.png", png(4, 4, 2, 3, 16))
put("image/colour.jpg", JPEG)
put("image/grey.jpg", GREY_JPEG)
put("image/turned.jpg", with_orientation(JPEG, 6))
put("image/two.ppm", b"P6\n# a comment\n2 1\n255\nabcdef")
put("image/two.pam", b"P7\nWIDTH 2\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\nab")
put("image/two.gif", b"GIF89a\2\0\1\0\0\0\0")
put("image/two.bmp", b"BM" + struct.pack("<IIIIiiHH", 62, 0, 54, 40, 2, -1, 1, 24) + bytes(32))
for name, order in (("little", "<"), ("big", ">")):
    tags = [(256, 3, 2), (257, 4, 1), (274, 3, 6)]
    entries = b"".join(
        struct.pack(order + "HHI", tag, kind, 1)
        + struct.pack(order + ("HH" if kind == 3 else "I"), *([value, 0] if kind == 3 else [value]))
        for tag, kind, value in tags
    )
    head = (b"II" if order == "<" else b"MM") + struct.pack(order + "HIH", 42, 8, len(tags))
    put(f"image/{name}.tiff", head + entries + bytes(4))
CHUNKS = {
    "lossless": b"VP8L" + struct.pack("<IBI", 12, 0x2F, 1) + bytes(8),
    "lossy": b"VP8 " + struct.pack("<I", 10) + b"\0\0\0\x9d\x01\x2a\2\0\1\0",
    "extended_head": b"VP8X" + struct.pack("<IIIH", 10, 0, 1, 0),
    "extended": b"VP8X" + struct.pack("<IIIH", 10, 8, 1, 0) + b"EXIF" + struct.pack("<I", 0),
}
for name, chunk in CHUNKS.items():
    body = b"WEBP" + chunk
    put(f"image/{name}.webp", b"RIFF" + struct.pack("<I", len(body)) + body)
put("safetensors/empty", safetensors({}))
put(
    "safetensors/two",
    safetensors(
        {
            "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
            "b": {"dtype": "U8", "shape": [1, 3], "data_offsets": [8, 11]},
        },
        bytes(11),
    ),
)
put(
    "safetensors/meta",
    safetensors(
        {
            "__metadata__": {"levin.format": "checkpoint 1", "levin.step": "3"},
            "model/w": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        },
        bytes(8),
    ),
)
put(
    "safetensors/half",
    safetensors({"x": {"dtype": "BF16", "shape": [3, 0], "data_offsets": [0, 0]}}),
)
for name, files in (
    ("index", {"v": "a", "w": "b"}),
    ("index-others", {"v": "a", "q": "a", "z": "d"}),
    ("index-twice", {"w": "b", "z": "d"}),
    ("index-damaged", {"v": "a", "x": "c"}),
    ("index-missing", {"v": "e", "y": "d"}),
    ("index-outside", {"v": "../a", "w": "m.index.json"}),
):
    put(f"safetensors/{name}", json.dumps({"metadata": {}, "weight_map": files}).encode())
put("idx/bytes", idx(8, [2, 2, 3], bytes(range(12))))
put("idx/floats", idx(13, [3], struct.pack(">3f", 1, 2, 3)))
put("idx/labels", idx(8, [4], bytes([0, 1, 2, 3])))
put("idx/packed.gz", gzip.compress(idx(8, [4], bytes([0, 1, 2, 3])), mtime=0))
put("npy/f4", npy("<f4", False, "(2, 3)", bytes(24)))
put("npy/i8", npy(">i8", True, "(2, 2)", bytes(32)))
put("npy/scalar", npy("|u1", False, "()", bytes(1), 2))
put("npy/c8", npy("<c8", True, "(2, 2)", bytes(32)))
put("npy/c16", npy(">c16", False, "(2,)", bytes(32)))
put("npy/object", npy("|O", False, "(1,)", bytes(8)))
put("npy/f2", npy("<f2", False, "(3,)", bytes(6), 3))


def npz(method, **arrays):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy")
            info.compress_type = method
            archive.writestr(info, content)
    return out.getvalue()


IMAGES = npy("|u1", False, "(2, 2, 2)", bytes(8))
LABELS = npy("<i8", False, "(2,)", struct.pack("<2q", 0, 1))
ALL = {"x_train": IMAGES, "y_train": LABELS, "x_test": IMAGES, "y_test": LABELS}
put("npz/stored", npz(zipfile.ZIP_STORED, **ALL))
put("npz/packed", npz(zipfile.ZIP_DEFLATED, **ALL))
put("npz/unnamed", npz(zipfile.ZIP_DEFLATED, arr_0=IMAGES, arr_1=LABELS))
put("npz/others", npz(zipfile.ZIP_STORED, photos=IMAGES))


# Frames of the control channel (src/control/frame.h); the first byte is the size of the pieces they
# come in, less one.
def text(value, end=b""):
    return struct.pack("<I", len(value.encode() + end)) + value.encode() + end


def frame(kind, body):
    return struct.pack("<IHH", len(body), kind, 0) + body


MAGIC = b"levinctl"
TOKEN = bytes(range(16))
HELLO = frame(1, MAGIC + TOKEN + struct.pack("<I", 3))
GREET = frame(
    2,
    MAGIC
    + struct.pack("<IIIQQ", 2, 4, 2, 7, 4711)
    + text("n08")
    + text("0.1.0")
    + TOKEN
    + TOKEN
    + text("MUNGE:AwQDAAD:"),
)
CAUSE = (
    struct.pack("<IIqqQ", 1, 2, 812, 4711, 10**18) + text("n08") + text("the loss is not finite")
)
FACTS = (
    struct.pack("<IiiIqq", 1, 0, -1, 16, 4711, -1)
    + TOKEN
    + b"".join(
        text(t, b"\0")
        for t in ("n08", "boot", "0.1.0", "GPU-1", "cuda", "", "lr: 0.1\nbatch_size: 64\n")
    )
)
TABLE = (
    struct.pack("<II", 2, 3)
    + b"".join(text(t, b"\0") for t in ("n08", "n09", ""))
    + b"".join(
        struct.pack("<6Iq5I", r, r % 2, 2, r // 2, r // 2, 16, 100 + r, r // 2, r // 2, 2, 2, 2)
        for r in range(3)
    )
)
put("frames/hello", b"\xff" + HELLO)
put("frames/greet", b"\x00" + GREET + frame(12, struct.pack("<q", 5)))
put("frames/cause", b"\x1f" + frame(13, CAUSE) + frame(14, CAUSE))
put("frames/facts", b"\xff" + frame(5, FACTS))
put("frames/table", b"\x3f" + frame(11, TABLE))
put(
    "frames/values",
    b"\x07"
    + frame(6, struct.pack("<I", 1) + text("key") + text("value"))
    + frame(9, text("name") + text("bytes")),
)
put(
    "frames/refuse",
    b"\xff" + frame(4, TOKEN + struct.pack("<i", -15) + text("E115: rank 1 is there twice")),
)
