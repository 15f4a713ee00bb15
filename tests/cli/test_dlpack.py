"""Tensors go to NumPy and PyTorch and come back through DLPack: values, types, memory that is
shared, and who deletes it.

usage: test_dlpack.py LIBLEVIN     needs NumPy or PyTorch; what is not installed is skipped
"""

import ctypes
import gc
import importlib
import shutil
import subprocess
import sys
import unittest

LIBRARY = sys.argv[1]
NAMES = (b"dltensor", b"dltensor_versioned")
TYPES = ("f32", "f64", "i64", "i32", "u8", "bool", "bf16", "f16")  # lvn_dtype


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


numpy, torch = optional("numpy"), optional("torch")
levin = ctypes.CDLL(LIBRARY)
for function in ("create", "wrap"):
    getattr(levin, f"lvn_tensor_{function}").restype = ctypes.c_void_p
for function in ("to_dlpack", "to_dlpack_old", "from_dlpack", "from_dlpack_old", "data"):
    getattr(levin, f"lvn_{function}").restype = ctypes.c_void_p
levin.lvn_numel.restype = ctypes.c_int64
levin.lvn_size.restype = ctypes.c_int64

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
api.PyCapsule_IsValid.argtypes = (ctypes.py_object, ctypes.c_char_p)
api.PyCapsule_SetName.argtypes = (ctypes.py_object, ctypes.c_char_p)


class Ours:
    """A tensor of levin's as the exporter that from_dlpack asks for."""

    def __init__(self, dtype, *shape, flags=0):
        sizes = (ctypes.c_int64 * max(len(shape), 1))(*shape)
        self.t = levin.lvn_tensor_create(TYPES.index(dtype), len(shape), sizes)
        self.flags = flags
        self.versioned = None

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        self.versioned = max_version is not None and max_version[0] >= 1
        t = ctypes.c_void_p(self.t)
        made = (
            levin.lvn_to_dlpack(t, ctypes.c_uint64(self.flags))
            if self.versioned
            else levin.lvn_to_dlpack_old(t)
        )
        # names of capsules are borrowed: these live as long as the module
        return api.PyCapsule_New(made, NAMES[self.versioned], None)

    def memory(self):
        return levin.lvn_data(ctypes.c_void_p(self.t))

    def release(self):
        levin.lvn_release(ctypes.c_void_p(self.t))


def take(capsule):
    """lvn_from_dlpack of a capsule, which is used up as the protocol wants it."""
    versioned = bool(api.PyCapsule_IsValid(capsule, NAMES[1]))
    pointer = ctypes.c_void_p(api.PyCapsule_GetPointer(capsule, NAMES[versioned]))
    t = (levin.lvn_from_dlpack if versioned else levin.lvn_from_dlpack_old)(pointer)
    if t is not None:
        api.PyCapsule_SetName(capsule, USED[versioned])
    return t


USED = (b"used_dltensor", b"used_dltensor_versioned")


class Dlpack(unittest.TestCase):
    def there_and_back(self, library, dtype, theirs):
        ours = Ours(dtype, 2, 3)
        view = library.from_dlpack(ours)
        self.assertEqual((tuple(view.shape), view.dtype), ((2, 3), theirs))
        view[1, 2] = 1
        size = view.itemsize
        last = ctypes.string_at(ours.memory() + 5 * size, size)
        self.assertNotEqual(last, bytes(size))  # one memory
        ours.release()  # `view` keeps it
        self.assertEqual(float(view[1, 2]), 1.0)
        back = take(view.__dlpack__(max_version=(1, 0)))
        self.assertIsNotNone(back)
        handle = ctypes.c_void_p(back)
        self.assertEqual(levin.lvn_tensor_dtype(handle), TYPES.index(dtype))
        self.assertEqual(levin.lvn_size(handle, 1), 3)
        del view
        gc.collect()
        data = levin.lvn_data(handle)
        self.assertEqual(ctypes.string_at(data + 5 * size, size), last)
        levin.lvn_release(handle)

    @unittest.skipIf(numpy is None or not hasattr(numpy, "from_dlpack"), "no numpy.from_dlpack")
    def test_numpy(self):
        for dtype, theirs in {
            "f32": "float32",
            "f64": "float64",
            "i64": "int64",
            "i32": "int32",
            "u8": "uint8",
            "bool": "bool",
            "f16": "float16",
        }.items():
            with self.subTest(dtype):
                if numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0":
                    self.skipTest("numpy before 2.1 has no versions of DLPack, and reads only")
                self.there_and_back(numpy, dtype, numpy.dtype(theirs))

    @unittest.skipIf(torch is None, "no torch")
    def test_torch(self):
        for dtype, theirs in {
            "f32": torch.float32,
            "f64": torch.float64,
            "i64": torch.int64,
            "i32": torch.int32,
            "u8": torch.uint8,
            "bool": torch.bool,
            "bf16": torch.bfloat16,
            "f16": torch.float16,
        }.items():
            with self.subTest(dtype):
                self.there_and_back(torch, dtype, theirs)

    @unittest.skipIf(torch is None, "no torch")
    def test_the_old_version(self):
        ours = Ours("f32", 4)
        view = torch.utils.dlpack.from_dlpack(ours.__dlpack__())
        self.assertFalse(ours.versioned)
        view += 2
        ours.release()
        back = take(torch.utils.dlpack.to_dlpack(view))
        del view
        handle = ctypes.c_void_p(back)
        values = ctypes.cast(levin.lvn_data(handle), ctypes.POINTER(ctypes.c_float))
        self.assertEqual(values[:4], [2.0] * 4)
        levin.lvn_release(handle)

    @unittest.skipIf(torch is None, "no torch")
    def test_rows_and_columns(self):
        x = torch.arange(6, dtype=torch.float64).reshape(2, 3)
        for there, shared in ((x, True), (x.t(), False), (x[:, 1:], False), (x[1], True)):
            handle = ctypes.c_void_p(take(there.__dlpack__(max_version=(1, 0))))
            data = levin.lvn_data(handle)
            self.assertEqual(data == there.data_ptr(), shared)
            n = there.numel()
            values = ctypes.cast(data, ctypes.POINTER(ctypes.c_double))[:n]
            self.assertEqual(values, there.flatten().tolist())
            levin.lvn_release(handle)

    @unittest.skipIf(numpy is None or not hasattr(numpy, "from_dlpack"), "no numpy.from_dlpack")
    def test_memory_that_must_not_be_written(self):
        if numpy.lib.NumpyVersion(numpy.__version__) < "2.1.0":
            self.skipTest("numpy before 2.1 exports no memory that must not be written")
        ours = Ours("f32", 3, flags=1)
        self.assertFalse(numpy.from_dlpack(ours).flags.writeable)
        ours.release()
        theirs = numpy.arange(3, dtype="float32")
        theirs.flags.writeable = False
        handle = ctypes.c_void_p(take(theirs.__dlpack__(max_version=(1, 0))))
        data = levin.lvn_data(handle)
        self.assertNotEqual(data, theirs.ctypes.data)  # a copy
        values = ctypes.cast(data, ctypes.POINTER(ctypes.c_float))
        self.assertEqual(values[:3], [0.0, 1.0, 2.0])
        levin.lvn_release(handle)

    @unittest.skipIf(numpy is None or not hasattr(numpy, "from_dlpack"), "no numpy.from_dlpack")
    def test_what_levin_does_not_have(self):
        for there in (numpy.zeros(3, "int16"), numpy.zeros(3, "complex64")):
            self.assertIsNone(take(there.__dlpack__()))  # the capsule deletes it


def main():
    if numpy is None and torch is None:
        python = "/usr/bin/python3"
        if python != sys.executable and shutil.which(python):
            found = subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False)
            if found.returncode == 0:
                sys.exit(subprocess.run([python, *sys.argv], check=False).returncode)
        print("skipped: Python has neither numpy nor torch here")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])


main()
