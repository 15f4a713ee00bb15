"""tools/check-names and tools/check-words on small trees: one in order, and one per mistake they
have to name."""

import subprocess
import tempfile
import unittest
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[3] / "tools"

GOOD = """/* not: int other(void); */
#ifndef LEVIN_DIST_RING_H
#define LEVIN_DIST_RING_H
enum { LVNI_RING_MAX = 4, LVNI_RING_MIN };
#define LVNI_RING_HALF (LVNI_RING_MAX / 2)
typedef struct lvni_dist_ring lvni_dist_ring;
typedef struct lvni_dist_slot {
    int taken;
    void (*free)(void *slot);
} lvni_dist_slot;
typedef int (*lvni_dist_next_fn)(const lvni_dist_ring *ring);
extern const int lvni_dist_rings;
lvni_dist_ring *lvni_dist_ring_create(int n, void (*done)(void *user),
                                      void *user);
int lvni_shm_ring_fd(void); /* defined in src/dist/shm */
static inline int lvni_dist_ring_next(int i)
{
    return abs(i) + 1;
}
#endif
"""


def check(tool, files):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        if tool == "check-words":
            subprocess.run(["git", "init", "-q", folder], check=True)
            subprocess.run(["git", "-C", folder, "add", "-A"], check=True)
        run = subprocess.run([TOOLS / tool, folder], capture_output=True, text=True)
        return run.returncode, run.stdout.splitlines()[:-1], run.stderr


class CheckNames(unittest.TestCase):
    def finds(self, change, *expected):
        text = GOOD
        for old, new in change.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        files = {"src/dist/ring.h": text, "src/dist/shm/shm.c": "\n"}
        found = check("check-names", files)
        self.assertEqual(found, (1 if expected else 0, list(expected), ""))

    def test_a_header_in_order_passes(self):
        self.finds({})

    def test_functions_types_and_objects_start_with_their_folder(self):
        for name, line in (
            ("lvni_dist_ring_create", 13),
            ("lvni_dist_slot", 10),
            ("lvni_dist_next_fn", 11),
            ("lvni_dist_rings", 12),
            ("lvni_dist_ring_next", 16),
        ):
            other = name.replace("lvni_dist_", "lvni_")
            finding = f"src/dist/ring.h:{line}: {other} does not start with lvni_dist_"
            if name == "lvni_dist_slot":
                text = GOOD.replace("typedef struct lvni_dist_slot {", "typedef struct {")
                files = {"src/dist/ring.h": text.replace(name, other), "src/dist/shm/a.c": "\n"}
                self.assertEqual(check("check-names", files), (1, [finding], ""))
            else:
                self.finds(
                    {
                        f"{name}(" if f"{name}(" in GOOD else name: (
                            f"{other}(" if f"{name}(" in GOOD else other
                        )
                    },
                    finding,
                )

    def test_constants_macros_and_guards(self):
        self.finds(
            {"LVNI_RING_MIN": "RING_MIN"},
            "src/dist/ring.h:4: enumerator RING_MIN does not start with LVNI_",
        )
        self.finds(
            {"LVNI_RING_HALF": "RING_HALF"},
            "src/dist/ring.h:5: macro RING_HALF does not start with LVNI_",
        )
        self.finds(
            {"LEVIN_DIST_RING_H": "LEVIN_RING_H"},
            "src/dist/ring.h:3: guard LEVIN_RING_H, its path makes it LEVIN_DIST_RING_H",
        )

    def test_a_name_has_one_meaning(self):
        files = {
            "src/dist/ring.h": GOOD,
            "src/dist/shm/shm_ring.h": "int lvni_shm_ring_fd(void);\n",
        }
        finding = "src/dist/shm/shm_ring.h:1: lvni_shm_ring_fd is declared in src/dist/ring.h too"
        self.assertEqual(check("check-names", files), (1, [finding], ""))


class CheckWords(unittest.TestCase):
    def test_words_in_prose_identifiers_and_file_names(self):
        found = check(
            "check-words",
            {
                "a.c": "/* There is no rank; untold shadings. */\nint is_to" + "ld;\n",
                "b.md": "Som" + "ebody reads.\nx is" + " no number\n",
                "pic" + "ture.h": "int x;\n",
                "tests/fuzz/corpus/x": "pic" + "ture\n",
            },
        )
        where = [":".join(line.split(":")[:2]) for line in found[1]]
        self.assertEqual((found[0], where), (1, ["a.c:2", "b.md:1", "b.md:2", "pic" + "ture.h:0"]))

    def test_a_clean_tree_passes(self):
        self.assertEqual(check("check-words", {"a.c": "int image;\n"}), (0, [], ""))


if __name__ == "__main__":
    unittest.main()
