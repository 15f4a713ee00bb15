"""A rank of levin train pose that is killed while the labelled frames are predicted, behind the
training's last step: one first error, nothing half written, and a resumed run makes up for it.

usage: test_pose_killed.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import signal
import unittest

from case import LEVIN
from pose_project import write_project
from rank_case import RankCase

FRAMES = 120  # to predict, so many that there is time to kill


class PoseKilled(RankCase):
    def files(self, run):
        found = {}
        for name in sorted(os.listdir(run)):
            if name.startswith("predictions"):
                with open(f"{run}/{name}", encoding="ascii") as f:
                    found[name] = f.read()
        return found

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
        with open(f"{self.out}/train_status.json", encoding="ascii") as f:
            self.assertEqual(json.load(f)["status"], "EVALUATING")
        self.levin([*train[1:], f"out={self.out}", "resume=true"], 0)
        whole = f"{self.dir}/whole"
        self.levin([*train[1:], f"out={whole}"], 0)
        self.assertEqual(self.files(self.out), self.files(whole))
        self.assertIn("predictions_new.csv", self.files(self.out))


if __name__ == "__main__":
    unittest.main()
