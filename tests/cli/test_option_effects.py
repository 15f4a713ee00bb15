"""Every key of every command does something: a run with another value of it shows another result.

usage: test_option_effects.py LEVIN [KEY ...]

The keys are those that `levin help COMMAND` lists. Each has a row below: the value that is tried,
what else is given (to both runs, unless the row has a value for the first run, too), and what must
differ. A key without a row, a row without a key, and a row whose value changes nothing fail. A
seventh of the rows is run each day; with KEY those of these keys, with LEVIN_TEST_SLOW=1 all.
"""

import hashlib
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent / "support"))

from case import JPEG, LEVIN, png, with_orientation, write
from option_rows import COMMANDS, GAN, POSE_ENDS, PRETRAIN, Elsewhere
from pose_project import write_project
from turns import of_today, turn_line

WAIT_S = 20
COUNTS = {"threads", "processes"}
SPEED = re.compile(r'"(time_s|throughput[^"]*|memory[^"]*)":[^,}]*,?')


def clean(text, folder):
    """Output without what differs between any two runs: time and speed, the folder, numbers drawn,
    the order of lines of several ranks."""
    text = text.replace(folder, "DIR")
    text = re.sub(r"[0-9.]+ (images/s|s\b)|data wait [0-9]+%", "", text)
    text = re.sub(r"mem [0-9.]+ [KMG]iB|left [0-9]+s", "", text)
    text = re.sub(r"\b[0-9a-f]{16}\b|port [0-9]+|pid [0-9]+", "", text)
    return "\n".join(sorted(text.splitlines()))


def tensors(path):
    """The hash of a safetensors file's numbers."""
    data = path.read_bytes()
    return hashlib.md5(data[8 + struct.unpack("<Q", data[:8])[0] :]).hexdigest()


def photos(folder, n, classes=("cat", "dog")):
    """Images of noise, in which the classes hardly differ: probabilities in between."""
    for c, name in enumerate(classes):
        for i in range(n):
            png(
                f"{folder}/{name}/{i}.png",
                20,
                18,
                lambda x, y: [
                    (x * 37 + y * 91 + k * 57 + (i + 3 * c) * x * y) % 256 for k in (0, 1, 2)
                ],
            )


class Fixtures:
    """What rows read: images, arrays, a trained model and one with an average."""

    def __init__(self, folder):
        self.dir = folder
        photos(f"{folder}/photos", 12)
        photos(f"{folder}/parts/train", 8)
        photos(f"{folder}/parts/val", 2)
        photos(f"{folder}/parts/test", 3)
        shutil.copytree(f"{folder}/photos", f"{folder}/broken")
        shutil.copytree(f"{folder}/photos", f"{folder}/turned")
        write(f"{folder}/turned/cat/turned.jpg", with_orientation(JPEG, 3))
        write(f"{folder}/broken/cat/0.png", b"no image")
        self.array("x.npy", "|u1", (12, 8, 8, 3), bytes(i * 7 % 251 for i in range(12 * 192)))
        for name, labels in (("labels.npy", range(12)), ("other.npy", range(0, 60, 5))):
            self.array(name, "<i8", (12,), struct.pack("<12q", *(i // 4 % 3 for i in labels)))
        train = "model=mlp image_size=8 batch_size=6 max_epochs=3 optim.lr=0.003 num_workers=0"
        self.run(f"train classify data=photos {train} out=model ema.decay=0.5")
        self.run(f"train classify data=photos {train} out=second seed=1")
        self.both({"one": "model", "two": "second"})
        self.run(f"train classify data=x.npy {train} out=of_array")
        self.maps()
        self.run(GAN.replace("out=run", "out=gan"))
        self.run(PRETRAIN.replace("out=run", "out=backbone"))
        self.project()
        self.run(PRETRAIN.replace("out=run", "out=backbone2 seed=1"))
        write(f"{folder}/seed.yaml", b"seed: 3\n")
        write(f"{folder}/table.yaml", b"top_k: 2\n")
        write(f"{folder}/split.yaml", b"split: train\n")
        write(f"{folder}/card.yaml", b"card: false\n")
        write(f"{folder}/launch.yaml", b"role: reader\n")
        write(f"{folder}/env", b"FROM_FILE=1\n")
        write(f"{folder}/speak.py", b"")
        write(f"{folder}/speak.sh", b"echo out $HOME; echo err >&2\n")
        write(f"{folder}/fail.sh", b"echo 1 >&2; echo 2 >&2; exit 3\n")
        write(f"{folder}/last.sh", b"test $RANK = 0 || sleep 1\n")

    def both(self, runs):
        """The weights of two runs in one file, under two keys."""
        head, data = {}, b""
        for key, run in runs.items():
            file = Path(f"{self.dir}/{run}/exported_models/exported_last.safetensors").read_bytes()
            n = 8 + struct.unpack("<Q", file[:8])[0]
            for name, entry in json.loads(file[8:n]).items():
                if name != "__metadata__":
                    offsets = [o + len(data) for o in entry["data_offsets"]]
                    head[f"{key}.{name}"] = {**entry, "data_offsets": offsets}
            data += file[n:]
        text = json.dumps(head).encode()
        write(f"{self.dir}/both.safetensors", struct.pack("<Q", len(text)) + text + data)

    def maps(self):
        """Maps of mass, the mask and the noise of a survey, and k-space of two coils."""
        for part, n in (("train", 8), ("val", 2), ("test", 2)):
            for i in range(n):
                values = [((x * (i + 3) * 37 + len(part)) % 97 - 48) / 500 for x in range(256)]
                data = struct.pack("<256f", *values)
                self.array(f"maps/kappa_{part}/{i}.npy", "<f4", (16, 16), data)
        shape = (8, 2, 16, 16)
        for part in ("train", "val"):
            values = [(i * i * 31 % 211 - 105) / (5 + i % 16) for i in range(2 * 8 * 2 * 256)]
            data = struct.pack(f"<{len(values)}f", *values)
            self.array(f"scans/multicoil_{part}/0.npy", "<c8", shape, data)
        for name, value in (("mask", 1.0), ("std1", 0.2), ("std2", 0.4)):
            data = struct.pack("<256f", *[value] * 256)
            self.array(f"cosmos/cosmos_{name}.npy", "<f4", (16, 16), data)

    def project(self):
        """Frames with keypoints, another file of some of them, their sets, and steps for epochs."""
        project = f"{self.dir}/project"
        write_project(project, n=5, missing=(), name="fewer.csv")
        write_project(project, n=12, missing=((0, 1), (2, 1), (4, 1), (6, 1)))
        shutil.copy(f"{project}/CollectedData.csv", f"{self.dir}/frames.csv")
        sets = ["train"] * 4 + ["test"] * 7 + ["validation"]
        rows = (f"labeled-data/CollectedData/img{i:02}.png,{s}\n" for i, s in enumerate(sets))
        write(f"{project}/sets.csv", f"image,set\n{''.join(rows)}".encode())
        text = Path(f"{project}/config.yaml").read_text()
        for old, new in (
            ("unfreezing_epoch: 1", "unfreezing_step: 1"),
            ("  min_epochs: 2\n", ""),
            ("max_epochs: 2", "max_steps: 2"),
            ("milestones: [2]", "milestone_steps: [2]"),
        ):
            text = text.replace(old, new)
        write(f"{project}/steps.yaml", text.encode())
        self.run(POSE_ENDS.replace("out=run", "out=pose"))

    def array(self, name, kind, shape, data):
        head = str({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(117)
        write(f"{self.dir}/{name}", b"\x93NUMPY\1\0" + struct.pack("<H", len(head) + 1) + head)
        with open(f"{self.dir}/{name}", "ab") as f:
            f.write(b"\n" + data)

    def run(self, line):
        subprocess.run([LEVIN, *line.split()], cwd=self.dir, check=True, stdout=subprocess.DEVNULL)


def children(pid):
    try:
        return [
            c for p in Path(f"/proc/{pid}/task").glob("*/children") for c in p.read_text().split()
        ]
    except OSError:
        return []


def threads(pid):
    """The names of its own: lvn-load0, lvn-lane1."""
    names = set()
    for path in Path(f"/proc/{pid}/task").glob("*/comm"):
        try:
            names.add(path.read_text().strip())
        except OSError:
            pass
    return {name for name in names if re.match("lvn-(load|lane)", name)}


def watch(arguments, how):
    """Runs levin; also the names of its threads, and the most processes at once."""
    how = {key: value for key, value in how.items() if key not in ("timeout", "capture_output")}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen([LEVIN, *arguments], **how, stdout=out, stderr=err)
        names, processes, begin = set(), 0, time.monotonic()
        while process.poll() is None and time.monotonic() < begin + WAIT_S:
            names |= threads(process.pid)
            processes = max(processes, len(children(process.pid)))
            time.sleep(0.001)
        process.kill()
        process.wait()
        texts = [f.seek(0) or f.read() for f in (out, err)]
    return (
        subprocess.CompletedProcess(arguments, process.returncode, *texts),
        sorted(names),
        processes,
    )


def observe(arguments, fixtures, row):
    """What a run in a folder of its own shows, by name."""
    folder = tempfile.mkdtemp(prefix="run-", dir=fixtures.dir)
    for name in os.listdir(fixtures.dir):
        if not name.startswith("run-"):
            os.symlink(f"{fixtures.dir}/{name}", f"{folder}/{name}")
    there = set(os.listdir(folder))
    how = {
        "cwd": folder,
        "text": True,
        "timeout": WAIT_S,
        "env": dict(os.environ, GOMP_SPINCOUNT="2000", **row.env),
        "stdin": subprocess.DEVNULL,
        "capture_output": True,
    }
    if row.before:
        subprocess.run([LEVIN, *row.before.split()], check=True, **how)
    names, processes = [], 0
    if COUNTS & set(row.sees):
        done, names, processes = watch(arguments, how)
    else:
        done = subprocess.run([LEVIN, *arguments], check=False, **how)
    made = sorted(
        str(p.relative_to(folder))
        for name in set(os.listdir(folder)) - there
        for p in [Path(folder, name), *Path(folder, name).rglob("*")]
    )
    seen = {
        "threads": names,
        "processes": processes,
        "code": done.returncode,
        "stdout": clean(done.stdout, folder),
        "stderr": clean(done.stderr, folder),
        "files": [re.sub(r"\b[0-9a-f]{16}\b", "", name) for name in made],
    }
    for name in made:
        path = Path(folder, name)
        if path.name == "exported_last.safetensors":
            seen["weights"] = tensors(path)
        elif path.name == "last.safetensors":
            seen["state"] = tensors(path)
        elif path.name == "metrics.jsonl":
            seen["metrics"] = SPEED.sub("", path.read_text())
        elif path.name == "train.log":
            seen["log"] = clean(re.sub(r"\[.*?\]", "", path.read_text()), folder)
        elif path.suffix in (".npy", ".png") and "/" in name:
            seen["arrays"] = seen.get("arrays", "") + hashlib.md5(path.read_bytes()).hexdigest()
        elif path.name == "config.yaml" and "/" in name:
            seen["saved"] = path.read_text().replace(folder, "DIR")
        elif path.suffix == ".csv" and "/" in name:
            seen["tables"] = seen.get("tables", "") + hashlib.md5(path.read_bytes()).hexdigest()
        elif path.is_file() and "/" not in name:
            seen["content"] = seen.get("content", "") + hashlib.md5(path.read_bytes()).hexdigest()
    shutil.rmtree(folder)
    return seen


def keys_of(command):
    """[(key, default)] as `levin help` lists them."""
    text = subprocess.run(
        [LEVIN, "help", command.help], check=True, capture_output=True, text=True
    ).stdout
    return [m[1] for m in re.finditer(r"^  ([a-z]\S*) .*, default ", text, re.M)]


def check(command, key, row, fixtures, cache):
    """None, or what is wrong with the row."""
    if isinstance(row, Elsewhere):
        text = Path(__file__).parent.joinpath(row.file).read_text()
        return None if row.text in text else f"{command.help} {key}: no {row.text} in {row.file}"
    rest = row.rest.split()
    both = (command.line if row.instead is None else row.instead).split()
    given = {a.split("=")[0] for a in rest if "=" in a} | {key}
    both = [a for a in both if a.split("=")[0] not in given]
    tail = (command.tail if row.tail is None else row.tail).split()
    first = both + rest + ([] if row.first is None else [f"{key}={row.first}"])
    second = both + rest + [f"{key}={row.value}"]
    seen = []
    # text may differ between any two runs: those are made twice
    again = set(row.sees) & {"stdout", "stderr", "log", "content"}
    for n, arguments in enumerate((first, second) + ((first,) if again else ())):
        name = json.dumps([n == 2, arguments, tail, row.env, row.before])
        if name not in cache or COUNTS & set(row.sees):
            cache[name] = observe(arguments + tail, fixtures, row)
        seen.append(cache[name])
    wrong = [what + " stays" for what in row.sees if seen[0].get(what) == seen[1].get(what)]
    if again:
        wrong += [what + " differs by itself" for what in again if seen[0][what] != seen[2][what]]
    if seen[1]["code"] != 0 and not row.fails:
        wrong.append("the second fails")
    if not wrong:
        return None
    return f"{command.help} {key}: {', '.join(wrong)}\n" + "".join(
        f"  levin {' '.join(arguments + tail)}\n  {s['code']}: {s['stderr'][-400:]}\n"
        for arguments, s in zip((first, second), seen)
    )


PARTS = 10  # one of them a day


def main():
    only = sys.argv[1:]
    if not only:
        print(turn_line(PARTS), flush=True)
    failures, cache, jobs = [], {}, []
    folder = tempfile.mkdtemp(prefix="levin-effects-")
    try:
        fixtures = Fixtures(folder)
        with ThreadPoolExecutor(max_workers=2) as pool:
            for command in COMMANDS:
                keys = keys_of(command)
                known = {*command.rows, *command.shared}
                failures += [f"{command.help} {k}: no row" for k in keys if k not in known]
                failures += [f"{command.help} {k}: no key" for k in command.rows if k not in keys]
                for key in only or of_today(keys, PARTS):
                    if key in keys and key in command.rows:
                        row = command.rows[key]
                        jobs.append(pool.submit(check, command, key, row, fixtures, cache))
            failures += [job.result() for job in jobs if job.result() is not None]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print("\n".join(failures) or f"{len(jobs)} keys, each changes what its row names")
    return 1 if failures or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
