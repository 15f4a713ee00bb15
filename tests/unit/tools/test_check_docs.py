"""tools/check-docs on small trees: one that is in order, and one per mistake it has to name with
file and line."""

import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check-docs"

GOOD = {
    "README.md": "# A\n\nSee [the tour](docs/tour.md#the-way-in) and `docs/tour.md`, `out/mine`.\n",
    "CONTRIBUTING.md": "Names: `lvni_<folder>_...`, `lvni_ref_NAME` in `src/ref/`; `make test`.\n",
    "docs/tour.md": "## The way in\n\n`src/plan/tree.c`, `plan/tree.c` or `tree.c` has "
    "`lvni_tree_sum`\n"
    "with `LVNI_TREE_MAX`, `LEVIN_RANK`; `lvni_tree_sum(x)` and `lvni_tree_sum()`.\n\n"
    "| what | where |\n| --- | --- |\n| sum | `src/plan/tree.c`, `lvni_tree_sum()` |\n\n"
    "Keys: `lanes=2 levels=x`, `optim.lr`, `levin train data=a\noptim.lr=3`, `--role=x`, "
    "`f(weight=1)`.\n\n    levin train data=lvni_tree_sum\n",
    "docs/config.md": "```\n  lanes     whole number, default 1\n      How many.  Also: levels.\n"
    "  optim.lr  number\n      Rate.\n  data      path\n```\n",
    "src/plan/tree.c": "#define LVNI_TREE_MAX 3\nstatic int add(int a);\nint "
    "lvni_tree_sum(void) { return add(2); }\n",
    "src/ref/ref_add.c": 'int lvni_ref_add(void);\nconst char *rank = "LEVIN_RANK";\n',
}


def check(change):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **change}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        run = subprocess.run([TOOL, folder], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout.splitlines(), run.stderr


class CheckDocs(unittest.TestCase):
    def finds(self, text, *expected):
        status, lines, error = check({"docs/x.md": text})
        self.assertEqual(error, "")
        self.assertEqual(lines, [f"docs/x.md:{line}" for line in expected])
        self.assertEqual(status, 1)

    def test_a_tree_in_order_passes(self):
        status, lines, error = check({})
        self.assertEqual((status, error), (0, ""), lines)
        self.assertRegex(lines[0], r"^check-docs: 3 files, \d+ names in order$")

    def test_files(self):
        self.finds(
            "a\n`src/plan/forest.c`\n`src/forest/`",
            "2: `src/plan/forest.c`: the tree has no such file",
            "3: `src/forest/`: the tree has no such file or folder",
        )
        self.finds("`forest.c`", "1: `forest.c`: the tree has no such file")
        self.finds("`tests/plan/*_sum.c`", "1: `tests/plan/*_sum.c`: the tree has no such file")

    def test_identifiers(self):
        missing = "no file of src/, include/, tests/, examples/ or bench/ has this name"
        self.finds("a `b`\n`lvni_tree_su`", f"2: `lvni_tree_su`: {missing}")
        self.finds("`LVNI_TREE_MIN`", f"1: `LVNI_TREE_MIN`: {missing}")
        self.finds("`LEVIN_RANKS=1`", f"1: `LEVIN_RANKS`: {missing}")
        self.finds("`lvni_cpu_NAME`", f"1: `lvni_cpu_NAME`: {missing}")
        self.finds("a\n\n    lvn_run(x)", "3: lvn_run: the tree does not have this name")

    def test_functions(self):
        self.finds("`forest()`", "1: `forest()`: no such function")
        row = "| sum | `ref_add.c` | `lvni_tree_sum()` |"
        self.finds(row, "1: `lvni_tree_sum()`: not defined in src/ref/ref_add.c")
        row = "| sum | `tree.c` | `add()` |"  # which calls it
        self.finds(row, "1: `add()`: not defined in src/plan/tree.c")

    def test_keys(self):
        self.finds("`lane=2`", "1: `lane=`: docs/config.md has no such key")
        self.finds("`levin train lanes=2\nlane=2`", "1: `lane=`: docs/config.md has no such key")
        self.finds("`optim.rate`", "1: `optim.rate`: docs/config.md has no such key")

    def test_comments(self):
        def finds(comment, *expected):
            change = {"src/plan/tree.c": GOOD["src/plan/tree.c"] + comment}
            status, lines, _ = check(change)
            self.assertEqual(lines, [f"src/plan/tree.c:{line}" for line in expected])
            self.assertEqual(status, 1)

        status, lines, _ = check({"src/ref/ref_add.h": "/* tree.c; lvni_tree_*; docs/tour.md */\n"})
        self.assertEqual(status, 0, lines)
        finds("/* a\n * forest.h */\n", "5: forest.h: the tree has no such file")
        finds("// plan/ref_add.c\n", "4: plan/ref_add.c: the tree has no such file")
        finds("/* lvni_tree_su */", "4: lvni_tree_su: only comments have this name")

    def test_links(self):
        self.finds("[a](forest.md)", "1: the link forest.md leads nowhere")
        self.finds("[a](tour.md#out)", "1: the link tour.md#out: no heading gives this anchor")

    def test_columns(self):
        self.finds(f"a\n{'b ' * 51}", "2: 102 columns, prose has at most 100")
        self.assertEqual(check({"docs/x.md": f"| {'b ' * 51}|\n\n```\n{'b ' * 51}\n```\n"})[0], 0)


if __name__ == "__main__":
    unittest.main()
