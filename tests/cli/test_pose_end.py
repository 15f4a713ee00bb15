"""The end of levin train pose: what it predicts after a stop by time, a resume, and with paths that
look like references to keys; label files that are refused before the training.

usage: test_pose_end.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import unittest

from pose_case import PoseCase, read_table, write_project
from today import OfToday


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

    def refused(self, part, *arguments):
        text = self.train("out", *arguments, code=64)
        self.assertIn(part, text)
        self.assertFalse(os.path.exists(f"{self.dir}/out"))

    def test_refused_before_the_training(self):
        project = f"{self.dir}/project"
        for name in ("labels.txt", "predictions.csv"):
            shutil.copy(f"{project}/CollectedData.csv", f"{project}/{name}")
        self.refused("labels.txt: labels are a table", "data.csv_file=labels.txt")
        self.refused("a file of its own", "data.csv_file=predictions.csv")
        text = self.train("project", "overwrite=true", code=64)
        self.assertIn("out project: the folder of the project", text)
        with open(f"{project}/CollectedData.csv", encoding="ascii") as f:
            labels = f.read()
        for name, rows in (("new", "a\n"), ("test", None)):
            with open(f"{project}/CollectedData_{name}.csv", "w", encoding="ascii") as f:
                f.write(rows or labels.replace("img", "no"))
        self.refused("CollectedData_new.csv")
        self.refused("CollectedData_test.csv:4: there is no image")

    def test_a_folder_with_brackets_is_no_list(self):
        shutil.copytree(f"{self.dir}/project", f"{self.dir}/p[1].x")
        self.train("brackets", f"data.data_dir={self.dir}/p[1].x", "max_steps=1")

    def test_tables_of_other_files(self):
        self.train("out", "max_steps=1")
        for name, n in (("d1", 3), ("d2", 4)):
            write_project(f"{self.dir}/{name}", n=n, missing=(), name="c.csv")
        arguments = ["predict", "pose", "model=out"]
        self.levin(*arguments, "data=d1/c.csv")
        self.assertIn("left as it is", self.levin(*arguments, "data=d1/c.csv"))
        text = self.levin(*arguments, "data=d2/c.csv", code=64)
        self.assertIn("has other frames than data=d2/c.csv: give output=", text)
        self.levin(*arguments, "data=d2/c.csv", "overwrite=true")
        text = self.levin(*arguments, "data=d1/labeled-data/c/img00.png", code=64)
        self.assertIn("img00.png is an image: give a label file", text)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
