"""Random configurations over random layouts: one hash each.

A configuration is drawn from everything that changes results (model, batch, micro-batches, group,
optimizer, schedule, precision, clipping, averages, mixup, frozen parts, data), or is a recipe in a
shared object with some of them: one of the examples, or one whose steps have two phases. It runs
alone, and on four layouts: one rank with lanes, ranks that are threads, and processes over shm and
over net, with simulated accelerators, some of them slow, among them. Two of the four are stopped in
the middle, by SIGTERM or SIGKILL to the command or to one rank, or by max_steps, and resumed on
another layout. A configuration for several ranks runs on those of two nodes too, half of them
stopped by max_steps and resumed. All must end with the same checkpoints, exported weights and
metrics, digit by digit. The same for `levin pretrain` (random_pretrain.py), whose schedules follow
from the number of steps: stopped there by signals; and for `levin train pose` (random_pose.py),
whose tables of predictions are compared, too.

usage: test_random_configs.py LEVIN DATA [test names]
  LEVIN_TEST_SEED=N       the first seed, default 5584, whose six configurations have most of what
                          there is, and are small; configuration k is drawn from seed N + k alone
  LEVIN_TEST_CONFIGS=N    how many at least, default 6
  LEVIN_TEST_PRETRAIN=N   how many of `levin pretrain`, default 1, from the seed of the day or N
  LEVIN_TEST_POSE=N       how many of `levin train pose`, default 0, from the seed of the day or N
  LEVIN_TEST_SECONDS=N    and as many more as fit, half of them of `levin pretrain`
  LEVIN_TEST_SHRINK_S=N   time to make a failure small, default 60
Prints a line per configuration: seed, hash, model. A failure names its seed and the smallest
commands found that differ.
"""

import collections
import os
import shutil
import sys
import time
import unittest

from case import Case, LEVIN, main, WAIT_S
from node_processes import missing
from random_configs import KINDS, NODES, draw, draw_config, value_of
from pose_project import write_project, write_video
from random_pose import draw_pose
from random_pretrain import draw_pretrain
from random_trials import Failed, Runner, explain
from rank_processes import drop_identity

PHOTOS = os.path.join(sys.argv.pop(1), "clothing") if len(sys.argv) > 1 else ""
SEED = int(os.environ.get("LEVIN_TEST_SEED", "5584"))
CONFIGS = int(os.environ.get("LEVIN_TEST_CONFIGS", "6"))
SECONDS = float(os.environ.get("LEVIN_TEST_SECONDS", "0"))
PRETRAIN = int(os.environ.get("LEVIN_TEST_PRETRAIN", "1"))
POSE = int(os.environ.get("LEVIN_TEST_POSE", "0"))
SHRINK_S = float(os.environ.get("LEVIN_TEST_SHRINK_S", "60"))
drop_identity()


EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
RECIPES = {
    "11_simclr/simclr.c": ["data=builtin:shapes", "image_size=16", "bank=64", "neighbours=5"],
    "08_student/student.c": ["data=builtin:shapes", "image_size=16"],
    "../tests/cli/two_phases.c": [],
}


def name_of(config):
    """The network, the method of pretraining, or the recipe of a shared object."""
    keys = ("method", "model", "model.model_type")
    return next((v for v in (value_of(config, k) for k in keys) if v), os.path.basename(config[0]))


def report(line):
    print(line, file=sys.stderr, flush=True)


def readable(path):
    """Relative where it lies below this directory, and with a slash: PATH must not be searched."""
    below = os.path.relpath(path)
    return path if below.startswith("..") else os.path.join(".", below)


class RandomConfigs(Case):
    def setUp(self):
        super().setUp()
        _, reported = self.levin(
            ["plan", "train", "classify", "data=builtin:shapes", "precision=bf16-mixed"], None
        )
        self.bf16 = "no bf16 products" not in reported
        self.recipes = {self.compile(c): own for c, own in RECIPES.items()}
        self.runner = Runner(readable(LEVIN), self.dir, WAIT_S)
        self.seen = collections.Counter()
        self.several_nodes = not missing()

    def compile(self, source):
        out = os.path.join(self.dir, os.path.basename(source).replace(".c", ".so"))
        self.levin(["cc", os.path.join(EXAMPLES, source), "-o", out], None)
        return out

    def count(self, config, trials):
        for kind, trial in zip((*KINDS, NODES), trials):
            several = trial.layouts[-1].ranks() > 1 or kind == NODES
            self.seen["layouts"] += 1
            self.seen[kind] += several or kind == "single"
            self.seen[trial.stop.how if trial.stop else "no stop"] += 1
            self.seen["sim"] += any(x.sim for x in trial.layouts)
            self.seen["slow sim"] += any(x.sim and x.slow for x in trial.layouts)
        self.seen[name_of(config)] += 1
        self.seen[value_of(config, "precision")] += 1
        self.seen[value_of(config, "optim") or value_of(config, "training.optimizer")] += 1
        for key in ("ema.decay", "freeze", "sync_batchnorm", "gradient_clip_val"):
            self.seen[key] += value_of(config, key) is not None
        self.seen["mixed images"] += any("mixup" in a or "cutmix" in a for a in config)

    def config(self, seed, draw_one):
        config, trials = draw(seed, draw_one, self.several_nodes)
        self.count(config, trials)
        try:
            expected = self.runner.alone(config)
        except Failed as e:
            self.fail(f"seed {seed}: {e}")
        for trial in trials:
            fault = self.runner.fault(config, trial, expected)
            if fault is not None:
                self.fail(explain(self.runner, seed, config, trial, fault, SHRINK_S))
        values = (value_of(config, k) for k in ("optim", "training.optimizer", "precision"))
        what = " ".join([name_of(config), *(v for v in values if v)])
        report(f"seed {seed}: {expected.digest()} {what}")

    def configs(self, least, seconds, first, draw_one):
        """Returns how many there were."""
        end = time.monotonic() + seconds
        done = 0
        while done < least or time.monotonic() < end:
            self.config(first + done, draw_one)
            done += 1
        self.assertGreaterEqual(min(self.seen[kind] for kind in KINDS), min(1, done // 4))
        hits = " and ".join(f"{n} {name}" for name, n in self.runner.signals.items())
        report(", ".join(f"{name} {n}" for name, n in sorted(self.seen.items())))
        report(
            f"{done} random configurations from seed {first}, {self.seen['layouts']} layouts, "
            f"{hits} in the middle ({self.runner.late} too late), none differed"
        )
        return done

    def test_one_result(self):
        done = self.configs(
            CONFIGS, SECONDS / 2, SEED, lambda r: draw_config(r, self.bf16, PHOTOS, self.recipes)
        )
        if self.several_nodes:
            self.assertGreaterEqual(self.seen[NODES], min(1, done // 4))

    def test_pretraining(self):
        small = (
            "data=builtin:shapes data.count=16 image_size=16 model=cnn batch_size=8 max_epochs=1"
        )
        out = os.path.join(self.dir, "teacher")
        self.levin(["pretrain", *small.split(), "method_args.hidden_dim=8", f"out={out}"], 0)
        teacher = os.path.join(out, "exported_models/exported_last.safetensors")
        first = int(os.environ.get("LEVIN_TEST_SEED") or time.time() // 86400)
        self.configs(PRETRAIN, SECONDS / 2, first, lambda r: draw_pretrain(r, teacher))

    @unittest.skipIf(POSE == 0, "takes long: LEVIN_TEST_POSE=N")
    def test_pose(self):
        write_project(f"{self.dir}/project")
        videos = shutil.which("ffmpeg") is not None
        if videos:
            write_video(f"{self.dir}/project/videos/a.mp4", 40)
            write_video(f"{self.dir}/project/videos/b.mp4", 23, speed=2.0)
        first = int(os.environ.get("LEVIN_TEST_SEED") or time.time() // 86400)
        config = f"{self.dir}/project/config.yaml"
        self.configs(POSE, 0, first, lambda r: draw_pose(r, config, videos))


if __name__ == "__main__":
    main()
