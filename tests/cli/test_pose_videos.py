"""levin predict pose of videos: with the network of five frames (heatmap_mhcrnn), whose rows must
depend on nothing but the five frames; all videos of a folder, one of which is damaged.

usage: test_pose_videos.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import filecmp
import os
import shutil
import subprocess
import unittest

from pose_case import PoseCase, read_table
from pretrain_case import LEVIN
from today import OfToday

CONTEXT = "model.model_type=heatmap_mhcrnn"


@unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the videos")
class PoseVideos(PoseCase):
    def make_video(self, path, first=0, frames=12):
        """Of the project's images, without loss."""
        images = f"{self.dir}/project/labeled-data/CollectedData/img%02d.png"
        subprocess.run(
            ["ffmpeg", "-v", "error", "-start_number", str(first), "-i", images]
            + ["-frames:v", str(frames), "-c:v", "png", f"{self.dir}/{path}"],
            check=True,
        )

    def damage(self, path, to, numbers):
        """These frames cannot be decoded."""
        with open(f"{self.dir}/{path}", "rb") as f:
            frames = f.read().split(b"\x89PNG")
        for i in numbers:
            n = frames[1 + i].find(b"IEND")  # behind the last one is the index
            frames[1 + i] = bytes(n) + frames[1 + i][n:]
        with open(f"{self.dir}/{to}", "wb") as f:
            f.write(b"\x89PNG".join(frames))

    def predict(self, *arguments, code=0):
        return self.levin("predict", "pose", "model=out", *arguments, code=code)

    def rows(self, name):
        return read_table(f"{self.dir}/out/video_preds/{name}.csv", heads=3)[1]


class Context(PoseVideos):
    def test_rows_are_those_of_five_frames(self):
        """Wherever the video is cut, on any number of ranks, and at the training's end."""
        self.make_video("project/videos/whole.mov")
        self.make_video("five.mov", first=4, frames=5)
        self.train("out", "max_steps=1", CONTEXT, "eval.predict_vids_after_training=true")
        rows = [r[1:] for r in self.rows("whole")]
        self.assertEqual(len(rows), 12)
        self.assertEqual([rows[i] for i in (0, 1, 10, 11)], [rows[i] for i in (2, 2, 9, 9)])
        self.assertEqual(len({tuple(r) for r in rows}), 8)
        self.assertEqual(len(os.listdir(f"{self.dir}/out/video_index")), 1)
        table = f"{self.dir}/out/video_preds/whole.csv"
        for more in (["predict_batch_size=5"], ["eval_batch_size=9", "devices=2"]):
            video = ["data=project/videos/whole.mov", "output=again.csv", "overwrite=true"]
            self.predict(*video, *more)
            self.assertTrue(filecmp.cmp(table, f"{self.dir}/again.csv", shallow=False), more)
        self.predict("data=five.mov")
        self.assertEqual([r[1:] for r in self.rows("five")], [rows[6]] * 5)
        self.assertEqual(len(os.listdir(f"{self.dir}/out/video_index")), 2)
        text = self.predict("data=five.mov", "overwrite=true", "predict_batch_size=4", code=64)
        self.assertIn("eval_batch_size=4: heatmap_mhcrnn looks at 5 frames", text)

    def test_frames_around_belong_to_the_training(self):
        """One that was not there, without a label of its own."""
        frames = f"{self.dir}/project/labeled-data/CollectedData"
        self.train("out", "max_steps=1", CONTEXT)
        resume = ["resume=true", "max_steps=2", "data_changed=error", CONTEXT]
        last = max(os.listdir(frames))
        beside = f"img{int(last[3:5]) + 1:02d}.png"
        shutil.copy(f"{frames}/{last}", f"{frames}/{beside}")
        self.assertIn("than when", self.train("out", *resume, code=64))
        os.remove(f"{frames}/{beside}")
        self.train("out", *resume)

    def test_short_and_damaged_videos(self):
        """Below five frames the first and last stand for those that are not there; a frame that
        cannot be read leaves five rows empty, however the video is cut."""
        self.make_video("whole.mov")
        self.train("out", "max_steps=1", CONTEXT)
        for n in (1, 4):
            self.make_video(f"short{n}.mov", frames=n)
            self.predict(f"data=short{n}.mov")
            self.assertEqual(len({tuple(r) for r in self.rows(f"short{n}")}), n)
        self.damage("whole.mov", "damaged.mov", [6])
        self.predict("data=whole.mov")
        expected = self.rows("whole")
        for i in range(4, 9):
            expected[i] = [str(i), *[""] * 9]
        for more in ([], ["predict_batch_size=6"]):
            text = self.predict("data=damaged.mov", "overwrite=true", *more)
            self.assertIn("damaged.mov: 5 of 12 rows are empty", text)
            self.assertEqual(self.rows("damaged"), expected)
        text = self.predict("data=damaged.mov", "overwrite=true", "on_error=stop", code=1)
        self.assertIn("frame 6", text)
        self.assertTrue(os.path.exists(f"{self.dir}/out/video_preds/damaged.csv"))


class Folder(PoseVideos):
    def setUp(self):
        super().setUp()
        os.mkdir(f"{self.dir}/videos")
        self.make_video("videos/a.mov", frames=5)
        self.train("out", "max_steps=1")

    def tables(self, place):
        found = {}
        for name in sorted(os.listdir(f"{self.dir}/{place}")):
            if name.endswith(".csv"):
                with open(f"{self.dir}/{place}/{name}", encoding="ascii") as f:
                    found[name] = f.read()
        return found

    def test_one_of_them_is_damaged(self):
        """It is reported and the others go on; what is there is left as it is."""
        self.make_video("videos/c.mov", first=2)
        with open(f"{self.dir}/videos/c.mov", "rb") as f:
            part = f.read()[:1000]
        with open(f"{self.dir}/videos/b.mov", "wb") as f:
            f.write(part)
        shutil.copy(f"{self.dir}/videos/c.mov", f"{self.dir}/videos/e.m4v")
        text = self.predict("data=videos", code=1)
        self.assertIn("no predictions of this video: videos/b.mov", text)
        self.assertIn("error: data=videos: 1 of 3 videos has no predictions", text)
        one = self.tables("out/video_preds")
        self.assertEqual([n for n in one if "_" not in n], ["a.csv", "c.csv"])
        self.assertEqual(len(self.rows("c")), 10)
        self.assertIn("data=videos: 1 file is not looked at (e.m4v): ", text)
        os.remove(f"{self.dir}/videos/b.mov")
        os.remove(f"{self.dir}/out/video_preds/c.csv")
        text = self.predict("data=videos")
        self.assertIn("a.csv is there, and is left as it is", text)
        self.assertEqual(text.count("predictions of "), 1)
        self.predict("data=videos", "overwrite=true", "devices=2", "predict_batch_size=4")
        self.assertEqual(self.tables("out/video_preds"), one)
        model = "model=out/exported_models/exported_last.safetensors"
        self.predict("data=videos", model, "output=tables")
        self.assertEqual(self.tables("tables"), one)
        self.refuse(model)

    def refuse(self, model):
        os.mkdir(f"{self.dir}/empty")
        self.assertIn("data=empty: the folder has no video", self.predict("data=empty", code=64))
        text = self.predict("data=videos", "output=all.csv", code=64)
        self.assertIn("output=all.csv: the videos of data=videos get a table each", text)
        self.assertIn("output= is missing", self.predict("data=videos", model, code=64))
        for data in ("videos", "videos/a.mov"):
            text = self.predict(f"data={data}", "json=true", code=64)
            self.assertIn("json=true: predictions of keypoints are tables", text)
        self.predict("data=videos/a.mov", "json=false", "output=j.csv")

    def test_a_list(self):
        """Files of any folder, each with the table that it has alone, on ranks, too; one that is
        damaged is reported."""
        self.make_video("c.mov", first=2)
        labels = "project/CollectedData.csv"
        self.predict("data=videos", "output=one")
        self.predict(f"data={labels}", "output=one/CollectedData.csv")
        one = self.tables("one")
        files = f"data=[videos/a.mov,{labels}]"
        self.predict(files, "output=two", "devices=2", "predict_batch_size=5")
        self.assertEqual(self.tables("two"), one)
        self.predict(files)
        self.assertEqual([n for n in self.tables("out/video_preds") if "_" not in n], ["a.csv"])
        self.assertTrue(
            os.path.exists(f"{self.dir}/out/image_preds/CollectedData.csv/predictions.csv")
        )
        with open(f"{self.dir}/b.mov", "wb") as f:
            f.write(b"no video")
        text = self.predict("data=[b.mov,c.mov]", code=1)
        self.assertIn("no predictions of this video: b.mov", text)
        self.assertIn("error: data=[b.mov,c.mov]: 1 of 2 files has no predictions", text)
        self.assertEqual(len(self.rows("c")), 10)
        shutil.copy(f"{self.dir}/c.mov", f"{self.dir}/a.avi")
        for data, more, part in (
            ("[c.mov,videos]", "", "videos is a folder; a list has label files"),
            ("[c.mov,nowhere.mp4]", "", "there is no file nowhere.mp4"),
            ("[videos/a.mov,c.mov,a.avi]", "", "videos/a.mov and a.avi would have one table"),
            (f"[c.mov,{labels}]", "labeled_video=true", "is a label file: predict it alone"),
            ("[c.mov,b.mov]", "output=t.csv", "the files of data=[c.mov,b.mov] get a table each"),
        ):
            self.assertIn(part, self.predict(f"data={data}", *more.split(), code=64))
        text = self.levin("eval", "pose", "model=out", f"data=[{labels},{labels}]", code=64)
        self.assertIn("errors are measured on one label file, not on a list", text)

    def test_without_the_module(self):
        """What is missing is one sentence, however many videos there are."""
        shutil.copy(LEVIN, f"{self.dir}/levin")
        for name in ("b", "c"):
            shutil.copy(f"{self.dir}/videos/a.mov", f"{self.dir}/videos/{name}.mov")
        env = {k: v for k, v in os.environ.items() if k != "LEVIN_BACKEND_PATH"}
        videos = f"{self.dir}/videos"
        train = ["train", "pose", *self.small, "max_steps=1"]
        train += [f"eval.test_videos_directory={videos}"]
        for code, *arguments in (
            (1, "predict", "pose", "model=out", "data=videos"),
            (1, "predict", "pose", "model=out", "data=[videos/a.mov,videos/b.mov]"),
            (0, *train, "out=again", "eval.predict_vids_after_training=true"),
            (1, "data", "check", "config=project/config.yaml", f"data.video_dir={videos}"),
        ):
            done = subprocess.run(
                ["./levin", *arguments], cwd=self.dir, env=env, capture_output=True, text=True
            )
            text = done.stdout + done.stderr
            self.assertEqual(text.count("there is no levin_video.so"), 1, text)
            self.assertEqual(done.returncode, code, text)

    def test_ranks_go_on_together(self):
        """What fails on one rank alone, as rank 0 alone has the rows, costs that video, and the
        ranks go on with the next: a link to nothing, no readable frame, one that is damaged where
        none may be, two of one name."""
        self.make_video("c.mov")
        os.symlink("nowhere", f"{self.dir}/videos/aa.mp4")
        self.damage("c.mov", "videos/b.mov", range(12))
        self.damage("c.mov", "videos/c.mov", [8])
        shutil.copy(f"{self.dir}/c.mov", f"{self.dir}/videos/d.mov")
        shutil.copy(f"{self.dir}/c.mov", f"{self.dir}/videos/d.avi")
        small = ["predict_batch_size=4", "labeled_video=true", "devices=2"]
        text = self.predict("data=videos", "output=t", "on_error=stop", *small, code=1)
        twins = "videos/d.mov: a table has the name of its video without the ending, and d.avi has"
        for part in ("videos/aa.mp4", twins,
                     "on_error=stop, which leaves out none: 12 unreadable samples left out",
                     "which leaves out none: 1 unreadable sample left out: sample 8: videos/c.mov",
                     "data=videos: 4 of 6 videos have no predictions"):  # fmt: skip
            self.assertIn(part, text)
        self.assertEqual([n for n in self.tables("t") if "_" not in n], ["a.csv", "d.csv"])
        drawn = sorted(os.listdir(f"{self.dir}/t/labeled_videos"))
        self.assertEqual(drawn, ["a_labeled.mp4", "d_labeled.mp4"])
        text = self.predict("data=videos", "output=u", *small, "labeled_video=false", code=1)
        self.assertIn("data=videos: 3 of 6 videos have no predictions", text)
        self.assertEqual([n for n in self.tables("u") if "_" not in n], ["a.csv", "c.csv", "d.csv"])

    @unittest.skipUnless(os.environ.get("LEVIN_TEST_SLOW") == "1", "slow: LEVIN_TEST_SLOW=1")
    def test_drawing_is_longer_than_the_timeout(self):
        """The ranks that do not draw are heard from in between."""
        make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc=size=1280x960:rate=25"]
        video = f"{self.dir}/videos/a.mov"
        subprocess.run([*make, "-frames:v", "100", "-c:v", "mjpeg", "-y", video], check=True)
        text = self.predict("data=videos", "output=t", "devices=2", "eval.frames=all",
                            "collective_timeout=6", "predict_batch_size=4")  # fmt: skip
        self.assertIn("keypoints drawn in 100 frames in t/labeled_videos/a", text)

    def most_memory(self, folder):
        command = [LEVIN, "predict", "pose", "model=out", f"data={folder}", "num_workers=1"]
        with subprocess.Popen(
            [*command, f"output={folder}.out", "accelerator=cpu"],
            cwd=self.dir,
            stderr=subprocess.DEVNULL,
        ) as p:
            _, status, usage = os.wait4(p.pid, 0)
            p.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(p.returncode, 0)
        return usage.ru_maxrss

    def test_memory_is_that_of_one(self):
        for folder, n in (("two", 2), ("six", 6)):
            os.mkdir(f"{self.dir}/{folder}")
            for i in range(n):
                shutil.copy(f"{self.dir}/videos/a.mov", f"{self.dir}/{folder}/{i}.mov")
        two, six = self.most_memory("two"), self.most_memory("six")
        self.assertEqual(len(self.tables("six.out")), 3 * 6)
        self.assertLess(six, 1.05 * two)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
