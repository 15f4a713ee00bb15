"""levin train pose with other backbones than residual networks: a step on one and two ranks, and
weights under the names that Hugging Face and Lightning Pose have.

usage: test_pose_backbones.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import math
import os
import unittest

from pose_case import PoseCase
from safetensors_files import read_safetensors, write_safetensors
from today import OfToday

STEP = ["training.max_epochs=1", "training.min_epochs=1", "training.unfreezing_epoch=0"]
STEP += ["training.lr_scheduler_params.multisteplr.milestones=[1]", "limit_train_batches=1"]
STEP += ["micro_batches=2", "wgrad_threads=1"]

ENDS = ("weight", "bias")


def names_of_vit():
    """Shapes of the tensors of dino_vits16, under Hugging Face's names."""
    width, shapes = 384, {}
    for i in range(12):
        pairs = [("attention.output.dense", width, width), ("output.dense", width, 4 * width)]
        pairs += [("intermediate.dense", 4 * width, width)]
        pairs += [(f"attention.attention.{p}", width, width) for p in ("query", "key", "value")]
        for name, rows, columns in pairs:
            shapes[f"encoder.layer.{i}.{name}"] = [rows, columns]
        shapes[f"encoder.layer.{i}.layernorm_before"] = [width]
        shapes[f"encoder.layer.{i}.layernorm_after"] = [width]
    shapes["layernorm"] = [width]
    shapes["embeddings.patch_embeddings.projection"] = [width, 3, 16, 16]
    shapes = {f"{n}.{e}": s if e == "weight" else s[:1] for n, s in shapes.items() for e in ENDS}
    shapes["embeddings.cls_token"] = [1, 1, width]
    shapes["embeddings.position_embeddings"] = [1, 197, width]
    return shapes


def zeros(shapes):
    return {name: ("F16", shape, bytes(2 * math.prod(shape))) for name, shape in shapes.items()}


class Backbones(PoseCase):
    def same_on_two_ranks(self, backbone, *more):
        """The model that was trained."""
        same = [*STEP, f"model.backbone={backbone}", *more]
        one = self.hash_of("one", *same)
        self.assertEqual(self.hash_of("two", *same, "devices=2"), one)
        return read_safetensors(f"{self.dir}/one/exported_models/exported_last.safetensors")[0]

    def test_a_step_of_a_transformer(self):
        self.same_on_two_ranks("vits_dino", "training.optimizer=AdamW")

    def test_a_step_of_an_efficientnet(self):
        """And its tensors under the names that Lightning Pose has for them."""
        model = self.same_on_two_ranks("efficientnet_b0")
        posed = {f"model.{n}".replace("features.", "0."): t for n, t in model.items()}
        path = f"{self.dir}/posed.safetensors"
        write_safetensors(path, posed)
        plan = ["plan", "train", "pose", "config=project/config.yaml", f"weights={path}"]
        text = self.levin(*plan, "model.backbone=efficientnet_b0")
        n = sum(not name.endswith("num_batches_tracked") for name in model)
        taken = f"{n} of the model's {n} tensors are from it"
        self.assertIn(f"{taken}, with the names of Lightning Pose", text)

    def test_names_of_weights(self):
        """Of ViT-MAE, within a larger model, and of a model of Lightning Pose."""
        vit = names_of_vit()
        mae = {f"vit.{name}": shape for name, shape in vit.items()}
        mae["decoder.decoder_norm.bias"] = [8]
        posed = {f"model.backbone.vision_encoder.{name}": shape for name, shape in vit.items()}
        posed["model.head.upsampling_layers.1.weight"] = [96, 3, 3, 3]
        posed["model.head.upsampling_layers.1.bias"] = [3]
        value = "encoder.layer.3.attention.attention.value.bias"
        short = {n: shape for n, shape in posed.items() if value not in n}
        plan = ["plan", "train", "pose", "config=project/config.yaml", "model.backbone=vits_dino"]
        for kind, shapes, naming, new in (
            ("mae", mae, "Hugging Face", "new in this run: head (2 tensors)"),
            ("lp", posed, "Lightning Pose", ""),
            ("short", short, None, f"1 missing: {value} (384)"),
        ):
            path = f"{self.dir}/{kind}.safetensors"
            write_safetensors(path, zeros(shapes))
            text = self.levin(*plan, f"weights={path}", code=1 if naming is None else 0)
            os.remove(path)
            n = 152 if kind == "lp" else 150
            taken = f"{n} of the model's {n} tensors are from it, with the names of {naming}"
            self.assertIn("does not fit this model" if naming is None else taken, text)
            self.assertIn(new, text)


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
