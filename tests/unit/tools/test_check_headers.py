"""tools/check-headers on small trees: a header that leans on what its user included before must be
named."""

import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check-headers"
GUARDED = "#ifndef X_H\n#define X_H\n{}\n#endif\n"


def check(text):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "include", "levin", "x.h")
        path.parent.mkdir(parents=True)
        path.write_text(text)
        run = subprocess.run([TOOL, folder], capture_output=True, text=True)
        return run.returncode, run.stdout


class CheckHeaders(unittest.TestCase):
    def test_a_complete_header_passes(self):
        status, out = check(GUARDED.format("#include <stdint.h>\nint64_t lvn_size(void);"))
        self.assertEqual(status, 0)
        self.assertIn("1 public headers compile alone", out)

    def test_a_missing_include_is_found(self):
        status, out = check(GUARDED.format("int64_t lvn_size(void);"))
        self.assertEqual(status, 1)
        self.assertIn("levin/x.h: does not compile alone as C11 (cc)\n", out)

    def test_a_missing_guard_is_found(self):
        self.assertEqual(check("struct lvn_x { int a; };\n")[0], 1)

    @unittest.skipUnless(shutil.which("g++"), "no g++ here")
    def test_a_name_that_is_a_word_of_cpp_is_found(self):
        status, out = check(GUARDED.format("int lvn_make(int new);"))
        self.assertEqual(status, 1)
        self.assertRegex(out, r"^levin/x\.h: does not compile alone as C\+\+17 \(.*\+\+\)\n")


if __name__ == "__main__":
    unittest.main()
