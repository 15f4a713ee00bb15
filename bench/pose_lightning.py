"""Lightning Pose's side of pose_vs_lightning_pose.py, in a Python that has it.

usage: pose_lightning.py first CONFIG SEED FILE      first weights, and FILE.csv, which frames train
       pose_lightning.py train CONFIG OUT            OUT/metrics.jsonl: a line behind each step
       pose_lightning.py predict OUT VIDEO FOLDER    by its OpenCV reader

Modules that it imports and that nothing here calls (several cameras, clips by DALI, drawn videos,
transformers) may be missing: in their place are modules whose attributes are empty classes.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
import types

NEVER_CALLED = ("aniposelib", "nvidia.dali", "moviepy", "transformers", "onnxruntime")


class Empty(types.ModuleType):
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, type(name, (), {}))
        return getattr(self, name)


class EmptyModules(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Behind all other finders, so that what is installed is used."""

    def find_spec(self, fullname, path=None, target=None):
        if any(fullname == n or fullname.startswith(n + ".") for n in NEVER_CALLED):
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def first(config, seed, file):
    import torch
    from lightning_pose import train as its

    folder = config.data.data_dir
    augment = its.get_imgaug_transform(cfg=config, data_dir=folder)
    frames = its.get_dataset(cfg=config, data_dir=folder, imgaug_transform=augment)
    parts = its.get_data_module(cfg=config, dataset=frames, video_dir=config.data.video_dir)
    losses = its.get_loss_factories(cfg=config, data_module=parts)
    torch.manual_seed(int(seed))
    model = its.get_model(cfg=config, data_module=parts, loss_factories=losses)
    torch.save({"state_dict": model.state_dict()}, file)
    with open(f"{file}.csv", "w", encoding="utf-8") as out:
        out.write("image,set\n")
        for name in ("train", "val", "test"):
            for i in getattr(parts, f"{name}_dataset").indices:
                out.write(f"{frames.image_names[i]},{name}\n")


def train(config, out):
    import lightning.pytorch as pl
    from lightning_pose import train as its

    os.makedirs(out, exist_ok=True)
    lines = open(f"{out}/metrics.jsonl", "w", encoding="ascii", buffering=1)
    callbacks_of = its.get_callbacks

    class Steps(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            lines.write(json.dumps({"step": trainer.global_step, "train": 1}) + "\n")

    its.get_callbacks = lambda *args, **keys: [*callbacks_of(*args, **keys), Steps()]
    its.train(config, model_dir=out)


def predict(out, video, folder):
    from lightning_pose.api import Model

    Model.from_dir(out).predict_on_video_file(video, output_dir=folder, reader="opencv")


def main():
    sys.meta_path.append(EmptyModules())
    what, *rest = sys.argv[1:]
    if what == "predict":
        predict(*rest)
        return
    from omegaconf import OmegaConf

    config = OmegaConf.load(rest[0])
    (first if what == "first" else train)(config, *rest[1:])


if __name__ == "__main__":
    main()
