#!/usr/bin/env python3
"""Makes distill.safetensors beside it: distillation as lightly-train computes it, in double
precision.

usage: python3 make_distill_golden.py     by hand, with torch, torchvision, lightly-train

Two parts, each with numbers that both sides have by the rule of golden_rule.py:
  loss/...    the global loss against a queue that holds the step's own rows and older ones (long)
              or the first of them (short), and the local one: values and gradients of the student.
  steps/...   STEPS steps of resnet18 taught by another resnet18 that stays as it is, versions 1 and
              3, and by _vittest14, version 2, lightly-train's own classes with their optimizers and
              clipping: losses, rates, and of what became of every parameter ten numbers. Prints how
              far the same in f32 is from that: the room that the comparison needs.
The order of a step's images, the ratio of mixup and its partners are those that levin draws.
"""

from pathlib import Path
from types import SimpleNamespace

import golden_rule as rule
import torch
import torchvision
from lightly.utils.scheduler import CosineWarmupScheduler
from lightly_train._methods.distillation import distillation as first
from lightly_train._methods.distillationv2 import distillationv2 as second
from lightly_train._methods.distillationv3 import distillationv3 as third
from lightly_train._methods.distillationv3.distillationv3_loss import DistillationV3Loss
from lightly_train._models import package_helpers
from lightly_train._models.embedding_model import EmbeddingModel
from lightly_train._optim import optimizer_helpers

HERE = Path(__file__).parent
ROWS, COLUMNS, PLACES = 6, 5, 4
BATCH, STEPS, QUEUE, HIDDEN = 8, 20, 16, 24
SIDES = {1: 64, 2: 56, 3: 64}  # by version: one teacher has patches of 14
SEED = 2  # with 1 an input of a relu lies within f32's rounding of zero
TRAINER_SEED = 4  # of the steps (tests/unit/trainer/trainer_support.c)
# name: version, optimizer, its arguments
RUNS = {
    "adamw": (3, "adamw", {"eps": 1e-3, "weight_decay": 1e-6}),
    "first": (1, "lars", {}),
    "second": (2, "lars", {"lr": 2.0}),  # with 9 f32 goes ways of its own
}


def numbers(name, *shape):
    """As golden_tensor() has them."""
    n = 1
    for size in shape:
        n *= size
    return torch.from_numpy(2.0 * rule.uniform(name, n)).float().reshape(shape)


def update_queue(queue, rows):
    holder = SimpleNamespace(teacher_queue=queue)
    third.DistillationV3._update_queue(holder, rows)
    return holder.teacher_queue


def add_losses(out):
    teacher, student = (numbers(n, ROWS, COLUMNS).double() for n in ("teacher", "student"))
    places, own = (numbers(n, ROWS, PLACES, COLUMNS).double() for n in ("places", "own places"))
    criterion = DistillationV3Loss(temperature_global=0.07, temperature_local=0.1)
    for name, size in (("long", 10), ("short", 4)):
        a, b = student.clone().requires_grad_(), own.clone().requires_grad_()
        queue = update_queue(numbers("queue", 10, COLUMNS).double()[:size].clone(), teacher)
        loss, local = criterion(teacher, places, a, b, queue)
        (loss + local).backward()
        out[f"loss/{name}/global"], out[f"loss/{name}/student"] = loss.detach(), a.grad
        out["loss/map/local"], out["loss/map/student"] = local.detach(), b.grad
    for key in list(out):
        out[key] = out[key].numpy()


def draw_lambda(step):
    kept, rule.seed = rule.seed, TRAINER_SEED
    ratio = rule.draw_uniform("lambda", 1, 0, step)[0]
    rule.seed = kept
    return float(ratio)


def draw_partners(step):
    """The order of numbers of 16 bits, each the first of its word."""
    kept, rule.seed = rule.seed, TRAINER_SEED
    words = rule.words(rule.draw_purpose("mixup"), 16 * BATCH, 0, step).reshape(BATCH, 16)
    rule.seed = kept
    numbers = [sum(int(w) >> 31 << 15 - b for b, w in enumerate(row)) for row in words]
    return sorted(range(BATCH), key=numbers.__getitem__)


def draw_order(step):
    """A Fisher-Yates shuffle of the batch."""
    kept, rule.seed = rule.seed, TRAINER_SEED
    words = iter(int(w) for w in rule.words(rule.hash_of("order"), 64, 0, step))
    rule.seed = kept
    order = list(range(BATCH))
    for i in range(BATCH - 1, 0, -1):
        word = next(w for w in words if w >= 2**32 % (i + 1))
        j = word % (i + 1)
        order[i], order[j] = order[j], order[i]
    return order


def mix(views, step):
    ratio, batch = draw_lambda(step), views[draw_order(step)]
    return ratio * batch + (1.0 - ratio) * batch[draw_partners(step)]


def make_views(dtype, side):
    """Of each step (BATCH, 3, side, side), mixed."""
    images = numbers("images", BATCH, side // 8, side // 8, 3)
    images = images.repeat_interleave(8, 1).repeat_interleave(8, 2)[None]
    views = images + 0.25 * numbers("views", STEPS, BATCH, 1, side, side, 3)[:, :, 0]
    views = views.permute(0, 1, 4, 2, 3).to(dtype)
    return [mix(views[step], step) for step in range(STEPS)]


def ours(name):
    name = name.replace("student_embedding_model.wrapped_model._features.", "backbone.")
    name = name.replace("teacher_embedding_model._features.", "teacher.")
    return name.replace("teacher_embedding_model.", "teacher.")


def wrap():
    return package_helpers.get_wrapped_model(
        "torchvision/resnet18", 3, model_args={"weights": None}, load_weights=False
    )


def make_vit(*args, **given):
    model = package_helpers.get_wrapped_model("dinov2/_vittest14", 3, load_weights=False)
    return model.get_model().eval().requires_grad_(False)


def make_teacher(*args, **given):
    model = torchvision.models.resnet18()
    model.fc = torch.nn.Identity()
    model.embed_dim = 512
    return model.eval().requires_grad_(False)


def make(dtype, version, optimizer, given):
    if version == 1:
        cls, args = first.Distillation, first.DistillationArgs(queue_size=QUEUE)
    elif version == 2:
        cls = second.DistillationV2
        args = second.DistillationV2Args(n_projection_layers=2, projection_hidden_dim=HIDDEN)
    else:
        cls = third.DistillationV3
        args = third.DistillationV3Args(teacher=wrap(), queue_size=QUEUE)
    first.get_teacher, second.get_teacher = make_teacher, make_vit
    kind = optimizer_helpers.get_optimizer_type(optimizer)
    optimizer_args = cls.optimizer_args_cls(kind)(**given)
    method = cls(args, optimizer_args, EmbeddingModel(wrap()), BATCH, 3).to(dtype).train()
    method.teacher_embedding_model.eval()
    method._mixup_data = lambda x: x
    with torch.no_grad():
        for name, t in method.state_dict().items():
            if name == "teacher_queue":
                t.zero_()
            elif not name.endswith("num_batches_tracked"):
                t.copy_(torch.from_numpy(rule.value(ours(name), tuple(t.shape), "bn2")))
    return method, args, optimizer_args


def run_steps(name, dtype):
    """Epochs of one step; a tenth of them warm up."""
    method, args, optimizer_args = make(dtype, *RUNS[name])
    before = {n: p.detach().clone() for n, p in method.named_parameters()}
    scale = (BATCH / args.reference_batch_size) ** 0.5
    o = optimizer_helpers.get_optimizer(optimizer_args, method.trainable_modules(), scale)
    schedule = CosineWarmupScheduler(o, warmup_epochs=STEPS // 10, max_epochs=STEPS)
    views = make_views(dtype, SIDES[RUNS[name][0]])
    losses, rates = [], []
    for step in range(STEPS):
        o.zero_grad()
        loss = method.training_step_impl({"views": [views[step]]}, 0).loss
        loss.backward()
        losses.append(loss.item())
        rates.append(o.param_groups[0]["lr"])
        torch.nn.utils.clip_grad_norm_([p for g in o.param_groups for p in g["params"]], 1.0)
        o.step()
        schedule.step()
    found = {"losses": torch.tensor(losses).double().numpy()}
    found["rates"] = torch.tensor(rates, dtype=torch.float64).numpy()
    for n, p in method.named_parameters():
        if p.requires_grad:
            found[f"grad/{ours(n)}"] = rule.gradient_row(p.detach() - before[n])
    return found


def add(out, name, run):
    wide, narrow = run(torch.float64), run(torch.float32)
    worst = {k: float(rule.difference(f"{name}/{k}", narrow[k], wide[k])) for k in wide}
    top = sorted(worst, key=worst.get)[-3:]
    print(name, *(f"{k} {worst[k]:.1e}" for k in top), wide["losses"])
    out.update({f"{name}/{k}": v for k, v in wide.items()})


def main():
    torch.set_num_threads(1)
    rule.seed = SEED
    out = {}
    add_losses(out)
    for name in RUNS:
        add(out, f"steps/{name}", lambda dtype, name=name: run_steps(name, dtype))
    rule.write(HERE / "distill.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
