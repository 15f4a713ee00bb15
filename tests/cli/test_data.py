"""levin data: projects of DeepLabCut made into ones of levin train pose, and what a project holds.

usage: test_data.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import subprocess
import unittest

from pose_case import read_table
from pose_project import DLC_CONFIG, dlc_table, write_project, write_recording
from pretrain_case import LEVIN, ApartCase, run_levin
from today import OfToday

HEADS = [
    ["scorer", *["me"] * 6],
    ["bodyparts", "tail", "tail", "nose", "nose", "ear", "ear"],
    ["coords", *["x", "y"] * 3],
]


def images(folder):
    """Of all recordings, with their bytes."""
    found = {}
    for recording in os.listdir(folder):
        for name in os.listdir(f"{folder}/{recording}"):
            if name.endswith(".png"):
                with open(f"{folder}/{recording}/{name}", "rb") as f:
                    found[recording, name] = f.read()
    return found


def cells(points):
    return [c for p in points for c in (["", ""] if p is None else [f"{p[0]:g}", f"{p[1]:g}"])]


class Dlc(ApartCase):
    def setUp(self):
        super().setUp()
        self.project = f"{self.dir}/dlc"
        self.points = {
            "a": write_recording(self.project, "a", ["nose", "ear", "tail"], n=5),
            "b": write_recording(
                self.project, "b", ["tail", "nose"], seed=1, three=True, form="\ufeff%s",
                ending="\r\n",
            ),
            "c": write_recording(
                self.project, "c", ["nose", "ear", "tail"], seed=2, three=True,
                individuals=["mouse", "mouse", "single"],
            ),
        }  # fmt: skip
        self.write("config.yaml", DLC_CONFIG)
        os.makedirs(f"{self.project}/labeled-data/c_labeled")
        os.makedirs(f"{self.project}/videos")

    def write(self, name, text):
        with open(f"{self.project}/{name}", "w", encoding="utf-8") as f:
            f.write(text)

    def rows(self, name, *rows):
        self.write(f"labeled-data/{name}/CollectedData_me.csv", "\n".join(map(",".join, rows)))

    def refused(self, *expected, arguments=("dlc", "out"), code=64):
        text = self.levin("data", "dlc", *arguments, code=code)
        for part in expected:
            self.assertIn(part, text)
        self.assertEqual([n for n in os.listdir(self.dir) if n.startswith("out")], [])

    def test_all_forms_of_labels_become_one_file(self):
        """Both path styles, an animal's row, a byte order mark, other orders, a recording without
        one of the body parts, frames without labels."""
        text = self.levin("data", "dlc", "dlc", "out")
        self.assertIn("out: 13 frames of 3 recordings with 3 keypoints, 0 videos", text)
        self.assertIn("1 recording without labels left out: c_labeled", text)
        self.assertIn("1 video of config.yaml not found: C:\\Users\\me\\reach\\videos", text)
        self.assertIn("config.yaml has 2 body parts, labels have more: the first is ear", text)
        self.assertIn("3 frames without any label", text)
        heads, rows = read_table(f"{self.dir}/out/CollectedData.csv", heads=3)
        self.assertEqual(heads, HEADS)
        expected = []
        for name, order in (("a", (2, 0, 1)), ("b", (0, 1, None)), ("c", (2, 0, 1))):
            for i, frame in enumerate(self.points[name]):
                found = [None if k is None else frame[k] for k in order]
                expected.append([f"labeled-data/{name}/img{i:03}.png", *cells(found)])
        self.assertEqual(rows, expected)
        self.assertEqual(len(images(f"{self.dir}/out/labeled-data")), 13)
        self.assertEqual(
            images(f"{self.dir}/out/labeled-data"), images(f"{self.project}/labeled-data")
        )

    def test_it_trains(self):
        self.levin("data", "dlc", "dlc", "out")
        self.rows_with_labels("out/CollectedData.csv")
        self.levin(
            "train", "pose", "config=out/config.yaml", "out=run", "max_steps=1", "quiet=true",
            "model.backbone=resnet18", "model.backbone_pretrained=false", "seed_data=1",
            "training.train_batch_size=2", "check_val_every_n_epoch=1",
        )  # fmt: skip
        with open(f"{self.dir}/out/config.yaml", encoding="ascii") as f:
            self.assertNotIn("model_name", f.read())
        rows = read_table(f"{self.dir}/run/predictions.csv", heads=3)[1]
        self.assertEqual(len(rows), 13)

    def rows_with_labels(self, name):
        """Whichever frame is to validate has one."""
        with open(f"{self.dir}/{name}", encoding="ascii") as f:
            text = f.read()
        with open(f"{self.dir}/{name}", "w", encoding="ascii") as f:
            f.write(text.replace("img000.png,,", "img000.png,9,9"))

    def test_links_and_videos(self):
        self.write("videos/x.mp4", "no video")
        self.write("videos/notes.txt", "no video either")
        elsewhere = f"{self.dir}/far.avi"
        shutil.copy(f"{self.project}/videos/x.mp4", elsewhere)
        named = "C:\\Users\\me\\reach\\videos\\long.avi"
        self.write("config.yaml", DLC_CONFIG.replace(named, elsewhere))
        text = self.levin("data", "dlc", "dlc", "out", "link=true")
        self.assertIn("2 videos, as links", text)
        self.assertNotIn("name of another", text)
        self.assertEqual(sorted(os.listdir(f"{self.dir}/out/videos")), ["far.avi", "x.mp4"])
        link = f"{self.dir}/out/labeled-data/a/img001.png"
        self.assertEqual(os.readlink(link), f"{self.project}/labeled-data/a/img001.png")
        other = f"{self.dir}/other/x.mp4"  # as each session has one
        os.mkdir(f"{self.dir}/other")
        with open(other, "w", encoding="ascii") as f:
            f.write("another one")
        self.write("config.yaml", DLC_CONFIG.replace(named, other))
        text = self.levin("data", "dlc", "dlc", "twins")
        self.assertIn(f"1 video of config.yaml left out, with the name of another: {other}", text)
        self.levin("data", "dlc", "dlc", "copy", "videos=false")
        self.assertEqual(os.listdir(f"{self.dir}/copy/videos"), [])
        self.assertFalse(os.path.islink(f"{self.dir}/copy/labeled-data/a/img001.png"))

    def test_several_animals_are_refused(self):
        parts = ["nose", "nose"]
        table = dlc_table("c", parts, [[(1, 2), (3, 4)]], individuals=["mouse1", "mouse2"])
        self.rows("c", *table)
        self.refused(
            "CollectedData_me.csv:2: the body part `nose` is that of several animals (`mouse1`, "
            "`mouse2`)"
        )
        table = dlc_table("c", ["nose", "ear"], [[(1, 2), (3, 4)]], individuals=["m1", "m2"])
        self.rows("c", *table)
        self.refused("CollectedData_me.csv:2: body parts of several animals (`m1`, `m2`)")

    def test_an_image_with_two_rows(self):
        table = dlc_table("b", ["tail", "nose"], [[(1, 2), (3, 4)]])
        self.rows("b", *table, [*table[3][:-1], "5"])
        text = self.levin("data", "dlc", "dlc", "out")
        self.assertIn("CollectedData_me.csv:5: the image img000.png has a row in line 4, too", text)

    def test_mistakes_have_their_place_in_the_file(self):
        table = dlc_table("b", ["tail", "nose"], [[(1, 2), (3, 4)]], three=True)
        table[3][6] = "x4"
        self.rows("b", *table)
        self.refused("CollectedData_me.csv:4, column 7 (nose, y): `x4` is not a number")
        table[3][6] = "400"
        self.rows("b", *table)
        self.refused("column 7 (nose, y): 400 lies outside of the frame img000.png")
        table[3][2] = "img9.png"
        self.rows("b", *table)
        self.refused("there is no image dlc/labeled-data/b/img9.png (1 of 1 images are missing)")

    def test_what_is_no_project(self):
        self.refused("nothing: there is no such folder", arguments=("nothing", "out"), code=1)
        os.makedirs(f"{self.dir}/empty")
        self.refused("empty has no folder labeled-data", arguments=("empty", "out"), code=1)
        os.makedirs(f"{self.dir}/empty/labeled-data")
        self.refused("labeled-data has no folder", arguments=("empty", "out"), code=1)
        self.refused("it is a file", arguments=("dlc/config.yaml", "out"), code=1)
        os.makedirs(f"{self.dir}/empty/labeled-data/a")
        self.refused("none of its 1 folder has labels", arguments=("empty", "out"), code=1)
        with open(f"{self.dir}/empty/labeled-data/a/CollectedData_me.h5", "wb"):
            pass
        self.refused("in an HDF5 file alone", "pandas.read_hdf", arguments=("empty", "out"))
        self.refused("the folder of the new project is missing", arguments=("dlc",))
        self.refused("does not take --force", arguments=("dlc", "out", "--force"))
        self.refused("videos `2`: expected true or false", arguments=("dlc", "out", "videos=2"))
        text = self.levin("data", "dlc", "dlc", "dlc", code=64)
        self.assertIn("the folder is not empty", text)

    def test_several_scorers(self):
        other = f"{self.project}/labeled-data/a/CollectedData_you.csv"
        with open(other, "w", encoding="ascii") as f:
            f.write("not read: config.yaml names me")
        self.levin("data", "dlc", "dlc", "one")
        self.write("config.yaml", DLC_CONFIG.replace("scorer: me", "scorer: other"))
        self.refused("labels of several scorers (CollectedData_me.csv, CollectedData_you.csv)")


class Check(ApartCase):
    def setUp(self):
        super().setUp()
        self.labels = write_project(f"{self.dir}/project")

    def check(self, *arguments, code=0, env=None):
        config = "config=project/config.yaml"
        return self.levin("data", "check", config, *arguments, code=code, env=env)

    def json(self, *arguments, code=0):
        text = self.check("json=true", *arguments, code=code)
        return json.loads(next(line for line in text.splitlines() if line.startswith("{")))

    def test_lines(self):
        text = self.check("data.mirrored_column_matches=[[0],[1]]")
        for line in (
            "12 frames, 3 keypoints, 35 points labelled, 1 missing in 1 frame\n",
            "sets: 6 train, 1 validation, 5 test",
            "ear_left         11        1\n",
            "frames: 120 x 100 (12)\n",
            "pca_singleview: 6 rows of training labels for 6 coordinates, enough\n",
            "pca_multiview: 6 rows of training labels for 4 coordinates, enough\n",
            "videos: 0\n",
            "memory: about ",
        ):
            self.assertIn(line, text)

    def test_json(self):
        found = self.json()
        self.assertEqual(
            found["keypoints"][1], {"name": "ear_left", "labelled": 11, "missing": 1}
        )
        self.assertEqual(found["sets"], {"train": 6, "validation": 1, "test": 5, "unused": 0})
        self.assertEqual(found["pca_singleview"], {"rows": 6, "coordinates": 6})
        self.assertIsNone(found["pca_multiview"])
        self.assertIsNone(found["refused"])
        plan = self.levin("plan", "train", "pose", "config=project/config.yaml")
        line = next(line for line in plan.splitlines() if line.startswith("memory: about "))
        self.assertIn(line, self.check())
        fewer = self.json("batch_size=1")
        self.assertLess(fewer["memory_bytes"], found["memory_bytes"])

    def test_memory_that_is_not_there(self):
        sim = {"LEVIN_SIM_DEVICES": "1", "LEVIN_SIM_MEMORY": "180MiB"}
        text = self.check("accelerator=sim", code=1, env=sim)
        self.assertIn("a smaller batch_size or data.image_resize_dims.height", text)

    def test_what_is_wrong_with_frames(self):
        """All of it, and then why the training does not begin."""
        folder = f"{self.dir}/project/labeled-data/CollectedData"
        os.remove(f"{folder}/img02.png")
        with open(f"{folder}/img05.png", "wb") as f:
            f.write(b"no image")
        path = f"{self.dir}/project/CollectedData.csv"
        with open(path, encoding="ascii") as f:
            rows = f.read().splitlines()
        rows[10] = ",".join([rows[10].split(",")[0], "500", *rows[10].split(",")[2:]])
        with open(path, "w", encoding="ascii") as f:
            f.write("\n".join(rows))
        found = self.json(code=64)
        self.assertEqual(len(found["problems"]), 3)
        self.assertIn("img02.png (1 of 12 images are missing)", found["problems"][0])
        self.assertIn("img05.png: neither a JPEG nor a PNG", found["problems"][1])
        self.assertIn("500 lies outside of the frame", found["problems"][2])
        self.assertIn("img02.png", found["refused"])
        self.assertEqual(found["sizes"], [{"width": 120, "height": 100, "frames": 10}])
        done = subprocess.run(
            f"'{LEVIN}' data check config=project/config.yaml 2>&1",
            shell=True, cwd=self.dir, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.assertEqual(done.returncode, 64)
        self.assertIn("problem: ", done.stdout[: done.stdout.index("error: ")])

    def test_what_a_training_would_omit(self):
        """Half of an image, and an image with two rows."""
        path = f"{self.dir}/project/labeled-data/CollectedData/img07.png"
        os.truncate(path, os.path.getsize(path) // 2)
        with open(f"{self.dir}/project/CollectedData.csv", "a+", encoding="ascii") as f:
            f.seek(0)
            f.write(f.read().splitlines()[-1] + "\n")
        found = self.json(code=1)["problems"]
        self.assertEqual(len(found), 2, found)
        self.assertIn("img11.png has a row in line 15, too (1 row too many", found[0])
        self.assertIn("img07.png: damaged PNG", found[1])

    def test_a_configuration_that_cannot_be_used(self):
        self.assertIn("config=FILE is missing", self.levin("data", "check", code=64))
        self.assertIn("batch_sizes", self.check("batch_sizes=2", code=64))
        found = self.json("data.num_keypoints=4", code=64)
        self.assertIn("data.num_keypoints 4: ", found["refused"])
        self.assertEqual(len(found["keypoints"]), 3)
        self.assertIn("there is no levin data show", self.levin("data", "show", code=64))

    def test_few_rows(self):
        text = self.check("training.train_frames=3")
        self.assertIn("3 rows of training labels for 6 coordinates, too few: label more", text)

    @unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
    def test_videos(self):
        video = f"{self.dir}/project/videos/a.mp4"
        source = "testsrc=size=64x48:rate=10"
        make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", source, "-t", "2"]
        subprocess.run([*make, "-pix_fmt", "yuv420p", video], check=True)
        done = run_levin(self.dir, "data", "check", "config=project/config.yaml")
        if "no levin_video.so" in done.stdout:
            self.skipTest("levin is built without videos")
        found = self.json()["videos"]
        self.assertEqual(
            [(v["codec"], v["width"], v["height"], v["rate"], v["frames"]) for v in found],
            [("h264", 64, 48, 10, 20)],
        )
        with open(video, "rb") as whole, open(f"{self.dir}/project/videos/b.mp4", "wb") as part:
            part.write(whole.read()[:900])
        text = self.check(code=1)
        self.assertIn("a.mp4: h264, 64 x 48, 10 frames/s, 20 frames\n", text)
        self.assertIn("b.mp4: the file's end is missing", text)
        os.remove(f"{self.dir}/project/videos/b.mp4")
        with open(video, "r+b") as f:  # its index is whole
            data = bytearray(f.read())
            at = data.index(b"mdat") + 4
            data[at : at + 900] = bytes(900)
            f.seek(0)
            f.write(data)
        self.assertIn(" cannot be decoded, the file is damaged there", self.check(code=1))


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
