"""levin train pose with losses of frames without labels: which clips a step has, how many steps an
epoch, the same bits on every layout and when resumed, what is refused.

usage: test_pose_clips.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import filecmp
import os
import re
import shutil
import signal
import subprocess
import time
import unittest

from node_processes import end_all, missing, start_on_nodes
from pose_case import PoseCase, metrics
from pose_project import write_video
from pretrain_case import LEVIN
from safetensors_files import read_safetensors, write_safetensors
from today import OfToday

SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
CLIPS = [
    "model.losses_to_use=[temporal,pca_singleview]",
    "losses.temporal.epsilon=0",
    "losses.pca_singleview.epsilon=0.1",
    "losses.pca_singleview.components_to_keep=2",
    "callbacks.anneal_weight.init_val=0.5",
]
# Two epochs of a step each, of all losses: their importance grows in the second one.
LOSSES = [
    "model.losses_to_use=[pca_singleview,pca_multiview,temporal,temporal_heatmap_mse,"
    "temporal_heatmap_kl]",
    "data.mirrored_column_matches=[[0],[1]]",
    "dali.base.train.sequence_length=3",
    "training.limit_train_batches=1",
    "callbacks.anneal_weight.init_val=0.5",
    "callbacks.anneal_weight.freeze_until_epoch=0",
    "training.unfreezing_epoch=0",
]
PER_LOSS = {
    "pca_singleview": ("epsilon=0.5", "empirical_epsilon_percentile=6"),
    "pca_multiview": ("epsilon=0.5", "empirical_epsilon_multiplier=0.2"),
    "temporal": ("epsilon=0", "prob_threshold=0.9"),
    "temporal_heatmap_mse": ("epsilon=1e-12", "prob_threshold=0.9"),
    "temporal_heatmap_kl": ("epsilon=1e-9", "prob_threshold=0.9"),
}
IMPORTANCE = ("init_val=0.1", "increase_factor=0.2", "final_val=0.5", "freeze_until_epoch=5")
# Of 16 frames the micro-batches have 6, 5 and 5.
THREE = ["training.train_batch_size=3", "micro_batches=3", "dali.base.train.sequence_length=16"]


@unittest.skipUnless(shutil.which("ffmpeg"), "ffmpeg is missing, which makes the videos")
class PoseClips(PoseCase):
    def setUp(self):
        super().setUp()
        self.videos = f"{self.dir}/project/videos"
        write_video(f"{self.videos}/a.mp4", 40)
        write_video(f"{self.videos}/b.mp4", 23, speed=2.0)

    def plan(self, *arguments, code=0):
        return self.levin("plan", "train", "pose", *self.small, *CLIPS, *arguments, code=code)

    # ---- the plan ----

    def test_shares_of_a_clip(self):
        """The largest share is that of a device in Lightning Pose."""
        batch = "training.train_batch_size=16"
        base, context = {3: 6, 8: 2}, {3: 8, 8: 6}
        if SLOW:
            base.update({1: 16, 2: 8, 4: 4})
            context.update({1: 16, 2: 10, 4: 7})
        for m, largest in base.items():
            text = self.plan(batch, "dali.base.train.sequence_length=16", f"micro_batches={m}")
            shares = re.search(r"stream clips: 16 samples in a step, (\d+)( or \d+)? in", text)
            self.assertEqual(int(shares[1]), largest, text)
        for m, largest in context.items():
            text = self.plan(
                batch,
                "model.model_type=heatmap_mhcrnn",
                "dali.context.train.batch_size=16",
                f"micro_batches={m}",
            )
            self.assertIn(f"stream clips: {12 + 4 * m} samples in a step, {largest} ", text)
            self.assertIn("an epoch is 10 steps of 16", text)
        text = self.plan(*THREE, "quiet=false")
        self.assertIn("clips of 6 or 5 frames, 9 in 2 videos", text)

    def test_steps_of_an_epoch(self):
        """10, or as many as a pass through the labelled frames needs, on any devices."""
        clip = "dali.base.train.sequence_length=8"
        for more, steps in (
            (("devices=2",), 10),
            (("training.limit_train_batches=12",), 12),
            (("training.limit_train_batches=2",), 2),
            (("accumulate_grad_batches=2", "steps_per_epoch=4"), 4),
        ):
            self.assertIn(f"the run: {2 * steps} steps, 2 epochs", self.plan(clip, *more))
        more = ["training.train_batch_size=1", "training.train_prob=0.9"]
        self.assertIn("an epoch is 11 steps of 1", self.plan(clip, *more))
        more = ["training.train_batch_size=3", "training.train_prob=0.9"]  # 11 = 3 3 3 2
        for part, steps in (("0.1", 1), ("0.34", 3), ("1.0", 10)):
            text = self.plan(clip, *more, f"training.limit_train_batches={part}")
            self.assertIn(f"an epoch is {steps} step{'s' * (steps > 1)} of 3", text)
        text = self.plan(clip, "training.limit_train_batches=0.05", code=64)
        self.assertIn("leaves no step of the epoch's 10", text)

    def test_refused(self):
        for part, *arguments in (
            ("sequence_length=1 leaves 1 frame", "dali.base.train.sequence_length=1", "devices=2"),
            (
                "train.batch_size=5 leaves 1 frame with a result in a step, which cannot be dealt "
                "out to 2 micro-batches",
                "model.model_type=heatmap_mhcrnn",
                "dali.context.train.batch_size=5",
                "micro_batches=2",
            ),
            (
                "temporal compares neighbours in a clip",
                "dali.base.train.sequence_length=2",
                "micro_batches=2",
            ),
            ("a video of 50 frames or more", "dali.base.train.sequence_length=50"),
            ("there is no video in it", "data.video_dir=labeled-data"),
            ("no such folder", "data.video_dir=nowhere"),
            ("`data.video_dir` is missing", "data.video_dir=null"),
            ("has to be one number", "accumulate_grad_batches={0:1,2:2}"),
        ):
            self.assertIn(part, self.plan(*arguments, code=64))

    def test_videos_that_are_left_out(self):
        write_video(f"{self.videos}/c.mp4", 7)
        with open(f"{self.videos}/d.mp4", "wb") as f:
            f.write(b"no video")
        text = self.plan("dali.base.train.sequence_length=8")
        self.assertIn("clips of 8 frames, 7 in 2 videos", text)
        self.assertIn("no clips of this video", text)
        self.assertIn("c.mp4 has 7 frames, and a clip has 8", text)
        self.assertIn("d.mp4", text)

    # ---- training ----

    def three(self, out, *more, env=None):
        return self.hash_of(out, *CLIPS, *THREE, "wgrad_threads=1", *more, env=env)

    def read_files(self, folder):
        found = {}
        for name in os.listdir(folder):
            with open(f"{folder}/{name}", "rb") as f:
                found[name] = f.read()
        return found

    def change_byte(self, path, at):
        with open(path, "r+b") as f:
            f.seek(at)
            byte = f.read(1)[0]
            f.seek(at)
            f.write(bytes([byte ^ 1]))

    def test_layouts_and_stops_do_not_matter(self):
        """Two ranks, stopped in an epoch and resumed; with other videos that is refused. Their
        indices are kept, and made again where they are damaged."""
        one = self.three("one", "lanes=1", "max_steps=3")
        begin = self.three("two", "devices=2", "max_steps=1")
        other = self.three("seed", "max_steps=1", "dali.general.seed=5")
        self.assertNotEqual(other.splitlines()[0], begin.splitlines()[0])
        os.rename(f"{self.videos}/b.mp4", f"{self.dir}/b.mp4")
        more = [*CLIPS, *THREE, "out=two", "resume=true", "max_steps=3", "data_changed=error"]
        text = self.levin("train", "pose", *self.small, *more, code=64)
        self.assertIn("than when", text)
        os.rename(f"{self.dir}/b.mp4", f"{self.videos}/b.mp4")
        self.change_byte(f"{self.videos}/b.mp4", 12)  # of a version, which no decoder looks at
        self.assertIn("than when", self.levin("train", "pose", *self.small, *more, code=64))
        self.change_byte(f"{self.videos}/b.mp4", 12)
        kept = f"{self.dir}/two/video_index"
        indices = self.read_files(kept)
        self.assertEqual(len(indices), 2)
        self.change_byte(f"{kept}/{min(indices)}", 500)
        os.remove(f"{kept}/{max(indices)}")
        self.assertEqual(self.three("two", "devices=2", "max_steps=3", "resume=true"), one)
        self.assertEqual(self.read_files(kept), indices)
        losses = ["temporal_loss", "pca_singleview_loss", "supervised_loss", "total_loss"]
        for name in (*losses, "total_unsupervised_importance"):
            runs = [metrics(f"{self.dir}/{run}", f"train/{name}_step") for run in ("one", "two")]
            self.assertEqual(runs[0], runs[1])
            self.assertEqual(len(runs[0]), 3, name)
            self.assertTrue(all(v > 0.0 for _, v in runs[0]), name)

    @unittest.skipIf(missing(), missing())
    def test_two_nodes(self):
        """A rank on each, over messages; its table of a video, too."""
        more = [*CLIPS, *THREE, "wgrad_threads=1", "max_steps=2"]
        more += ["eval.predict_vids_after_training=true"]
        one = self.hash_of("one", *more)
        command = [LEVIN, "train", "pose", *self.small, "out=two", "quiet=false", *more]
        ended = end_all(start_on_nodes([0, 1], command, cwd=self.dir))
        self.assertEqual([code for code, _ in ended], [0, 0], ended)
        self.assertIn("exchange messages", ended[0][1])
        self.assertEqual(self.files_of("two"), one)
        for name in ("a.csv", "b.csv", "a_temporal_norm.csv"):
            paths = [f"{self.dir}/{run}/video_preds/{name}" for run in ("one", "two")]
            self.assertTrue(filecmp.cmp(*paths, shallow=False), name)

    @unittest.skipUnless(SLOW, "takes long: LEVIN_TEST_SLOW=1")
    def test_more_layouts(self):
        one = self.three("one", "lanes=1", "max_steps=3")
        self.assertEqual(self.three("two", "devices=2", "max_steps=3"), one)
        self.assertEqual(self.three("dp", "devices=3", "strategy=dp", "max_steps=3"), one)
        sim = {"LEVIN_SIM_DEVICES": "2"}
        run = self.three("sim", "accelerator=sim", "devices=2", "max_steps=3", env=sim)
        self.assertEqual(run, one)
        context = [
            "model.model_type=heatmap_mhcrnn",
            "dali.context.train.batch_size=12",
            "max_steps=2",
        ]
        one = self.three("context", *context)
        self.assertEqual(self.three("context2", "devices=2", *context), one)

    @unittest.skipUnless(SLOW, "takes long: LEVIN_TEST_SLOW=1")
    def test_killed_and_resumed(self):
        more = [*CLIPS, *THREE, "wgrad_threads=1", "max_steps=12"]
        one = self.hash_of("one", *more)
        run = f"{self.dir}/two"
        arguments = ["train", "pose", *self.small, f"out={run}", "checkpoint.every_n_steps=2"]
        with subprocess.Popen([LEVIN, *arguments, *more], cwd=self.dir) as p:
            end = time.monotonic() + 100
            while len(metrics(run, "lr")) < 5 if os.path.exists(f"{run}/metrics.jsonl") else True:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.01)
            p.send_signal(signal.SIGKILL)
        self.assertEqual(self.hash_of("two", "resume=true", *more), one)

    @unittest.skipUnless(SLOW, "takes long: LEVIN_TEST_SLOW=1")
    def test_keys_of_losses(self):
        """Each changes the loss: losses.LOSS.KEY and callbacks.anneal_weight.KEY."""
        keys = [f"callbacks.anneal_weight.{key}" for key in IMPORTANCE]
        for loss, own in PER_LOSS.items():
            keys += [f"losses.{loss}.{key}" for key in ("log_weight=1", *own)]
        base = ["losses.temporal.epsilon=1e-6"]
        base += ["losses.pca_singleview.empirical_epsilon_percentile=5"]
        base += ["losses.pca_multiview.empirical_epsilon_multiplier=0.1"]
        # new maps are nearly equal
        weights = dict.fromkeys(PER_LOSS, -3)
        weights.update(temporal_heatmap_mse=-26, temporal_heatmap_kl=-18)
        base += [f"losses.{loss}.log_weight={weight}" for loss, weight in weights.items()]
        losses = []
        for i, key in enumerate(["seed=1", *keys]):
            self.train(f"out{i}", *LOSSES, *base, key)
            losses.append(metrics(f"{self.dir}/out{i}", "train/total_loss"))
            self.assertEqual(len(losses[i]), 2)
        same = [key for key, found in zip(keys, losses[1:]) if found == losses[0]]
        self.assertEqual(same, [])

    def test_a_damaged_frame(self):
        """Its clip is another one; without another one, or with on_error=stop, the run ends."""
        for name in ("a", "b"):
            os.remove(f"{self.videos}/{name}.mp4")
        write_video(f"{self.videos}/a.mov", 8, codec="png")
        with open(f"{self.videos}/a.mov", "rb") as f:
            frames = f.read().split(b"\x89PNG")
        frames[4] = bytes(len(frames[4]))
        with open(f"{self.videos}/a.mov", "wb") as f:
            f.write(b"\x89PNG".join(frames))
        clip = "dali.base.train.sequence_length"
        text = self.train("out", *CLIPS, f"{clip}=4", "max_steps=2")
        warning = "another clip takes the place of a damaged one"
        self.assertEqual(len(re.findall(f"{warning}: .*a.mov: frame 3 of 8", text)), 1, text)
        self.assertEqual(len(metrics(f"{self.dir}/out", "train/temporal_loss_step")), 2)
        for more, code, part in (
            (f"{clip}=8", 64, "project/videos: each of its 1 clip of 8 frames has one"),
            (f"{clip}=4 on_error=stop", 64, "a.mov: frame 3 of 8"),
        ):
            more = [*CLIPS, "overwrite=true", "max_steps=2", *more.split()]
            text = self.train("end", *more, code=code)
            self.assertIn(part, text)

    # ---- weights=, and resuming ----

    def test_a_fit_is_of_its_own_run(self):
        """Begun from the file of a backbone, of another project, with other components."""
        base = [*CLIPS, "dali.base.train.sequence_length=4", "max_steps=1"]
        text = self.train("one", *base, "callbacks.anneal_weight.init_val=0")
        self.assertIn("freeze_until_epoch=60: the losses of model.losses_to_use count 0", text)
        model = "one/exported_models/exported_last.safetensors"
        tensors, meta = read_safetensors(f"{self.dir}/{model}")
        labels = f"{self.dir}/project/CollectedData.csv"
        front = "backbone."
        part = {n[len(front) :]: t for n, t in tensors.items() if n.startswith(front)}
        write_safetensors(f"{self.dir}/backbone.safetensors", part)
        with open(labels, encoding="ascii") as f:
            lines = f.read().splitlines(keepends=True)
        with open(labels, "w", encoding="ascii") as f:
            f.writelines(lines[:3])
            for line in lines[3:]:
                name, *values = line.strip().split(",")
                values = [v and str(float(v) + i % 2) for i, v in enumerate(values)]
                f.write(",".join([name, *values]) + "\n")
        for weights, more, taken in (
            ("backbone.safetensors", "", "new in this run: head ("),
            (model, "losses.pca_singleview.components_to_keep=1", "tensors are from it"),
        ):
            text = self.train(
                "two", "overwrite=true", "quiet=false", *base, f"weights={weights}", *more.split()
            )
            self.assertIn(taken, text)
            self.assertNotIn("not used", text)
            self.assert_own_fit("one", "two")
        changed = "losses.pca_singleview.epsilon=5"
        text = self.train("two", "resume=true", *base, "max_steps=2", changed, code=64)
        self.assertIn('losses.pca_singleview.components_to_keep is "2", and the run of ', text)
        more = ["losses.pca_singleview.components_to_keep=1", changed]
        text = self.train("two", "resume=true", *base, "max_steps=2", *more, code=64)
        self.assertRegex(text, "losses.pca_singleview.epsilon is 5, and the run of .* had 0.1")

    def assert_own_fit(self, other, run):
        name = "model/pca_singleview.mean"
        path = "checkpoints/last.safetensors"
        both = [read_safetensors(f"{self.dir}/{r}/{path}")[0][name] for r in (other, run)]
        self.assertNotEqual(both[0], both[1])


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
