"""tools/build and tools/run-tests in other folders than ./build, in a tree that cannot be written,
and in a tree that was copied or moved after it was built; on a project without code."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]
# What the presets give a test that runs: labels choose it, its environment has this.
CMAKE = """cmake_minimum_required(VERSION 3.25)
project(levin LANGUAGES NONE)
add_custom_target(program ALL COMMAND ${CMAKE_COMMAND} -E touch ${CMAKE_BINARY_DIR}/levin)
enable_testing()
add_test(NAME fast_one COMMAND true)
add_test(NAME with_lsan COMMAND sh lsan.sh)
set_tests_properties(fast_one PROPERTIES LABELS "fast;tsan")
set_tests_properties(with_lsan PROPERTIES WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
"""
LSAN = """file=${LSAN_OPTIONS#suppressions=}
test -f "${file%%:*}"
"""


class BuildFolders(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="levin-folders-"))
        self.addCleanup(shutil.rmtree, self.dir)
        self.tree = self.dir / "tree"
        (self.tree / "tools").mkdir(parents=True)
        for name in ("build", "clean", "run-tests", "lsan.supp"):
            shutil.copy(SOURCE / "tools" / name, self.tree / "tools")
        for name in ("CMakePresets.json", "Makefile"):
            shutil.copy(SOURCE / name, self.tree)
        (self.tree / "CMakeLists.txt").write_text(CMAKE)
        (self.tree / "lsan.sh").write_text(LSAN)

    def run_in(self, tree, *command, code=0, **env):
        """Standard output and standard error."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(("LEVIN_", "MAKE", "LSAN_"))}
        done = subprocess.run(
            command,
            cwd=tree,
            env={**own, "BUILD_DIR": "", **env},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def build(self, tree, preset="default", code=0, **env):
        return self.run_in(tree, "tools/build", preset, "1", code=code, **env)

    def test_another_folder(self):
        for given, seen in ((str(self.dir / "out"), self.dir / "out"), ("../b/", self.dir / "b")):
            self.build(self.tree, BUILD_DIR=given)
            self.assertTrue((seen / "levin").is_file())
            self.build(self.tree, "asan", BUILD_DIR=given)
            asan = Path(f"{seen}-asan")
            self.assertIn("LEVIN_SANITIZE", (asan / "CMakeCache.txt").read_text())
            out, _ = self.run_in(self.tree, "tools/run-tests", "fast", "1", BUILD_DIR=given)
            self.assertIn("tests (fast): good=1 bad=0 skipped=0", out.splitlines()[-1])
            out, _ = self.run_in(self.tree, "tools/run-tests", "asan", "1", BUILD_DIR=given)
            self.assertIn("tests (asan): good=2 bad=0 skipped=0", out.splitlines()[-1])
            self.assertIn(str(asan), out)
            self.run_in(self.tree, "tools/clean", BUILD_DIR=given)
            self.assertFalse(seen.exists() or asan.exists())
        self.assertEqual(list(self.tree.glob("build*")), [])
        (self.dir / "mine").mkdir()
        (self.dir / "mine" / "letter").write_text("")
        _, error = self.run_in(self.tree, "tools/clean", code=1, BUILD_DIR=str(self.dir / "mine"))
        self.assertIn("mine has no CMakeCache.txt: nothing was built there", error)
        self.assertTrue((self.dir / "mine" / "letter").is_file())

    def test_the_usual_folder(self):
        self.build(self.tree, "asan")
        out, _ = self.run_in(self.tree, "tools/run-tests", "asan", "1")
        self.assertIn("tests (asan): good=2 bad=0 skipped=0", out.splitlines()[-1])
        self.assertTrue((self.tree / "build-asan/levin").is_file())

    def test_a_folder_that_cannot_be_written(self):
        (self.tree / "build").touch()  # cannot become a folder, for root neither
        for folder, env in (("build", {}), ("/proc/levin", {"BUILD_DIR": "/proc/levin"})):
            self.assertEqual(
                self.build(self.tree, code=1, **env),
                (
                    "",
                    f"levin cannot be built in {folder}: the folder cannot be written; build in "
                    "another one: make BUILD_DIR=/tmp/levin\n",
                ),
            )

    def test_a_first_configuration_that_failed(self):
        """Nothing of it is kept, such as flags; of a later one everything is."""
        lists = self.tree / "CMakeLists.txt"
        for kept in (False, True):
            lists.write_text(CMAKE + 'message(FATAL_ERROR "a library is missing")\n')
            (self.tree / "CMakePresets.json").touch()
            _, error = self.build(self.tree, code=1)
            self.assertIn("a library is missing", error)
            self.assertIn("; without root, tools/install-deps --prefix DIR does\n", error)
            self.assertEqual((self.tree / "build/CMakeCache.txt").exists(), kept)
            lists.write_text(CMAKE)
            self.build(self.tree)

    def test_names_that_are_refused(self):
        for name in ("a b", "~/levin", 'a"b', "a|b"):
            _, error = self.build(self.tree, code=1, BUILD_DIR=name)
            self.assertRegex(error, rf"^BUILD_DIR=.*: no name with a space .*\n$")
        self.assertEqual(len(os.listdir(self.tree)), 5)

    def test_a_copied_tree(self):
        """The copy, and a tree that was moved, are configured again, once."""
        self.build(self.tree)
        copy, moved = self.dir / "copy", self.dir / "moved"
        shutil.copytree(self.tree, copy, symlinks=True)
        self.tree.rename(moved)
        for tree in (copy, moved):
            (tree / "build/levin").unlink()
            out, _ = self.build(tree)
            self.assertIn(
                f"build was configured as {self.tree}/build for the tree {self.tree}: "
                f"configuring it from scratch for {tree}\n",
                out,
            )
            self.assertTrue((tree / "build/levin").is_file())
            self.assertNotIn("from scratch", self.build(tree)[0])

    def test_a_moved_build_folder(self):
        self.build(self.tree, BUILD_DIR=str(self.dir / "a"))
        (self.dir / "a").rename(self.dir / "b")
        out, _ = self.build(self.tree, BUILD_DIR=str(self.dir / "b"))
        self.assertIn(f"{self.dir}/b was configured as {self.dir}/a for the tree", out)

    def test_the_backend_for_gpus_comes_last(self):
        """`make` builds it after the command, and interrupted it leaves the command; `make test`
        and `make demo` do not build it."""
        backend = (
            "add_custom_command(OUTPUT levin_backend_cuda.so\n"
            "    COMMAND sh ${CMAKE_SOURCE_DIR}/slow.sh)\n"
            "add_custom_target(levin_backend_cuda ALL DEPENDS levin_backend_cuda.so)\n"
            "add_custom_target(tests DEPENDS program)\n"
        )
        (self.tree / "CMakeLists.txt").write_text(CMAKE + backend)
        slow = self.tree / "slow.sh"
        slow.write_text("test -f levin || exit 1\ntouch began\nexec sleep 60\n")
        for target in "program", "tests":
            self.run_in(self.tree, "tools/build", "default", "1", target)
        self.assertFalse((self.tree / "build/began").exists())
        (self.tree / "build/levin").unlink()
        with subprocess.Popen(
            ["tools/build", "default", "1"],
            cwd=self.tree,
            env={**os.environ, "BUILD_DIR": ""},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as make:
            while not (self.tree / "build/began").exists():
                self.assertIsNone(make.poll())
                time.sleep(0.02)
            os.killpg(make.pid, signal.SIGINT)  # Ctrl-C on a terminal
            out = make.communicate()[0]
        self.assertNotEqual(make.returncode, 0)
        self.assertIn("build/levin is ready, after ", out)
        self.assertIn("now the CUDA backend for GPUs", out)
        self.assertTrue((self.tree / "build/levin").is_file())
        slow.write_text("touch levin_backend_cuda.so\n")
        self.assertIn("now the CUDA backend", self.build(self.tree)[0])
        self.assertTrue((self.tree / "build/levin_backend_cuda.so").is_file())

    def test_tests_where_their_packages_are(self):
        """They are configured again once the packages have come."""
        _, error = self.run_in(self.tree, "tools/build", "default", "1", "tests", code=1)
        self.assertIn("(Debian: libcmocka-dev, python3); tools/install-deps full", error)
        late = 'if(EXISTS "${CMAKE_SOURCE_DIR}/come")\nadd_custom_target(tests)\nendif()\n'
        (self.tree / "CMakeLists.txt").write_text(CMAKE + late)
        self.build(self.tree)
        (self.tree / "come").touch()
        self.run_in(self.tree, "tools/build", "default", "1", "tests")

    def test_a_quarter_of_the_tests_under_asan(self):
        lists = CMAKE + "".join(
            f"add_test(NAME of_{part} COMMAND true)\n"
            f'set_tests_properties(of_{part} PROPERTIES LABELS "slow;part{part}")\n'
            for part in range(4)
        )
        (self.tree / "CMakeLists.txt").write_text(lists)
        self.build(self.tree, "asan")
        seen = []
        for part in range(4):
            out, _ = self.run_in(self.tree, "tools/run-tests", "asan", "1", ASAN_PART=str(part))
            self.assertIn("good=3 bad=0", out.splitlines()[-1])
            seen += [part for part in range(4) if f"of_{part} " in out]
        self.assertEqual(seen, [0, 1, 2, 3])
        out, _ = self.run_in(self.tree, "tools/run-tests", "asan", "1", ASAN_PART="all")
        self.assertIn("good=6 bad=0", out.splitlines()[-1])
        _, error = self.run_in(self.tree, "tools/run-tests", "asan", "1", code=1, ASAN_PART="4")
        self.assertEqual(error, "ASAN_PART=4: it is 0, 1, 2, 3 or all\n")

    def test_what_knows_the_usual_folder_alone(self):
        for target in ("bench", "cuda", "fuzz", "lint"):
            _, error = self.run_in(self.tree, "make", target, code=2, BUILD_DIR=f"{self.dir}/out")
            self.assertIn(f"make {target} uses ./build: leave it out", error)
        self.assertFalse((self.dir / "out").exists())


if __name__ == "__main__":
    unittest.main()
