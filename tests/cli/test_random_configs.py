"""Random configurations over random layouts: one hash of weights, one of the state, the same
metrics, digit by digit.

A configuration is drawn from everything that changes results (model, batch, micro-batches, group,
optimizer, schedule, precision, clipping, averages, mixup, frozen parts, data); a layout from
everything that may not (ranks as threads or processes, devices, buckets, lanes, cores, workers, a
stop and a resume on another layout).

usage: test_random_configs.py LEVIN DATA [test names]
  LEVIN_TEST_SEED=N       the first seed, default 1; configuration k is drawn from seed N + k alone
  LEVIN_TEST_CONFIGS=N    how many, default 8
  LEVIN_TEST_SECONDS=N    instead: as many as fit
A failure names its seed and both commands.
"""

import os
import random
import shlex
import subprocess
import sys
import time

from bad_support import Case, LEVIN, main, OK, WAIT_S
from reproducibility_lines import first_difference, reproducibility_lines
from rank_processes import drop_identity

PHOTOS = os.path.join(sys.argv.pop(1), "clothing") if len(sys.argv) > 1 else ""
SEED = int(os.environ.get("LEVIN_TEST_SEED", "1"))
CONFIGS = int(os.environ.get("LEVIN_TEST_CONFIGS", "8"))
SECONDS = float(os.environ.get("LEVIN_TEST_SECONDS", "0"))
drop_identity()
SIM = {"LEVIN_SIM_DEVICES": "8", "LEVIN_SIM_MEMORY": "2GiB"}


def draw_data(r):
    if PHOTOS and os.path.isdir(PHOTOS) and r.random() < 0.15:
        return [f"data={PHOTOS}", f"image_size={r.choice([16, 24])}", "val_split=0.6"]
    return [
        "data=builtin:shapes",
        f"data.count={r.randint(40, 200)}",
        f"data.classes={r.randint(2, 6)}",
        f"data.seed={r.randint(0, 9)}",
        f"image_size={r.choice([12, 16, 20])}",
        f"val_split={r.choice([0, 0.2, 0.35])}",
    ]


def draw_optimizer(r):
    name = r.choice(["sgd", "adam", "adamw", "lars"])
    rates = [1e-3, 1e-2, 0.1] if name in ("sgd", "lars") else [3e-4, 3e-3]
    keys = [
        f"optim={name}",
        f"optim.lr={r.choice(rates)}",
        f"optim.weight_decay={r.choice([0, 1e-4, 0.05])}",
        f"optim.decay_norm_bias={r.choice(['true', 'false'])}",
    ]
    if name == "sgd" and r.random() < 0.5:
        keys += ["optim.momentum=0.8", f"optim.nesterov={r.choice(['true', 'false'])}"]
    schedule = r.choice(["constant", "step", "multistep", "cosine", "linear"])
    keys += [f"scheduler={schedule}"]
    if schedule == "step":
        keys += ["scheduler.step_size=2", "scheduler.interval=step", "scheduler.gamma=0.5"]
    if schedule == "multistep":
        keys += ["scheduler.milestones=[2,5]", "scheduler.interval=step"]
    if r.random() < 0.4:
        keys += [f"scheduler.warmup_steps={r.randint(1, 2)}"]
    if r.random() < 0.5:
        keys += [f"gradient_clip_val={r.choice([0.1, 1, 5])}"]
    return keys


def draw_model(r, bf16):
    model = r.choices(["cnn", "mlp", "resnet18"], [6, 3, 1])[0]
    keys = [f"model={model}"]
    if r.random() < 0.5:
        keys += [f"model.dropout={r.choice([0, 0.1, 0.5])}"]
    if r.random() < 0.3:
        keys += ["ema.decay=0.9", f"ema.warmup={r.choice(['true', 'false'])}"]
    if model == "cnn" and r.random() < 0.3:
        keys += [f"freeze={r.choice(['[conv1]', '[conv1,norm1]', '[head.bias]'])}"]
    if r.random() < 0.3:
        keys += ["lr_scale=[*.bias=3]"]
    precisions = ["32-true", "32-true", "16-mixed"] + (["bf16-mixed", "bf16-true"] if bf16 else [])
    return keys + [f"precision={r.choice(precisions)}"]


def draw_augmentation(r):
    keys = []
    for key, values in (
        ("augment.crop", ["true", "false"]),
        ("augment.hflip", [0, 0.5]),
        ("augment.brightness", [0.3]),
        ("augment.hue", [0.1]),
        ("augment.grey", [0.2]),
        ("augment.blur", [0.3]),
        ("augment.solarize", [0.3]),
        ("augment.mixup_alpha", [0.4]),
        ("augment.cutmix_alpha", [1]),
    ):
        if r.random() < 0.3:
            keys += [f"{key}={r.choice(values)}"]
    return keys


def draw_loss(r):
    keys = []
    for key, values in (
        ("label_smoothing", [0.1]),
        ("class_weights", ["auto"]),
        ("sampler", ["balanced"]),
    ):
        if r.random() < 0.2:
            keys += [f"{key}={r.choice(values)}"]
    return keys


def draw_batch(r):
    """Returns keys, number of micro-batches, and the size of a group (0: none)."""
    micro_batches, accumulate = r.randint(1, 8), r.choice([1, 1, 2])
    batch = max(r.randint(4, 24), -(-micro_batches // accumulate))
    group = (
        r.choice([d for d in range(1, micro_batches + 1) if micro_batches % d == 0])
        if r.random() < 0.3
        else 0
    )
    keys = [
        f"batch_size={batch}",
        f"accumulate_grad_batches={accumulate}",
        f"micro_batches={micro_batches}",
        f"wgrad_threads={r.choice([1, 1, 2])}",
        f"eval_batch_size={r.randint(3, 40)}",
        f"drop_last={'true' if r.random() < 0.15 else 'false'}",
    ]
    return keys + ([f"group={group}"] if group else []), micro_batches, group


def draw_layout(r, micro_batches, group):
    """Groups lie within a rank in this version."""
    ranks = [
        w for w in range(1, micro_batches + 1) if not group or (micro_batches // group) % w == 0
    ]
    devices = r.choice(ranks)
    keys = [
        f"strategy={'single' if devices == 1 else r.choice(['dp', 'ddp'])}",
        f"devices={devices}",
        f"accelerator={r.choice(['cpu', 'cpu', 'sim'])}",
        f"bucket_bytes={r.choice([16384, 65536, 4194304])}",
        f"num_workers={r.randint(0, 3)}",
    ]
    if r.random() < 0.4 and "strategy=dp" not in keys:  # threads share memory
        keys += ["transport=net"]
    if r.random() < 0.4:
        keys += [f"lanes={r.randint(1, 4)}"]
    return keys, r.random() < 0.3  # on one core


class RandomConfigs(Case):
    def setUp(self):
        super().setUp()
        _, reported = self.levin(
            ["plan", "train", "classify", "data=builtin:shapes", "precision=bf16-mixed"], None
        )
        self.bf16 = "no bf16 products" not in reported

    def run_on(self, arguments, one_core):
        command = [
            *(["taskset", "-c", "0"] if one_core else []),
            LEVIN,
            "train",
            "classify",
            *arguments,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=WAIT_S, env=dict(os.environ, **SIM)
        )
        self.assertEqual(done.returncode, OK, f"{shlex.join(command)}\n{done.stderr}")
        return shlex.join(command)

    def config(self, seed):
        r = random.Random(seed)
        batch, micro_batches, group = draw_batch(r)
        model = draw_model(r, self.bf16)
        if group and "model=mlp" not in model:  # which has no batch norm
            model += ["sync_batchnorm=true"]
        if (
            "model=resnet18" in model
        ):  # batch norm needs more than one value of each channel at its last block
            model += ["image_size=40"]
        arguments = [
            *draw_data(r),
            *model,
            *batch,
            *draw_optimizer(r),
            *draw_augmentation(r),
            *draw_loss(r),
            f"seed={r.randint(0, 99)}",
            f"max_steps={r.randint(3, 8)}",
            "log_every_n_steps=1",
            "quiet=true",
        ]
        ends = {"scheduler=cosine", "scheduler=linear"}.isdisjoint(
            arguments
        )  # else the schedule follows from max_steps
        first = self.run_on(
            [
                *arguments,
                f"out={self.dir}/one",
                "overwrite=true",
                "devices=1",
                "num_workers=0",
                "lanes=1",
            ],
            False,
        )
        expected = self.hashes(f"{self.dir}/one"), reproducibility_lines(f"{self.dir}/one")
        for _ in range(3):
            keys, one_core = draw_layout(r, micro_batches, group)
            here = [*arguments, *keys, f"out={self.dir}/other"]
            stop = r.choice([0, 0, 1, 2]) if ends else 0
            if stop:
                self.run_on([*here, "overwrite=true", f"max_steps={stop}"], one_core)
                keys, one_core = draw_layout(r, micro_batches, group)
                here = [*arguments, *keys, f"out={self.dir}/other"]
            command = self.run_on([*here, "resume=true" if stop else "overwrite=true"], one_core)
            where = (
                f"seed {seed}{f', stopped after step {stop}' if stop else ''}\n{first}\n{command}"
            )
            found = self.hashes(f"{self.dir}/other"), reproducibility_lines(f"{self.dir}/other")
            self.assertEqual(found[0], expected[0], where)
            self.assertEqual(first_difference(found[1], expected[1]), "", where)

    def test_one_result(self):
        end = time.monotonic() + SECONDS
        done = 0
        while time.monotonic() < end if SECONDS > 0 else done < CONFIGS:
            self.config(SEED + done)
            done += 1
        print(
            f"{done} random configurations from seed {SEED}, {3 * done} layouts, none differed",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
