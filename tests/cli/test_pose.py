"""levin train pose: from a Lightning Pose project to predictions of its frames.

Files of a run, rates of backbone and head, one hash on every layout with augmentation on, stopped
and resumed, predictions with another label file, overfitting, mistakes.

usage: test_pose.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import csv
import json
import math
import os
import shutil
import signal
import subprocess
import time
import unittest

from pose_case import NAMES, PoseCase, metrics, read_table, write_project
from pretrain_case import LEVIN
from today import OfToday

DATA = os.path.join(os.path.dirname(__file__), "../../../shared/data")
EXAMPLE = os.path.abspath(os.environ.get("LEVIN_TEST_DATA", DATA) + "/mirror-mouse-example")
MOUSE = """\
data:
  image_resize_dims: {{height: 128, width: 128}}
  data_dir: {project}
  video_dir: {project}/videos
  csv_file: CollectedData.csv
  num_keypoints: {k}
  keypoint_names: [{names}]
  mirrored_column_matches: [[0, 1, 2, 3, 4, 5, 6], [8, 9, 10, 11, 12, 13, 14]]
  columns_for_singleview_pca: [0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14]
training: {{train_prob: 0.8, val_prob: 0.1, min_epochs: 2, max_epochs: 2}}
model: {{backbone: resnet18, backbone_pretrained: false, model_type: heatmap}}
eval:
  predict_vids_after_training: true
  test_videos_directory: {project}/videos
"""


class Pose(PoseCase):
    def test_files_of_a_run(self):
        write_project(f"{self.dir}/project", n=4, missing=(), name="CollectedData_new.csv", seed=1)
        write_project(f"{self.dir}/project")
        text = self.train("out", "quiet=false")
        self.assertIn("12 frames with 3 keypoints: 6 train, 1 validate, 5 test", text)
        run = f"{self.dir}/out"
        for name in ("config.yaml", "CollectedData.csv", "train_status.json", "metrics.jsonl"):
            self.assertTrue(os.path.exists(f"{run}/{name}"), name)
        with open(f"{run}/train_status.json", encoding="ascii") as f:
            status = json.load(f)
        self.assertEqual(status["status"], "COMPLETED")
        self.assertEqual(status["progress"]["completed"], 2)
        heads, rows = read_table(f"{run}/predictions.csv", heads=3)
        self.assertEqual(heads[0], ["scorer"] + ["heatmap_tracker"] * 9 + ["set"])
        self.assertEqual(heads[1][1:-1], [n for n in NAMES for _ in range(3)])
        self.assertEqual(heads[2][1:-1], ["x", "y", "likelihood"] * 3)
        sets = [r[-1] for r in rows]
        self.assertEqual([sets.count(s) for s in ("train", "validation", "test")], [6, 1, 5])
        self.check_errors(run, rows)
        heads, rows = read_table(f"{run}/predictions_new.csv", heads=3)
        self.assertEqual((len(rows), heads[0][-1]), (4, "heatmap_tracker"))
        self.assertTrue(os.path.exists(f"{run}/predictions_pca_singleview_error.csv"))

    def check_errors(self, run, rows):
        """The pixel error is the distance to the label in the frame's pixels."""
        heads, errors = read_table(f"{run}/predictions_pixel_error.csv")
        self.assertEqual(heads[0], ["", *NAMES, "set"])
        self.assertEqual(errors[3][2], "")  # without a label
        for i, (row, error) in enumerate(zip(rows, errors)):
            self.assertEqual(row[0], error[0])
            for k, label in enumerate(self.labels[i]):
                if (i, k) != (3, 1):
                    at = [float(v) for v in row[1 + 3 * k : 3 + 3 * k]]
                    self.assertTrue(abs(math.dist(at, label) - float(error[1 + k])) < 0.02)

    def test_rates(self):
        """6 frames in batches of 2: three steps an epoch. The backbone begins in the second one
        with a tenth of the head's rate, which is halved in the third."""
        self.train("out", "training.max_epochs=4", "training.min_epochs=4")
        run = f"{self.dir}/out"
        head = [v for _, v in metrics(run, "lr")]
        backbone = [v for _, v in metrics(run, "lr/backbone")]
        self.assertEqual(head, [1e-3] * 6 + [5e-4] * 6)
        expected = [0.0] * 3 + [1e-4] * 3 + [1.5e-4] * 3 + [2.25e-4] * 3
        for found, right in zip(backbone, expected, strict=True):
            self.assertAlmostEqual(found, right, delta=1e-12)
        for name in ("supervised_loss", "supervised_rmse", "heatmap_mse_loss_weighted"):
            self.assertEqual(len(metrics(run, f"val/{name}")), 4, name)

    def test_the_backbone_waits(self):
        self.train("one", "training.max_epochs=1", "training.unfreezing_epoch=9")
        self.train("two", "training.unfreezing_epoch=9")
        names = self.changed("one", "two")
        self.assertEqual({n.split(".")[0] for n in names}, {"model/head"})

    def test_every_layout_has_the_same_bits(self):
        same = ["micro_batches=2", "wgrad_threads=1"]
        one = self.hash_of("one", *same)
        self.assertEqual(self.hash_of("two", *same, "devices=2"), one)
        self.assertEqual(self.hash_of("dp", *same, "devices=2", "strategy=dp"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        self.assertEqual(self.hash_of("sim", *same, "accelerator=sim", "devices=2", env=sim), one)
        self.assertNotEqual(self.hash_of("seed", *same, "training.rng_seed_data_pt=5"), one)

    def test_killed_and_resumed(self):
        more = ["training.max_epochs=4", "training.min_epochs=4", "wgrad_threads=1"]
        one = self.hash_of("one", *more)
        run = f"{self.dir}/two"
        arguments = [
            "train",
            "pose",
            *self.small,
            f"out={run}",
            "checkpoint.every_n_steps=2",
            *more,
        ]
        with subprocess.Popen([LEVIN, *arguments], cwd=self.dir) as p:
            end = time.monotonic() + 100
            while len(metrics(run, "lr")) < 5 if os.path.exists(f"{run}/metrics.jsonl") else True:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            p.send_signal(signal.SIGKILL)
        self.assertFalse(os.path.exists(f"{run}/predictions.csv"))
        self.assertEqual(self.hash_of("two", "resume=true", *more), one)

    def test_resumed_with_other_labels(self):
        """Those of then go on; others are reported, and refused where data_changed has it."""
        self.train("out", "training.max_epochs=1", "training.min_epochs=1")
        resume = ["resume=true", "training.max_epochs=2", "data_changed=error"]
        path = f"{self.dir}/project/CollectedData.csv"
        with open(path, encoding="ascii", newline="") as f:
            text = f.read()
        label = text.splitlines()[3].split(",")[1]
        with open(path, "w", encoding="ascii", newline="") as f:
            f.write(text.replace(f",{label},", ",50.0,", 1))
        arguments = ["train", "pose", *self.small, "out=out", *resume]
        self.assertIn("or other labels, than when", self.levin(*arguments, code=64))
        with open(path, "w", encoding="ascii", newline="") as f:
            f.write(text)
        self.train("out", *resume)

    def test_evaluation_is_made_up_for(self):
        """A run that ended and has no predictions writes them when it is resumed."""
        one = self.hash_of("out")
        os.remove(f"{self.dir}/out/predictions.csv")
        self.assertEqual(self.hash_of("out", "resume=true"), one)

    def test_a_frame_that_cannot_be_read(self):
        """Its row stays, with empty cells, at the training's end and later."""
        name = "labeled-data/CollectedData/img05.png"
        with open(f"{self.dir}/project/{name}", "r+b") as f:
            f.truncate(80)
        text = self.train("out", "max_steps=1")
        self.assertIn("1 unreadable sample left out", text)
        again = self.levin("predict", "pose", "model=out", "data=project/CollectedData.csv")
        self.assertIn(name, again)
        for place in ("predictions", "image_preds/CollectedData.csv/predictions"):
            for end, heads in ((".csv", 3), ("_pixel_error.csv", 1)):
                rows = read_table(f"{self.dir}/out/{place}{end}", heads)[1]
                self.assertEqual([r[0] for r in rows if set(r[1:-1]) == {""}], [name])
                self.assertEqual(len(rows), 12)
        os.remove(f"{self.dir}/out/predictions.csv")
        self.train("out", "max_steps=1", "resume=true")
        self.assertTrue(os.path.exists(f"{self.dir}/out/predictions.csv"))

    def test_other_label_files(self):
        """Keypoints go by their names; what does not fit the model is named."""
        self.train("out", "max_steps=1")
        head, rows = read_table(f"{self.dir}/project/CollectedData.csv", heads=3)

        def write(name, columns, keep=lambda cells: cells):
            with open(f"{self.dir}/{name}", "w", encoding="ascii", newline="") as f:
                table = [[r[0], *(r[c] for c in columns)] for r in head]
                table += [[r[0], *keep([r[c] for c in columns])] for r in rows]
                csv.writer(f).writerows(table)

        write("turned.csv", [5, 6, 1, 2, 3, 4])
        write("two.csv", [1, 2, 3, 4])
        write("without.csv", range(1, 7), lambda cells: [""] * 6)
        use = ["pose", "model=out", "data_dir=project"]
        self.levin("predict", *use, "data=turned.csv")
        for end, heads in ((".csv", 3), ("_pixel_error.csv", 1)):
            one = read_table(f"{self.dir}/out/predictions{end}", heads)
            other = read_table(f"{self.dir}/out/image_preds/turned.csv/predictions{end}", heads)
            self.assertEqual(other, one)
        self.assertEqual(
            self.levin("eval", *use, "data=turned.csv"),
            self.levin("eval", *use, "data=project/CollectedData.csv"),
        )
        text = self.levin("eval", *use, "data=without.csv", code=64)
        self.assertIn("data=without.csv has no labels to measure against", text)
        text = self.levin("predict", *use, "data=two.csv", code=64)
        self.assertIn("the model has 3 keypoints (`nose` to `ear_right`), two.csv 2", text)
        head[1] = [n.replace("nose", "tail") for n in head[1]]
        write("tail.csv", range(1, 7))
        self.assertIn("no keypoint `nose`", self.levin("predict", *use, "data=tail.csv", code=64))
        text = self.levin("report", "out", "data=turned.csv", code=64)
        self.assertIn("levin predict pose model=RUN", text)

    def test_predict(self):
        """Of another file, without the training's data."""
        self.train("out")
        other = f"{self.dir}/other"
        write_project(other, n=5, missing=(), name="more.csv", seed=3)
        shutil.rmtree(f"{self.dir}/project")
        arguments = ["predict", "pose", "model=out", f"data={other}/more.csv"]
        self.levin(*arguments)
        place = f"{self.dir}/out/image_preds/more.csv/predictions"
        first = read_table(f"{place}.csv", heads=3)
        self.assertEqual(len(first[1]), 5)
        self.assertEqual(len(read_table(f"{place}_pixel_error.csv")[1]), 5)
        self.assertIn("overwrite=true", self.levin(*arguments))
        os.remove(f"{place}.csv")
        self.levin(*arguments, "devices=2", "eval_batch_size=2")
        self.assertEqual(read_table(f"{place}.csv", heads=3), first)

    def test_precisions_of_predictions(self):
        """Other numbers, which differ by rounding, and the same ones on any ranks."""
        self.train("out", "max_steps=1")
        predict = ["predict", "pose", "model=out", "data=project/CollectedData.csv"]
        self.levin(*predict, "output=f32.csv")
        _, rows = read_table(f"{self.dir}/f32.csv", heads=3)
        whole = [[float(v) for v in row[1:-1]] for row in rows]
        for name in ("fp16", "bf16"):
            low = [*predict, f"precision={name}"]
            done = subprocess.run(
                [LEVIN, *low, f"output={name}.csv"], cwd=self.dir, capture_output=True, text=True
            )
            if name == "bf16" and "has no bf16 products" in done.stderr:
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            _, rows = read_table(f"{self.dir}/{name}.csv", heads=3)
            found = [[float(v) for v in row[1:-1]] for row in rows]
            self.assertNotEqual(found, whole)
            most = max(abs(a - b) for f, w in zip(found, whole) for a, b in zip(f, w))
            self.assertLess(most, 0.2)
            self.levin(*low, f"output=2{name}.csv", "devices=2", "eval_batch_size=5")
            self.assertEqual(read_table(f"{self.dir}/2{name}.csv", heads=3)[1], rows)
        self.levin(*predict, "output=auto.csv", "precision=auto", "accelerator=cpu")
        self.assertEqual(
            read_table(f"{self.dir}/auto.csv", heads=3), read_table(f"{self.dir}/f32.csv", heads=3)
        )

    @unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
    def test_videos(self):
        """Those of the project at the end, one that is cut off reported; the same bytes for any
        number of ranks and chunks."""
        images = f"{self.dir}/project/labeled-data/CollectedData/img%02d.png"
        videos = f"{self.dir}/project/videos"
        make = ["ffmpeg", "-v", "error", "-i", images, "-pix_fmt", "yuv420p", f"{videos}/a.mp4"]
        subprocess.run(make, check=True)
        with open(f"{videos}/a.mp4", "rb") as whole, open(f"{videos}/b.mp4", "wb") as part:
            part.write(whole.read()[:1000])
        text = self.train("out", "eval.predict_vids_after_training=true", "max_steps=1")
        self.assertIn("no predictions of this video", text)
        self.assertIn("b.mp4", text)
        place = f"{self.dir}/out/video_preds/a"
        heads, rows = read_table(f"{place}.csv", heads=3)
        self.assertEqual([r[0] for r in rows], [str(i) for i in range(12)])
        self.assertEqual(heads[2][-1], "likelihood")
        moved = read_table(f"{place}_temporal_norm.csv")[1]
        self.assertEqual(moved[0][1:], ["", "", ""])
        at = [[float(v) for v in row[1:3]] for row in rows]
        self.assertAlmostEqual(math.dist(at[4], at[3]), float(moved[4][1]), delta=1e-4)
        self.levin(
            "predict", "pose", "model=out", "data=project/videos/a.mp4", "output=again.csv",
            "devices=2", "eval_batch_size=5",
        )  # fmt: skip
        self.assertEqual(read_table(f"{self.dir}/again.csv", heads=3)[1], rows)

    @unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
    def test_a_video_with_a_damaged_frame(self):
        """Its row is empty, the others are those of the whole video, on any layout."""
        images = f"{self.dir}/project/labeled-data/CollectedData/img%02d.png"
        whole = f"{self.dir}/whole.mov"
        subprocess.run(["ffmpeg", "-v", "error", "-i", images, "-c:v", "png", whole], check=True)
        with open(whole, "rb") as f:
            bytes_of = f.read()
        frames = bytes_of.split(b"\x89PNG")
        self.assertEqual(len(frames), 1 + 12)
        frames[1 + 6] = bytes(len(frames[1 + 6]))
        with open(f"{self.dir}/damaged.mov", "wb") as f:
            f.write(b"\x89PNG".join(frames))
        self.train("out", "max_steps=1")
        rows = {}
        for name, *more in (
            ("whole",),
            ("damaged",),
            ("damaged", "devices=2", "eval_batch_size=5"),
        ):
            text = self.levin(
                "predict", "pose", "model=out", f"data={name}.mov", "overwrite=true", *more
            )
            if name == "damaged":
                self.assertIn("1 unreadable sample left out", text)
            place = f"{self.dir}/out/video_preds/{name}"
            rows[name, *more] = read_table(f"{place}.csv", heads=3)[1]
            moved = read_table(f"{place}_temporal_norm.csv")[1]
            empty = [i for i, row in enumerate(moved) if row[1] == ""]
            self.assertEqual(empty, [0] if name == "whole" else [0, 6, 7])
        expected = rows.pop(("whole",))
        expected[6] = ["6", *[""] * 9]
        for found in rows.values():
            self.assertEqual(found, expected)

    @unittest.skipUnless(
        os.environ.get("LEVIN_TEST_SLOW", "0") not in ("", "0"), "a minute: LEVIN_TEST_SLOW=1"
    )
    def test_it_learns(self):
        """Eight frames, without augmentation, 300 steps: their own keypoints are found."""
        write_project(f"{self.dir}/few", n=9, missing=())
        self.small = ["config=few/config.yaml", "quiet=true"]
        self.train(
            "out", "training.imgaug=default", "training.train_batch_size=8",
            "training.train_prob=0.9", "training.max_epochs=300", "training.min_epochs=300",
            "training.check_val_every_n_epoch=100", "training.unfreezing_epoch=20",
            "training.lr_scheduler_params.multisteplr.milestones=[150,200,250]",
        )  # fmt: skip
        errors = read_table(f"{self.dir}/out/predictions_pixel_error.csv")[1]
        found = [float(v) for row in errors if row[-1] == "train" for v in row[1:-1]]
        self.assertEqual(len(found), 8 * 3)
        self.assertLess(sum(found) / len(found), 3)

    @unittest.skipUnless(
        os.environ.get("LEVIN_TEST_SLOW", "0") not in ("", "0"), "a minute: LEVIN_TEST_SLOW=1"
    )
    @unittest.skipUnless(os.path.isdir(EXAMPLE), f"there is no {EXAMPLE} (LEVIN_TEST_DATA)")
    def test_the_example(self):
        """Rows 49 and 50: all files of two epochs of the example of a mouse, and their rows."""
        with open(f"{EXAMPLE}/CollectedData.csv", encoding="utf-8", newline="") as f:
            labels = list(csv.reader(f))
        names = list(dict.fromkeys(labels[1][1:]))
        self.small = ["config=mouse.yaml", "quiet=true"]
        with open(f"{self.dir}/mouse.yaml", "w", encoding="utf-8") as f:
            f.write(MOUSE.format(project=EXAMPLE, k=len(names), names=", ".join(names)))
        self.train("out")
        run = f"{self.dir}/out"
        for name in ("config.yaml", "CollectedData.csv", "train_status.json", "checkpoints"):
            self.assertTrue(os.path.exists(f"{run}/{name}"), name)
        for name in ("", "_pixel_error", "_pca_singleview_error", "_pca_multiview_error"):
            lines = read_table(f"{run}/predictions{name}.csv", heads=1 if name else 3)[1]
            self.assertEqual(len(lines), 90, name)
        heads, rows = read_table(f"{run}/predictions.csv", heads=3)
        self.assertEqual([len(r) for r in heads + rows], [1 + 3 * len(names) + 1] * 93)
        self.assertEqual([r[0] for r in rows], [r[0] for r in labels[3:]])
        sets = [r[-1] for r in rows]
        self.assertEqual([sets.count(s) for s in ("train", "validation", "test")], [72, 9, 9])
        heads, rows = read_table(f"{run}/video_preds/test_vid.csv", heads=3)
        self.assertEqual((heads[1][1:], len(rows)), ([n for n in names for _ in range(3)], 994))
        for name in ("temporal_norm", "pca_singleview_error", "pca_multiview_error"):
            self.assertEqual(len(read_table(f"{run}/video_preds/test_vid_{name}.csv")[1]), 994)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
