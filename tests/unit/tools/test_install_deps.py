"""tools/install-deps without root: with programs that stand for apt-get, dpkg-deb and dpkg-query it
unpacks in a folder what an installation would bring, and an interrupted run leaves nothing that
looks complete."""

import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "install-deps"
# All that it may call; the machine's sudo must not be found.
PROGRAMS = """awk basename cat chmod cp dirname env find grep head ln make mkdir mv readlink rm sed
    sh sort tee touch tr wc"""
STUBS = {
    "cc": 'echo "cc: no crt1.o" >&2; exit ${BAD_CC-0}',
    "id": "echo 1000",
    "dpkg-query": 'for n; do :; done; grep -qx -e "$n" "$STUB/installed" && printf installed',
    # Lists that do not know the packages until there was an update; one newer version, and a libc.
    "apt-get": r"""
        echo "$*" >>"$STUB/calls"
        config= command=
        for word; do case "$word" in update | install | download) command=$word ;; esac; done
        if [ "$command" = update ]; then [ -e "$STUB/no-network" ] || touch "$STUB/lists"; exit; fi
        [ -e "$STUB/lists" ] || { echo "E: Unable to locate package" >&2; exit 100; }
        while [ "$1" != "$command" ]; do shift; done
        shift
        case $command in
        install)
            for name; do echo "Inst $name (1.0 Debian [amd64])"; done
            echo "Inst libneeded1 (1.0 Debian [amd64])"
            echo "Inst zlib1g [1.0] (1.1 Debian [amd64])"
            echo "Inst libc6 (2.0 Debian [amd64])"
            echo "Conf libneeded1 (1.0 Debian [amd64])" ;;
        download) for name; do echo "$name" | tee -a "$STUB/downloaded" >"$name.deb"; done ;;
        esac""",
    "dpkg-deb": r"""
        name=$(cat "$2") root=$3 lib=usr/lib/$ARCH
        ! grep -qx -e "$name" "$STUB/broken" || { echo "dpkg-deb: broken" >&2; exit 2; }
        mkdir -p "$root/$lib/pkgconfig" "$root/usr/bin" "$root/usr/include/$ARCH"
        cd "$root"
        case $name in
        libyaml-dev) # as zlib's of Debian 12: the library in /lib, an absolute link to it
            mkdir -p "lib/$ARCH"
            echo yaml >"lib/$ARCH/libyaml.so.2"
            ln -s "/lib/$ARCH/libyaml.so.2" "$lib/libyaml.so"
            echo 1 >"usr/include/$ARCH/yaml_config.h"
            printf '%s\n' prefix=/usr 'libdir=${prefix}/lib' "Libs: -L/usr/lib/$ARCH -lyaml" \
                'Cflags: -I/usr/include' 'URL: http://x/usr/y' >"$lib/pkgconfig/yaml.pc" ;;
        zlib1g-dev) ln -s libc.so.6.99 "$lib/libz.so" ;; # the library itself is the machine's
        liblapacke) mkdir "$lib/blas"; echo blas >"$lib/blas/libblas.so.3" ;;
        libneeded1) # as of g++, where gcc is the machine's
            mkdir -p "usr/lib/gcc/$ARCH/$GCC"
            ln -s "../../../$ARCH/libm.so.6" "usr/lib/gcc/$ARCH/$GCC/libm.so" ;;
        cmake | python3)
            printf '#!/bin/sh\nexit ${BREAK-0}\n' >usr/bin/$name
            chmod +x usr/bin/$name ;;
        esac""",
}


class InstallDeps(unittest.TestCase):
    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="levin-deps-"))
        self.addCleanup(shutil.rmtree, self.dir)
        arch = subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True).stdout
        self.arch = arch.strip() or "x86_64-linux-gnu"
        crt = subprocess.run(
            ["cc", "-print-file-name=crtbegin.o"], capture_output=True, text=True, check=True
        ).stdout
        self.gcc = Path(crt.strip()).parent
        (self.dir / "bin").mkdir()
        for name in PROGRAMS.split():
            (self.dir / "bin" / name).symlink_to(shutil.which(name))
        for name, text in STUBS.items():
            stub = self.dir / "bin" / name
            stub.write_text(f"#!{shutil.which('sh')}\n{text}\n")
            stub.chmod(0o755)
        (self.dir / "installed").write_text("g++\nninja-build\n")
        (self.dir / "lists").touch()
        (self.dir / "broken").touch()
        self.deps = self.dir / "deps"

    def run_tool(self, *arguments, code=0, **env):
        """Standard output and standard error."""
        done = subprocess.run(
            [TOOL, *arguments],
            env={
                "PATH": f"{self.dir}/bin",
                "STUB": str(self.dir),
                "ARCH": self.arch,
                "GCC": self.gcc.name,
                **env,
            },
            cwd=self.dir,
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def unpack(self, code=0, **env):
        return self.run_tool("--prefix", str(self.deps), code=code, **env)

    def downloaded(self):
        file = self.dir / "downloaded"
        return file.read_text().split() if file.exists() else []

    def is_incomplete(self):
        self.assertFalse((self.deps / "env").exists())
        _, error = self.run_tool(code=1, LEVIN_DEPS=str(self.deps))
        self.assertIn("--prefix", error)

    def test_without_root_it_names_the_way(self):
        _, error = self.run_tool("lint", code=1)
        self.assertIn("not root and no sudo here; as root, run: apt-get install", error)
        self.assertIn("; without root, tools/install-deps --prefix DIR lint unpacks", error)

    def test_what_is_unpacked(self):
        out, _ = self.unpack()
        self.assertIn(f"first: . {self.deps}/env", out)
        self.assertEqual(sorted(os.listdir(self.deps)), ["env", "packages", "root"])
        # Neither what is installed, nor a newer version of it, nor a compiler.
        self.assertIn("libneeded1", self.downloaded())
        for name in ("ninja-build", "zlib1g", "libc6", "gcc", "g++", "libcmocka-dev"):
            self.assertNotIn(name, self.downloaded())

        usr = self.deps / "root/usr"
        lib = usr / "lib" / self.arch
        self.assertEqual((lib / "libyaml.so").read_text(), "yaml\n")
        self.assertEqual((self.deps / "root/lib").resolve(), (usr / "lib").resolve())
        self.run_tool("full", LEVIN_DEPS=str(self.deps))
        self.assertEqual((lib / "libblas.so.3").read_text(), "blas\n")
        self.assertTrue((usr / "include/yaml_config.h").is_file())
        self.assertTrue(os.path.samefile(lib / "libz.so", f"/lib/{self.arch}/libc.so.6"))
        gcc = usr / f"lib/gcc/{self.arch}/{self.gcc.name}"
        self.assertTrue(os.path.samefile(gcc / "libm.so", f"/lib/{self.arch}/libm.so.6"))
        if (Path("/usr/lib/gcc") / self.arch / self.gcc.name).is_dir():  # Debian's cc
            self.assertTrue((gcc / "crtbegin.o").is_file())
        self.assertEqual(
            (lib / "pkgconfig/yaml.pc").read_text().splitlines(),
            [
                f"prefix={usr}",
                "libdir=${prefix}/lib",
                f"Libs: -L{lib} -lyaml",
                f"Cflags: -I{usr}/include",
                "URL: http://x/usr/y",
            ],
        )

    def test_the_environment(self):
        self.unpack()
        read = f". {self.deps}/env"
        names = "LEVIN_DEPS PATH PKG_CONFIG_PATH CMAKE_PREFIX_PATH LD_LIBRARY_PATH LDFLAGS"
        shown = subprocess.run(
            ["sh", "-euc", f"{read}; {read}; for n in {names}; do eval echo \\$$n; done"],
            env={"PATH": "/bin", "LD_LIBRARY_PATH": "/mine"},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        usr = f"{self.deps}/root/usr"
        lib = f"{usr}/lib/{self.arch}"
        self.assertEqual(
            shown.splitlines(),
            [
                str(self.deps),
                f"{usr}/bin:/bin",
                f"{lib}/pkgconfig:{usr}/share/pkgconfig",
                usr,
                f"{lib}:/mine",
                f"-Wl,-rpath,{self.deps}/root/lib/{self.arch},--disable-new-dtags",
            ],
        )

    def test_again(self):
        """make demo is then silent, and nothing is downloaded a second time; what is missing later
        comes with all that was there before."""
        self.unpack()
        first = self.downloaded()
        self.assertEqual(self.run_tool(LEVIN_DEPS=str(self.deps)), ("", ""))
        self.unpack()
        self.assertEqual(self.downloaded(), first)
        draws = ["libcairo2", "fonts-dejavu-core"]
        video = [f"lib{name}-dev" for name in ("avformat", "avcodec", "swscale", "avutil")]
        # and g++, which is installed
        tests = [*draws, "liblapacke", *video, "ffmpeg", "libcmocka-dev", "python3", "patchelf"]
        for name, more in (
            ("figures", draws),
            ("full", tests),
            ("lint", [*tests, "clang-tidy", "clang-format"]),
        ):
            before = self.downloaded()
            self.run_tool(name, LEVIN_DEPS=str(self.deps))
            now = self.downloaded()[len(before) :]
            self.assertEqual(sorted(now), sorted([*first, *more]))
            self.assertEqual(self.run_tool(LEVIN_DEPS=str(self.deps)), ("", ""))

    def test_all_of_it_is_installed(self):
        (self.dir / "bin/dpkg-query").write_text("#!/bin/sh\nprintf installed\n")
        self.assertEqual(self.run_tool(), ("", ""))
        self.unpack()
        self.assertTrue((self.deps / "env").is_file())
        self.assertFalse((self.dir / "calls").exists())

    def test_interrupted(self):
        (self.dir / "broken").write_text("libspng-dev")
        _, error = self.unpack(code=2)
        self.assertEqual(error, "dpkg-deb: broken\n")
        self.assertFalse((self.deps / "env").exists())
        self.assertEqual(os.listdir(self.deps), [])
        (self.dir / "broken").write_text("")
        _, error = self.unpack(code=1, BREAK="1")
        self.assertIn("cmake that was unpacked there does not start", error)
        self.assertFalse((self.deps / "env").exists())
        self.assertFalse((self.deps / "packages").exists())
        self.unpack()
        self.assertEqual(self.run_tool(LEVIN_DEPS=str(self.deps)), ("", ""))

    def test_lists_of_its_own(self):
        (self.dir / "lists").unlink()
        out, error = self.unpack()
        self.assertIn(f"+ apt-get update (in {self.deps})\n", out)
        self.assertEqual(error, "")
        self.assertEqual(sorted(os.listdir(self.deps)), ["env", "packages", "root"])

    def test_without_a_network(self):
        (self.dir / "lists").unlink()
        (self.dir / "no-network").touch()
        _, error = self.unpack(code=1)
        self.assertIn("E: Unable to locate package\n", error)
        self.assertIn("the packages could not be downloaded, see above", error)

    def test_refused(self):
        (self.dir / "full").mkdir()
        (self.dir / "full/thesis.tex").touch()
        for folder, reason in (
            ("a b", f"{self.dir}/a b: search paths cannot name a folder with a space or one of"),
            ("a,b", "search paths cannot name a folder with a space or one of"),
            ("/proc/levin", "/proc/levin: the folder cannot be written; use another one"),
            ("full", f"the folder holds other files, as {self.dir}/full/thesis.tex; it must be"),
            ("", "--prefix names no folder; usage: "),
        ):
            self.assertIn(reason, self.run_tool(f"--prefix={folder}", code=1)[1])
        self.assertIn("unknown argument 'ling'", self.run_tool("ling", code=1)[1])
        error = self.unpack(code=1, BAD_CC="1")[1]
        self.assertIn("cc: no crt1.o\n", error)
        self.assertIn("cc cannot build a program, see above; an administrator installs", error)
        (self.dir / "bin/cc").unlink()
        self.assertIn("there is no cc here, and a folder cannot hold it", self.unpack(code=1)[1])
        (self.dir / "bin/apt-get").unlink()
        self.assertIn("no apt-get here; levin needs what Debian calls: ", self.unpack(code=3)[1])


if __name__ == "__main__":
    unittest.main()
