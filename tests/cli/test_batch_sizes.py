"""`levin tune batch-size` of random trainings on the simulated accelerator, on 1 to 4 ranks.

The answer trains two epochs with a validation. Where memory was the bound, 1.3 times the answer
does not run (with lanes=1, or as many as there is room for), or a size between them does not: near
the edge the order of the blocks decides, and a larger size may fit where smaller ones do not. With
LEVIN_TEST_SECONDS the training must also run on devices with 15 % more memory than it has in use at
its peak.

usage: test_batch_sizes.py LEVIN [test names]
  LEVIN_TEST_SEED=N       the first seed, default that of the day; configuration k is drawn from
                          seed N + k alone
  LEVIN_TEST_CONFIGS=N    how many at least, default 1
  LEVIN_TEST_SECONDS=N    and as many more as fit
Prints a line per configuration. A failure names its seed and the command.
"""

import json
import math
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

LEVIN = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
SEED = int(os.environ.get("LEVIN_TEST_SEED") or time.time() // 86400)
CONFIGS = int(os.environ.get("LEVIN_TEST_CONFIGS", "1"))
SECONDS = float(os.environ.get("LEVIN_TEST_SECONDS", "0"))
WAIT_S = 600
LEAST = 1.15  # of the peak of what is in use
MIB = 1 << 20


def draw(seed):
    """The arguments of a training without its batch, and the memory of each of its devices."""
    r = random.Random(seed)
    ranks = r.choice([1, 1, 2, 2, 3, 4])
    model = r.choice(["cnn", "cnn", "cnn", "mlp"])
    size = r.choice([12, 16, 20, 24, 32] if model == "cnn" else [16, 32, 48])
    keys = [
        "data=builtin:shapes",
        f"data.count={r.randint(300, 1200)}",
        f"image_size={size}",
        f"model={model}",
        "accelerator=sim",
        f"devices={ranks}",
        f"strategy={r.choice(['ddp', 'ddp', 'dp']) if ranks > 1 else 'single'}",
        f"optim={r.choice(['sgd', 'adamw', 'lamb', 'adafactor', 'rmsprop'])}",
        f"num_workers={r.randint(0, 2)}",
        f"val_split={r.choice([0.1, 0.2, 0.3])}",
        f"optim.lr={1e-4}",
    ]
    for key, values, share in (
        ("precision", ["bf16-mixed", "16-mixed"], 0.2),
        ("accumulate_grad_batches", [2, 3], 0.2),
        ("eval_batch_size", [1, 7, 30, 100], 0.3),
        ("lanes", [1, 2, 3], 0.3),
        ("ema.decay", [0.9], 0.2),
        ("model.dropout", [0.3], 0.3),
        ("gradient_clip_val", [1], 0.3),
        ("augment.mixup_alpha", [0.4], 0.2),
        ("cuda_graph", ["off", "on"] if ranks == 1 else ["off"], 0.3),
        ("num_sanity_val_steps", [0, -1], 0.3),
        ("val_check_interval", [0.5], 0.2),
        ("drop_last", ["true"], 0.2),
        ("freeze", ["[head.bias]"], 0.1),
    ):
        if r.random() < share:
            keys += [f"{key}={r.choice(values)}"]
    if "cuda_graph=on" in keys:  # what a captured step may not do
        out = ("augment.mixup_alpha", "accumulate_grad_batches")
        keys = [key for key in keys if not key.startswith(out)]
    return keys, int(r.choice([6, 9, 14, 20, 30]) * MIB * r.uniform(0.9, 1.1))


def report(line):
    print(line, file=sys.stderr, flush=True)


class BatchSizes(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-batch-sizes-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def levin(self, arguments, memory):
        env = {"LEVIN_SIM_DEVICES": "4", "LEVIN_SIM_MEMORY": str(int(memory))}
        done = subprocess.run(
            [LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S,
            env=dict(os.environ, **env), cwd=self.dir,
        )  # fmt: skip
        line = shlex.join([*(f"{k}={v}" for k, v in env.items()), "levin", *arguments])
        return done, f"{line}\nexit code {done.returncode}\n{done.stdout[-2000:]}{done.stderr}"

    def train(self, keys, size, memory, name):
        out = f"{self.dir}/{name}"
        return self.levin(
            ["train", "classify", *keys, f"batch_size_per_device={size}", "max_epochs=2"]
            + [f"out={out}", "overwrite=true", "log_every_n_steps=1"],
            memory,
        )

    def peak(self, name):
        with open(f"{self.dir}/{name}/metrics.jsonl", encoding="utf-8") as f:
            rows = [json.loads(line) for line in f]
        return max(row.get("memory/device_peak_bytes", 0) for row in rows)

    def config(self, seed):
        """The faults of a configuration, and what is reported of it."""
        keys, memory = draw(seed)
        begin, faults = time.monotonic(), []
        tune = ["tune", "batch-size", "classify", *keys, "max_epochs=2", "tune.json=true"]
        found, line = self.levin(tune, memory)
        while found.returncode == 69 and "batch_size_per_device=1 does not fit" in found.stderr:
            memory *= 2  # the network alone is larger
            found, line = self.levin(tune, memory)
        if found.returncode != 0:
            return [f"the finder fails: {line}"], "no answer"
        answer = json.loads(found.stdout)
        size, bound = answer["batch_size_per_device"], answer["bound"]
        trained, line = self.train(keys, size, memory, "run")
        if trained.returncode != 0:
            return [f"the answer {size} does not train: {line}"], f"answer {size}, which fails"
        # lanes that must run beside each other may still take turns, and need less than they may
        many_lanes = any(key in keys for key in ("lanes=2", "lanes=3"))
        if bound == "memory" and not many_lanes:
            above = math.ceil(1.3 * size)
            larger, line = self.train(keys, above, memory, "larger")
            between = [
                t["batch_size_per_device"]
                for t in answer["trials"]
                if t["outcome"] == "too large" and size < t["batch_size_per_device"] < above
            ]
            if larger.returncode == 0 and between:
                larger, line = self.train(keys, min(between), memory, "between")
            if larger.returncode == 0:
                faults += [f"1.3 times the answer {size} trains: {line}"]
            # all samples are fewer than a batch of that size
            elif not any(text in larger.stderr for text in ("memory", "leaves no step")):
                faults += [f"1.3 times the answer {size} fails with something else: {line}"]
        # that of rank 0 here, and that of the rank which had most in the finder's run
        peak = max(self.peak("run"), answer["peak_bytes"])
        if SECONDS > 0:
            # lanes that computed one after the other may need it at once the next time
            tried = [t for t in answer["trials"] if t["batch_size_per_device"] == size]
            most = max(peak, tried[-1]["estimated_bytes"] if many_lanes else 0)
            least, line = self.train(keys, size, LEAST * most, "least")
            if least.returncode != 0:
                faults += [f"{size} does not run with {LEAST} times its peak of {most}: {line}"]
        n = len([t for t in answer["trials"] if t["ran"]])
        return faults, (
            f"answer {size} ({bound}), {peak / MIB:.1f} of {memory / MIB:.1f} MiB, "
            f"{n} of {len(answer['trials'])} sizes run, {time.monotonic() - begin:.1f} s, "
            f"{' '.join(keys[2:])}"
        )

    def test_answers(self):
        end = time.monotonic() + SECONDS
        done, faults = 0, []
        while done < CONFIGS or time.monotonic() < end:
            found, what = self.config(SEED + done)
            report(f"seed {SEED + done}: {what}")
            for fault in found:
                report(f"seed {SEED + done}: {fault}")
            faults += [f"seed {SEED + done}" for _ in found]
            done += 1
        report(f"{done} random trainings from seed {SEED}, {len(faults)} faults")
        self.assertEqual(faults, [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=0)
