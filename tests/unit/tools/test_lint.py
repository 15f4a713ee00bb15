"""tools/lint: what is known to be clean is not read again, and nothing else is taken for it. In a
small tree with a clang-tidy that finds the word BUG in a file or in its header."""

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[3]
# `touched` appears in the file that is read, as from an editor meanwhile; every call is logged.
TIDY = """#!/bin/sh
[ "$1" != --version ] || { echo "LLVM version ${TIDY_VERSION-14.0.6}"; exit 0; }
for file; do :; done
echo "$file" >>"$TIDY_LOG"
if grep -q touch "$file"; then echo "/* touched */" >>"$file"; fi
if cat "$file" "${file%.c}.h" 2>/dev/null | grep -q BUG; then
    echo "$file:1:1: error: BUG"
    exit 1
fi
"""


class Lint(unittest.TestCase):
    def setUp(self):
        self.tree = Path(tempfile.mkdtemp(prefix="levin-lint-")).resolve()
        self.addCleanup(shutil.rmtree, self.tree)
        for folder in ("tools", "src/deep", "build", "bin"):
            (self.tree / folder).mkdir(parents=True)
        shutil.copy(SOURCE / "tools/lint", self.tree / "tools")
        self.put("tools/build", "#!/bin/sh\n", 0o755)
        self.put("bin/clang-tidy", TIDY, 0o755)
        self.put(".clang-tidy", "Checks: '*'\n")
        self.put("src/deep/rows.def", "ROW(1)\n")
        self.put("src/deep/b.h", '#if 0\n# include "rows.def"\n#endif\n')
        self.put("src/a.h", "#include <deep/b.h>\n")
        self.put("src/a.c", '#include "a.h"\n')
        self.put("src/c.c", "int c;\n")
        self.commands(a="", c="")

    def put(self, name, text, mode=0o644):
        (self.tree / name).write_text(text)
        (self.tree / name).chmod(mode)

    def commands(self, **flags):
        entries = [
            {
                "directory": f"{self.tree}/build",
                "command": f"cc -I{self.tree}/src {flag} -o {name}.o -c {self.tree}/src/{name}.c",
                "file": f"{self.tree}/src/{name}.c",
            }
            for name, flag in flags.items()
        ]
        self.put("build/compile_commands.json", json.dumps(entries, indent=2))

    def lint(self, *arguments, code=0, **env):
        """The names of the files that clang-tidy was given."""
        log = self.tree / "log"
        log.write_text("")
        own = {name: value for name, value in os.environ.items() if name != "CI"}
        path = f"{self.tree}/bin:{os.environ['PATH']}"
        done = subprocess.run(
            ["tools/lint", "1", *arguments],
            cwd=self.tree,
            env={**own, "PATH": path, "TIDY_LOG": str(log), **env},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.output = done.stdout
        return sorted(Path(line).name for line in log.read_text().split())

    def lines(self):
        return (self.tree / "tools/lint-clean.txt").read_text().splitlines()

    def test_once_clean_is_not_read_again(self):
        self.assertEqual(self.lint(), ["a.c", "c.c"])
        self.assertEqual([line.split()[0] for line in self.lines()], ["src/a.c", "src/c.c"])
        self.assertEqual(self.lint(), [])
        self.assertIn("2 are known to be clean", self.output)
        self.assertEqual(self.lint("src/c.c"), ["c.c"])
        self.assertEqual(self.lint("--all"), ["a.c", "c.c"])

    def test_whatever_a_finding_may_depend_on_is_read_again(self):
        self.lint()
        for name in ("src/a.c", "src/a.h", "src/deep/b.h", "src/deep/rows.def"):
            self.put(name, (self.tree / name).read_text() + "/* NOLINT */\n")
            self.assertEqual(self.lint(), ["a.c"], name)
            self.assertEqual(self.lint(), [])
        self.put("src/c.c", '#include "late.h"\n')
        self.lint()
        self.put("src/late.h", "int late;\n")
        self.assertEqual(self.lint(), ["c.c"])
        self.commands(a="-DX", c="-Werror")  # which tools/lint gives anyway
        self.assertEqual(self.lint(), ["a.c"])
        self.put(".clang-tidy", "Checks: 'misc-*'\n")
        self.assertEqual(self.lint(), ["a.c", "c.c"])
        self.assertEqual(self.lint(TIDY_VERSION="15.0.0"), ["a.c", "c.c"])

    def test_findings_are_never_taken_for_clean(self):
        self.lint()
        before = self.lines()
        clean = (self.tree / "src/a.h").read_text()
        self.put("src/a.h", clean + "/* BUG */\n")
        for _ in range(2):
            self.assertEqual(self.lint(code=1), ["a.c"])
            self.assertIn("error: BUG", self.output)
            self.assertEqual([line.split()[0] for line in self.lines()], ["src/c.c"])
        self.put("src/a.h", clean)
        self.lint()
        self.assertEqual(self.lines(), before)

    def test_what_cannot_be_known_is_always_read(self):
        self.put("src/c.c", "#define ROWS <deep/b.h>\n#include ROWS\n")
        self.lint()
        self.assertEqual(self.lint(), ["c.c"])

    def test_a_file_that_changes_meanwhile_gets_no_line(self):
        self.put("src/c.c", "int touch;\n")
        self.lint()
        self.assertEqual([line.split()[0] for line in self.lines()], ["src/a.c"])

    def test_a_merge_keeps_both_lines(self):
        self.lint()
        ours = self.lines()
        self.put("src/c.c", "int d;\n")
        self.lint()
        both = sorted({*ours, *self.lines()})
        self.assertEqual(len(both), 3)
        self.put("tools/lint-clean.txt", "\n".join(both) + "\n")
        for text in ("int c;\n", "int d;\n"):
            self.put("src/c.c", text)
            self.assertEqual(self.lint(), [])
        self.assertEqual(self.lines(), both)
        self.lint("--all")
        self.assertEqual(len(self.lines()), 2)

    def test_ci_reads_the_list_and_leaves_it(self):
        self.lint("src/c.c")
        before = self.lines()
        self.assertEqual(self.lint(CI="true"), ["a.c"])
        self.assertEqual(self.lines(), before)

    def test_the_list_of_this_tree(self):
        """Sorted, one file and one hash on a line, none without its file."""
        lines = (SOURCE / "tools/lint-clean.txt").read_text().splitlines()
        self.assertGreater(len(lines), 0)
        for line in lines:
            self.assertRegex(line, r"^\S+\.c [0-9a-f]{32}$")
        merge = subprocess.run(
            ["git", "check-attr", "merge", "tools/lint-clean.txt"],
            cwd=SOURCE,
            capture_output=True,
            text=True,
        )
        if merge.returncode == 0:
            self.assertIn("union", merge.stdout)


if __name__ == "__main__":
    unittest.main()
