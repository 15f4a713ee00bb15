"""tools/check-layers on small trees: one that is in order, and one per mistake it has to name with
file and line."""

import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[3] / "tools" / "check-layers"

GOOD = {
    "include/levin/status.h": "#include <stdint.h>\n",
    "include/levin/tensor.h": "#include <levin/status.h>\n",
    "src/core/CMakeLists.txt": "levin_folder(core SOURCES alloc.c)\n",
    "src/core/alloc.h": "void *lvni_core_alloc(int n);\n",
    "src/core/alloc.c": '#include "core/alloc.h"\n#include <stdlib.h>\nvoid '
    "*lvni_core_alloc(int n) { return malloc(n); }\n",
    "src/tensor/CMakeLists.txt": "levin_folder(tensor SOURCES tensor.c DEPS core)\n",
    "src/tensor/tensor.h": "#include <levin/tensor.h>\n",
    "src/tensor/tensor.c": '#include "tensor.h"\n#include "core/alloc.h"\n#include <string.h>\n',
    "src/kernels/CMakeLists.txt": "levin_folder(kernels SOURCES run.c DEPS tensor kernels_cpu)\n",
    "src/kernels/kernels.h": '#include "tensor/tensor.h"\n',
    "src/kernels/run.c": '#include "kernels/kernels.h"\n',
    "src/kernels/cpu/CMakeLists.txt": "levin_folder(kernels_cpu SOURCES cpu_a.c DEPS tensor) # "
    "not: DEPS cli\n",
    "src/kernels/cpu/cpu_a.c": '#include "kernels/kernels.h"\n#include <dnnl.h>\n',
    "src/data/CMakeLists.txt": "levin_folder(data\n    SOURCES data.c decode/jpeg.c\n    DEPS "
    "core tensor\n    LIBS PkgConfig::spng)\n",
    "src/data/data.c": '/* once #include "cli/x.h" stood here\n   and free( too */\n#include '
    '"tensor/tensor.h"\n',
    "src/data/decode/jpeg.c": '#include "tensor/tensor.h"\n#include <turbojpeg.h>\n',
}


def check(change, *options):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**GOOD, **change}.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        run = subprocess.run([TOOL, folder, *options], capture_output=True, text=True)
        return run.returncode, run.stdout.splitlines(), run.stderr


class CheckLayers(unittest.TestCase):
    def finds(self, change, *expected):
        status, lines, error = check(change)
        self.assertEqual(error, "")
        self.assertEqual(lines, list(expected))
        self.assertEqual(status, 1)

    def test_a_tree_in_order_passes(self):
        status, lines, error = check({})
        self.assertEqual(
            (status, lines, error),
            (0, ["check-layers: 9 files of src/ and 2 public headers in order"], ""),
        )

    def test_a_folder_may_not_include_one_above_it(self):
        self.finds(
            {"src/tensor/tensor.c": '\n#include "kernels/kernels.h"\n'},
            "src/tensor/tensor.c:2: tensor may not include kernels "
            "(kernels/kernels.h); it may: core",
        )

    def test_recipes(self):
        """A folder below src/recipes needs no row, is drawn as any other, and includes none."""
        made = {
            "src/recipes/CMakeLists.txt": "levin_folder(recipes SOURCES registry.c DEPS "
            "recipes_mine recipes_other)\n",
            "src/recipes/registry.c": '#include "recipes/mine/mine.h"\n',
            "src/recipes/mine/CMakeLists.txt": "levin_folder(recipes_mine SOURCES mine.c DEPS "
            "data)\n",
            "src/recipes/mine/mine.h": '#include "data/data.h"\n',
            "src/recipes/other/CMakeLists.txt": "levin_folder(recipes_other SOURCES other.c DEPS "
            "data)\n",
            "src/recipes/other/other.c": '#include "data/data.h"\n',
        }
        self.assertEqual(check(made)[0], 0, check(made)[1])
        self.finds(
            {**made, "src/recipes/other/other.c": '#include "recipes/mine/mine.h"\n'},
            "src/recipes/other/other.c:1: recipes/other may not include recipes/mine "
            "(recipes/mine/mine.h); it may: autograd ckpt control core data dist images kernels "
            "launch log nn ops optim plan report run slurm tensor trainer",
        )
        self.assertEqual(
            check(made, "--graph")[1][-2:], ["    recipes/* --> data", "    recipes --> recipes/*"]
        )

    def test_the_tour_shows_the_graph_of_the_folders(self):
        graph = "graph TD\n    kernels --> tensor\n    kernels/cpu --> kernels\n    data --> tensor"
        right = f"# Tour\n\n```mermaid\n{graph}\n```\n"
        self.assertEqual(check({"docs/tour.md": right})[0], 0)
        self.finds(
            {"docs/tour.md": right.replace("data --> tensor", "data --> kernels")},
            "docs/tour.md:1: the graph of the folders is another: tools/check-layers "
            "--graph prints it",
        )

    def test_siblings_do_not_include_each_other(self):
        self.finds(
            {"src/data/decode/jpeg.c": '#include "kernels/kernels.h"\n'},
            "src/data/decode/jpeg.c:1: data may not include kernels "
            "(kernels/kernels.h); it may: core plan tensor",
        )

    def test_a_public_header_counts_as_its_folder(self):
        self.finds(
            {"src/core/alloc.h": "#include <levin/tensor.h>\n"},
            "src/core/alloc.h:1: core may not include tensor (levin/tensor.h); it may: core",
        )

    def test_an_allowed_folder_must_be_named_in_deps(self):
        self.finds(
            {
                "src/data/CMakeLists.txt": "levin_folder(data SOURCES data.c DEPS core)\n",
                "src/data/decode/jpeg.c": "\n",
            },
            "src/data/data.c:3: tensor/tensor.h: the DEPS of src/data/CMakeLists.txt "
            "do not name tensor",
        )

    def test_deps_may_not_name_a_forbidden_folder(self):
        self.finds(
            {
                "src/data/CMakeLists.txt": "\nlevin_folder(data SOURCES data.c "
                "DEPS tensor kernels)\n"
            },
            "src/data/CMakeLists.txt:2: DEPS names kernels, which data may not use (it "
            "may: core plan tensor)",
        )

    def test_backends_are_linked_by_kernels_but_not_included(self):
        self.finds(
            {
                "src/kernels/cpu/cpu_a.h": "\n",
                "src/kernels/run.c": '#include "kernels/cpu/cpu_a.h"\n',
            },
            "src/kernels/run.c:1: kernels may not include kernels/cpu "
            "(kernels/cpu/cpu_a.h); it may: core tensor",
        )

    def test_a_public_header_keeps_to_three_system_headers(self):
        self.finds(
            {"include/levin/tensor.h": "#include <levin/status.h>\n#include <stdio.h>\n"},
            "include/levin/tensor.h:2: a public header includes only levin/* and "
            "stdbool.h, stddef.h, stdint.h, not stdio.h",
        )

    def test_a_public_header_includes_no_private_one(self):
        self.finds(
            {"include/levin/tensor.h": '#include "core/alloc.h"\n'},
            "include/levin/tensor.h:1: a public header includes no private one: core/alloc.h",
        )

    def test_onednn_stays_in_kernels_cpu(self):
        self.finds(
            {"src/tensor/tensor.c": "#include <dnnl.h>\n"},
            "src/tensor/tensor.c:1: dnnl.h belongs to kernels/cpu/ alone",
        )

    def test_file_names_are_unique(self):
        self.finds(
            {"src/data/run.c": "\n"},
            "src/kernels/run.c:1: the name run.c is taken by src/data/run.c: names are "
            "unique in src/",
        )

    def test_heap_memory_comes_from_core_alloc(self):
        self.finds(
            {"src/data/data.c": "\n\nchar *f(char *s) { return strdup(s); }\n"},
            "src/data/data.c:3: strdup(): heap memory comes from core/alloc.h alone",
        )

    def test_json_is_read_by_core_json_read(self):
        self.finds(
            {"src/data/data.c": "\njson_t *f(char *s) { return json_loads(s, 0, 0); }\n"},
            "src/data/data.c:2: JSON is read by core/json_read.h alone, which bounds its memory",
        )

    def test_a_file_of_901_lines_is_too_long(self):
        self.finds(
            {"src/data/data.c": "\n" * 901},
            "src/data/data.c:901: 901 lines, at most 900: do two ideas share this file?",
        )
        self.assertEqual(check({"src/data/data.c": "\n" * 900})[0], 0)

    def test_a_new_folder_needs_a_row(self):
        self.finds(
            {
                "src/misc/misc.c": "\n",
                "src/misc/CMakeLists.txt": "levin_folder(misc SOURCES misc.c)\n",
            },
            "src/misc/CMakeLists.txt:1: src/misc has no row in the table of "
            "tools/check-layers: give it one",
            "src/misc/misc.c:1: no folder of the table of tools/check-layers holds "
            "this file (None)",
        )


if __name__ == "__main__":
    unittest.main()
