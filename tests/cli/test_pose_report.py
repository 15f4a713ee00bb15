"""levin report of a run of pose: errors by keypoint, the worst frames drawn, traces of videos;
while it trains, without its images, and with many videos.

usage: test_pose_report.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import csv
import os
import shutil
import time
import unittest

from pose_case import NAMES, PoseCase, read_table
from test_report import Page
from today import OfToday


def write_video(path, frames, jump=None):
    """Points that drift, the nose 50 pixels aside in frame `jump`; a cell is empty."""
    with open(path, "w", encoding="ascii", newline="") as f:
        out = csv.writer(f)
        out.writerow(["scorer"] + ["me"] * 9)
        out.writerow(["bodyparts"] + [n for n in NAMES for _ in "xyl"])
        out.writerow(["coords"] + ["x", "y", "likelihood"] * 3)
        for i in range(frames):
            cells = []
            for k in range(3):
                aside = 50 if i == jump and k == 0 else 0
                cells += [10 + 0.01 * i + aside, 20, "" if (i, k) == (3, 1) else 0.75]
            out.writerow([i, *cells])


class PoseReport(PoseCase):
    def page(self, run="out"):
        self.levin("report", run)
        with open(f"{self.dir}/{run}/report.html", encoding="utf-8") as f:
            text = f.read()
        page = Page(text)
        self.assertEqual([a for a in page.addresses if not a.startswith("data:")], [])
        self.assertNotIn("script", page.names)
        return page, text

    def cells(self, page, first):
        """What stands in the row of a table that begins so."""
        at = page.texts.index(first)
        return [t for t in page.texts[at + 1 : at + 12] if t.strip()]

    def test_a_run(self):
        self.train("out", "report=true", "data.image_orig_dims={height: 100, width: 120}")
        with open(f"{self.dir}/out/report.html", encoding="utf-8") as f:
            written = f.read()
        page, text = self.page()
        self.assertEqual(text, written)
        # the mean error of a keypoint is that of the table of errors
        head, rows = read_table(f"{self.dir}/out/predictions_pixel_error.csv")
        at = head[0].index("nose")
        train = [float(r[at]) for r in rows if r[-1] == "train"]
        row = self.cells(page, "nose")
        self.assertEqual(row[0], f"{sum(train) / len(train):.2f}")
        self.assertTrue(page.has('{"height":100,"width":120}'))
        self.assertTrue(any(t.startswith("done after ") for t in page.texts))
        # of 12 frames the worst 8, each with its image, and what is drawn over it
        self.assertTrue(page.has("Worst frames"))
        self.assertEqual(page.names.count("image"), 8)
        self.assertEqual(text.count("<circle class=f "), 24 - text.count(": no label<"))
        worst = max(
            (sum(float(c) for c in r[1:-1] if c) / sum(c != "" for c in r[1:-1]), r[0])
            for r in rows
        )
        self.assertIn(f"{worst[0]:.1f} pixels, ", text)
        self.assertIn(os.path.basename(worst[1]), text[text.index("Worst frames") :])
        self.assertTrue(page.has("error against confidence"))
        self.assertFalse(page.has("Videos"))
        # without the project: the same numbers, and no images
        shutil.move(f"{self.dir}/project", f"{self.dir}/away")
        page, _ = self.page()
        self.assertEqual(self.cells(page, "nose"), row)
        self.assertEqual(page.names.count("image"), 0)
        self.assertTrue(page.has("Without its image: "))
        # what is not there yet, or cannot be read
        os.rename(f"{self.dir}/out/predictions.csv", f"{self.dir}/kept.csv")
        self.assertTrue(self.page()[0].has("There is no predictions.csv yet"))
        shutil.copy(f"{self.dir}/out/config.yaml", f"{self.dir}/out/predictions.csv")
        self.assertTrue(self.page()[0].has("Errors are missing: "))

    def test_videos(self):
        folder = f"{self.dir}/out/video_preds"
        os.makedirs(folder)
        with open(f"{self.dir}/out/config.yaml", "w", encoding="ascii") as f:
            f.write("recipe: pose\n")
        write_video(f"{folder}/session_a.csv", 300)
        write_video(f"{folder}/session_b.csv", 400, jump=100)
        with open(f"{folder}/session_b_temporal_norm.csv", "w", encoding="ascii") as f:
            f.write(",nose\n")
        page, text = self.page()
        self.assertIn("more than 20 pixels from one frame to the next (losses.temporal.epsilon).",
                      text)  # fmt: skip
        with open(f"{self.dir}/out/config.yaml", "a", encoding="ascii") as f:
            f.write("losses.temporal.epsilon: [0.0]\n")
        self.assertIn("the next (losses.temporal.epsilon is 0).", self.page()[1])
        with open(f"{self.dir}/out/config.yaml", "w", encoding="ascii") as f:
            f.write("recipe: pose\nlosses.temporal.epsilon: [30.0, 0.0, 30.0]\n")
        page, text = self.page()
        self.assertIn("has for the keypoint, or than 20 where that is 0.", text)
        self.assertEqual(self.cells(page, "session_b")[:4], ["400", "0.75", "0.0 %", "2"])
        self.assertEqual(self.cells(page, "session_a")[:4], ["300", "0.75", "0.0 %", "0"])
        self.assertLess(text.index("<h3>session_b</h3>"), text.index("<h3>session_a</h3>"))
        self.assertIn("2 jumps", text)
        self.assertFalse(page.has("session_b_temporal_norm"))
        for i in range(300):
            shutil.copy(f"{folder}/session_a.csv", f"{folder}/v{i:03}.csv")
        begin = time.monotonic()
        page, text = self.page()
        self.assertLess(time.monotonic() - begin, 20)
        self.assertTrue(page.has("Of 302 videos 100 are shown"))
        self.assertEqual(text.count("<h3>v"), 1)
        self.assertLess(len(text), 1 << 21)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
