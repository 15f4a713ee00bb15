"""The end of levin train pose: what it predicts after a stop by time, a resume, and with paths that
look like references to keys; label files that are refused before the training.

usage: test_pose_end.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import unittest

from pose_case import PoseCase, read_table, write_project


class PoseEnd(PoseCase):
    def status(self, out):
        with open(f"{self.dir}/{out}/train_status.json", encoding="ascii") as f:
            return json.load(f)

    def test_ended_by_time(self):
        self.train("out", "max_time=0.001s", "training.max_epochs=50", "devices=2")
        self.assertEqual(len(read_table(f"{self.dir}/out/predictions.csv", heads=3)[1]), 12)
        self.assertEqual(self.status("out")["status"], "COMPLETED")

    def test_paths_are_no_references(self):
        """${ in a path; and the progress of a run that is resumed behind its end."""
        shutil.copytree(f"{self.dir}/project", f"{self.dir}/${{p}}")
        here = f"data.data_dir={self.dir}/\\${{p}}"
        self.train("\\${x}", here)
        done = self.status("${x}")
        os.remove(f"{self.dir}/${{x}}/train_status.json")
        self.train("\\${x}", here, "resume=true")
        again = self.status("${x}")
        self.assertEqual((done["status"], again["status"]), ("COMPLETED", "COMPLETED"))
        self.assertEqual(again["progress"]["completed"], 2)
        self.assertTrue(os.path.exists(f"{self.dir}/${{x}}/predictions.csv"))


if __name__ == "__main__":
    unittest.main()
