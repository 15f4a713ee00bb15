#!/usr/bin/env python3
"""levin's pose against Lightning Pose on the CPU, in turns, on the same project, configuration and
first weights.

usage: bench/pose_vs_lightning_pose.py BUILD PROJECT PYTHON [--KEY VALUE ...]
  BUILD    build folder, with levin and levin_video.so
  PROJECT  folder with CollectedData.csv, its images, and one video in videos/
  PYTHON   of an environment with lightning-pose 2.4.3 (pip install lightning-pose; without what
           nothing here calls: pip install --no-deps, and what its imports ask for)
  --only steps,video,learn
  --backbone resnet18 --side 256 --batch 16 --pairs 3    of steps
  --threads 1      OMP_NUM_THREADS of both: threads that wait for each other on a busy machine spend
                   processor time
  --seeds 3 --epochs 60 --learn-side 128                 of learn

steps: both write a line behind each step; whenever one is there, the processor time of all
processes of the program is read. Processor seconds of a step behind the first, seconds and
processor seconds from the command to the end of the first, and the largest memory (PSS).
video: frames of the video per processor second, levin with 1 and with 2 ranks, by the models that
`steps` trained.
learn: mean pixel error on the test frames, from the same first weights, with the same frames.
Medians with the least and largest value, ratios pair by pair. Processor time means something on a
busy machine, too; seconds do not. Judges nothing. Writes out/bench/pose_vs_lightning_pose.json.
"""

import argparse
import csv
import glob
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from pretrain_step import children, cpu_s, pss_mib, steps_done, text

THEIRS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pose_lightning.py")
POLL_S = 0.02
CONFIG = """\
data:
  image_resize_dims: {{height: {side}, width: {side}}}
  data_dir: {project}
  video_dir: {project}/videos
  csv_file: CollectedData.csv
  downsample_factor: 2
  num_keypoints: {k}
  keypoint_names: [{names}]
  mirrored_column_matches: null
  columns_for_singleview_pca: null
training:
  imgaug: dlc
  train_batch_size: {batch}
  val_batch_size: 32
  test_batch_size: 32
  train_prob: 0.8
  val_prob: 0.1
  train_frames: 1
  num_gpus: 1
  num_workers: 0
  unfreezing_epoch: 0
  min_epochs: {epochs}
  max_epochs: {epochs}
  log_every_n_steps: 1
  check_val_every_n_epoch: {val_every}
  rng_seed_data_pt: 42
  rng_seed_model_pt: {seed}
  optimizer: Adam
  optimizer_params: {{learning_rate: 0.001}}
  lr_scheduler: multisteplr
  lr_scheduler_params:
    multisteplr: {{milestones: [{milestone}], gamma: 0.5}}
model:
  losses_to_use: []
  backbone: {backbone}
  backbone_pretrained: false
  checkpoint: {checkpoint}
  model_type: heatmap
  heatmap_loss_type: mse
  model_name: pose
dali:
  general: {{seed: 123456}}
  base: {{train: {{sequence_length: 16}}, predict: {{sequence_length: 96}}}}
  context: {{train: {{batch_size: 16}}, predict: {{sequence_length: 96}}}}
losses: {{}}
eval:
  predict_vids_after_training: false
  save_vids_after_training: false
  test_videos_directory: {project}/videos
  confidence_thresh_for_vid: 0.9
callbacks:
  anneal_weight: {{attr_name: total_unsupervised_importance, init_val: 0.0, increase_factor: 0.01,
    final_val: 1.0, freeze_until_epoch: 0}}
"""


def read_names(project):
    with open(f"{project}/CollectedData.csv", encoding="utf-8", newline="") as f:
        return list(dict.fromkeys(list(csv.reader(f))[1][1:]))


def write_config(path, project, **keys):
    names = read_names(project)
    with open(path, "w", encoding="utf-8") as f:
        f.write(CONFIG.format(project=project, k=len(names), names=", ".join(names), **keys))
    return path


def watch(command, env, lines=None):
    """(core-s in all, s, marks, MiB): a mark for each line in the file `lines`, with how many there
    are, the seconds and the processor seconds until then."""
    started, seen, marks, most, watched = time.perf_counter(), {}, [], 0.0, 0.0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        while process.poll() is None:
            pids = [process.pid, *children(process.pid)]
            used, now = cpu_s(pids, seen), time.perf_counter() - started
            n = steps_done(lines) if lines else 0
            if n > (marks[-1][0] if marks else 0):
                marks.append((n, now, used))
            if now - watched > 0.5 or not most:
                most, watched = max(most, pss_mib(pids)), now
            time.sleep(POLL_S if lines else 0.2)
        if process.returncode != 0:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)}:\n{log.read().decode()[-3000:]}")
    return sum(seen.values()), time.perf_counter() - started, marks, most


def step_s(marks):
    """The median of the processor seconds of single steps behind the first."""
    return statistics.median(
        (b[2] - a[2]) / (b[0] - a[0]) for a, b in zip(marks, marks[1:])
    )


class Duel:
    def __init__(self, arguments, folder):
        self.a, self.folder = arguments, folder
        self.env = dict(os.environ, OMP_NUM_THREADS=str(arguments.threads))
        self.env["OMP_WAIT_POLICY"] = "passive"
        self.found = {}

    def command(self, side, config, out, *more):
        if side == "levin":
            levin = [f"{self.a.build}/levin", "train", "pose", f"config={config}", f"out={out}"]
            return [*levin, "overwrite=true", "quiet=true", "accelerator=cpu", *more]
        return [self.a.python, THEIRS, "train", config, out]

    def in_turns(self, pairs, measure):
        """{side: rows} of measure(side, pair)."""
        rows = {"levin": [], "Lightning Pose": []}
        for pair in range(pairs):
            for side in sorted(rows, reverse=pair % 2 == 1):
                rows[side].append(measure(side, pair))
                print(side, *(f"{x:.4g}" for x in rows[side][-1]), file=sys.stderr, flush=True)
        return rows

    def show(self, title, rows, names):
        print(title)
        self.found[title] = rows
        for k, name in enumerate(names):
            ours, theirs = ([row[k] for row in rows[s]] for s in ("levin", "Lightning Pose"))
            print(f"  {name}: levin {text(ours)}, Lightning Pose {text(theirs)}")
            print(f"    levin / Lightning Pose {text([x / y for x, y in zip(ours, theirs)])}")
        sys.stdout.flush()

    def steps(self):
        a = self.a
        config = write_config(
            f"{self.folder}/steps.yaml", a.project, side=a.side, batch=a.batch, epochs=2,
            val_every=2, seed=1, milestone=1, backbone=a.backbone, checkpoint="null",
        )  # fmt: skip

        def measure(side, pair):
            out = f"{self.folder}/{side[0]}"
            if pair > 0 and os.path.exists(f"{out}/metrics.jsonl"):
                os.remove(f"{out}/metrics.jsonl")
            command = self.command(side, config, out)
            _, _, marks, most = watch(command, self.env, f"{out}/metrics.jsonl")
            return step_s(marks), marks[0][1], marks[0][2], most

        title = f"{a.backbone}, batch {a.batch} of {a.side} x {a.side}, {a.pairs} pairs"
        names = ("core-s of a step", "s to the end of the first", "core-s to it", "MiB at most")
        self.show(title, self.in_turns(a.pairs, measure), names)

    def video(self):
        a = self.a
        (video,) = glob.glob(f"{a.project}/videos/*")
        frames = 0

        def measure(side, pair, ranks=1):
            nonlocal frames
            to = f"{self.folder}/preds"
            levin = [f"{a.build}/levin", "predict", "pose", f"model={self.folder}/l"]
            levin += [f"data={video}", f"output={to}.csv", "overwrite=true", f"devices={ranks}"]
            theirs = [a.python, THEIRS, "predict", f"{self.folder}/L", video, f"{to}{pair}"]
            used, took, _, most = watch(levin if side == "levin" else theirs, self.env)
            if side == "levin":
                with open(f"{to}.csv", encoding="utf-8") as f:
                    frames = sum(1 for _ in f) - 3
            return used, took, most

        rows = self.in_turns(a.pairs, measure)
        rows = {side: [(frames / u, t, m) for u, t, m in r] for side, r in rows.items()}
        names = ("frames per core-s, whole command", "s", "MiB at most")
        self.show(f"video, {a.backbone}, {a.side} x {a.side}, {frames} frames", rows, names)
        two = [frames / measure("levin", i, 2)[0] for i in range(a.pairs)]
        one = [row[0] for row in rows["levin"]]
        print(f"  levin as 2 ranks: {text(two)} frames per core-s")
        print(f"    2 ranks / 1 rank {text([x / y for x, y in zip(two, one)])}")
        self.found["2 ranks"] = two

    def learn(self):
        a = self.a

        def measure(side, pair):
            weights = f"{self.folder}/first{pair}.ckpt"
            keys = dict(side=a.learn_side, batch=a.batch, epochs=a.epochs)
            keys |= dict(val_every=min(10, a.epochs), milestone=max(a.epochs * 2 // 3, 1))
            keys |= dict(seed=pair + 1, backbone="resnet18")
            config = write_config(
                f"{self.folder}/learn.yaml", a.project, checkpoint=weights, **keys
            )
            if not os.path.exists(weights):
                begin = write_config(
                    f"{self.folder}/first.yaml", a.project, checkpoint="null", **keys
                )
                watch([a.python, THEIRS, "first", begin, str(pair + 1), weights], self.env)
            out = f"{self.folder}/learn_{side[0]}"
            more = (f"data.split={weights}.csv", f"seed={pair + 1}")
            used, _, _, _ = watch(self.command(side, config, out, *more), self.env)
            return test_error(f"{out}/predictions_pixel_error.csv"), used

        title = f"learning, resnet18, {a.epochs} epochs, {a.learn_side} x {a.learn_side}"
        rows = self.in_turns(a.seeds, measure)
        self.show(title, rows, ("mean pixel error on the test frames", "core-s in all"))
        means = [statistics.mean(row[0] for row in rows[s]) for s in ("levin", "Lightning Pose")]
        print(f"  mean of the seeds: levin {means[0]:.3f}, Lightning Pose {means[1]:.3f}")
        print(f"    levin / Lightning Pose {means[0] / means[1]:.3f}")


def test_error(path):
    """The mean over all points of the test frames that have a label."""
    with open(path, encoding="utf-8", newline="") as f:
        rows = [row for row in csv.reader(f) if row[-1] == "test"]
    return statistics.mean(float(cell) for row in rows for cell in row[1:-1] if cell)


def main():
    parser = argparse.ArgumentParser(description="levin pose against Lightning Pose")
    for name in ("build", "project", "python"):
        parser.add_argument(name, type=os.path.abspath if name != "python" else str)
    parser.add_argument("--only", default="steps,video,learn")
    parser.add_argument("--backbone", default="resnet18")
    for name, usual in (("side", 256), ("batch", 16), ("pairs", 3), ("threads", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    for name, usual in (("seeds", 3), ("epochs", 60), ("learn-side", 128)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--keep", help="a folder for what both write, in place of a temporary one")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="levin-pose-") as folder:
        duel = Duel(a, a.keep or folder)
        os.makedirs(duel.folder, exist_ok=True)
        for name in a.only.split(","):
            {"steps": duel.steps, "video": duel.video, "learn": duel.learn}[name]()
        os.makedirs("out/bench", exist_ok=True)
        with open("out/bench/pose_vs_lightning_pose.json", "w", encoding="utf-8") as f:
            json.dump(duel.found, f, indent=2)


if __name__ == "__main__":
    main()
