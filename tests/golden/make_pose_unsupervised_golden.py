#!/usr/bin/env python3
"""Makes pose_unsupervised.safetensors beside it: what Lightning Pose makes of clips, in double
precision.

usage: python3 make_pose_unsupervised_golden.py     by hand, with lightning-pose 2.4.3

Numbers that both sides have by the rule of golden_rule.py:
  points/...   points in pixels of augmented clips, undone by a matrix and brought to pixels of the
               frame, and the losses of those with their gradients: temporal, with one tolerance,
               with one for each keypoint, and without confidences.
  maps/...     temporal_heatmap_mse and _kl.
  pca/...      principal components fitted to 40 poses: mean, kept components, loss and gradient.
               Where Lightning Pose fits in pixels of the network's input, it is given pixels of the
               frame, and what it keeps in single precision is kept in double.
  labels/...   the loss of regression, of coordinates in pixels of the frame.
  head/...     both heads of heatmap_mhcrnn on features of windows and of a clip: maps and
               gradients, of each ten numbers. Prints how far the same in f32 is from that.
"""

from pathlib import Path
from types import SimpleNamespace

import golden_rule as rule
import lightning_pose.utils.pca as pca
import numpy as np
import torch
from lightning_pose.data.bboxes import model_to_frame_batch
from lightning_pose.data.utils import undo_affine_transform_batch
from lightning_pose.losses.losses import (
    PCALoss,
    RegressionMSELoss,
    TemporalHeatmapLoss,
    TemporalLoss,
)
from lightning_pose.models.base import BaseSupervisedTracker
from lightning_pose.models.heads.heatmap_mhcrnn import HeatmapMHCRNNHead

HERE = Path(__file__).parent
FRAMES, KEYPOINTS, POSES = 7, 6, 40
HEIGHT, WIDTH, FRAME_HEIGHT, FRAME_WIDTH = 128, 256, 300, 400
MATRIX = [[0.875, -0.25, 12.5], [0.375, 1.125, -20.0]]
ONE, EACH, THRESHOLD = [20.0], [4.0, 8.0, 16.0, 2.0, 32.0, 1.0], 0.25
# name: columns, components to keep, centring
FITS = {
    "some": ([4, 0, 1, 2], 3, None),
    "mean": (None, 0.9, "mean"),
    "median": ([0, 2, 3, 4, 5], 2, "median"),
    "median of four": ([0, 1, 3, 5], 0.5, "median"),
    "multiview": ([[0, 1], [4, 2], [3, 5]], 3, None),
}
EPSILON = 24.0
MAP = (5, 4)
BATCH, CLIP, FEATURES, JOINTS, SIDES = 2, 7, 512, 3, (2, 3)


def numbers(name, *shape):
    """As golden_tensor() has them: single precision in [-2, 2)."""
    n = int(np.prod(shape))
    return torch.from_numpy(2.0 * rule.uniform(name, n)).float().double().reshape(shape)


def apart_from(value, epsilon):
    """A loss has a kink there."""
    assert (value - epsilon).abs().min() > 1e-3 * value.mean(), value
    return value


def add(out, name, loss, of, **more):
    loss.backward()
    out[f"{name}/loss"] = loss.detach().numpy()
    out[f"{name}/gradient"] = of.grad.numpy().copy()
    out.update({f"{name}/{k}": np.asarray(v) for k, v in more.items()})
    of.grad = None
    print(name, loss.item())


# ---- points ----


def batch(rows):
    box = torch.tensor([[0.0, 0.0, FRAME_HEIGHT, FRAME_WIDTH]]).double().repeat(rows, 1)
    return {"frames": torch.empty(rows, 3, HEIGHT, WIDTH), "bbox": box, "is_multiview": False}


def points(name="points", rows=FRAMES):
    return (64.0 * numbers(name, rows, 2 * KEYPOINTS)).requires_grad_()


def to_frame(x):
    x = undo_affine_transform_batch(x, torch.tensor(MATRIX).double())
    return model_to_frame_batch(batch(len(x)), x.clone())


def add_points(out):
    x, sure = points(), 0.5 + 0.25 * numbers("confidence", FRAMES, KEYPOINTS)
    out["points/frame"] = to_frame(x).detach().numpy()
    for name, epsilon, confidences in (
        ("one", ONE, sure),
        ("each", EACH, sure),
        ("all", ONE, None),
    ):
        loss = TemporalLoss(epsilon=epsilon if len(epsilon) > 1 else epsilon[0])
        loss.prob_threshold = torch.tensor(THRESHOLD if confidences is not None else 0.0)
        at = to_frame(x)
        apart_from(loss.compute_loss(at), torch.tensor(epsilon).double())
        add(out, f"points/{name}", loss(at, confidences)[0], x)


def add_maps(out):
    x = (0.1875 + 0.0625 * numbers("maps", FRAMES, *MAP, KEYPOINTS)).requires_grad_()
    sure = 0.5 + 0.25 * numbers("confidence", FRAMES, KEYPOINTS)
    for name, epsilon in (("mse", 0.0078125), ("kl", 0.5)):
        loss = TemporalHeatmapLoss(f"temporal_heatmap_{name}", None, epsilon, THRESHOLD)
        at = x.permute(0, 3, 1, 2)
        assert (loss.compute_loss(at) - epsilon).abs().min() > 1e-5
        add(out, f"maps/{name}", loss(at, sure)[0], x)


# ---- principal components ----


class Fitted(pca.KeypointPCA):
    def _get_data(self):
        plane = 60.0 * rule.uniform("plane", 4 * 2 * KEYPOINTS).reshape(4, -1)
        along = rule.uniform("along", 4 * POSES).reshape(POSES, 4)
        noise = 3.0 * rule.uniform("noise", POSES * 2 * KEYPOINTS).reshape(POSES, -1)
        self.data_arr = torch.from_numpy(200.0 + along @ plane + noise)


def add_pca(out):
    pca.convert_dict_values_to_tensors = lambda d, _: {k: torch.tensor(v) for k, v in d.items()}
    for name, (columns, components, centring) in FITS.items():
        multiview = name == "multiview"
        fit = Fitted(
            "pca_multiview" if multiview else "pca_singleview",
            None,
            components_to_keep=components,
            mirrored_column_matches=columns if multiview else None,
            columns_for_singleview_pca=None if multiview else columns,
            centering_method=centring,
        )
        fit()
        loss = PCALoss.__new__(PCALoss)
        loss.log_weight, loss.reduce_methods_dict = torch.tensor(0.0), {"mean": torch.mean}
        loss.device, loss.loss_name, loss.pca = "cpu", fit.loss_type, fit
        loss.epsilon = torch.tensor(EPSILON)
        x = points()
        at = to_frame(x)
        apart_from(loss.compute_loss(fit._format_data(at)), loss.epsilon)
        more = {"mean": fit.parameters["mean"], "vector": fit.parameters["kept_eigenvectors"]}
        add(out, f"pca/{name}", loss(at)[0], x, **more)


# ---- coordinates ----


def add_labels(out):
    x, label = points(rows=4), points("labels", 4).detach()
    label[numbers("missing", 4, KEYPOINTS).repeat_interleave(2, 1) > 1.0] = torch.nan
    targets = model_to_frame_batch(batch(4), label.clone())
    found = model_to_frame_batch(batch(4), x.clone())
    add(out, "labels", RegressionMSELoss()(targets, found)[0], x)


# ---- heads ----


def run_heads(dtype, clip):
    torch.set_default_dtype(dtype)
    head = HeatmapMHCRNNHead("resnet18", FEATURES, JOINTS).to(dtype)
    with torch.no_grad():
        for name, p in head.named_parameters():
            p.copy_(torch.from_numpy(rule.value(f"head.{name}", tuple(p.shape), "none")))
    frames = CLIP if clip else 5 * BATCH
    x = (0.03125 * numbers("features", frames, *SIDES, FEATURES)).to(dtype).requires_grad_()
    images = x.permute(0, 3, 1, 2)
    if not clip:
        images = images.reshape(BATCH, 5, *images.shape[1:])
    tracker = SimpleNamespace(do_context=True, backbone=lambda features: features)
    features = BaseSupervisedTracker.get_representations(tracker, images)
    maps = [m.permute(0, 2, 3, 1) for m in head(features, images.shape, False)]
    weights = [numbers(n, *m.shape).to(dtype) for n, m in zip(("single", "multi"), maps)]
    loss = sum((w * m).sum() for w, m in zip(weights, maps))
    loss.backward()
    found = {"loss": loss.detach().numpy(), "features": rule.gradient_row(x.grad)}
    found["single"], found["multi"] = (rule.gradient_row(m.detach()) for m in maps)
    for name, p in head.named_parameters():
        found[f"grad/head.{name}"] = rule.gradient_row(p.grad)
    return found


def add_heads(out):
    for name, clip in (("windows", False), ("clip", True)):
        narrow, wide = run_heads(torch.float32, clip), run_heads(torch.float64, clip)
        rows = (k for k in wide if k != "loss")
        worst = {k: float(rule.difference(f"/grad/{k}", narrow[k], wide[k])) for k in rows}
        top = sorted(worst, key=worst.get)[-3:]
        print(f"head/{name}", *(f"{k} {worst[k]:.1e}" for k in top), wide["loss"])
        out.update({f"head/{name}/{k}": v for k, v in wide.items()})


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    rule.seed = 1
    out = {}
    add_points(out)
    add_maps(out)
    add_pca(out)
    add_labels(out)
    add_heads(out)
    rule.write(HERE / "pose_unsupervised.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
