"""Labelled videos of levin train pose and levin predict pose.

usage: test_pose_labeled.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import shutil
import subprocess
import unittest

from pose_case import PoseCase, read_table
from pose_project import HEIGHT, WIDTH
from today import OfToday

COOL = [(0, 255, 255), (128, 128, 255), (255, 0, 255)]
WIDE, HIGH = WIDTH * 5 // 2, HEIGHT * 5 // 2  # small frames are drawn enlarged


@unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
class PoseLabeled(PoseCase):
    def setUp(self):
        super().setUp()
        self.video = f"{self.dir}/project/videos/a.b.mp4"
        images = f"{self.dir}/project/labeled-data/CollectedData/img%02d.png"
        make = ["ffmpeg", "-v", "error", "-r", "10", "-i", images, "-pix_fmt", "yuv420p"]
        subprocess.run([*make, self.video], check=True)

    def break_all(self, path):
        """No frame of it can be decoded, which rank 0 alone finds when it has all rows; a link to
        nothing beside it."""
        make = ["ffmpeg", "-v", "error", "-i", self.video, "-c:v", "png", f"{self.dir}/{path}"]
        subprocess.run(make, check=True)
        with open(f"{self.dir}/{path}", "r+b") as f:
            data = bytearray(f.read())
            at = 0
            while (at := data.find(b"\x89PNG", at)) >= 0:
                data[at : at + 40] = bytes(40)
            f.seek(0)
            f.write(data)
        os.symlink("nowhere", f"{self.dir}/project/videos/a.aa.mp4")

    def probe(self, path):
        """Codec, width, height, rate, and the time of each frame."""
        ask = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-of", "csv=p=0"]
        head = "stream=codec_name,width,height,avg_frame_rate"
        text = subprocess.check_output([*ask, "-show_entries", head, path], text=True)
        times = subprocess.check_output(
            [*ask, "-show_entries", "packet=pts_time", path], text=True
        ).split()
        return text.strip().split(","), [float(t.strip(",")) for t in times]

    def pixels(self, path):
        """Of every frame its bytes."""
        out = subprocess.check_output(
            ["ffmpeg", "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
        )
        size = 3 * WIDE * HIGH
        return [out[i : i + size] for i in range(0, len(out), size)]

    def check_dots(self, frame, row):
        """The last keypoint's dot is on top of the others."""
        x, y = (int(float(v) * 2.5) for v in row[7:9])
        for dx, dy in ((0, 0), (3, 0), (-3, 0), (0, 3), (0, -3)):
            if 0 <= x + dx < WIDE and 20 <= y + dy < HIGH:
                at = 3 * ((y + dy) * WIDE + x + dx)
                self.assertEqual(tuple(frame[at : at + 3]), COOL[2])

    def test_videos_and_images(self):
        """At the end of a training on two ranks; again by predict, byte for byte; as images."""
        drawn = [
            "out", "eval.predict_vids_after_training=true", "eval.save_vids_after_training=true",
            "eval.confidence_thresh_for_vid=0", "devices=2", "max_steps=1",
        ]  # fmt: skip
        self.break_all("project/videos/a.broken.mov")
        text = self.train(*drawn)
        self.assertEqual(text.count("no predictions of this video: "), 2)
        self.assertIn("none of the 12 samples could be read", text)
        os.remove(f"{self.dir}/project/videos/a.broken.mov")
        place = f"{self.dir}/out/video_preds"
        self.folder = f"{place}/labeled_videos"
        made = f"{self.folder}/a.b_labeled.mp4"
        self.assertEqual(os.listdir(self.folder), ["a.b_labeled.mp4"])
        head, times = self.probe(made)
        self.assertEqual(head[1:], [str(WIDE), str(HIGH), "10/1"])
        self.assertIn(head[0], ("h264", "mpeg4"))
        self.assertEqual([round(t, 6) for t in times], [i / 10 for i in range(12)])
        self.assertEqual(len(self.pixels(made)), 12)
        self.rows = read_table(f"{place}/a.b.csv", heads=3)[1]
        self.predict = [
            "predict", "pose", "model=out", "data=project/videos/a.b.mp4", "overwrite=true",
        ]  # fmt: skip
        self.check_again(made)
        self.check_images()
        self.check_refused()
        self.check_place()
        shutil.rmtree(self.folder)
        with open(self.folder, "w", encoding="ascii"):
            pass
        os.remove(f"{place}/a.b.csv")
        text = self.train(*drawn, "resume=true")  # the evaluation again
        self.assertIn("no labelled video, its predictions are there", text)
        self.assertEqual(read_table(f"{place}/a.b.csv", heads=3)[1], self.rows)

    def check_again(self, made):
        with open(made, "rb") as f:
            first = f.read()
        os.remove(made)
        self.levin(*self.predict, "skip_viz=true")
        self.assertEqual(os.listdir(self.folder), [])
        self.levin(*self.predict, "skip_viz=false", "devices=2")
        with open(made, "rb") as f:
            self.assertEqual(f.read(), first)
        os.remove(made)

    def check_images(self):
        text = self.levin(*self.predict, "eval.frames=3")
        self.assertIn("keypoints drawn in 3 frames in out/video_preds/labeled_videos/a.b", text)
        folder = f"{self.folder}/a.b"
        names = sorted(os.listdir(folder))
        self.assertEqual(names, ["000000.png", "000005.png", "000011.png"])
        self.assertEqual(os.listdir(self.folder), ["a.b"])
        drawn = {}
        for name in names:
            (drawn[name],) = self.pixels(f"{folder}/{name}")
            self.check_dots(drawn[name], self.rows[int(name[:-4])])
        with open(f"{folder}/notes.png", "w", encoding="ascii"):
            pass
        self.levin(*self.predict, "eval.frames=2")  # those of before are gone, and no others
        names = sorted(os.listdir(folder))
        self.assertEqual(names, ["000000.png", "000011.png", "notes.png"])
        os.remove(f"{folder}/notes.png")
        self.levin(*self.predict, "eval.frames=all", "eval.confidence_thresh_for_vid=1")
        self.assertEqual(len(os.listdir(folder)), 12)
        (bare,) = self.pixels(f"{folder}/000005.png")
        colours = {bare[i : i + 3] for i in range(0, len(bare), 3)}
        self.assertFalse(colours & {bytes(c) for c in COOL})
        self.assertNotEqual(bare, drawn["000005.png"])

    def check_refused(self):
        for part, *arguments in (
            ("give one of them", "skip_viz=true", "labeled_video=true"),
            ("expected all, or how many frames", "eval.frames=0"),
            ("levin has the colour maps cool, viridis", "labeled_video=true", "eval.colormap=Set1"),
            ("drawn into videos", "labeled_video=true", "data=project/CollectedData.csv"),
        ):
            self.assertIn(part, self.levin(*self.predict, *arguments, code=64))

    def check_place(self):
        """The predictions are there where a video cannot be written."""
        os.makedirs(f"{self.dir}/x")
        with open(f"{self.dir}/x/labeled_videos", "w", encoding="ascii"):
            pass
        text = self.levin(*self.predict, "output=x/p.csv", "labeled_video=true", code=1)
        self.assertIn("x/labeled_videos", text)
        self.assertEqual(read_table(f"{self.dir}/x/p.csv", heads=3)[1], self.rows)

    def test_refused_before_the_training(self):
        asked = ("eval.frames=some", "eval.colormap=heat")
        text = self.train("out", "eval.save_vids_after_training=true", *asked, code=64)
        self.assertIn("eval.frames some: expected all, or how many frames", text)
        self.assertIn("eval.colormap heat: levin has the colour maps cool, viridis,", text)
        self.assertFalse(os.path.exists(f"{self.dir}/out"))


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
