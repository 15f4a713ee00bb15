"""The directory that tools/dist makes works under another path, by the machine's C library and by
its own, and gives the bits of the program that it was made of. Other systems: tools/check-dist.

usage: test_dist.py SOURCE_DIR BUILD_DIR
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
TRAIN = "train classify data=builtin:shapes data.count=32 model=cnn max_steps=2 devices=2".split()
SKIPPED = 77


def run(*arguments, libc=None, status=0, cwd=None):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "LEVIN_OMP", "GOMP_"))}
    if libc is not None:
        env["LEVIN_LIBC"] = libc
    done = subprocess.run(
        [str(a) for a in arguments],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        cwd=cwd,
        env=env,
    )
    if done.returncode != status:
        raise AssertionError(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


class Dist(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cwd = Path(folder.name)
        run(SOURCE / "tools/dist", BUILD, cls.cwd / "made", "--no-archive")
        made = list((cls.cwd / "made").iterdir())
        assert len(made) == 1, made
        cls.dir = cls.cwd / "else where" / "levin"
        shutil.move(made[0], cls.dir)
        cls.levin = cls.dir / "bin/levin"

    def weights(self, name, *more, program=None, libc=None):
        run(program or self.levin, *TRAIN, f"out={name}", *more, libc=libc, cwd=self.cwd)
        file = f"{name}.safetensors"
        export = ["export", f"model={name}", f"output={file}", "card=false"]
        run(program or self.levin, *export, libc=libc, cwd=self.cwd)
        return (self.cwd / file).read_bytes()

    def test_same_bits(self):
        expected = self.weights("build", program=BUILD / "levin")
        for libc in ("host", "own"):
            with self.subTest(libc=libc):
                self.assertEqual(self.weights(libc, libc=libc), expected)

    def test_it_starts_itself_again(self):
        """Ranks of a launcher are the command, not the loader; a program sees nothing of both."""
        env = ["sh", "-c", "tr '\\0' '\\n' </proc/self/environ | grep -c ^LD_ || true"]
        for libc in ("host", "own"):
            with self.subTest(libc=libc):
                words = ["launch", "-n", "2", "--", self.levin, *TRAIN]
                run(self.levin, *words, f"out=l_{libc}", libc=libc, cwd=self.cwd)
                printed = run(self.levin, "launch", "-n", "1", "--", *env, libc=libc)
                self.assertEqual(printed.split()[-1], "0", printed)
        trial = ["tune", "batch-size", "classify", *TRAIN[2:5], "tune.max_size=4"]
        printed = run(self.levin, *trial, libc="own", cwd=self.cwd)
        self.assertIn("batch_size", printed)

    def test_own_libraries_alone(self):
        """By its own libc no library of the machine is loaded."""
        probe = ["launch", "-n", "1", "--", "sh", "-c", "cat /proc/$PPID/maps"]
        maps = run(self.levin, *probe, libc="own").splitlines()
        columns = [line.split(None, 5) for line in maps if line.count(" ") >= 5]
        loaded = {c[5] for c in columns if len(c) == 6 and ".so" in c[5]}
        for name in ("libc/libc.so.6", "libc/ld-linux", "libdnnl.so", "libgomp.so"):
            self.assertTrue(any(f.startswith(f"{self.dir}/lib/{name}") for f in loaded), loaded)
        self.assertEqual({f for f in loaded if not f.startswith(str(self.dir))}, set())

    def test_licences(self):
        listed = (self.dir / "LIBRARIES.txt").read_text().splitlines()[2:]
        files = {f"lib/{p.relative_to(self.dir / 'lib')}" for p in self.dir.glob("lib/**/*.so*")}
        self.assertGreater(len(listed), 20)
        for line in listed:
            file, package, _ = line.split()
            self.assertIn(file, files)
            self.assertTrue(
                (self.dir / "share/licenses" / package.split(":")[0] / "copyright").is_file()
            )
        self.assertFalse([f for f in files if "/libav" in f or "/libx26" in f])

    def test_a_directory_that_is_not_whole(self):
        broken = self.cwd / "broken/bin/levin"
        broken.parent.mkdir(parents=True)
        shutil.copy(self.levin, broken)
        for libc in ("host", "own"):
            printed = run(broken, "--version", libc=libc, status=126)
            self.assertIn("cannot be started", printed)


if __name__ == "__main__":
    if shutil.which("patchelf") is None:
        print("skipped: there is no patchelf here (tools/install-deps full)")
        sys.exit(SKIPPED)
    unittest.main(argv=sys.argv[:1])
