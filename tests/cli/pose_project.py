"""A small project as Lightning Pose has them.

Frames are grey with one bright spot per keypoint, whose place is its label.
"""

import csv
import os
import random
import struct
import subprocess
import zlib

NAMES = ["nose", "ear_left", "ear_right"]
WIDTH, HEIGHT = 120, 100
CONFIG = """\
data:
  image_resize_dims: {height: 128, width: 128}
  data_dir: DIR
  video_dir: ${data.data_dir}/videos
  csv_file: CollectedData.csv
  num_keypoints: 3
  keypoint_names: [nose, ear_left, ear_right]
  columns_for_singleview_pca: [0, 1, 2]
  mirrored_column_matches: null
training:
  imgaug: dlc
  train_batch_size: 2
  val_batch_size: 4
  train_prob: 0.5
  val_prob: 0.1
  num_gpus: 1
  num_workers: 1
  unfreezing_epoch: 1
  min_epochs: 2
  max_epochs: 2
  log_every_n_steps: 1
  check_val_every_n_epoch: 1
  rng_seed_data_pt: 1
  rng_seed_model_pt: 2
  optimizer: Adam
  optimizer_params: {learning_rate: 1e-3}
  lr_scheduler: multisteplr
  lr_scheduler_params:
    multisteplr: {milestones: [2], gamma: 0.5}
model:
  losses_to_use: []
  backbone: resnet18
  backbone_pretrained: false
  model_type: heatmap
  heatmap_loss_type: mse
losses:
  temporal: {log_weight: 5.0, epsilon: 20.0}
eval:
  predict_vids_after_training: false
"""


def write_grey(path, rows):
    """rows: bytes of one width each."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 0, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + r for r in rows))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data))
        f.write(chunk(b"IEND", b""))


def draw(points, width=WIDTH, height=HEIGHT):
    rows = [bytearray(b"\x20" * width) for _ in range(height)]
    for k, (x, y) in enumerate(points):
        for dy in range(-3, 4):
            for dx in range(-3, 4):
                if 0 <= int(x) + dx < width and 0 <= int(y) + dy < height:
                    rows[int(y) + dy][int(x) + dx] = 120 + 60 * k
    return [bytes(r) for r in rows]


def write_project(folder, n=12, missing=((3, 1),), name="CollectedData.csv", seed=0):
    """Returns the labels of each frame; missing: (frame, keypoint) without one."""
    rng = random.Random(seed)
    labels = []
    for i in range(n):
        points = [(rng.uniform(8, WIDTH - 8), rng.uniform(8, HEIGHT - 8)) for _ in NAMES]
        write_grey(f"{folder}/labeled-data/{name[:-4]}/img{i:02}.png", draw(points))
        labels.append(points)
    with open(f"{folder}/{name}", "w", encoding="ascii", newline="") as f:
        out = csv.writer(f)
        out.writerow(["scorer"] + ["me"] * 6)
        out.writerow(["bodyparts"] + [p for p in NAMES for _ in "xy"])
        out.writerow(["coords"] + ["x", "y"] * 3)
        for i, points in enumerate(labels):
            cells = []
            for k, (x, y) in enumerate(points):
                cells += ["", ""] if (i, k) in missing else [f"{x:.2f}", f"{y:.2f}"]
            out.writerow([f"labeled-data/{name[:-4]}/img{i:02}.png", *cells])
    os.makedirs(f"{folder}/videos", exist_ok=True)
    with open(f"{folder}/config.yaml", "w", encoding="ascii") as f:
        f.write(CONFIG.replace("DIR", os.path.abspath(folder)))
    return labels


def write_video(path, frames, codec="mpeg4", speed=1.0):
    """Three spots that walk."""
    rows = []
    for i in range(frames):
        step = speed * i
        points = [(15 + step, 20), (40, 15 + step), (60 + step, 70 - step)]
        rows += draw([(x % (WIDTH - 16) + 8, y % (HEIGHT - 16) + 8) for x, y in points])
    make = ["ffmpeg", "-v", "error", "-y", "-f", "rawvideo", "-pix_fmt", "gray"]
    make += ["-s", f"{WIDTH}x{HEIGHT}", "-r", "10", "-i", "-", "-c:v", codec, path]
    subprocess.run(make, input=b"".join(rows), check=True)


def dlc_table(name, parts, points, three=False, individuals=None):
    """Rows of a CollectedData_SCORER.csv of DeepLabCut. points: of each frame (x, y) or None for
    each part; three: paths in three columns; individuals: an animal for each part."""
    empty = ["", ""] if three else []
    heads = {"scorer": ["me"] * len(parts)}
    if individuals:
        heads["individuals"] = individuals
    heads["bodyparts"] = parts
    rows = [[head, *empty, *(n for n in names for _ in "xy")] for head, names in heads.items()]
    rows.append(["coords", *empty, *["x", "y"] * len(parts)])
    for i, frame in enumerate(points):
        path = ["labeled-data", name, f"img{i:03}.png"]
        cells = [c for p in frame for c in (("", "") if p is None else (f"{p[0]}", f"{p[1]}"))]
        rows.append([*(path if three else ["/".join(path)]), *cells])
    return rows


def write_recording(folder, name, parts, n=4, seed=0, form="%s", ending="\n", **how):
    """One of a DeepLabCut project; the first frame has no labels. form: around the table's text.
    Returns the points."""
    rng = random.Random(seed)
    points = []
    for i in range(n):
        frame = [(rng.randrange(8, WIDTH - 8), rng.randrange(8, HEIGHT - 8) + 0.5) for _ in parts]
        write_grey(f"{folder}/labeled-data/{name}/img{i:03}.png", draw(frame))
        points.append(frame if i > 0 else [None] * len(parts))
    rows = dlc_table(name, parts, points, **how)
    text = form % "".join(",".join(row) + ending for row in rows)
    path = f"{folder}/labeled-data/{name}/CollectedData_me.csv"
    with open(path, "w", encoding="utf-8", newline="") as f:
        f.write(text)
    return points


DLC_CONFIG = """\
# Project definitions (do not edit)
Task: reach
scorer: me
multianimalproject: false
identity:
project_path: C:\\Users\\me\\reach
video_sets:
  ? C:\\Users\\me\\reach\\videos\\long.avi
  : crop: 0, 120, 0, 100
bodyparts:
- tail
- nose
skeleton:
- - tail
  - nose
start: 0
corner2move2:
- 50
- 50
SuperAnimalConversionTables:
"""
