"""levin report of a pretraining: a map of features and nearest neighbours.

Both are what Python finds in the features that `predict embed` writes; data that has moved, images
that cannot be read and a missing LAPACK cost a part of the page, with a sentence in its place.

usage: test_pretrain_page.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import csv
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from html import unescape

from patterns import draw_patterns
from rank_processes import drop_identity

LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()
TRAIN = (
    "pretrain data=photos model=cnn transform_args.image_size=12 method_args.hidden_dim=32"
    " method_args.output_dim=16 batch_size=16 max_epochs=1 knn.data=photos wgrad_threads=1"
    " num_workers=1 quiet=true report=true out=run"
).split()
STRANGE = "<i>&amp;"  # the name of a folder, which no page may take for its own text


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def components(rows):
    """Coordinates along the first two principal components, and their parts of the variance, by
    power iteration on the products of centred rows."""
    mean = [sum(c) / len(c) for c in zip(*rows)]
    rows = [[x - m for x, m in zip(r, mean)] for r in rows]
    products = [[dot(a, b) for b in rows] for a in rows]
    whole, found = sum(products[i][i] for i in range(len(rows))), []
    for k in range(2):
        v = [math.sin(i + k + 1) for i in range(len(rows))]
        for _ in range(300):
            v = [dot(p, v) for p in products]
            length = math.sqrt(dot(v, v))
            v = [x / length for x in v]
        value = dot(v, [dot(p, v) for p in products])
        found.append(([math.sqrt(value) * x for x in v], value / whole))
        products = [[x - value * a * b for x, b in zip(row, v)] for row, a in zip(products, v)]
    return found


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="levin-page-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        cls.photos = os.path.join(cls.dir, "photos")
        draw_patterns(cls.photos, 12)
        first = sorted(os.listdir(cls.photos))[0]
        os.rename(f"{cls.photos}/{first}", f"{cls.photos}/{STRANGE}")
        cls.levin(*TRAIN)

    @classmethod
    def levin(cls, *arguments, code=0, env=None):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=cls.dir, capture_output=True, text=True, timeout=200,
            env=dict(os.environ, **(env or {})),
        )  # fmt: skip
        assert done.returncode == code, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def page(self, *arguments, **how):
        self.levin("report", "run", *arguments, **how)
        with open(f"{self.dir}/run/report.html", encoding="utf-8") as f:
            return f.read()

    def has(self, page, pattern):
        self.assertTrue(re.search(pattern, page), pattern)  # without the page

    def features(self):
        """Names with their folder, and rows of length 1."""
        self.levin("predict", "embed", "model=run", "data=photos", "output=features.csv")
        with open(f"{self.dir}/features.csv", encoding="utf-8") as f:
            rows = list(csv.reader(f))[1:]
        values = [[float(v) for v in row[1:]] for row in rows]
        lengths = [math.sqrt(dot(v, v)) for v in values]
        return [row[0].rsplit("/", 2)[-2:] for row in rows], [
            [x / n for x in v] for v, n in zip(values, lengths)
        ]

    def test_neighbours_and_map(self):
        with open(f"{self.dir}/run/report.html", encoding="utf-8") as f:
            self.has(f.read(), re.escape("levin report RUN adds a map"))  # of report=true
        names, rows = self.features()
        page = self.page()
        self.has(page, re.escape(f"{len(rows)} of the {len(rows)} images of "))
        self.has(page, re.escape("val/effective_rank"))
        self.has(page, re.escape("feature_std"))
        # the map
        points = re.findall(r"<title>(.*?) \((\S+), (\S+)\)</title>", page)
        self.assertEqual([unescape(p[0]) for p in points], [name for _, name in names])
        for k, (want, part) in enumerate(components(rows)):
            have = [float(p[k + 1]) for p in points]
            sign = 1 if dot(have, want) > 0 else -1
            for a, b in zip(have, want):
                self.assertAlmostEqual(a, sign * b, 3)
            self.has(page, re.escape(f"component {k + 1}: {100 * part:.0f} % of the variance"))
        # neighbours
        blocks = page.split("<div class=")[1:]
        blocks = [b for b in blocks if b.startswith(("near", '"near'))]
        self.assertEqual(len(blocks), 8)
        same = 0
        near = [
            sorted(((dot(a, b), -j) for j, b in enumerate(rows) if j != i), reverse=True)
            for i, a in enumerate(rows)
        ]
        for r, block in enumerate(blocks):
            of = r * len(rows) // 8
            seen = re.findall(
                r"<figcaption>([\d.-]* ?)(.*?)<br><span class=soft>(.*?)</span>", block
            )
            self.assertEqual(block.count("data:image/png;base64,iVBOR"), 7)
            self.assertEqual([unescape(t) for t in seen[0]], ["", *names[of]])
            for (cosine, j), (shown, folder, name) in zip(near[of], seen[1:]):
                self.assertAlmostEqual(float(shown), cosine, 2)
                if abs(cosine - near[of][0][0]) < 1e-5:
                    continue  # equal, except for rounding
                self.assertAlmostEqual(dot(rows[of], rows[-j]), float(shown), 2)
        same = sum(names[-n[0][1]][0] == name[0] for n, name in zip(near, names))
        self.has(
            page, re.escape(f"of the same folder for {100 * same / len(rows):.0f} % of the images")
        )
        # a folder's name is text
        self.assertFalse("<i>" in page, "<i>")
        self.has(page, re.escape("&lt;i&gt;&amp;amp;"))

    def test_what_is_missing(self):
        os.rename(self.photos, self.photos + "2")
        try:
            page = self.page()
            self.has(page, "<p class=soft>They are missing: data=.*photos")
            self.has(page, re.escape("Curves"))
            self.assertFalse("class=near" in page, "class=near")
            page = self.page("data=photos2")
            self.has(page, re.escape("data:image/png"))
            text = self.levin("report", "run", "data=nothere", code=64)
            self.assertIn("data=nothere", text)
            text = self.levin("report", "run", "k=3", code=64)
            self.assertIn("unknown key `k`", text)
        finally:
            os.rename(self.photos + "2", self.photos)
        few = os.path.join(self.dir, "few")
        shutil.copytree(f"{self.photos}/{STRANGE}", few)
        for name in sorted(os.listdir(few))[2:]:
            with open(os.path.join(few, name), "wb") as f:
                f.write(b"\x89PNG\r\n\x1a\n")
        page = self.page("data=few")
        self.has(page, re.escape("2 of the 12 images of few"))
        self.has(page, re.escape("Neighbours and a map take three images."))
        open(f"{self.dir}/liblapacke.so.3", "wb").close()
        page = self.page(env={"LD_LIBRARY_PATH": self.dir})
        self.has(page, "<p class=soft>It is missing: .*LAPACK")
        self.assertEqual(page.count("class=near") + page.count('class="near'), 8)
        grey = ["transform_args.num_channels=1", "max_epochs=0", "out=grey"]
        self.levin(*TRAIN[:-1], *grey)  # an image of one channel is grey on the page
        self.levin("report", "grey", "output=grey.html")
        with open(f"{self.dir}/grey.html", encoding="utf-8") as f:
            self.assertEqual(f.read().count("data:image/png;base64,iVBOR"), 56)
        shutil.move(f"{self.dir}/run/exported_models", f"{self.dir}/kept")
        shutil.move(f"{self.dir}/run/checkpoints", f"{self.dir}/kept2")
        try:
            self.has(self.page(), re.escape("They are missing: "))
        finally:
            shutil.move(f"{self.dir}/kept", f"{self.dir}/run/exported_models")
            shutil.move(f"{self.dir}/kept2", f"{self.dir}/run/checkpoints")


if __name__ == "__main__":
    unittest.main()
