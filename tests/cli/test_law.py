#!/usr/bin/env python3
"""The law as a person meets it: one configuration, many layouts, one hash.

usage: test_law.py LEVIN [DATA]   DATA: folder with clothing/ (341 photos in 10 classes); absent: the built-in shapes serve.
Every run: 341 pictures, E = 32 (last step 21), S = 6, CNN with batch norm, dropout, flips, colour jitter, AdamW, clipping.
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

from law_lines import first_difference, law_lines

LEVIN = os.path.abspath(sys.argv[1])
PHOTOS = os.path.join(sys.argv[2], "clothing") if len(sys.argv) > 2 else ""
HAVE_PHOTOS = os.path.isdir(PHOTOS)
CORES = sorted(os.sched_getaffinity(0))
work = tempfile.mkdtemp(prefix="levin-law-")
failures = []
runs = 0


def check(good, what):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        failures.append(what)


def levin(words, cores=None, env=None):
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run([LEVIN] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=pin,
                          env=dict(os.environ, **(env or {})), timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"levin {' '.join(words)} left with {done.returncode}:\n{done.stderr}")
    return done.stdout


def hashes(out, which="last"):
    lines = levin(["ckpt", "hash", f"{out}/checkpoints/{which}.safetensors"]).split()
    return lines[1], lines[3]  # weights, state


DATA = [f"data={PHOTOS}"] if HAVE_PHOTOS else ["data=builtin:shapes", "data.count=341", "data.classes=10"]
COMMON = ["train", "classify", "model=cnn", "image_size=32", "val_split=0", "shards=6", "augment.hflip=0.5", "augment.brightness=0.4",
          "augment.contrast=0.4", "augment.saturation=0.4", "augment.hue=0.1", "model.dropout=0.1", "optim=adamw", "gradient_clip_val=1",
          "quiet=true", "seed=7", "log_every_n_steps=1"]


def train(words, data=None, **how):
    global runs
    runs += 1
    out = f"{work}/run{runs}"
    levin(COMMON + (data or DATA) + words + [f"out={out}"], **how)
    return out


def same(run, first, what):
    """State, and every number of metrics.jsonl but times, rates and memory."""
    check(hashes(run) == hashes(first), what)
    parts = first_difference(law_lines(run), law_lines(first))
    check(parts == "", f"{what}: metrics.jsonl {parts}")


def layouts(team):
    pinned = [f"wgrad_threads={team}", "batch_size=32", "max_epochs=2", "eval_batch_size=32"]
    first = train(pinned + ["lanes=1", "num_workers=0"])
    want = hashes(first)
    print(f"team {team}: weights {want[0]} state {want[1]}")
    for name, words, how in [
        ("2 lanes, 1 worker", ["lanes=2", "num_workers=1"], {}),
        ("3 lanes, 2 workers", ["lanes=3", "num_workers=2"], {}),
        ("3 lanes, 3 workers, one core", ["lanes=3", "num_workers=3"], {"cores": CORES[:1]}),
        ("1 lane, one core", ["lanes=1", "num_workers=0"], {"cores": CORES[:1]}),
        ("hostile OpenMP variables", ["lanes=2"], {"env": {"OMP_DYNAMIC": "true", "OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "7"}}),
    ]:
        same(train(pinned + words, **how), first, f"team {team}: {name}")
    stopped = train(pinned + ["lanes=1", "max_steps=18"])  # step 7 of epoch 2: an epoch has 11 steps
    levin(["train", "classify", f"out={stopped}", "resume=true", "max_steps=-1", "lanes=2", "num_workers=2", "quiet=true"])
    same(stopped, first, f"team {team}: resumed at step 7 of epoch 2, with other lanes")
    means = law_lines(stopped, only="train/loss")
    check([step for step, _ in means] == [11, 22], "the interrupted epoch has its means, over all of its steps")
    return first, want


def validation():
    """Metrics of validation, the choice of the best epoch and predictions do not follow the lanes either."""
    first, table = None, None
    for lanes in (1, 2, 3):
        run = train(["val_split=0.2", "wgrad_threads=2", "batch_size=32", "max_epochs=3", "eval_batch_size=8", f"lanes={lanes}"])
        if first is not None:
            same(run, first, f"{lanes} lanes with validation")
            check(hashes(run, "best") == hashes(first, "best"), f"{lanes} lanes with validation: best")
        first = first or run
        check([("val/loss" in row, "val/acc" in row) for _, row in law_lines(run, only="val/")] == 3 * [(True, True)], "every epoch is validated")
        output = f"{run}/predictions.csv"
        levin(["predict", f"model={run}", *[word for word in DATA if word != "data.classes=10"], f"output={output}", f"lanes={lanes}", "eval_batch_size=8"])
        text = open(output).read()
        table = table or text
        check(text == table and text.count("\n") == 342, f"{lanes} lanes predict the same table")


def dialects():
    a = train(["batch_size=30", "shards=6", "wgrad_threads=1", "max_steps=4"])
    out = f"{work}/dialect"
    words = [w for w in COMMON if w != "shards=6"]
    levin(words + DATA + ["batch_size_per_device=5", "accumulate_grad_batches=6", "wgrad_threads=1", "max_steps=4", f"out={out}"])
    check(hashes(a) == hashes(out), "batch_size=30 shards=6 is batch_size_per_device=5 accumulate_grad_batches=6")


def groups():
    """LARS, parameters of different rates, frozen ones, an average of the weights, resumed in the middle."""
    words = ["batch_size=30", "wgrad_threads=1", "optim=lars", "optim.lr=1", "optim.nesterov=true", "optim.decay_norm_bias=false",
             "freeze=[conv1,norm2.bias]", "lr_scale=[head=10,conv3=0.1]", "ema.decay=0.9", "scheduler=step", "scheduler.interval=step",
             "scheduler.step_size=2", "scheduler.warmup_steps=2"]
    first = train(words + ["max_steps=6", "lanes=1"])
    same(train(words + ["max_steps=6", "lanes=3"]), first, "groups and averages: 3 lanes")
    stopped = train(words + ["max_steps=3", "lanes=2"])
    levin(["train", "classify", f"out={stopped}", "resume=true", "max_steps=6", "quiet=true"], cores=CORES[:1])
    check(hashes(stopped) == hashes(first), "groups and averages: resumed on one core")
    times = [json.loads(line)["time_s"] for line in open(f"{stopped}/metrics.jsonl")]
    check(times == sorted(times), "time_s goes on after resuming")


def mixtures():
    """mixup and CutMix within shards; a weighted loss, samples drawn again; blur, grey, solarize by whichever thread; resumed in the middle."""
    words = ["batch_size=32", "wgrad_threads=1", "mixup_alpha=0.4", "cutmix_alpha=1", "augment.blur=0.5", "augment.grey=0.3",
             "augment.solarize=0.3", "augment.jitter=0.8", "class_weights=auto", "label_smoothing=0.1", "sampler=balanced"]
    first = train(words + ["max_steps=6", "lanes=1", "num_workers=0"])
    same(train(words + ["max_steps=6", "lanes=3", "num_workers=3"]), first, "mixup, CutMix, blur: 3 lanes, 3 workers")
    stopped = train(words + ["max_steps=3", "lanes=2"])
    levin(["train", "classify", f"out={stopped}", "resume=true", "max_steps=6", "quiet=true"], cores=CORES[:1])
    check(hashes(stopped) == hashes(first), "mixup, CutMix, blur: resumed on one core")


def groups_of_shards():
    """sync_batchnorm: the shards of a group run at once however many lanes were asked for; resumed in the middle."""
    words = ["batch_size=30", "wgrad_threads=1", "sync_batchnorm=true"]
    want = {}
    for group in ("group=2", "group=6"):
        first = train(words + [group, "max_steps=6", "lanes=1", "num_workers=0"])
        want[group] = hashes(first)
        same(train(words + [group, "max_steps=6", "lanes=4", "num_workers=2"]), first, f"sync_batchnorm, {group}: 4 lanes")
        stopped = train(words + [group, "max_steps=3", "lanes=2"])
        levin(["train", "classify", f"out={stopped}", "resume=true", "max_steps=6", "quiet=true"], cores=CORES[:1])
        check(hashes(stopped) == want[group], f"sync_batchnorm, {group}: resumed on one core")
        for devices, strategy in ((2, "ddp"), (3, "dp"), (4, "ddp")):  # 4 ranks own 2, 2, 1 and 1 shards
            same(train(words + [group, "max_steps=6", f"devices={devices}", f"strategy={strategy}"]), first, f"sync_batchnorm, {group}: {devices} ranks, {strategy}")
    check(want["group=2"] != want["group=6"], "another group is another run")
    plain, alone = (hashes(train(["batch_size=30", "wgrad_threads=1", "max_steps=3", *more])) for more in ([], ["sync_batchnorm=true", "group=1"]))
    check(plain == alone, "sync_batchnorm with groups of one shard is batch norm")
    rounds = train(["batch_size=15", "accumulate_grad_batches=2", "wgrad_threads=1", "sync_batchnorm=true", "max_steps=1"])
    check("group: 3" in open(f"{rounds}/config.yaml").read(), "the group is a round of the devices: shards / accumulate_grad_batches")


def resnets():
    """The same on a network with residual blocks, in the precisions that change its kernels."""
    for precision in ("32-true", "bf16-mixed", "16-mixed", "bf16-true"):
        small = precision in ("16-mixed", "bf16-true")  # f16 is computed in f32: slow
        steps, stop = (4, 2) if small else (12, 7)
        words = ["model=resnet18", f"precision={precision}", "wgrad_threads=1", "batch_size=32", f"max_steps={steps}", "eval_batch_size=32"]
        first = train(words + ["lanes=1", "num_workers=0"])
        same(train(words + ["lanes=3", "num_workers=2"]), first, f"resnet18, {precision}: 3 lanes, 2 workers")
        if precision == "bf16-true":
            continue
        if not small:
            same(train(words + ["lanes=2", "num_workers=3"], cores=CORES[:1]), first, f"resnet18, {precision}: 2 lanes, 3 workers, one core")
        stopped = train([w for w in words if not w.startswith("max_steps")] + [f"max_steps={stop}", "lanes=2"])
        levin(["train", "classify", f"out={stopped}", "resume=true", f"max_steps={steps}", "quiet=true", "lanes=1"])
        same(stopped, first, f"resnet18, {precision}: resumed at step {stop}")


def one_pixel():
    """The same folder with one picture changed by one pixel gives another hash; a copy of it the same."""
    import zlib
    folder = f"{work}/pictures"
    size = 16

    def png(path, value):
        rows = b"".join(b"\0" + bytes((x * 7 + y * 3 + value) % 256 for x in range(size * 3)) for y in range(size))
        chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
        with open(path, "wb") as f:
            f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))

    for k in range(2):
        os.makedirs(f"{folder}/class{k}")
        for i in range(8):
            png(f"{folder}/class{k}/{i}.png", 40 * i + 100 * k)
    shutil.copytree(folder, f"{folder}-copy")
    shutil.copytree(folder, f"{folder}-other")
    path = f"{folder}-other/class1/3.png"
    data = zlib.decompress(open(path, "rb").read()[41:-16])
    changed = bytearray(data)
    changed[size * 3 * 5 + 20] ^= 64
    chunk = lambda kind, body: struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
    head = open(path, "rb").read()[:33]
    with open(path, "wb") as f:
        f.write(head + chunk(b"IDAT", zlib.compress(bytes(changed))) + chunk(b"IEND", b""))
    words = ["batch_size=12", "wgrad_threads=1", "max_epochs=2"]
    first, copy, other = (hashes(train(words, data=[f"data={folder}{end}"])) for end in ("", "-copy", "-other"))
    check(first == copy, "a copy of the pictures elsewhere gives the same hash")
    check(first[0] != other[0], "one changed pixel gives another hash")


def damage(run, want):
    renamed = f"{work}/renamed"
    shutil.copytree(run, renamed)
    check(hashes(renamed) == want, "renaming the run keeps both hashes")
    path = f"{renamed}/checkpoints/last.safetensors"
    raw = bytearray(open(path, "rb").read())
    header = struct.unpack("<Q", raw[:8])[0]
    tensors = json.loads(raw[8:8 + header])
    begin = tensors["model/head.weight"]["data_offsets"][0]
    raw[8 + header + begin + 1] ^= 1  # a mantissa bit
    open(path, "wb").write(raw)
    done = subprocess.run([LEVIN, "ckpt", "hash", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    check(done.returncode == 1 and "model/head.weight" in done.stderr, "a flipped mantissa bit is told and gives exit code 1")
    check(done.stdout.split()[1] != want[0], "a flipped mantissa bit changes `weights`")


try:
    print(f"data: {'341 photos' if HAVE_PHOTOS else 'built-in shapes'}")
    one, want1 = layouts(1)
    two, want2 = layouts(2)
    validation()
    dialects()
    groups()
    mixtures()
    groups_of_shards()
    if "LEVIN_LAW_WITHOUT_RESNETS" in os.environ:
        print("skipped part: the residual networks (LEVIN_LAW_WITHOUT_RESNETS is set)")
    else:
        resnets()
    one_pixel()
    damage(one, want1)
finally:
    shutil.rmtree(work, ignore_errors=True)
print(f"{len(failures)} failures")
if not HAVE_PHOTOS:
    print("skipped part: real photos (LEVIN_TEST_DATA names no folder with clothing/); the built-in shapes stood in for them")
sys.exit(1 if failures else 0)
