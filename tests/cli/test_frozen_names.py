#!/usr/bin/env python3
"""Names that feed bits or stand in other people's files never change: every name that real runs,
their files and the program show is in tests/golden/frozen_names.txt, and every name there is found.

usage: test_frozen_names.py SOURCE LEVIN [test names]
"""

import json
import os
import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from pose_project import write_project
from small_png import write_png

SOURCE, LEVIN = Path(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
LIST, WAIT_S = SOURCE / "tests/golden/frozen_names.txt", 120
SIM = {"LEVIN_SIM_DEVICES": "1", "LEVIN_SIM_MEMORY": "256MiB"}
SHAPES = ["data=builtin:shapes", "data.count=24", "image_size=16"]
work = Path(tempfile.mkdtemp(prefix="levin-frozen-"))


def listed():
    """The list: section -> lines, without comments."""
    sections, name = {}, None
    for line in LIST.read_text().splitlines():
        if line.startswith("["):
            name = line.strip("[]")
            assert name not in sections, f"{LIST}: section {name} stands there twice"
            sections[name] = []
        elif line and not line.startswith("#"):
            sections[name].append(line)
    return sections


def levin(*arguments, code=0, env=None):
    done = subprocess.run(
        [LEVIN, *arguments],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=dict(os.environ, **(env or {})),
    )
    what = f"levin {' '.join(arguments)}: exit code {done.returncode}, not {code}"
    assert done.returncode == code, f"{what}\n{done.stderr}"
    return done.stdout, done.stderr


def train(name, *arguments, **how):
    levin("train", "classify", f"out={work / name}", "quiet=true", *arguments, **how)
    return work / name


def header(path):
    """Metadata, and the tensors with their shapes."""
    with open(path, "rb") as f:
        tensors = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
    return tensors.pop("__metadata__"), {n: t["shape"] for n, t in tensors.items()}


def write_tensors(path, shapes):
    """A safetensors file of zeros in half precision, which take no room on a disk."""
    at, entries = 0, {}
    for name, shape in shapes.items():
        end = at + (2 if shape else 8)
        for n in shape:
            end = at + (end - at) * n
        entries[name] = {
            "dtype": "F16" if shape else "I64",
            "shape": shape,
            "data_offsets": [at, end],
        }
        at = end
    head = json.dumps(entries).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head)
        f.truncate(8 + len(head) + at)


def write_array(path, shape, type_code, data):
    head = f"{{'descr': '{type_code}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head + data)


def data_of(run):
    """How an exported model knows its training data: a number and a hash."""
    meta, _ = header(run / "exported_models/exported_last.safetensors")
    text = re.sub(r"[0-9a-f]{16}", "HASH", json.loads(meta["classifier"])["data"])
    return re.sub(r"\b\d+\b", "N", text)


def words_of(entry):
    """The names in "ranks=4 x=2"."""
    return {word.split("=")[0] for word in entry.split()}


def keys_of(value, name=""):
    """The keys of a JSON value: "macro.f1", "classes[].name"."""
    if isinstance(value, dict):
        return set().union(*(keys_of(v, f"{name}.{k}".lstrip(".")) for k, v in value.items()))
    if isinstance(value, list) and value:
        return set().union(*(keys_of(v, f"{name}[]") for v in value))
    return {name}


def source_text():
    files = [p for p in (SOURCE / "src").rglob("*.[ch]")]
    return "\n".join(p.read_text() for p in sorted(files))


class FrozenNames(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.list = listed()
        cls.source = source_text()
        cls.binary = Path(LEVIN).read_bytes()
        # Everything that a checkpoint may hold at once: averages, a loss scale, an epoch half done.
        cls.mlp = train(
            "mlp",
            *SHAPES,
            "model=mlp",
            "batch_size=6",
            "max_steps=4",
            "ema.decay=0.9",
            "precision=16-mixed",
            "accelerator=sim",
            "log_every_n_steps=1",
            env=SIM,
        )

    def compare(self, section, found):
        found, frozen = set(found), self.list[section]
        lost, new = [n for n in frozen if n not in found], sorted(found - set(frozen))
        with self.subTest(section):
            self.assertEqual(
                lost,
                [],
                f"\n[{section}] lost {lost}: old files, or the bits of "
                "saved runs, depend on these names; they stay as they are "
                f"(new: {new})",
            )
            self.assertEqual(
                new,
                [],
                f"\n[{section}] new {new}: these will stand in people's "
                f"files for good; if they are meant to, add them to {LIST}",
            )

    def test_the_list_is_in_order(self):
        for name, lines in self.list.items():
            if name != "draws of mixup":  # whose order counts
                self.assertEqual(lines, sorted(set(lines)), f"[{name}] is sorted, each name once")

    def test_tensors_of_trained_models(self):
        cnn = train("cnn", *SHAPES, "model=cnn", "batch_size=8", "max_steps=1", "optim=sgd")
        keys = {
            "adafactor": [],
            "lamb": [],
            "lars": [],
            "lion": [],
            "rmsprop": ["optim.centered=true", "optim.momentum=0.9"],
        }
        more = {
            name: train(
                name, *SHAPES, "model=mlp", "batch_size=8", "max_steps=1", f"optim={name}", *given
            )
            for name, given in keys.items()
        }
        prefixes = set()
        for optimizer, run in {"adamw": self.mlp, "sgd": cnn, **more}.items():
            _, exported = header(run / "exported_models/exported_last.safetensors")
            _, tensors = header(run / "checkpoints/last.safetensors")
            whole = {n for n in exported if not n.endswith("num_batches_tracked")}
            for name in tensors:
                bases = [n for n in whole if name.endswith("/" + n)]
                self.assertEqual(len(bases), 1, f"{name} belongs to one of the model's tensors")
                prefixes.add(f"{optimizer} {name[:-len(bases[0])]}")
            self.assertEqual({n for n in whole if f"model/{n}" not in tensors}, set())
            if optimizer not in more:
                model = run.name
                self.compare(f"tensors of {model}", {f"{n} {s}" for n, s in exported.items()})
        self.compare("tensors of checkpoints", prefixes)

    def test_tensors_of_large_models(self):
        """A file with the listed names and shapes fits, and is used whole."""
        for name in (s.split()[-1] for s in self.list if s.startswith("tensors of ")):
            if name in ("mlp", "cnn", "checkpoints"):
                continue
            lines = (line.split(" ", 1) for line in self.list[f"tensors of {name}"])
            write_tensors(work / "weights.safetensors", {n: json.loads(s) for n, s in lines})
            try:
                _, printed = levin(
                    "plan",
                    "train",
                    "classify",
                    "data=builtin:shapes",
                    "data.count=24",
                    "image_size=32",
                    "batch_size=2",
                    f"model={name}",
                    f"weights={work}/weights.safetensors",
                )
            except AssertionError as e:
                self.fail(
                    f"[tensors of {name}] old files have these names and shapes, and the "
                    f"program takes others:\n{e}"
                )
            unused = [
                s for s in printed.splitlines() if s.startswith("warning:") and "weights=" in s
            ]
            self.assertEqual(unused, [], f"[tensors of {name}] the program uses all of them")

    def test_entries_of_files(self):
        saved, _ = header(self.mlp / "checkpoints/last.safetensors")
        exported, _ = header(self.mlp / "exported_models/exported_last.safetensors")
        self.compare("metadata of checkpoints", saved)
        self.compare("metadata of exported models", exported)
        self.compare("metadata run", words_of(saved["run"]))
        self.compare("metadata layout", words_of(saved["layout"]))
        self.compare("metadata levin.schedule", words_of(saved["levin.schedule"]))
        self.compare("metadata levin.scaler", words_of(saved["levin.scaler"]))
        metrics = json.loads(saved["epoch_metrics"])
        self.compare("metadata epoch_metrics", {row[0] for row in metrics})
        self.compare("metadata classifier", keys_of(json.loads(exported["classifier"])))
        seldom = self.list["metadata seldom written"]
        self.compare(
            "metadata seldom written",
            {name for name in seldom if name.encode() + b"\0" in self.binary},
        )

    def test_files_of_runs(self):
        for label in ("a", "b"):
            for i in range(4):
                write_png(work / f"photos/{label}/{i}.png", 16, (40 * i, 90, 200))
        (work / "photos/a/notes.txt").write_text("no image\n")
        small = [f"data={work}/photos", "image_size=16", "model=mlp", "batch_size=4", "max_steps=1"]
        three = [f"logger=[csv,tensorboard,exec:cat > {work}/lines]", "log_histograms=true"]
        good = train("good", *small, *three)
        bad = train(
            "bad",
            *small,
            "optim=sgd",
            "optim.lr=1e38",
            "max_steps=20",
            "devices=2",
            "accelerator=cpu",
            "max_restarts=1",
            code=1,
            env={"SLURM_JOB_ID": "77"},
        )
        files = set()
        for run in (good, bad):
            names = (str(p.relative_to(run)) for p in run.rglob("*") if p.is_file())
            files |= {re.sub(r"_\d+", "_N", n) for n in names}
        maps = work / "maps"
        small_gan = (
            "data=builtin:mass data.count=8 im_size=16 gen_channels=2 gen_levels=1 max_epochs=1"
            " disc_channels=2 disc_stages=1 psnr_gain_tol=99 image_every_n_epochs=0 quiet=true"
        )
        levin("train", "gan", f"out={maps}", *small_gan.split())
        levin("eval", f"model={maps}", "choose=rmse", "num_samples=2")
        files |= {p.name for p in maps.iterdir() if p.is_file()}
        events = re.compile(r"(events\.out\.tfevents)\.\d{10}\..*\.\d+\.\d+$")
        files = {events.sub(r"\1.N.HOST.N.N", n) for n in files}
        self.compare("files of a run directory", files)
        lines = [json.loads(line) for line in (work / "lines").read_text().splitlines()]
        self.compare("lines of logger=exec", {f"{e['event']} {key}" for e in lines for key in e})
        index = (good / "data.index").read_text().splitlines()
        self.compare("lines of data.index", {index[0]} | {line.split()[0] for line in index[1:]})
        write_array(work / "images.npy", (8, 16, 16, 3), "|u1", bytes(range(256)) * 24)
        write_array(work / "labels.npy", (8,), "|u1", bytes([0, 1] * 4))
        arrays = train("arrays", f"data={work}/images.npy", *small[1:])
        self.compare("data of exported models", {data_of(r) for r in (good, arrays, self.mlp)})
        records = [json.loads(p.read_text()) for p in bad.glob("errors/*.json")]
        self.assertTrue(records)
        keys = set().union(*map(keys_of, records))
        # a rank that stops because of another may or may not have a stack
        self.compare("keys of errors/*.json", {k.removesuffix("[]") for k in keys})

    def test_results(self):
        lines = (self.mlp / "metrics.jsonl").read_text().splitlines()
        self.compare("keys of metrics.jsonl", set().union(*map(keys_of, map(json.loads, lines))))
        use = [f"model={self.mlp}", "data=builtin:shapes", "data.count=6"]
        for kind in ("csv", "jsonl"):
            levin("predict", *use, "top_k=2", "probabilities=true", f"output={work}/p.{kind}")
        printed, _ = levin("eval", *use, "--json")
        label = "(circle|square|triangle|star|cross|ring)$"
        columns = (work / "p.csv").read_text().splitlines()[0].split(",")
        columns = {re.sub("^p_" + label, "p_CLASS", c) for c in columns}
        self.compare("columns of predictions", columns)
        rows = map(json.loads, (work / "p.jsonl").read_text().splitlines())
        keys = set().union(*map(keys_of, rows))
        self.compare("keys of predictions", {re.sub(r"\." + label, ".CLASS", k) for k in keys})
        self.compare("keys of eval --json", keys_of(json.loads(printed)))
        printed, _ = levin("ckpt", "hash", str(self.mlp))
        self.compare("names of ckpt hash", {line.split()[0] for line in printed.splitlines()})
        printed, _ = levin("ckpt", "verify", str(self.mlp), "json=true")
        self.compare("keys of ckpt verify json=true", set(json.loads(printed.splitlines()[0])))
        printed, _ = levin("ckpt", "show", str(self.mlp), "json=true")
        shown = json.loads(printed)
        tensors = {f"tensors[].{key}" for key in shown["tensors"][0]}
        self.compare("keys of ckpt show json=true", tensors | (set(shown) - {"tensors"}))

    def test_data_check(self):
        project = work / "project"
        write_project(str(project), n=6)
        (project / "videos" / "a.mp4").write_bytes(b"no video")
        config = f"config={project}/config.yaml"
        printed, _ = levin("data", "check", config, "json=true", code=1)
        found = json.loads(printed)
        parts = {"keypoints", "sizes", "videos"}
        keys = set(found) - parts
        for part in parts:
            keys |= {f"{part}[].{key}" for key in found[part][0]}
        for part in ("sets", "pca_singleview"):
            keys = keys - {part} | {f"{part}.{key}" for key in found[part]}
        self.compare("keys of data check json=true", keys)

    def test_configuration(self):
        """A line may hold several spellings of a key: the first is accepted for good, any may be
        the one that is written."""
        saved, _ = header(self.mlp / "checkpoints/last.safetensors")
        printed, _ = levin("help", "train.classify")
        rows = re.findall(r"^  ([a-z][\w.]*) +(\S+)", printed, re.M)
        aliases = re.findall(r"Also: ([\w., ]+)\.$", printed, re.M)
        accepted = {name for name, _ in rows} | set(", ".join(aliases).split(", "))
        spellings = [line.split() for line in self.list["configuration keys"]]
        lost = [s[0] for s in spellings if s[0] not in accepted]
        self.assertEqual(
            lost,
            [],
            "\n[configuration keys] lost: config.yaml and checkpoints of " "old runs have them",
        )
        in_yaml = re.findall(r"^([a-z][\w.]*):", (self.mlp / "config.yaml").read_text(), re.M)
        written = accepted | set(in_yaml) | set(json.loads(saved["levin.config"]))
        new = sorted(written - {s for line in spellings for s in line})
        self.assertEqual(
            new,
            [],
            f"\n[configuration keys] new: if they are meant to stay, add " f"them to {LIST}",
        )
        choices = ((name, c.rstrip(",").split("|")) for name, c in rows if "|" in c)
        self.compare("configuration values", {f"{n}={v}" for n, values in choices for v in values})

    def test_configuration_of_recipes(self):
        """Their own keys: those of every training are above."""
        for recipe in ("gan", "pose", "pretrain"):
            self.configuration_of(recipe)

    def test_job_scripts(self):
        """Keys of the section `slurm:` and of profiles."""
        printed, _ = levin("help", "slurm")
        keys = re.findall(r"^  ([a-z_]+)  +\S", printed[printed.index("\njob script\n") :], re.M)
        self.compare("keys of job scripts", keys)

    def test_sweeps(self):
        """Keys of the section `sweep:` and of the command."""
        printed, _ = levin("help", "sweep")
        keys = re.findall(r"^  ([a-z_.]+)  +\S", printed[printed.index("\nsweep\n") :], re.M)
        self.compare("keys of sweeps", keys)

    def configuration_of(self, recipe):
        known = {s for line in self.list["configuration keys"] for s in line.split()}
        shared = set(self.list["configuration values"])
        keys, values = set(), set()
        for command in ("train", "predict", "eval"):
            printed, _ = levin("help", f"{command}.{recipe}")
            rows = re.findall(r"^  ([a-z][\w.]*) +(\S+)", printed, re.M)
            aliases = re.findall(r"Also: ([\w., ]+)\.$", printed, re.M)
            keys |= {name for name, _ in rows} | set(", ".join(aliases).split(", "))
            values |= {f"{n}={v}" for n, c in rows if "|" in c for v in c.rstrip(",").split("|")}
        self.compare(f"configuration keys of {recipe}", keys - known)
        self.compare(f"configuration values of {recipe}", values - shared)

    def test_environment(self):
        names = re.findall(rb"\bLEVIN_[A-Z0-9_]+", self.binary)
        self.compare("environment", {n.decode() for n in names})

    def test_exit_codes(self):
        rows = re.search(r"#define \w*EXIT_LIST\(X\)(.*?[^\\])\n", self.source, re.S)[1]
        codes = re.findall(r"X\((\w+), (\d+),", rows)
        self.compare("exit codes", {f"{int(n):3} {name}" for name, n in codes})
        levin("train", "classify", "no_such_key=1", code=64)

    def test_random_numbers(self):
        """What only the source shows: purposes by name, operations and draws by number."""
        purposes = re.findall(r'rng_purpose\("([^"]*)"\)', self.source)
        self.assertEqual(len(purposes), len(set(purposes)), f"one purpose, one use: {purposes}")
        purposes += re.findall(r'snprintf\(purpose, sizeof purpose, "([^"]*)"', self.source)
        self.compare("purposes of random numbers", purposes)
        operations = re.findall(r"\bLVNI\w*_AUGMENT_([A-Z]+) = (\d+),", self.source)
        self.compare("operations of augmentation", {f"{int(n):2} {name}" for name, n in operations})
        draws = re.search(r"enum \{ (DRAW_[A-Z_, ]+), DRAWS_PER_GAMMA = (\d+) \}", self.source)
        self.assertIsNotNone(draws, "the draws of mixup stand in one enum, numbered from 0")
        order = [*draws[1].split(", "), f"DRAWS_PER_GAMMA {draws[2]}"]
        self.assertEqual(order, self.list["draws of mixup"], "the order gives each draw its number")
        bits = re.findall(r"CALL_BITS = (\d+)", self.source)
        self.compare(
            "packing of random numbers", {f"bits of a call's number in a phase: {b}" for b in bits}
        )


def tearDownModule():
    subprocess.run(["rm", "-rf", work], check=True)


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} SOURCE LEVIN [test names]")
    unittest.main(verbosity=1)
