"""tools/check-symbols on a small library: what is exported and not declared, and the other way
round, must be named."""

import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check-symbols"
HEADER = """#define LVN_API __attribute__((visibility("default")))
LVN_API int lvn_add(int a, int b); /* LVN_API int lvn_only_in_a_comment(void); */
LVN_API const char *lvn_name(int a)
    __attribute__((pure));
int lvni_hidden(void);
"""


def check(source, *options):
    with tempfile.TemporaryDirectory() as folder:
        include = Path(folder, "include")
        include.mkdir()
        (include / "x.h").write_text(HEADER)
        Path(folder, "x.c").write_text('#include "x.h"\n' + source)
        library = Path(folder, "libx.so")
        subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-fvisibility=hidden",
                f"-I{include}",
                f"{folder}/x.c",
                "-o",
                library,
            ],
            check=True,
        )
        run = subprocess.run([TOOL, *options, library, include], capture_output=True, text=True)
        return run.returncode, run.stdout


ADD = "int lvn_add(int a, int b) { return a + b; }\n"
NAME = 'const char *lvn_name(int a) { return a != 0 ? "x" : ""; }\n'


class CheckSymbols(unittest.TestCase):
    def test_the_same_lists_pass(self):
        status, out = check(ADD + NAME + "int lvni_hidden(void) { return 1; }\n")
        self.assertEqual(
            out, "check-symbols: 2 symbols exported, all of them declared in public headers\n"
        )
        self.assertEqual(status, 0)

    def test_a_missing_definition_is_named(self):
        self.assertEqual(check(ADD), (1, "lvn_name: declared in x.h but not exported\n"))

    def test_a_program_may_export_more(self):
        extra = '__attribute__((visibility("default"))) int lvni_leak(void) { return 2; }\n'
        self.assertEqual(check(ADD + NAME + extra, "--program")[0], 0)
        self.assertEqual(
            check(ADD + extra, "--program"), (1, "lvn_name: declared in x.h but not exported\n")
        )

    def test_an_export_too_many_is_named(self):
        extra = '__attribute__((visibility("default"))) int lvni_leak(void) { return 2; }\n'
        self.assertEqual(
            check(ADD + NAME + extra),
            (1, "lvni_leak: exported but not declared as LVN_API in a public header\n"),
        )


if __name__ == "__main__":
    unittest.main()
