"""Writes the lists of names that other trainers take, one a line, for test_foreign_keys.c.

usage: make_names.py LIGHTNING_TRAINER.py TIMM_TRAIN.py TORCHRUN.py KERAS_TRAINER.py
The files: lightning/pytorch/trainer/trainer.py, train.py of timm's repository,
torch/distributed/run.py, keras/src/trainers/trainer.py. Made with lightning 2.6.6, torch 2.15.0,
keras 3.15.1; of timm, whose packages have no train.py, several versions of that file joined, and
the names that the notes of 1.0.31 add.
"""

import ast
import sys
from pathlib import Path

HERE = Path(__file__).parent
TIMM_LATER = (
    "data_dir task target_key target_format multilabel_threshold loss save_epochs "
    "stop_epoch lr_stable_timescale lr_decay_fn device device_modules model_dtype "
    "model_kwargs opt_kwargs head_init_scale head_init_bias torchcompile "
    "torchcompile_mode input_img_mode input_key dataset_trust_remote_code "
    "train_num_samples val_num_samples train_crop_mode grayscale_prob gaussian_blur_prob "
    "color_jitter_prob bce_sum bce_pos_weight model_ema_warmup warmup_prefix "
    "sched_on_updates lr_base lr_base_size lr_base_scale layer_decay_min_scale "
    "layer_decay_no_opt_scale val_interval pretrained_path wandb_project wandb_tags "
    "wandb_resume_id naflex_loader naflex_train_seq_lens naflex_max_seq_len "
    "naflex_patch_sizes naflex_patch_size_probs naflex_loss_scale kd_model_name "
    "kd_distill_type kd_loss_type distill_loss_weight task_loss_weight kd_temperature"
).split()


def arguments(path, method):
    """The arguments of a method of the class Trainer."""
    for c in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(c, ast.ClassDef) and c.name == "Trainer":
            f = next(f for f in c.body if isinstance(f, ast.FunctionDef) and f.name == method)
            return [a.arg for a in f.args.args + f.args.kwonlyargs if a.arg != "self"]
    raise SystemExit(f"{path} has no Trainer.{method}")


def flags(path):
    """All spellings that add_argument takes, without dashes in front of long ones."""
    names = []
    for c in ast.walk(ast.parse(Path(path).read_text())):
        if isinstance(c, ast.Call) and getattr(c.func, "attr", "") == "add_argument":
            names += [a.value for a in c.args if isinstance(a, ast.Constant)]
    return [n[2:] if n.startswith("--") else n for n in names]


def write(name, names):
    (HERE / f"{name}.txt").write_text(
        "".join(
            f"{n}\n"
            for n in dict.fromkeys(n.replace("-", "_") if n[0] != "-" else n for n in names)
        )
    )


def main(lightning, timm, torchrun, keras):
    write("lightning", arguments(lightning, "__init__") + arguments(lightning, "fit"))
    write("timm", flags(timm) + TIMM_LATER)
    write("torchrun", [n for n in flags(torchrun) if not n.startswith("training_script")])
    write("keras", arguments(keras, "compile") + arguments(keras, "fit"))


if __name__ == "__main__":
    main(*sys.argv[1:])
