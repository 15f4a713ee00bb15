#!/usr/bin/env python3
"""Makes dino.safetensors beside it: DINO as lightly and lightly-train compute it, in double
precision.

usage: python3 make_dino_golden.py     by hand, with torch, torchvision, lightly, lightly-train

Three parts, each with numbers that both sides have by the rule of golden_rule.py:
  loss/...    DINOLoss of 2 views of the teacher and 2 or 5 of the student (ROWS, COLUMNS): its
              value and the gradients of the student's.
  head/...    one step of resnet18 with a head of each form: the loss, and of every gradient ten
              numbers.
  steps/...   STEPS steps with each optimizer, lightly-train's own class with its groups, schedules
              and clipping: losses, rates, and of what became of every parameter, the teacher's too,
              ten numbers. Prints how far the same in f32 is from that: the room that the comparison
              needs.
lightly-train moves its teacher at the beginning of the next step, with that step's momentum; here
as in the authors' program it moves at the end of a step, with its own. Student and teacher begin
with different weights, so that no term is zero.
"""

from pathlib import Path
from types import SimpleNamespace

import golden_rule as rule
import torch
from lightly.loss import DINOLoss
from lightly.utils.scheduler import cosine_schedule
from lightly_train._methods.dino import dino
from lightly_train._models import package_helpers
from lightly_train._models.embedding_model import EmbeddingModel
from lightly_train._scaling import ScalingInfo
from lightly_train._torch_helpers import update_momentum

HERE = Path(__file__).parent
ROWS, COLUMNS = 6, 5
TEACHER_TEMP, STUDENT_TEMP, CENTER_MOMENTUM = 0.04, 0.1, 0.9
BATCH, SIDE, LOCAL_SIDE, LOCALS, STEPS = 8, 32, 16, 2, 20
HIDDEN, BOTTLENECK, OUTPUT = 24, 12, 16
IMAGES = 412000  # that the automatic values follow from
# name: batch norm, norm_last_layer, embed_dim
HEADS = {
    "default": (False, True, None),
    "free": (True, False, None),
    "embedding": (False, True, 20),
}
# name: optimizer, its arguments, and the method's; with the usual eps AdamW moves elements without
# a gradient by the sign of what rounding left
OPTIMIZERS = {
    "sgd": ("sgd", {}, {"weight_decay_end": 0.01}),
    "adamw": ("adamw", {"eps": 1e-3}, {"norm_last_layer": False}),
}


def numbers(name, *shape):
    """As golden_tensor() has them."""
    n = 1
    for size in shape:
        n *= size
    return torch.from_numpy(2.0 * rule.uniform(name, n)).float().reshape(shape)


def add_losses(out):
    teacher, center = numbers("teacher", ROWS, 2, COLUMNS), 0.1 * numbers("center", COLUMNS)
    student, small = numbers("student", ROWS, 2, COLUMNS), numbers("local", ROWS, 3, COLUMNS)
    for name, count in (("two", 0), ("five", 3)):
        views = torch.cat([student, small[:, :count]], 1).double().requires_grad_()
        criterion = DINOLoss(
            COLUMNS, student_temp=STUDENT_TEMP, center_momentum=CENTER_MOMENTUM
        ).double()
        criterion.center.copy_(center.double())
        loss = criterion(
            list(teacher.double().unbind(1)), list(views.unbind(1)), teacher_temp=TEACHER_TEMP
        )
        loss.backward()
        out[f"loss/{name}/loss"] = loss.detach().numpy()
        out[f"loss/{name}/global"] = views.grad[:, :2].contiguous().numpy()
        if count > 0:
            out[f"loss/{name}/local"] = views.grad[:, 2:].contiguous().numpy()


def make_views(dtype):
    """Of each step the list of views (BATCH, 3, side, side)."""
    images = numbers("images", BATCH, SIDE // 8, SIDE // 8, 3)
    images = images.repeat_interleave(8, 1).repeat_interleave(8, 2)[None, :, None]
    large = images + 0.25 * numbers("views", STEPS, BATCH, 2, SIDE, SIDE, 3)
    noise = numbers("local views", STEPS, BATCH, LOCALS, LOCAL_SIDE, LOCAL_SIDE, 3)
    small = images[:, :, :, :LOCAL_SIDE, :LOCAL_SIDE] + 0.25 * noise
    return [
        [v[step, :, i].permute(0, 3, 1, 2).to(dtype) for v, n in parts for i in range(n)]
        for parts in [((large, 2), (small, LOCALS))]
        for step in range(STEPS)
    ]


def ours(name):
    for side in ("student", "teacher"):
        name = name.replace(f"{side}_embedding_model.wrapped_model._features.", f"{side}.backbone.")
        name = name.replace(f"{side}_embedding_model.embed_head.", f"{side}.embedding.")
        name = name.replace(f"{side}_projection_head.", f"{side}.projection_head.")
    return name.replace("criterion.center", "center")


def make(dtype, form, optimizer=("sgd", {}, {})):
    norm, unit, embed_dim = form
    kind, optimizer_given, given = optimizer
    kind = dino.OptimizerType(kind)
    optimizer_args = dino.DINO.optimizer_args_cls(kind)(**optimizer_given)
    unit = given.get("norm_last_layer", unit)
    args = dino.DINOArgs(
        hidden_dim=HIDDEN,
        bottleneck_dim=BOTTLENECK,
        output_dim=OUTPUT,
        batch_norm=norm,
        warmup_teacher_temp_steps=STEPS * 3 // 10,
        student_freeze_last_layer_steps=STEPS * 3 // 10,
        **{**given, "norm_last_layer": unit},
    )
    wrapped = package_helpers.get_wrapped_model(
        "torchvision/resnet18", 3, model_args={"weights": None}, load_weights=False
    )
    args.resolve_auto(
        ScalingInfo(dataset_size=IMAGES, epochs=STEPS), optimizer_args, wrapped_model=wrapped
    )
    method = dino.DINO(args, optimizer_args, EmbeddingModel(wrapped, embed_dim), BATCH, 3)
    method = method.to(dtype).train()
    with torch.no_grad():
        for name, t in method.state_dict().items():
            if name.endswith("weight_g") and unit:
                t.fill_(1.0)
            elif name.endswith("center"):
                t.zero_()
            elif not name.endswith("num_batches_tracked"):
                shape = tuple(t.shape[:2] if "embed_head" in name else t.shape)  # 1x1 is linear
                v = torch.from_numpy(rule.value(ours(name), shape, "bn2"))
                t.copy_(v.reshape(t.shape))
    method.trainer = SimpleNamespace(
        global_step=0, estimated_stepping_batches=STEPS, max_epochs=STEPS, current_epoch=0
    )
    return method


def compute_loss(method, views):
    moves, dino.update_momentum = dino.update_momentum, lambda *args, **given: None
    loss = method.training_step_impl({"views": views}, 0).loss
    dino.update_momentum = moves
    return loss


def run_head(form, dtype):
    method = make(dtype, form)
    method.trainer.global_step = 2
    loss = compute_loss(method, make_views(dtype)[0])
    loss.backward()
    found = {"loss": loss.detach().numpy()}
    for name, p in method.named_parameters():
        if name.startswith("student") and p.requires_grad:
            found[f"grad/{ours(name)}"] = rule.gradient_row(p.grad)
    return found


def move_teacher(method, step):
    m = cosine_schedule(step, STEPS, method.method_args.momentum_start, 1.0)
    update_momentum(method.student_embedding_model, method.teacher_embedding_model, m=m)
    update_momentum(method.student_projection_head, method.teacher_projection_head, m=m)


def run_steps(optimizer, dtype):
    method = make(dtype, HEADS["default"], OPTIMIZERS[optimizer])
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    (o,), (schedule,) = method.configure_optimizers()
    views = make_views(dtype)
    losses, rates = [], []
    for step in range(STEPS):
        method.trainer.global_step = step
        o.zero_grad()
        loss = compute_loss(method, views[step])
        loss.backward()
        losses.append(loss.item())
        rates.append(o.param_groups[0]["lr"])
        torch.nn.utils.clip_grad_norm_(
            [p for group in o.param_groups for p in group["params"]], 3.0
        )
        method.on_before_optimizer_step(o)
        o.step()
        schedule["scheduler"].step()
        move_teacher(method, step)
    found = {"losses": torch.tensor(losses).double().numpy()}
    found["rates"] = torch.tensor(rates, dtype=torch.float64).numpy()
    for name, p in method.named_parameters():
        if not name.endswith("weight_g") or p.requires_grad:
            found[f"grad/{ours(name)}"] = rule.gradient_row(p.detach() - before[name])
    found["grad/center"] = rule.gradient_row(method.criterion.center.detach())
    return found


def add(out, name, run):
    wide, narrow = run(torch.float64), run(torch.float32)
    worst = {k: float(rule.difference(f"{name}/{k}", narrow[k], wide[k])) for k in wide}
    top = sorted(worst, key=worst.get)[-3:]
    print(name, *(f"{k} {worst[k]:.1e}" for k in top), wide.get("losses", wide.get("loss")))
    out.update({f"{name}/{k}": v for k, v in wide.items()})


def main():
    torch.set_num_threads(1)
    out = {}
    add_losses(out)
    for name, form in HEADS.items():
        add(out, f"head/{name}", lambda dtype, form=form: run_head(form, dtype))
    for name in OPTIMIZERS:
        add(out, f"steps/{name}", lambda dtype, name=name: run_steps(name, dtype))
    rule.write(HERE / "dino.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
