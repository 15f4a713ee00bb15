#!/usr/bin/env python3
"""Makes pose_pca.safetensors beside it: principal components of keypoints as Lightning Pose has
them, in double precision.

usage: python3 make_pose_pca_golden.py LABELS.csv     by hand, with lightning-pose 2.4.3

LABELS.csv is CollectedData.csv of Lightning Pose's mirror-mouse-example (MIT license, copyright
2021 Dan Biderman, Matthew Whiteway, Liam Paninski). Every fifth frame is left out: 72 stay, many of
them with missing points. Where Lightning Pose fits in pixels of the network's input, it is given
pixels of the frame. Its parameters are kept in double precision; printed is how far its own, in
single precision, are from them. Per case: mean, share of the variance of each component, the
projection on those that are kept (which signs do not change), epsilon, and the errors of
predictions, which are in the file, too.
"""

import sys
import warnings
from pathlib import Path

import golden_rule as rule
import lightning_pose.utils.pca as reference
import numpy as np
import pandas as pd
import torch
from lightning_pose.metrics import (
    pca_multiview_reprojection_error,
    pca_singleview_reprojection_error,
)

HERE = Path(__file__).parent
FRAMES, PERCENTILE = 10, 95.0
MOUSE = [*range(7), *range(8, 15)]  # without the obstacle
VIEWS = [list(range(7)), list(range(8, 15))]
COMPLETE = [2, 6, 8, 9, 10, 12, 14]  # never without a label: centring is then the reference's
# name: data, columns, components to keep, centring; None for columns: all of them
CASES = {
    "mouse": ("mouse", MOUSE, 0.99, None),
    "all": ("mouse", None, 0.95, None),
    "five": ("mouse", MOUSE, 5, None),
    "one": ("mouse", MOUSE, 1, None),
    "whole": ("mouse", MOUSE, 1.0, None),
    "mean": ("mouse", COMPLETE, 0.99, "mean"),
    "median": ("mouse", COMPLETE[:6], 0.9, "median"),
    "sparse": ("sparse", None, 0.8, None),
    "multiview": ("mouse", VIEWS, 3, None),
}


def read_mouse(path):
    table = pd.read_csv(path, header=[0, 1, 2], index_col=0).to_numpy()
    return np.delete(table, np.arange(4, 90, 5), axis=0).reshape(72, -1, 2)


def make_sparse():
    """40 frames of 6 keypoints near a plane, a fifth of them missing."""
    plane = 60.0 * rule.uniform("plane", 24).reshape(2, 12)
    along = rule.uniform("along", 80).reshape(40, 2)
    noise = 3.0 * rule.uniform("noise", 480).reshape(40, 12)
    xy = (200.0 + along @ plane + noise).reshape(40, 6, 2)
    xy[rule.uniform("missing", 240).reshape(40, 6) > 0.6] = np.nan
    return xy


class Fitted(reference.KeypointPCA):
    def __init__(self, xy, columns, components, centring):
        multiview = isinstance(columns, list) and isinstance(columns[0], list)
        super().__init__(
            "pca_multiview" if multiview else "pca_singleview",
            None,
            components_to_keep=components,
            empirical_epsilon_percentile=PERCENTILE,
            mirrored_column_matches=columns if multiview else None,
            columns_for_singleview_pca=None if multiview else columns,
            centering_method=centring,
        )
        self.xy = torch.from_numpy(xy.reshape(len(xy), -1))
        self()

    def _get_data(self):
        self.data_arr = self.xy

    def error(self, predicted):
        """(frames, keypoints), NaN outside"""
        predicted = torch.from_numpy(predicted)
        if self.loss_type == "pca_multiview":
            return pca_multiview_reprojection_error(predicted, self)
        columns = self.columns_for_singleview_pca
        if columns is None:
            columns = self.columns_for_singleview_pca = list(range(predicted.shape[1]))
        if self.centering_method is None:
            return pca_singleview_reprojection_error(predicted, self)
        # its metric compares points with centred ones: the loss's errors instead
        error = np.full(predicted.shape[:2], np.nan)
        flat = self._format_data(predicted.reshape(len(predicted), -1))
        error[:, columns] = self.compute_reprojection_error(flat).numpy()
        return error


def numbers(xy, predicted, case):
    """What the file has of a case."""
    pca = Fitted(xy, *case)
    kept = pca.parameters["kept_eigenvectors"].double().numpy()
    epsilon = reference.EmpiricalEpsilon(PERCENTILE)(pca.compute_reprojection_error())
    return {
        "mean": pca.parameters["mean"].double().numpy(),
        "explained": np.asarray(pca.pca_object.explained_variance_ratio_, np.float64),
        "kept": np.array([len(kept)], np.float64),
        "projection": kept.T @ kept,
        "epsilon": np.array([epsilon]),
        "error": pca.error(predicted),
    }


def main():
    single = reference.convert_dict_values_to_tensors
    data = {"mouse": read_mouse(sys.argv[1]), "sparse": make_sparse()}
    out, worst = {}, 0.0
    for name, xy in data.items():
        out[f"{name}/xy"] = xy
        k = xy.shape[1]
        value = 200.0 + 150.0 * rule.uniform(f"{name} predicted", FRAMES * k * 3)
        out[f"{name}/value"] = value.astype(np.float32).astype(np.float64).reshape(FRAMES, k, 3)
    for name, (of, *case) in CASES.items():
        predicted = out[f"{of}/value"][:, :, :2].copy()
        reference.convert_dict_values_to_tensors = lambda d, device: {
            key: torch.tensor(np.asarray(x), dtype=torch.float64) for key, x in d.items()
        }
        wide = numbers(data[of], predicted, case)
        reference.convert_dict_values_to_tensors = single
        narrow = numbers(data[of].astype(np.float32), predicted.astype(np.float32), case)
        for key in ("mean", "error", "epsilon"):
            worst = max(worst, np.nanmax(np.abs(wide[key] - narrow[key])))
        print(f"{name}: keeps {wide['kept'][0]:.0f}, epsilon {wide['epsilon'][0]:.6f}")
        out |= {f"{name}/{key}": x for key, x in wide.items()}
    print(f"single precision is {worst:.3g} pixels from it")
    rule.write(HERE / "pose_pca.safetensors", out, {"percentile": str(PERCENTILE)})


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
