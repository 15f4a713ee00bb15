"""levin train pose: the model types beside heatmap, regression and heatmap_mhcrnn.

One hash on one and two ranks, stopped and resumed; files, errors and exported models;
what learns before the backbone does, and backbones of files.

usage: test_pose_models.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import re
import unittest

from pose_case import PoseCase, metrics, read_table, write_project
from today import OfToday


class Models(PoseCase):
    def setUp(self):
        super().setUp()
        self.labels = write_project(f"{self.dir}/project", n=8)
        self.small += ["training.train_batch_size=4", "micro_batches=2", "wgrad_threads=1"]

    def check_ranks(self, *more):
        """Returns the hash of the run `one`, and its predictions."""
        one = self.hash_of("one", *more)
        self.assertEqual(self.hash_of("two", *more, "devices=2"), one)
        return one, *read_table(f"{self.dir}/one/predictions.csv", heads=3)

    def check_use(self, scorer):
        """Predicted, measured and exported again."""
        place = f"{self.dir}/one/image_preds/CollectedData.csv/predictions.csv"
        use = ["pose", "model=one", "data=project/CollectedData.csv"]
        self.levin("predict", *use, "eval_batch_size=5")
        heads, rows = read_table(place, heads=3)
        self.assertEqual(set(heads[0][1:-1]), {scorer})
        self.assertEqual(rows, read_table(f"{self.dir}/one/predictions.csv", heads=3)[1])
        text = self.levin("eval", *use)
        self.assertTrue(float(re.search(r"^supervised_rmse (\S+)", text, re.M).group(1)) > 0)
        self.levin("export", "model=one", "output=alone.safetensors")
        os.rename(f"{self.dir}/one", f"{self.dir}/gone")
        self.levin("predict", "pose", "model=alone.safetensors", use[2], "output=alone.csv")
        self.assertEqual(read_table(f"{self.dir}/alone.csv", heads=3)[1], rows)

    def test_regression(self):
        _, heads, rows = self.check_ranks("model.model_type=regression")
        self.assertEqual(set(heads[0][1:-1]), {"regression_tracker"})
        self.assertEqual({v for row in rows for v in row[3:-1:3]}, {"0.0"})
        self.check_losses(rows)
        self.check_use("regression_tracker")

    def check_losses(self, rows):
        """Those of the validation at the best checkpoint are those of its predictions, in pixels of
        the frame."""
        squares = []
        for i, row in enumerate(rows):
            for k, (x, y) in enumerate(self.labels[i]):
                if row[-1] == "validation" and (i, k) != (3, 1):
                    at = [float(v) for v in row[1 + 3 * k : 3 + 3 * k]]
                    squares.append(((at[0] - x) ** 2 + (at[1] - y) ** 2) / 2)
        expected = {
            "regression_loss": sum(squares) / len(squares),
            "regression_loss_weighted": sum(squares) / len(squares) / 2,
            "supervised_loss": sum(squares) / len(squares) / 2,
            "supervised_rmse": sum(s**0.5 for s in squares) / len(squares),
            "regression_weight": 0.5,
        }
        for name, value in expected.items():
            found = min(v for _, v in metrics(f"{self.dir}/one", f"val/{name}"))
            self.assertAlmostEqual(found / value, 1, delta=1e-3, msg=name)

    def test_context(self):
        context = "model.model_type=heatmap_mhcrnn"
        one, heads, rows = self.check_ranks(context)
        self.assertEqual(set(heads[0][1:-1]), {"heatmap_mhcrnn_tracker"})
        self.assertTrue(all(0 < float(v) <= 1 for row in rows for v in row[3:-1:3]))
        self.train("three", context, "training.max_epochs=1", "training.min_epochs=1")
        self.assertEqual(self.hash_of("three", context, "resume=true"), one)
        self.check_use("heatmap_mhcrnn_tracker")

    def test_a_backbone_of_a_file(self):
        """It is taken by both, and waits, while each of the heads learns."""
        self.levin(
            "train", "classify", "data=builtin:shapes", "data.count=8", "image_size=32",
            "model.name=resnet18", "max_steps=1", "out=shapes", "quiet=true",
        )  # fmt: skip
        more = [
            "weights=shapes/exported_models/exported_last.safetensors",
            "training.unfreezing_epoch=9",
        ]
        text = self.train(
            "points", "model.model_type=regression", *more, "max_steps=1", "quiet=false",
            "training.rng_seed_model_pt=7",
        )  # fmt: skip
        self.assertIn("new in this run: head (2 tensors)", text)
        for i in (1, 2):
            self.train(f"{i}", "model.model_type=heatmap_mhcrnn", *more, f"max_steps={i}")
        names = self.changed("points", "1")
        self.assertEqual([n for n in names if n.startswith("model/backbone")], [])
        names = self.changed("1", "2")
        parts = {".".join(n.split("/")[1].split(".")[:2]) for n in names}
        self.assertEqual(parts, {"head.head_sf", "head.head_mf"})


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(4))
