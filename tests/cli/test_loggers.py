"""Loggers beside metrics.jsonl: every line reaches metrics.csv, TensorBoard's event files and a
program, once, also when the run is killed and resumed; and what a logger does changes no bit.

usage: test_loggers.py LEVIN SOURCE [test names]
       LEVIN_TEST_TENSORBOARD=PYTHON: one that has TensorBoard, where python3 has not
"""

import csv
import glob
import json
import math
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

SOURCE = sys.argv.pop(2) if len(sys.argv) > 2 else ""

from case import Case, LEVIN, main, OK, read, SIGTERM, USAGE, WAIT_S, write

SHAPES = ["data=builtin:shapes", "data.count=72", "image_size=8", "model=mlp", "batch_size=12"]
ALWAYS = ["wgrad_threads=1", "log_every_n_steps=1", "quiet=true", "num_workers=0"]
THREE = "logger=[csv,tensorboard,exec:cat >> lines]"
FIXED = {"step", "epoch", "time_s", "nonfinite"}


def crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


TABLE = crc32c_table()


def masked(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def records(path):
    """The payloads of an event file, whose checksums are right."""
    data, at = read(path), 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payload = data[at + 12 : at + 12 + length]
        assert len(payload) == length, f"{path}: the record at {at} is cut off"
        assert struct.unpack_from("<I", data, at + 8)[0] == masked(data[at : at + 8])
        assert struct.unpack_from("<I", data, at + 12 + length)[0] == masked(payload)
        yield payload
        at += 16 + length


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def message(data):
    """{field number: [values]} of a protobuf message; what has a length stays bytes."""
    fields, at = {}, 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            n, at = varint(data, at)
            value, at = data[at : at + n], at + n
        else:
            n = 8 if key & 7 == 1 else 4
            value, at = data[at : at + n], at + n
        fields.setdefault(key >> 3, []).append(value)
    return fields


def events(out):
    """[(step, {tag: value})] of a run as TensorBoard reads it: what a start takes back is gone,
    except the first."""
    seen, starts = [], 0
    for path in sorted(glob.glob(f"{out}/events.out.tfevents.*")):
        for n, payload in enumerate(records(path)):
            event = message(payload)
            step = event.get(2, [0])[0]
            if n == 0:
                assert event[3] == [b"brain.Event:2"], event
            elif 7 in event:
                assert message(event[7][0]) == {1: [1]}
                seen = [old for old in seen if old[0] < step or starts == 0]
                starts += 1
            else:
                values = [message(value) for value in message(event[5][0])[1]]
                seen.append((step, {value[1][0].decode(): value for value in values}))
    return seen


def scalars(out):
    """[(step, name, value as f32)]"""
    return [
        (step, name, struct.unpack("<f", value[2][0])[0])
        for step, values in events(out)
        for name, value in values.items()
        if 2 in value and name != "epoch"
    ]


def as_f32(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def tensors(path):
    """{name: values} of the parameters of a checkpoint."""
    data = read(path)
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    found = {}
    for name, entry in header.items():
        if name.startswith("model/"):
            begin, end = (8 + n + offset for offset in entry["data_offsets"])
            found[name.removeprefix("model/")] = struct.unpack(
                f"<{(end - begin) // 4}f", data[begin:end]
            )
    return found


class LoggerCase(Case):
    def start_train(self, *arguments, out=None, code=OK, expects=(), **how):
        how.setdefault("env", {}).setdefault("OMP_NUM_THREADS", "1")
        at = os.getcwd()
        os.chdir(self.dir)
        self.addCleanup(os.chdir, at)
        return self.levin(
            ["train", "classify", *SHAPES, *ALWAYS, f"out={out or self.out}", *arguments],
            code,
            expects,
            **how,
        )

    def lines(self, out=None):
        return [json.loads(line) for line in read(f"{out or self.out}/metrics.jsonl").splitlines()]

    def check_csv(self):
        with open(f"{self.out}/metrics.csv", newline="", encoding="utf-8") as f:
            rows = list(csv.DictReader(f))
            header = list(rows[0])
        lines = self.lines()
        names = sorted({name for line in lines for name in line} - {"nonfinite"})
        self.assertEqual(header, names)
        self.assertEqual(len(rows), len(lines))
        for row, line in zip(rows, lines):
            self.assertEqual(
                {name: float(text) for name, text in row.items() if text != ""},
                {name: float(value) for name, value in line.items()},
            )

    def check_events(self):
        want = [
            (line["step"], name, as_f32(value))
            for line in self.lines()
            for name, value in line.items()
            if name not in FIXED
        ]
        self.assertEqual(scalars(self.out), want)

    def check_program(self, starts):
        seen = [json.loads(line) for line in read(f"{self.dir}/lines").splitlines()]
        got = []
        for event in seen:
            if event["event"] == "start":
                self.assertEqual(event["dir"], os.path.realpath(self.out))
                self.assertEqual(event["config"]["model.name"], "mlp")
                self.assertEqual(event["run_id"], read(f"{self.out}/run_id").decode().strip())
                got = [line for line in got if line["step"] <= event["step"]]
            elif event["event"] == "metrics":
                got.append(event["metrics"])
        self.assertEqual(got, self.lines())
        self.assertEqual([event["step"] for event in seen if event["event"] == "start"], starts)
        return [event["status"] for event in seen if event["event"] == "end"]

    def steps(self):
        return max(line["step"] for line in self.lines())

    def wait_for_step(self, step):
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            try:
                whole = read(f"{self.out}/metrics.jsonl").rsplit(b"\n", 1)[0].splitlines()
                saved = os.path.exists(f"{self.out}/checkpoints/last.safetensors")
                if saved and whole and json.loads(whole[-1])["step"] >= step:
                    return
            except FileNotFoundError:
                pass
            time.sleep(0.02)
        self.fail(f"step {step} does not come")


class Loggers(LoggerCase):
    def test_every_line_reaches_all_of_them(self):
        self.start_train(THREE, "max_epochs=2")
        self.start_train("max_epochs=2", out=f"{self.dir}/plain")
        self.check_csv()
        self.check_events()
        self.assertEqual(self.check_program([0]), ["finished"])
        self.assertEqual(self.hashes(), self.hashes(f"{self.dir}/plain"))
        made = set(os.listdir(self.out)) - set(os.listdir(f"{self.dir}/plain"))
        kinds = {name.split(".out.")[0] for name in made}
        self.assertLessEqual({"metrics.csv", "events", "logger.log"}, kinds)

    def test_two_ranks_log_once(self):
        self.start_train(THREE, "max_epochs=1", "devices=2", "accelerator=cpu")
        self.check_csv()
        self.check_events()
        self.check_program([0])
        self.assertEqual(len(glob.glob(f"{self.out}/events*")), 1)

    def test_a_device_that_is_read_late(self):
        sim = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}
        more = ["accelerator=sim", "devices=2", "strategy=dp", "micro_batches=2"]
        self.start_train(THREE, "max_epochs=2", *more, env=sim)
        self.check_csv()
        self.check_events()
        self.check_program([0])

    def test_first_samples_and_histograms(self):
        self.start_train(THREE, "log_histograms=true", "max_epochs=2")
        page = read(f"{self.out}/augmentations.png")
        size = struct.unpack(">II", page[16:24])
        self.assertEqual(size, (4 * 8 + 3 * 2, 4 * 8 + 3 * 2))
        lines = [json.loads(line) for line in read(f"{self.dir}/lines").splitlines()]
        shown = [event for event in lines if event["event"] == "image"]
        path = os.path.realpath(f"{self.out}/augmentations.png")
        wanted = {"event": "image", "step": 0, "name": "augmentations", "path": path}
        self.assertEqual(shown, [wanted])
        found = [v for _, values in events(self.out) for v in values.items() if 4 in v[1]]
        self.assertEqual([name for name, _ in found], ["augmentations"])
        self.assertEqual(message(found[0][1][4][0]), {1: [38], 2: [38], 3: [3], 4: [page]})
        weights = tensors(f"{self.out}/checkpoints/last.safetensors")
        last = [e for e in lines if e["event"] == "histogram"][-len(weights) :]
        self.assertEqual(len(weights), 6)
        for event in last:
            values = weights[event["name"].removeprefix("parameters/")]
            self.assertEqual((event["min"], event["max"]), (min(values), max(values)))
            limits, low = event["limits"], -math.inf
            for limit, count in zip(limits, event["counts"]):
                # the division may round to either side of a limit
                near = sum(min(abs(v - limit), abs(v - low)) < 1e-9 for v in values)
                inside = sum(low < v <= limit for v in values)
                self.assertLessEqual(abs(count - inside), near)
                low = limit
            self.assertEqual(sum(event["counts"]), len(values))
        histograms = [v for _, values in events(self.out) for v in values.items() if 5 in v[1]]
        self.assertEqual(len(histograms), 2 * len(weights))
        own = message(histograms[-1][1][5][0])
        counts = struct.unpack(f"<{len(own[7][0]) // 8}d", own[7][0])
        self.assertEqual(list(counts), last[-1]["counts"])

    def test_histograms_need_a_logger(self):
        self.refused(["log_histograms=true"], ["log_histograms"])

    def test_nothing_is_logged_unless_it_is_asked_for(self):
        for logger in ("logger=none", "logger=false", "logger=jsonl", "resume=false"):
            self.start_train(logger, "max_steps=2", "overwrite=true")
            self.assertEqual(
                {name for name in os.listdir(self.out) if "." in name},
                {"config.yaml", "train.log", "metrics.jsonl"},
            )

    def test_a_resumed_run_goes_on_without_a_step_twice(self):
        self.start_train(THREE, "max_steps=9", "checkpoint.every_n_steps=4")
        # what a process that was killed behind the checkpoint would have left
        write(f"{self.out}/metrics.csv", read(f"{self.out}/metrics.csv") + b"2,0.5,,")
        os.remove(f"{self.out}/checkpoints/best.safetensors")
        self.start_train(THREE, "max_steps=14", "resume=true")
        self.check_csv()
        self.check_events()
        self.assertEqual(self.check_program([0, 9]), ["finished", "finished"])

    def test_a_killed_run_goes_on_without_a_step_twice(self):
        arguments = ["train", "classify", *SHAPES, *ALWAYS, THREE, f"out={self.out}"]
        arguments += ["max_steps=2000000", "max_epochs=-1", "checkpoint.every_n_steps=20"]
        for kill in (1, 2):
            with subprocess.Popen(
                [LEVIN, *arguments, f"resume={'true' if kill == 2 else 'false'}"], cwd=self.dir
            ) as run:
                self.wait_for_step(100 * kill)
                run.send_signal(signal.SIGKILL)
        self.start_train(THREE, "max_epochs=-1", "resume=true", f"max_steps={self.steps() + 3}")
        self.check_csv()
        self.check_events()
        self.assertEqual(len(glob.glob(f"{self.out}/events*")), 3)

    def test_a_stopped_run_is_reported_to_the_program(self):
        arguments = [THREE, "max_epochs=-1", "max_steps=2000000", f"out={self.out}"]
        with subprocess.Popen(
            [LEVIN, "train", "classify", *SHAPES, *ALWAYS, *arguments],
            cwd=self.dir,
            stderr=subprocess.DEVNULL,
        ) as run:
            self.wait_for_step(5)
            run.send_signal(signal.SIGTERM)
        self.assertEqual(run.returncode, SIGTERM)
        self.assertEqual(self.check_program([0]), ["stopped"])

    def test_a_run_that_fails_is_reported_to_the_program(self):
        bad = ["optim=sgd", "optim.lr=1e38", "max_steps=30"]
        self.start_train("logger=exec:cat >> lines", *bad, code=1)
        self.assertEqual(self.check_program([0]), ["failed"])

    def test_overwrite_begins_all_files_again(self):
        self.start_train(THREE, "max_steps=5")
        os.remove(f"{self.dir}/lines")
        self.start_train(THREE, "max_steps=3", "overwrite=true")
        self.check_csv()
        self.check_events()
        self.check_program([0])
        self.start_train("max_steps=3", "overwrite=true")
        self.assertEqual(glob.glob(f"{self.out}/events*") + glob.glob(f"{self.out}/*.csv"), [])

    def test_a_program_that_dies_is_one_warning(self):
        for command in ("exit 3", "read line; exit 3", "exec 0<&-; sleep 1"):
            err = self.start_train(f"logger=exec:{command}", "max_epochs=3", "overwrite=true")[1]
            warning = f"warning: the logger exec:{command} gets nothing more"
            self.assertEqual(err.count(warning), 1, err)
            self.assertEqual(len(err.splitlines()), 1, err)
        self.start_train("max_epochs=3", out=f"{self.dir}/plain")
        self.assertEqual(self.hashes(), self.hashes(f"{self.dir}/plain"))

    def test_a_program_that_does_not_read_blocks_no_step(self):
        """It reads only once all lines are in the log: steps that waited for it would never end."""
        epochs = f"grep -c val/loss {self.out}/metrics.jsonl"
        reads = f"until [ $({epochs}) -ge 3 ]; do sleep 0.02; done; cat > lines"
        write(f"{self.dir}/reads", reads.encode())
        self.start_train(f"logger=exec:sh {self.dir}/reads", "max_epochs=3")
        self.assertEqual(self.check_program([0]), ["finished"])

    def test_a_saved_command_is_not_run_again(self):
        self.start_train("logger=[csv,exec:cat >> lines]", "max_steps=3")
        os.remove(f"{self.dir}/lines")
        err = self.levin(
            ["train", "classify", f"out={self.out}", "resume=true", "max_steps=6", "quiet=true"],
            OK,
            ["logger=exec:cat >> lines of the saved configuration is not started"],
        )[1]
        self.assertEqual(len(err.splitlines()), 1, err)
        self.assertFalse(os.path.exists(f"{self.dir}/lines"))
        self.check_csv()

    def test_a_program_gets_no_proof_of_the_run(self):
        secrets = {"LEVIN_TOKEN": "a-token", "LEVIN_RUN_KEY": "0" * 32, "OTHER": "stays"}
        program = "env > variables; cat > lines; : --password=secret"
        self.start_train(f"logger=exec:{program}", "max_steps=1", env=secrets)
        names = {line.partition(b"=")[0] for line in read(f"{self.dir}/variables").splitlines()}
        self.assertIn(b"OTHER", names)
        self.assertEqual(names & {b"LEVIN_TOKEN", b"LEVIN_RUN_KEY"}, set())
        for model in glob.glob(f"{self.out}/exported_models/*"):
            self.assertNotIn(b"secret", read(model))

    def test_other_names_are_refused(self):
        for value in ("wandb", "exec:", "[csv,tb]"):
            self.refused([f"logger={value}"], ["is not a logger: csv, tensorboard, exec:COMMAND"])
        self.start_train(
            "use_wandb=true",
            "log_wandb=true",
            "max_steps=1",
            expects=["note: log_wandb has no effect: use logger=exec:COMMAND"],
        )

    def test_a_file_that_cannot_be_opened_ends_the_run_before_it_begins(self):
        os.makedirs(f"{self.out}/metrics.csv")
        write(f"{self.out}/train.log", b"")
        err = self.start_train("logger=csv", "max_steps=2", "overwrite=true", code=USAGE)[1]
        self.assertIn("starting the logger csv", err)
        self.assertFalse(os.path.exists(f"{self.out}/checkpoints/last.safetensors"))

    def test_a_program_that_fails_at_its_end_is_a_warning(self):
        self.start_train("logger=exec:cat >/dev/full", "max_steps=4", expects=["exit code 1"])


class Adapters(LoggerCase):
    """The examples, with modules of the same names that record what is called."""

    RECORDER = """
import json, os, sys
class Recorder:
    def __init__(self, name): self.__dict__["name"] = name
    def __getattr__(self, key): return Recorder(self.name + "." + key)
    def __setattr__(self, key, value): self(key, value)
    def __setitem__(self, key, value): self(key, value)
    def __call__(self, *a, **k):
        with open(os.environ["CALLS"], "a") as f:
            print(json.dumps([self.name, a, k], default=lambda x: x.name), file=f)
        return [] if self.name.endswith("search_runs") else Recorder(self.name + "()")
    def __contains__(self, key): return False
sys.modules[__name__] = Recorder(__name__)
"""

    def calls(self, script, module):
        write(f"{self.dir}/modules/{module}.py", self.RECORDER.encode())
        path = os.path.join(SOURCE, "examples/12_loggers", script)
        where = {"PYTHONPATH": f"{self.dir}/modules", "CALLS": f"{self.dir}/calls"}
        self.start_train(f"logger=exec:{sys.executable} {path}", "max_epochs=1", env=where)
        self.assertEqual(read(f"{self.out}/logger.log"), b"")
        return [json.loads(line) for line in read(f"{self.dir}/calls").splitlines()]

    def test_wandb(self):
        calls = self.calls("to_wandb.py", "wandb")
        self.assertEqual(calls[0][0], "wandb.init")
        self.assertEqual(calls[0][2]["id"], read(f"{self.out}/run_id").decode().strip())
        logged = [a[0] for name, a, _ in calls if name.endswith("().log")]
        self.assertEqual([row for row in logged if "time_s" in row], self.lines())
        self.assertEqual(calls[-1], ["wandb.init().finish", [], {"exit_code": 0}])

    def test_mlflow(self):
        calls = self.calls("to_mlflow.py", "mlflow")
        logged = [dict(a[0], **k) for name, a, k in calls if name == "mlflow.log_metrics"]
        self.assertEqual(logged, self.lines())
        self.assertEqual(calls[-1], ["mlflow.end_run", ["FINISHED"], {}])


READER = """
import json, sys
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer
from tensorboard.backend.event_processing import plugin_event_multiplexer
from tensorboard.plugins.hparams import metadata
from tensorboard.util import tensor_util
m = EventMultiplexer(size_guidance={k: 0 for k in ("scalars", "tensors", "images", "histograms")})
m.AddRunsFromDirectory(sys.argv[1])
m.Reload()
run = m.Runs()
name = next(iter(run))
found = {"scalars": {t: [[e.step, e.value] for e in m.Scalars(name, t)]
                     for t in run[name]["scalars"]}}
text = [e.tensor_proto.string_val[0].decode() for e in m.Tensors(name, "config")]
found["text"] = text
plugin = m.SummaryMetadata(name, metadata.SESSION_START_INFO_TAG).plugin_data
info = metadata.parse_session_start_info_plugin_data(plugin.content)
found["hparams"] = {k: v.WhichOneof("kind") for k, v in info.hparams.items()}
plugin = m.SummaryMetadata(name, metadata.SESSION_END_INFO_TAG).plugin_data
found["images"] = [[e.width, e.height, e.step] for e in m.Images(name, "augmentations")]
found["histograms"] = {t: [e.histogram_value.num for e in m.Histograms(name, t)]
                       for t in run[name]["histograms"]}
m = plugin_event_multiplexer.EventMultiplexer(tensor_size_guidance={"scalars": 0})
m.AddRunsFromDirectory(sys.argv[1])
m.Reload()
found["shown"] = [[e.step, float(tensor_util.make_ndarray(e.tensor_proto))]
                  for e in m.Tensors(name, "train/loss_step")]
found["end"] = metadata.parse_session_end_info_plugin_data(plugin.content).status
print(json.dumps(found))
"""


def with_tensorboard():
    """A Python that has TensorBoard; None: there is none."""
    for python in (os.environ.get("LEVIN_TEST_TENSORBOARD"), sys.executable, "/usr/bin/python3"):
        if python and shutil.which(python):
            command = [python, "-c", "import tensorboard"]
            if subprocess.call(command, stderr=subprocess.DEVNULL) == 0:
                return python
    return None


class TensorBoard(LoggerCase):
    """Needs a Python with TensorBoard."""

    @classmethod
    def setUpClass(cls):
        cls.python = with_tensorboard()
        if cls.python is None:
            raise unittest.SkipTest("no Python with tensorboard; LEVIN_TEST_TENSORBOARD names one")
        super().setUpClass()

    def test_it_shows_the_run(self):
        self.start_train("logger=tensorboard", "max_steps=5", "log_histograms=true")
        shutil.copytree(f"{self.out}/checkpoints", f"{self.dir}/before")
        self.start_train("max_steps=9", "resume=true")
        # as after a kill: the checkpoint is older than the newest line
        shutil.rmtree(f"{self.out}/checkpoints")
        os.rename(f"{self.dir}/before", f"{self.out}/checkpoints")
        self.start_train("max_steps=14", "resume=true")
        done = subprocess.run(
            [self.python, "-W", "ignore", "-c", READER, self.out],
            capture_output=True,
            text=True,
            check=True,
            timeout=WAIT_S,
        )
        found = json.loads(done.stdout)
        want = {}
        for line in self.lines():
            for name in set(line) - FIXED:
                want.setdefault(name, []).append([line["step"], as_f32(line[name])])
        del found["scalars"]["epoch"]
        self.assertEqual(found["scalars"], want)
        self.assertEqual(found["shown"], want["train/loss_step"])
        self.assertIn("    optim.lr: 0.001\n", found["text"][-1])
        kinds = found["hparams"]
        self.assertEqual(kinds["optim.lr"], "number_value")
        self.assertEqual(kinds["quiet" if "quiet" in kinds else "model.name"], "string_value")
        self.assertEqual(kinds["drop_last"], "bool_value")
        self.assertEqual(found["end"], 1)
        self.assertEqual(found["images"], [[38, 38, 0]])
        self.assertEqual(len(found["histograms"]), 6)
        self.assertEqual(found["histograms"]["parameters/head.bias"][-1], 6)


if __name__ == "__main__":
    main()
