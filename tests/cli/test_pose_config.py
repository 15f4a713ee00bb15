"""levin train pose: its configuration, and what is refused before anything is computed.

usage: test_pose_config.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import resource
import shutil
import subprocess
import tempfile
import unittest

from case import LEVIN, USAGE, png

HEAD = "scorer,r,r,r,r\nbodyparts,paw,paw,nose,nose\ncoords,x,y,x,y\n"
CONFIG = """\
data:
  image_resize_dims: {height: 128, width: 384}
  data_dir: %s
  video_dir: ${data.data_dir}/videos
  num_keypoints: 2
  mirrored_column_matches:
    - [0]
    - [1]
training:
  train_batch_size: 2
  val_batch_size: 2
  test_batch_size: 2
  min_epochs: 300
  max_epochs: 300
  unfreezing_epoch: 20
  check_val_every_n_epoch: 10
  lr_scheduler: multisteplr
  lr_scheduler_params: {multisteplr: {milestones: [150, 200, 250], gamma: 0.5}}
  imgaug: {Rotate: {p: 0.5, kwargs: {rotate: [-10, 10]}}}
model: {backbone: resnet18, backbone_pretrained: false, losses_to_use: []}
eval:
  test_videos_directory: ${data.video_dir}
  predict_vids_after_training: false
  hydra_paths: [' ']
  fiftyone: {dataset_name: x, port: 5151}
"""


class Config(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-pose-config-")
        self.addCleanup(shutil.rmtree, self.dir)
        for name in ("a", "b", "c", "d"):
            png(f"{self.dir}/{name}.png", 20, 12, lambda x, y: (9 * x, 9 * y, 0))
        self.write("CollectedData.csv", HEAD + "".join(f"{n}.png,1,2,3,4\n" for n in "abcd"))
        self.write("config.yaml", CONFIG % self.dir)

    def write(self, name, text):
        with open(f"{self.dir}/{name}", "w", encoding="ascii") as f:
            f.write(text)

    def run_levin(self, *args):
        command = [LEVIN, "train", "pose", f"config={self.dir}/config.yaml", "out=out", *args]
        return subprocess.run(command, cwd=self.dir, capture_output=True, text=True, timeout=60)

    def saved(self):
        with open(f"{self.dir}/out/config.yaml", encoding="ascii") as f:
            return dict(line.split(": ", 1) for line in f.read().splitlines() if ": " in line)

    def ended(self, *args):
        """One epoch, or what the saved configuration plans; its messages."""
        done = self.run_levin(*args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout + done.stderr

    def refused(self, args, *parts):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = self.run_levin(*args)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.assertLess(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 1.0)
        self.assertEqual(done.returncode, USAGE, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/out"))

    def test_a_file_of_lightning_pose_begins_as_it_stands(self):
        """With the end that the command line gives: one epoch of a plan for 300."""
        args = ("+training.max_epochs=1", "++training.min_epochs=1", "accelerator=cpu")
        done = self.run_levin(*args, "training.imgaug=default", "~training.test_batch_size")
        self.assertEqual(done.returncode, 0, done.stderr)
        unused = "without effect here: eval.hydra_paths, eval.fiftyone"
        self.assertIn(unused, done.stdout + done.stderr)
        saved = self.saved()
        self.assertEqual(saved["data.video_dir"], f"{self.dir}/videos")
        self.assertEqual(saved["eval.test_videos_directory"], f"{self.dir}/videos")
        self.assertEqual(saved["data.mirrored_column_matches"], '"[[0],[1]]"')
        self.assertEqual(saved["check_val_every_n_epoch"], "1")

    def test_keys_taken_back_and_a_run_resumed_by_its_directory(self):
        back = ("~training.unfreezing_epoch", "~training.max_epochs", "~training.train_batch_size")
        split = ("data.split=split.csv", "training.train_frames=1")
        self.write("split.csv", "image,set\na.png,train\nb.png,validation\nc.png,test\n"
                   "d.png,test\n")
        ends = ("max_steps=1", "training.min_epochs=1", "training.imgaug=default")
        text = self.ended(*back, *split, *ends, "accelerator=cpu")
        self.assertIn("note: data.split decides which frames train, without effect are train", text)
        self.assertIn("training.unfreezing_epoch=20: backbone.conv1.weight has the rate 0", text)
        first = self.saved()
        self.assertEqual(first["max_epochs"], "-1")
        self.assertEqual(first["batch_size"], "16")
        self.assertEqual(first["lr_zero_until"], '["backbone=20epochs:0.1:1.5"]')
        command = [LEVIN, "train", "pose", "out=out", "resume=true", "max_steps=2"]
        done = subprocess.run(command, cwd=self.dir, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual({**first, "max_steps": "2"}, self.saved())

    def test_mistakes_are_reported_together(self):
        self.refused(
            (
                "data.image_resize_dims.width=200",
                "+eval.colormaps=cool",
                "data.num_keypoints=4",
                "training.train_prob=0.99",
                "training.val_prob=0.5",
                "model.model_type=heatmaps",
            ),
            "5 mistakes:",
            "data.image_resize_dims.width 200: not a multiple of 128; use 128 or 256",
            "unknown key `eval.colormaps`; did you mean `eval.colormap`?",
            "use data.num_keypoints=2",
            "training.train_prob 0.99: with training.val_prob 0.5",
            "model.model_type `heatmaps`",
        )

    def test_rules_of_the_command_line(self):
        for args, part in (
            (("training.max_steps=5",), "training.max_epochs: a training in steps has no keys"),
            (("training.ckpt_every_n_epochs=7",), "training.ckpt_every_n_epochs 7: not a multiple"),
            (("training.lr_scheduler=cosine",), "training.lr_scheduler `cosine`"),
            (("data.columns_for_singleview_pca=[2]",), "data.columns_for_singleview_pca 2: there"),
            (("data.keypoint_names=[paw,tail]",), "names tail: keypoint 1 of the labels is `nose`"),
            (("model.backbone=resnet51",), "vitb_dino, vitb_imagenet  (command line)"),
            (("data.keypoint_names=[a,b,c]",), "data.keypoint_names has 3 names"),
            (("data.data_dir=${data.csv_file}", "data.csv_file=${data.data_dir}"), "needs itself"),
            (("data.data_dir=nowhere",), "data.data_dir nowhere: there is no such folder"),
            (("data.csv_file=x.csv",), "/x.csv: there is no such file"),
            (("training.imgaug={Blurr: {p: 1}}",), "there is no operation Blurr"),
            (("model.losses_to_use=[pca]",), "model.losses_to_use pca: expected pca_singleview"),
        ):
            with self.subTest(args):
                self.refused(args, part)

    def test_labels_are_those_of_the_project(self):
        """A file of the same name in the current directory is another one."""
        os.mkdir(f"{self.dir}/elsewhere")
        self.write("elsewhere/CollectedData.csv", HEAD)
        command = [LEVIN, "train", "pose", f"config={self.dir}/config.yaml"]
        command += ["data.num_keypoints=3", "data.csv_file=CollectedData.csv"]
        done = subprocess.run(command, cwd=f"{self.dir}/elsewhere", capture_output=True, text=True)
        self.assertIn(f"{self.dir}/CollectedData.csv", done.stderr)

    def test_labels_are_checked_before_the_run(self):
        self.write("bad.csv", HEAD + "a.png,1,2,3,4\nb.png,1,2,3,x\n")
        self.refused(("data.csv_file=bad.csv",), "bad.csv:5, column 5 (nose, y): `x` is not a num")
        self.write("bad.csv", HEAD + "a.png,1,2,3,4\nz.png,1,2,3,4\ny.png,,,,\n")
        self.refused(("data.csv_file=bad.csv",), "z.png (2 of 3 images are missing)")
        self.write("split.csv", "image,set\na.png,train\nb.png,validation\nc.png,test\n")
        self.refused(("data.split=split.csv",), "no set for 1 of 4 frames", "d.png")


if __name__ == "__main__":
    unittest.main(verbosity=1)
