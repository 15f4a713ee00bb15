"""What `make install` puts there is enough for a program outside of the tree; `make uninstall`
takes all of it away.

usage: test_install.py SOURCE_DIR BUILD_DIR CC
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, BUILD, CC = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve(), sys.argv[3]
PREFIX = "/opt/levin-test"

CMAKE = """cmake_minimum_required(VERSION 3.25)
project(outside LANGUAGES C)
find_package(levin VERSION REQUIRED {components})
add_executable(program tensors.c)
target_link_libraries(program PRIVATE {target} m)
"""
# As a program asks for the version that it was written for: 0.2 of 0.2.0
HEADER = (SOURCE / "include/levin/version.h").read_text()
VERSION = re.search(r'#define LEVIN_VERSION "(\d+\.\d+)', HEADER)
CMAKE = CMAKE.replace("VERSION REQUIRED", f"{VERSION[1]} REQUIRED")


def run(*arguments, status=0, **more):
    done = subprocess.run(
        [str(w) for w in arguments],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        **more,
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


class Install(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)
        self.stage = self.cwd / "stage"
        self.root = Path(f"{self.stage}{PREFIX}")
        self.environment = dict(os.environ, DESTDIR=str(self.stage))
        reported = run(SOURCE / "tools/install", BUILD, PREFIX, env=self.environment)
        self.assertIn(f"files below {self.root}", reported)
        shutil.copy(self.root / "share/doc/levin/examples/01_tensors/tensors.c", self.cwd)
        self.library = dict(os.environ)
        # In front of what levin itself may need (tools/install-deps --prefix).
        for name, folder in (("LD_LIBRARY_PATH", "lib"), ("PKG_CONFIG_PATH", "lib/pkgconfig")):
            known = [str(self.root / folder), *os.environ.get(name, "").split(":")]
            self.library[name] = ":".join(filter(None, known))

    def pkg_config(self, *arguments):
        return run("pkg-config", *arguments, env=self.library).split()

    def needs_library(self, program):
        return "liblevin.so.0" in run("readelf", "-d", program)

    def assert_works(self, program, shared):
        self.assertEqual(self.needs_library(program), shared)
        self.assertRegex(run(program, env=self.library if shared else None), r"(?m)^y = \S+ x \S+$")

    def cmake(self, components, target):
        (self.cwd / "CMakeLists.txt").write_text(CMAKE.format(components=components, target=target))
        run(
            "cmake",
            "-S",
            self.cwd,
            "-B",
            self.cwd / "out",
            f"-DCMAKE_PREFIX_PATH={self.root}",
            f"-DCMAKE_C_COMPILER={CC}",
        )
        run("cmake", "--build", self.cwd / "out")
        return self.cwd / "out/program"

    def test_what_is_there(self):
        module = "lib/levin/levin_video.so"
        self.assertEqual((self.root / module).is_file(), (BUILD / "levin_video.so").is_file())
        for name in (
            "bin/levin",
            "lib/liblevin.a",
            "lib/liblevin.so",
            "include/levin/levin.h",
            "lib/pkgconfig/levin.pc",
            "lib/cmake/levin/levinConfig.cmake",
            "share/man/man1/levin.1",
            "share/bash-completion/completions/levin",
            "share/zsh/site-functions/_levin",
            "share/doc/levin/LICENSE",
            "share/doc/levin/docs/reproducibility.md",
        ):
            self.assertTrue((self.root / name).is_file(), name)
        headers = {path.name for path in (SOURCE / "include/levin").iterdir()}
        self.assertEqual({path.name for path in (self.root / "include/levin").iterdir()}, headers)
        self.assertIn(
            "all of them declared",
            run(
                SOURCE / "tools/check-symbols", self.root / "lib/liblevin.so", self.root / "include"
            ),
        )
        reported = run(self.root / "bin/levin", "--version").split()
        self.assertEqual(self.pkg_config("--modversion", "levin"), reported[1:])
        page = (self.root / "share/man/man1/levin.1").read_text()
        self.assertIn("max_epochs", page)
        self.assertNotIn(str(self.cwd), (self.root / "lib/pkgconfig/levin.pc").read_text())

    def test_pkg_config_shared(self):
        run(
            CC,
            "tensors.c",
            "-o",
            "program",
            *self.pkg_config("--cflags", "--libs", "levin"),
            "-lm",
            cwd=self.cwd,
        )
        self.assert_works(self.cwd / "program", shared=True)

    def test_pkg_config_static(self):
        libs = [
            word.replace("-llevin", "-l:liblevin.a")
            for word in self.pkg_config("--static", "--cflags", "--libs", "levin")
        ]
        run(CC, "tensors.c", "-o", "program", *libs, cwd=self.cwd)
        self.assert_works(self.cwd / "program", shared=False)

    def test_cmake_shared(self):
        self.assert_works(self.cmake("", "levin::levin"), shared=True)

    def test_cmake_static(self):
        self.assert_works(self.cmake("COMPONENTS static", "levin::static"), shared=False)

    def test_cmake_refuses_what_is_not_there(self):
        with self.assertRaisesRegex(AssertionError, "no component gpu"):
            self.cmake("COMPONENTS gpu", "levin::levin")

    def test_uninstall(self):
        (self.root / "include/other.h").write_text("")
        self.assertIn(
            "removed ", run(SOURCE / "tools/install", "--uninstall", PREFIX, env=self.environment)
        )
        left = [
            str(path.relative_to(self.root)) for path in self.root.rglob("*") if not path.is_dir()
        ]
        self.assertEqual(left, ["include/other.h"])
        self.assertFalse((self.root / "include/levin").exists())
        self.assertIn(
            "is not installed below",
            run(SOURCE / "tools/install", "--uninstall", PREFIX, env=self.environment, status=1),
        )

    def test_a_relative_prefix_is_refused(self):
        self.assertIn(
            "must begin with /",
            run(SOURCE / "tools/install", BUILD, "opt", env=self.environment, status=1),
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
