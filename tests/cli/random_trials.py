"""Runs what random_configs.py draws, and makes a failure small: what differs, and the commands that
show it.

A result is everything that must not depend on the layout: weights and state of the last and the
best checkpoint, the exported weights, tables of predictions, and metrics.jsonl without times.
"""

import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time

from random_configs import Layout, Trial, number_of, value_of, with_value
from rank_processes import children, is_held, rank_pid, reached
from reproducibility_lines import first_difference, reproducibility_lines

SIM = ("LEVIN_SIM_DEVICES=8", "LEVIN_SIM_MEMORY=2GiB")
ALWAYS = ["log_every_n_steps=1", "quiet=true", "logger=[csv,tensorboard]"]
ALONE = Layout(["devices=1", "num_workers=0", "lanes=1"])  # what all others are compared with
ON_NODES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "node_processes.py")
TRIES = 3
FILES = (
    "checkpoints/last.safetensors",
    "checkpoints/best.safetensors",
    "exported_models/exported_last.safetensors",
)


class Failed(Exception):
    """A run that must succeed did not. code: its exit code, None for one that did not end."""

    def __init__(self, command, code, printed):
        super().__init__(f"exit code {code}: {command}\n{printed}")
        self.code = code


class Result:
    def __init__(self, files, lines):
        self.files, self.lines = files, lines

    def digest(self):
        return hashlib.sha256(repr((self.files, self.lines)).encode()).hexdigest()[:32]

    def difference(self, other):
        """ "" when they are equal."""
        for name, value in self.files.items():
            if value != other.files.get(name):
                return f"{name}: {value} and {other.files.get(name)}"
        lines = first_difference(self.lines, other.lines)
        return f"metrics.jsonl: {lines}" if lines else ""


class Runner:
    def __init__(self, levin, folder, wait_s):
        self.levin, self.folder, self.wait_s = levin, folder, wait_s
        self.signals = {"SIGTERM": 0, "SIGKILL": 0}  # that hit a run in its middle
        self.late = 0  # all tries of a stop came after the end

    # ---- one run ----

    def command(self, config, layout, *more):
        env = ["env", *SIM, *layout.slow] if layout.sim else []
        pin = ["taskset", "-c", "0"] if layout.one_core else []
        on = [sys.executable, ON_NODES, ",".join(map(str, layout.nodes))] if layout.nodes else []
        return [*on, *env, *pin, self.levin, "train", *config, *ALWAYS, *layout.keys, *more]

    def start(self, command):
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, p, command):
        """Returns the exit code and standard error."""
        try:
            _, printed = p.communicate(timeout=self.wait_s)
        except subprocess.TimeoutExpired as e:
            p.kill()
            raise Failed(shlex.join(command), None, f"not over after {self.wait_s} s") from e
        return p.returncode, printed

    def run(self, *command):
        code, printed = self.wait(self.start(command), command)
        if code != 0:
            raise Failed(shlex.join(command), code, printed)

    def result(self, out):
        files = {}
        for name in FILES:
            if os.path.exists(f"{out}/{name}"):
                command = [self.levin, "ckpt", "hash", f"{out}/{name}"]
                files[name] = (
                    subprocess.run(command, capture_output=True, text=True, check=True)
                    .stdout.replace("\n", " ")
                    .strip()
                )
        for name in sorted(os.listdir(out)):
            if name.startswith("predictions") and name.endswith(".csv"):
                with open(f"{out}/{name}", "rb") as f:
                    files[name] = hashlib.sha256(f.read()).hexdigest()
        with open(f"{out}/metrics.csv", "rb") as rows, open(f"{out}/metrics.jsonl", "rb") as lines:
            files["metrics.csv"] = f"{len(lines.readlines()) - len(rows.readlines()) + 1} rows lost"
        return Result(files, reproducibility_lines(out))

    # ---- stops ----

    @staticmethod
    def steps_logged(out):
        try:
            with open(f"{out}/metrics.jsonl", "rb") as f:
                return f.read().count(b'"lr":')
        except OSError:
            return 0

    @staticmethod
    def is_alive(out):
        return bool(children(out)) or (os.path.isdir(out) and is_held(out))

    @staticmethod
    def is_over(config, out):
        """A signal to a command whose run is complete ends it by itself."""
        return reached(f"{out}/{FILES[0]}") == number_of(config, "max_steps")

    def hit(self, config, layout, stop, out):
        """False: the run was over before the signal came."""
        command = self.command(config, layout, f"out={out}", "overwrite=true")
        p = self.start(command)
        end = time.monotonic() + self.wait_s
        while p.poll() is None and self.steps_logged(out) < stop.after and time.monotonic() < end:
            time.sleep(0.0005)
        pid = p.pid if stop.victim is None else rank_pid(out, stop.victim) or p.pid
        try:
            os.kill(pid, getattr(signal, stop.how))
        except ProcessLookupError:
            pass
        code, printed = self.wait(p, command)
        while self.is_alive(out) and time.monotonic() < end:
            time.sleep(0.001)
        over = stop.how == "SIGTERM" and code == -signal.SIGTERM and self.is_over(config, out)
        if children(out) or (stop.how == "SIGTERM" and code not in (0, 143) and not over):
            raise Failed(f"{stop.how} to {shlex.join(command)}", code, printed)
        return code != 0 and not over

    def stop(self, config, layout, stop, out):
        if stop.how == "max_steps":
            more = [f"out={out}", "overwrite=true", f"max_steps={stop.after}"]
            return self.run(*self.command(config, layout, *more))
        for _ in range(TRIES):
            if self.hit(config, layout, stop, out):
                self.signals[stop.how] += 1
                return None
        self.late += 1
        return None

    # ---- a trial ----

    def alone(self, config):
        out = f"{self.folder}/one"
        self.run(*self.command(config, ALONE, f"out={out}", "overwrite=true"))
        return self.result(out)

    def trial(self, config, trial):
        out, how = f"{self.folder}/other", "overwrite=true"
        if trial.stop is not None:
            shutil.rmtree(out, ignore_errors=True)
            self.stop(config, trial.layouts[0], trial.stop, out)
            if os.path.exists(f"{out}/{FILES[0]}"):  # else it was killed before the first save
                how = "resume=true"
        self.run(*self.command(config, trial.layouts[-1], f"out={out}", how))
        return self.result(out)

    def fault(self, config, trial, expected=None):
        """What is wrong with it, as (kind, text); None: nothing, or the configuration alone does
        not run either."""
        try:
            expected = expected or self.alone(config)
        except Failed:
            return None
        try:
            difference = self.trial(config, trial).difference(expected)
        except Failed as e:
            return ("fails", e.code), str(e)
        return (("differs", None), difference) if difference else None


# ---- a failure made small ----


def without(arguments, keys):
    return [a for a in arguments if a.split("=", 1)[0] not in keys]


# Never left out: the machine or the layout would choose, or the run would be a long one.
PINNED = {
    "data", "data.count", "image_size", "max_steps", "batch_size", "micro_batches",
    "wgrad_threads", "eval_batch_size", "group", "sync_batchnorm", "config",
}  # fmt: skip
SIMPLER = (
    ("model", "mlp"), ("model", "cnn"), ("val_split", "0"), ("data.count", "40"),
    ("image_size", "12"), ("accumulate_grad_batches", "1"), ("micro_batches", "2"),
    ("micro_batches", "3"), ("micro_batches", "4"), ("batch_size", "4"), ("batch_size", "8"),
    ("max_steps", "1"), ("max_steps", "2"), ("max_steps", "3"), ("wgrad_threads", "1"),
    ("eval_batch_size", "8"),
)  # fmt: skip


def simpler_configs(config):
    """Larger parts first; each is a generator of configurations to be tried in this order."""
    free = [a.split("=", 1)[0] for a in config[1:]]
    free = [key for key in dict.fromkeys(free) if key not in PINNED]
    size = len(free)
    while size >= 1:
        for i in range(0, len(free), size):
            yield without(config, set(free[i : i + size]))
        size //= 2
    if "sync_batchnorm=true" in config:
        yield without(config, {"group", "sync_batchnorm"})
    for key, value in SIMPLER:
        if value_of(config, key) not in (None, value) and (
            not value.isdigit() or int(value) < number_of(config, key)
        ):
            yield with_value(config, key, value)


def simpler_layouts(layout):
    if layout.slow:
        yield Layout(layout.keys, layout.one_core, (), layout.nodes)
    if layout.one_core:
        yield Layout(layout.keys, False, layout.slow, layout.nodes)
    if len(layout.nodes) > 2:
        yield Layout(layout.keys, layout.one_core, layout.slow, [0, 1])
    for key in ("bucket_bytes", "lanes", "num_workers", "transport", "checkpoint.every_n_steps"):
        if value_of(layout.keys, key) is not None:
            yield layout.with_keys(without(layout.keys, {key}))
    for key, value in (("accelerator", "cpu"), ("devices", "2"), ("devices", "3")):
        if value_of(layout.keys, key) != value and (
            key != "devices" or number_of(layout.keys, key) > int(value)
        ):
            yield layout.with_keys(with_value(layout.keys, key, value))
    if number_of(layout.keys, "devices") > 1:
        keys = ["strategy=single", "devices=1", *without(layout.keys, {"strategy", "devices"})]
        yield layout.with_keys(without(keys, {"transport", "bucket_bytes"}))


def simpler_trials(trial):
    if trial.stop is not None:
        yield Trial(trial.layouts[1:])
        yield Trial([trial.layouts[0]])
        yield Trial([trial.layouts[1], trial.layouts[1]], trial.stop)
    for i, layout in enumerate(trial.layouts):
        for other in simpler_layouts(layout):
            yield Trial([*trial.layouts[:i], other, *trial.layouts[i + 1 :]], trial.stop)


def shrink(runner, config, trial, kind, seconds):
    """The smallest configuration and trial with the same kind of fault that were found in time."""
    end = time.monotonic() + seconds

    def found():
        for c in simpler_configs(config):
            yield c, trial
        for t in simpler_trials(trial):
            yield config, t

    smaller = True
    while smaller:
        smaller = False
        for c, t in found():
            if time.monotonic() > end:
                return config, trial
            fault = runner.fault(c, t)
            if fault is not None and fault[0] == kind:
                config, trial, smaller = c, t, True
                break
    return config, trial


def commands(runner, config, trial):
    """What to type: the run alone, and the one beside it."""

    def line(layout, *more):
        return "  " + shlex.join(runner.command(config, layout, *more))

    lines = [line(ALONE, "out=out/one")]
    if trial.stop is None:
        return "\n".join([*lines, line(trial.layouts[0], "out=out/other")])
    stop = trial.stop
    if stop.how == "max_steps":
        lines += [line(trial.layouts[0], "out=out/other", f"max_steps={stop.after}")]
    else:
        to = "the command" if stop.victim is None else f"rank {stop.victim}"
        lines += [line(trial.layouts[0], "out=out/other")]
        lines += [f"  # {stop.how} to {to} once step {stop.after} is in metrics.jsonl; then"]
    return "\n".join([*lines, line(trial.layouts[1], "out=out/other", "resume=true")])


def explain(runner, seed, config, trial, fault, seconds):
    """The message of a failure."""
    (kind, text), drawn = fault, commands(runner, config, trial)
    message = f"seed {seed}: {kind[0]}: {text}\nas drawn\n{drawn}\n"
    again = [runner.fault(config, trial) for _ in range(TRIES)]
    if not all(f is not None and f[0] == kind for f in again):
        n = sum(f is not None for f in again)
        return f"{message}not made smaller: it repeated {n} times of {TRIES}"
    small = shrink(runner, config, trial, kind, seconds)
    return f"{message}the smallest found that show it\n{commands(runner, *small)}"
