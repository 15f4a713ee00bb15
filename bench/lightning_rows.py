#!/usr/bin/env python3
"""levin beside the Lightning trainer: the same images in the same order, the same first weights,
the same optimizer, and one argument of the trainer at a time. Compared are the steps that were
made, the loss of each, at which steps it was validated and with which loss, and what belongs to the
argument (checkpoints that are kept, learning rates).

usage: bench/lightning_rows.py LEVIN --torch PYTHON
  LEVIN    build/levin
  --torch  a Python with lightning and torch: python3 -m venv v && v/bin/pip install lightning

Prints a line for each row with the times of both. Exit 1 where two differ by more than TOLERANCE
(f32 sums in another order).
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import small_png  # noqa: E402  pylint: disable=wrong-import-position

SIDE, CLASSES, BATCH, TRAIN, VAL, TOLERANCE = 12, 3, 8, 64, 24, 2e-4
MEAN, STD = 0.5, 0.25
LR = 0.02
EPOCHS = 3
# what it shows, keys of levin, arguments of Lightning's Trainer, settings of the module
ROWS = [
    ("the first end of two", ["max_epochs=3", "max_steps=10"], {"max_steps": 10}, {}),
    ("steps alone", ["max_steps=20"], {"max_epochs": None, "max_steps": 20}, {}),
    (
        "accumulation by epoch",
        ["accumulate_grad_batches=0:1,2:4"],
        {},
        {"accumulate": {0: 1, 2: 4}},
    ),
    ("clipping by norm", ["gradient_clip_val=0.1"], {"gradient_clip_val": 0.1}, {}),
    ("validation 4 times an epoch", ["val_check_interval=0.25"], {"val_check_interval": 0.25}, {}),
    ("validation after 3 batches", ["val_check_interval=3"], {"val_check_interval": 3}, {}),
    (
        "validation in every second epoch",
        ["check_val_every_n_epoch=2", "max_epochs=5"],
        {"check_val_every_n_epoch": 2, "max_epochs": 5},
        {},
    ),
    (
        "parts of both sets",
        ["limit_train_batches=0.5", "limit_val_batches=2"],
        {"limit_train_batches": 0.5, "limit_val_batches": 2},
        {},
    ),
    (
        "early stopping",
        ["max_epochs=40", "early_stopping.monitor=val/loss", "early_stopping.patience=2"]
        + ["optim.lr=0.3"],
        {"max_epochs": 40},
        {"patience": 2, "lr": 0.3},
    ),
    (
        "the two best of six",
        ["max_epochs=6", "checkpoint.monitor=val/loss", "checkpoint.save_top_k=2", "optim.lr=0.3"],
        {"max_epochs": 6},
        {"top_k": 2, "lr": 0.3},
    ),
    (
        "a schedule by the epoch",
        ["scheduler=step", "scheduler.step_size=1", "scheduler.gamma=0.5"],
        {},
        {"gamma": 0.5},
    ),
    ("two batches of everything", ["fast_dev_run=2"], {"fast_dev_run": 2}, {}),
]

THEIRS = r"""
import json, logging, sys, time, warnings
warnings.filterwarnings("ignore")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
import torch, torch.nn.functional as F
import lightning as L
from lightning.pytorch.callbacks import (Callback, EarlyStopping, GradientAccumulationScheduler,
                                         ModelCheckpoint)

torch.set_num_threads(1)
task = json.load(open(sys.argv[1]))
kept = []
images = {k: (torch.tensor(task[k]["x"]).view(-1, 12, 12, 3).permute(0, 3, 1, 2) / 255.0
              - task["mean"]) / task["std"] for k in ("train", "val")}
labels = {k: torch.tensor(task[k]["y"]) for k in ("train", "val")}


class Order(torch.utils.data.Sampler):
    epoch = 0

    def __iter__(self):
        Order.epoch += 1
        return iter(task["order"][Order.epoch - 1])

    def __len__(self):
        return len(task["order"][0])


class Net(L.LightningModule):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.fc1 = torch.nn.Linear(12 * 12 * 3, 256)
        self.fc2 = torch.nn.Linear(256, 256)
        self.head = torch.nn.Linear(256, task["classes"])

    def forward(self, x):
        return self.head(F.relu(self.fc2(F.relu(self.fc1(x.flatten(1))))))

    def training_step(self, batch, i):
        return F.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch, i):
        loss = F.cross_entropy(self(batch[0]), batch[1])
        self.log("val_loss", loss, batch_size=len(batch[1]))

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.o.get("lr", task["lr"]),
                                    momentum=0.9)
        if "gamma" not in self.o:
            return optimizer
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, self.o["gamma"])]


class Record(Callback):
    def __init__(self):
        self.losses, self.steps, self.vals, self.lrs = [], {}, [], {}

    def on_train_batch_end(self, trainer, module, outputs, batch, i):
        self.losses.append(outputs["loss"].item() * (trainer.accumulate_grad_batches or 1))
        if trainer.global_step > max(self.steps, default=0):
            self.steps[trainer.global_step] = sum(self.losses) / len(self.losses)
            self.lrs[trainer.global_step] = self.lr
            self.losses = []

    def on_train_batch_start(self, trainer, module, batch, i):
        self.lr = trainer.optimizers[0].param_groups[0]["lr"]

    def on_validation_end(self, trainer, module):
        if not trainer.sanity_checking:
            self.vals.append((trainer.global_step, trainer.callback_metrics["val_loss"].item()))


print("ready", flush=True)
for line in sys.stdin:
    row = json.loads(line)
    start = time.perf_counter()
    Order.epoch = 0
    o, record = row["module"], Record()
    callbacks = [record]
    if "accumulate" in o:
        callbacks.append(GradientAccumulationScheduler(
            scheduling={int(k): v for k, v in o["accumulate"].items()}))
    if "patience" in o:
        callbacks.append(EarlyStopping("val_loss", patience=o["patience"], min_delta=0.0))
    best = None
    if "top_k" in o:
        best = ModelCheckpoint(dirpath=task["dir"] + "/theirs", monitor="val_loss",
                               save_top_k=o["top_k"], filename="{step}")
        callbacks.append(best)
    net = Net(o)
    net.load_state_dict(torch.load(task["weights"], weights_only=True))
    loaders = [torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(images[k], labels[k]), batch_size=task["batch"],
        sampler=Order() if k == "train" else None) for k in ("train", "val")]
    trainer = L.Trainer(accelerator="cpu", devices=1, logger=False, callbacks=callbacks,
                        enable_checkpointing=best is not None, enable_progress_bar=False,
                        enable_model_summary=False, default_root_dir=task["dir"],
                        **{"max_epochs": task["epochs"], **row["trainer"]})
    trainer.fit(net, *loaders)
    kept = [] if best is None else sorted(
        int(k.split("step=")[1].split(".")[0]) for k in best.best_k_models)
    print(json.dumps({"steps": sorted(record.steps.items()), "vals": record.vals,
                      "lrs": sorted(record.lrs.items()), "kept": kept,
                      "seconds": time.perf_counter() - start}), flush=True)
"""


def make_data(folder):
    """Bands of brightness with noise, as PNG files and as numbers; in the order of the files."""
    draw, sets = random.Random(1), {}
    for name, n in (("train", TRAIN), ("val", VAL)):
        x, y = [], []
        for label in range(CLASSES):
            for i in range(n // CLASSES + (1 if label < n % CLASSES else 0)):
                pixels = bytes(
                    max(
                        0,
                        min(
                            255, int(draw.gauss(150 if row * CLASSES // SIDE == label else 90, 60))
                        ),
                    )
                    for row in range(SIDE)
                    for _ in range(SIDE * 3)
                )
                small_png.write_pixels(folder / name / f"c{label}" / f"{i:03}.png", SIDE, pixels)
                x.append(list(pixels))
                y.append(label)
        sets[name] = {"x": x, "y": y}
    return sets


def order_of(epoch, seed):
    words = [TRAIN, TRAIN, seed, epoch, 0]
    text = subprocess.check_output(
        [sys.executable, ROOT / "tests/unit/data/order.py", *map(str, words)], text=True
    )
    return [int(i) for i in text.split()]


def run_ours(levin, folder, keys, out):
    base = [
        levin, "train", "classify", f"data={folder}", "model=mlp", "model.dropout=0",
        f"image_size={SIDE}", f"batch_size={BATCH}", f"eval_batch_size={BATCH}",
        "micro_batches=1", "wgrad_threads=1", "augment.crop=false", "augment.hflip=0",
        f"eval.resize={SIDE}", f"eval.crop={SIDE}", f"normalize.mean=[{MEAN},{MEAN},{MEAN}]",
        f"normalize.std=[{STD},{STD},{STD}]", "optim=sgd", f"optim.lr={LR}",
        "optim.momentum=0.9", "optim.weight_decay=0", "log_every_n_steps=1", "quiet=true",
        "num_workers=1", f"out={out}", "overwrite=true",
    ]  # fmt: skip
    ends = any(k.startswith(("max_epochs", "max_steps")) for k in keys)
    start = time.perf_counter()
    subprocess.run([*base, *([] if ends else [f"max_epochs={EPOCHS}"]), *keys], check=True)
    return time.perf_counter() - start


def read_ours(out):
    steps, vals, lrs = {}, [], {}
    if os.path.exists(f"{out}/metrics.jsonl"):
        with open(f"{out}/metrics.jsonl", encoding="utf-8") as f:
            for row in map(json.loads, f):
                if "train/loss_step" in row:
                    steps[row["step"]] = row["train/loss_step"]
                    lrs[row["step"]] = row["lr"]
                if "val/loss" in row:
                    vals.append((row["step"], row["val/loss"]))
    kept = sorted(
        int(p.stem.split("step=")[1]) for p in pathlib.Path(out).glob("checkpoints/*step=*")
    )
    return {"steps": sorted(steps.items()), "vals": vals, "lrs": sorted(lrs.items()), "kept": kept}


def difference(ours, theirs, module):
    """ "" or what differs first."""
    compared = ["steps", "vals"] + (["lrs"] if "gamma" in module else [])
    for what in compared:
        a, b = ours[what], [tuple(p) for p in theirs[what]]
        if [p[0] for p in a] != [p[0] for p in b]:
            return f"{what}: at {[p[0] for p in a]}, Lightning at {[p[0] for p in b]}"
        for (step, x), (_, y) in zip(a, b):
            if abs(x - y) > TOLERANCE * max(1.0, abs(y)):
                return f"{what} at step {step}: {x:.6f}, Lightning {y:.6f}"
    if "top_k" in module and ours["kept"] != theirs["kept"]:
        return f"kept {ours['kept']}, Lightning {theirs['kept']}"
    return ""


def main():
    p = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1])
    p.add_argument("levin")
    p.add_argument("--torch", required=True)
    a = p.parse_args()
    levin = os.path.abspath(a.levin)
    differ, ours_s, theirs_s = 0, 0.0, 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        task = make_data(folder / "data")
        run_ours(levin, folder / "data", ["max_steps=1", "optim.lr=0"], folder / "first")
        first = f"{folder}/first/checkpoints/last.safetensors"
        export = ["export", f"checkpoint={first}", f"output={folder}/w.safetensors"]
        for command in (export, ["ckpt", "convert", f"{folder}/w.safetensors", f"{folder}/w.pt"]):
            subprocess.run([levin, *command], check=True, capture_output=True)
        task.update(mean=MEAN, std=STD, classes=CLASSES, batch=BATCH, lr=LR, epochs=EPOCHS)
        task.update(weights=f"{folder}/w.pt", dir=name, order=[order_of(e, 0) for e in range(40)])
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        (folder / "theirs.py").write_text(THEIRS, encoding="utf-8")
        with subprocess.Popen(
            [a.torch, folder / "theirs.py", folder / "task.json"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        ) as peer:  # fmt: skip
            began = time.perf_counter()
            peer.stdout.readline()
            began = time.perf_counter() - began
            for i, (what, keys, trainer, module) in enumerate(ROWS):
                seconds = run_ours(levin, folder / "data", keys, folder / f"run{i}")
                print(
                    json.dumps({"trainer": trainer, "module": module}), file=peer.stdin, flush=True
                )
                theirs = json.loads(peer.stdout.readline())
                ours = read_ours(folder / f"run{i}")
                if "fast_dev_run" in trainer:  # nothing is written
                    found = "" if ours["steps"] == [] and len(theirs["steps"]) == 2 else "files"
                else:
                    found = difference(ours, theirs, module)
                ours_s, theirs_s = ours_s + seconds, theirs_s + theirs["seconds"]
                differ += found != ""
                counts = f"{len(ours['steps']):3} steps, {len(ours['vals']):2} validations"
                times = f"{seconds:6.3f} s {theirs['seconds']:6.3f} s"
                print(f"{what:34} {counts}  {times}  {found or 'the same'}")
            peer.stdin.close()
    print(f"all rows: {ours_s:.2f} s, {len(ROWS)} starts and the data from files in it; "
          f"Lightning {theirs_s:.2f} s, after a start of {began:.2f} s")  # fmt: skip
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
