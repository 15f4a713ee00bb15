"""A rank of levin train pose that is killed while the labelled frames are predicted, behind the
training's last step: one first error, nothing half written, and a resumed run makes up for it. And
runs that are asked to stop there.

usage: test_pose_killed.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import signal
import subprocess
import time
import unittest

from case import LEVIN
from pose_project import write_project
from rank_case import GRACE_S, RankCase
from today import OfToday

FRAMES = 120  # to predict, so many that there is time to kill


class PoseKilled(RankCase):
    def files(self, run):
        found = {}
        for name in sorted(os.listdir(run)):
            if name.startswith("predictions"):
                with open(f"{run}/{name}", encoding="ascii") as f:
                    found[name] = f.read()
        return found

    def status(self):
        with open(f"{self.out}/train_status.json", encoding="ascii") as f:
            return json.load(f)["status"]

    def test_a_rank_killed_in_the_evaluation(self):
        write_project(f"{self.dir}/project")
        write_project(f"{self.dir}/project", n=FRAMES, name="CollectedData_new.csv")
        train = [
            LEVIN,
            "train",
            "pose",
            f"config={self.dir}/project/config.yaml",
            "quiet=true",
            "max_steps=2",
            "micro_batches=2",
            "wgrad_threads=1",
        ]
        p = self.start_ranks([*train, f"out={self.out}", "devices=2"])
        self.wait_for(lambda: os.path.exists(f"{self.out}/predictions.csv"), p)
        reported = self.hurt(
            p, 1, signal.SIGKILL, code=137, expects=["rank 1 (", "failed first: killed by SIGKILL"]
        )
        self.assertNotIn("predictions_new.csv", self.files(self.out), reported)
        self.assertEqual(self.status(), "EVALUATING")
        self.levin([*train[1:], f"out={self.out}", "resume=true"], 0)
        whole = f"{self.dir}/whole"
        self.levin([*train[1:], f"out={whole}"], 0)
        self.assertEqual(self.files(self.out), self.files(whole))
        self.assertIn("predictions_new.csv", self.files(self.out))

    def stopped(self, devices, signal_number, code):
        train = ["train", "pose", f"config={self.dir}/project/config.yaml", "max_steps=2"]
        train += [f"out={self.out}", f"devices={devices}"]
        p = self.start_ranks([LEVIN, *train, "quiet=true"])
        self.wait_for(lambda: os.path.exists(f"{self.out}/predictions.csv"), p)
        os.kill(p.pid, signal_number)
        reported = self.gone(p, GRACE_S, time.monotonic())
        self.assertEqual(p.returncode, code, reported)
        self.assertEqual(reported.count("stopped: "), 1, reported)
        self.assertIn("resume=true goes on with what is missing", reported)
        self.assertEqual(self.status(), "EVALUATING")
        self.assertNotIn("predictions_new.csv", self.files(self.out), reported)
        first = os.stat(f"{self.out}/predictions.csv")
        self.levin([*train, "resume=true"], 0, ["predictions_new.csv"])
        self.assertEqual(self.status(), "COMPLETED")
        self.assertEqual(os.stat(f"{self.out}/predictions.csv"), first)
        return [*train, "resume=true"]

    def test_a_stop_in_the_evaluation(self):
        """What is there stays, and what is missing, or older than its labels, is made."""
        write_project(f"{self.dir}/project")
        write_project(f"{self.dir}/project", n=FRAMES, name="CollectedData_new.csv")
        self.stopped(2, signal.SIGTERM, 143)
        shutil.rmtree(self.out)
        resume = self.stopped(1, signal.SIGINT, 130)
        out, _ = self.levin(resume, 0, ["nothing to do"])
        self.assertNotIn("predictions of", out)
        os.utime(f"{self.dir}/project/CollectedData.csv")
        out, _ = self.levin(resume, 0)
        self.assertEqual(out.count("predictions of"), 1, out)

    @unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the video")
    def test_a_stop_while_drawing(self):
        """Its predictions stay, half a video does not, and a resumed run draws it."""
        write_project(f"{self.dir}/project")
        videos = f"{self.dir}/project/videos"
        make = ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=25"]
        make += ["-frames:v", "90", "-c:v", "mjpeg", f"{videos}/a.mov"]
        subprocess.run(make, check=True)
        train = ["train", "pose", f"config={self.dir}/project/config.yaml", "max_steps=1"]
        train += [f"out={self.out}", "devices=2", "eval.predict_vids_after_training=true"]
        train += ["eval.save_vids_after_training=true"]
        p = self.start_ranks([LEVIN, *train, "quiet=true"])
        place = f"{self.out}/video_preds/labeled_videos"
        self.wait_for(lambda: os.path.isdir(place), p)
        table = os.stat(f"{self.out}/video_preds/a.csv").st_mtime_ns
        os.kill(p.pid, signal.SIGTERM)
        reported = self.gone(p, GRACE_S, time.monotonic())
        self.assertEqual(p.returncode, 143, reported)
        self.assertEqual(self.status(), "EVALUATING")
        self.assertEqual(os.listdir(place), [], reported)
        self.assertEqual(os.stat(f"{self.out}/video_preds/a.csv").st_mtime_ns, table)
        if os.environ.get("LEVIN_TEST_SLOW") == "1":
            self.levin([*train, "resume=true"], 0)
            self.assertEqual(os.listdir(place), ["a_labeled.mp4"])
            self.assertEqual(self.status(), "COMPLETED")


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(3))
