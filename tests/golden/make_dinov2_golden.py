#!/usr/bin/env python3
"""Makes dinov2.safetensors beside it: DINOv2 as lightly-train computes it, in double precision.

usage: python3 make_dinov2_golden.py     by hand, with torch, lightly, lightly-train

Four parts, each with numbers that both sides have by the rule of golden_rule.py:
  loss/...     the losses of class tokens, of masked patches (PATCHES of each of CROPS crops) and
               KoLeo, with both ways to centre the teacher: values and gradients of the student's.
  masks/...    the patches that the masks of two steps hide, the second one cut into micro-batches:
               the script draws them on its own, as src/recipes/pretrain/pretrain_dino.h has it.
  step/...     one step of _vittest14: the loss, and of every gradient ten numbers.
  steps/...    STEPS steps of AdamW, lightly-train's own class with its groups, schedules and
               clipping: losses, rates, and of what became of every parameter, the teacher's too,
               and of the centres, ten numbers. Prints how far the same in f32 is from that.
lightly-train moves its teacher with the momentum of the step behind; here as in the authors'
program it has the step's own. Student and teacher begin with different weights, so that no term is
zero. Runs without KoLeo, which looks at a micro-batch alone, are cut into three.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import golden_rule as rule
import numpy as np
import torch
from lightly.loss import KoLeoLoss
from lightly.utils.scheduler import cosine_schedule
from lightly_train._methods.dinov2 import dinov2
from lightly_train._methods.dinov2.dinov2_loss import DINOLoss, IBOTPatchLoss
from lightly_train._models import package_helpers
from lightly_train._models.embedding_model import EmbeddingModel
from lightly_train._scaling import ScalingInfo
from lightly_train._torch_helpers import update_momentum

HERE = Path(__file__).parent
TRAINER_SEED = 4  # of the runs of trainer_support.c
ROWS, COLUMNS, TEMP, STUDENT_TEMP = 6, 5, 0.2, 0.1
PATCHES = (0, 3, 1, 0, 4, 2)  # masked ones of each crop
BATCH, SIDE, LOCAL_SIDE, LOCALS, STEPS = 8, 56, 28, 2, 20
HIDDEN, BOTTLENECK, OUTPUT = 24, 12, 16
GRID, RATIOS, PART = 8, (0.1, 0.5), 0.5  # masks/
# crops that micro-batches begin with: 3, 3 and 2 samples of two views; True: one of 8
BEGIN = {True: (0, 16), False: (0, 6, 12, 16)}
# name: the method's arguments
RUNS = {
    "softmax": {},
    "apart": {"ibot_separate_head": True, "koleo_loss_weight": 0.0, "mask_probability": 0.8},
    "sinkhorn": {"center_method": "sinkhorn_knopp", "koleo_loss_weight": 0.0},
}


def numbers(name, *shape):
    """As golden_tensor() has them."""
    n = math.prod(shape)
    return torch.from_numpy(2.0 * rule.uniform(name, n)).to(torch.float32).reshape(shape)


# ---- losses ----


def put(out, name, loss, **leaves):
    loss.backward()
    out[f"loss/{name}/loss"] = loss.detach().numpy()
    for key, leaf in leaves.items():
        out[f"loss/{name}/{key}"] = leaf.grad.contiguous().numpy()


def add_losses(out):
    torch.set_default_dtype(torch.float64)
    narrow = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double  # which rounds what sinkhorn_knopp spreads
    center = 0.1 * numbers("center", COLUMNS)
    teacher = numbers("teacher", ROWS, 2, COLUMNS).double()
    patches = numbers("patches", sum(PATCHES), COLUMNS).double()
    for way in ("softmax", "sinkhorn"):
        dino = DINOLoss(COLUMNS, student_temp=STUDENT_TEMP).double()
        ibot = IBOTPatchLoss(COLUMNS, student_temp=STUDENT_TEMP).double()
        dino.center.copy_(center.double())
        ibot.center.copy_(center.double())
        swapped = torch.cat([teacher[:, 1], teacher[:, 0]])
        if way == "softmax":
            aim = dino.softmax_center_teacher(swapped, TEMP)
            masked_aim = ibot.softmax_center_teacher(patches[None], TEMP)[0]
        else:
            aim = dino.sinkhorn_knopp_teacher(swapped, TEMP)
            n = torch.tensor([len(patches)])
            masked_aim = ibot.sinkhorn_knopp_teacher(patches, TEMP, n_masked_patches_tensor=n)
        large = numbers("student", ROWS, 2, COLUMNS).double().requires_grad_()
        small = numbers("local", ROWS, 3, COLUMNS).double().requires_grad_()
        loss = dino.forward([large.transpose(0, 1).flatten(0, 1)], [aim]) * 2
        put(out, f"{way}/alone", loss / (2 + 1), large=large)
        large.grad = None
        loss = dino.forward([large.transpose(0, 1).flatten(0, 1)], [aim]) * 2
        put(out, f"{way}/large", loss / (2 + 2 * 3), large=large)
        loss = dino.forward(list(small.unbind(1)), list(aim.view(2, ROWS, COLUMNS)))
        put(out, f"{way}/small", loss / (2 + 2 * 3), small=small)
        own = numbers("own patches", sum(PATCHES), COLUMNS).double().requires_grad_()
        masks = torch.zeros(len(PATCHES), max(PATCHES), dtype=torch.bool)
        for crop, n in enumerate(PATCHES):
            masks[crop, :n] = True
        put(out, f"{way}/masked", ibot.forward_masked(own, masked_aim, masks), own=own)
    rows = numbers("student", ROWS, 2, COLUMNS).double().requires_grad_()
    put(out, "koleo", sum(KoLeoLoss()(rows[:, v]) for v in range(2)), rows=rows)
    torch.Tensor.float = narrow
    torch.set_default_dtype(torch.float32)


# ---- masks ----


class Draws:
    def __init__(self, seed, step, crop, call):
        kept, rule.seed = rule.seed, seed
        self.words = iter(map(int, rule.words(rule.hash_of("masks"), 4096, call, step, crop)))
        rule.seed = kept

    def uniform(self, low, high):
        return low + (high - low) * (next(self.words) * 2.0**-32)

    def below(self, n):
        while (word := next(self.words)) < 2**32 % n:
            pass
        return word % n

    def order(self, n):
        order = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            order[i], order[j] = order[j], order[i]
        return order


def mask_crop(draws, side, wanted):
    mask, done = np.zeros((side, side), bool), 0
    while done < wanted:
        most, before = min(wanted - done, side * side // 2), done
        for _ in range(10):
            area = draws.uniform(4, most)
            aspect = math.exp(draws.uniform(math.log(0.3), -math.log(0.3)))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if w >= side or h >= side:
                continue
            top, left = draws.below(side - h + 1), draws.below(side - w + 1)
            block = mask[top : top + h, left : left + w]
            if 0 < (new := int((~block).sum())) <= most:
                block[:] = True
                done += new
                break
        if done == before:
            break
    return mask


def draw_masks(seed, step, begin, side, part, ratios):
    """Of micro-batches that begin with these crops; the last number is that of all."""
    masks = []
    for first, end in zip(begin, begin[1:]):
        n = int(end * part) - int(first * part)
        edges = np.linspace(*ratios, n + 1)
        for crop, place in enumerate(Draws(seed, step, first, 1).order(end - first), first):
            draws = Draws(seed, step, crop, 0)
            wanted = 0
            if place < n:
                wanted = int(side * side * draws.uniform(edges[place], edges[place + 1]))
            masks.append(mask_crop(draws, side, wanted))
    return torch.from_numpy(np.stack(masks)).flatten(1)


def add_masks(out):
    for step, begin in ((0, (0, 32)), (7, (0, 5, 6, 32))):
        masks = draw_masks(TRAINER_SEED, step, begin, GRID, PART, RATIOS)
        out[f"masks/{step}"] = masks.double().numpy()


# ---- steps ----


def collate(seed, step, begin, part, **given):
    """In lightly-train's order of crops: all first views, then all second ones."""
    masks = draw_masks(seed, step, begin, given["mask_generator"].height, part, RATIOS)
    masks = masks.reshape(BATCH, 2, -1).transpose(0, 1).flatten(0, 1)
    weight = 1 / masks.sum(-1, keepdim=True).clamp(min=1)
    return {
        "collated_masks": masks,
        "mask_indices_list": masks.flatten().nonzero().flatten(),
        "masks_weight": weight.expand_as(masks)[masks],
    }


def order_of(step):
    """Of the samples in an epoch, which is a step."""
    kept, rule.seed = rule.seed, TRAINER_SEED
    words = iter(map(int, rule.words(rule.hash_of("order"), 64, 0, step)))
    rule.seed = kept
    order = list(range(BATCH))
    for i in range(BATCH - 1, 0, -1):
        word = next(w for w in words if w >= 2**32 % (i + 1))
        order[i], order[word % (i + 1)] = order[word % (i + 1)], order[i]
    return order


def make_views(dtype, shuffled):
    """Of each step the list of views (BATCH, 3, side, side)."""
    images = numbers("images", BATCH, SIDE // 8, SIDE // 8, 3)
    images = images.repeat_interleave(8, 1).repeat_interleave(8, 2)[None, :, None]
    large = images + 0.25 * numbers("views", STEPS, BATCH, 2, SIDE, SIDE, 3)
    noise = numbers("local views", STEPS, BATCH, LOCALS, LOCAL_SIDE, LOCAL_SIDE, 3)
    small = images[:, :, :, :LOCAL_SIDE, :LOCAL_SIDE] + 0.25 * noise
    steps = []
    for step in range(STEPS):
        order = order_of(step) if shuffled else list(range(BATCH))
        views = [v[step, order, i] for v, n in ((large, 2), (small, LOCALS)) for i in range(n)]
        steps.append([v.permute(0, 3, 1, 2).to(dtype) for v in views])
    return steps


def ours(name):
    for side in ("student", "teacher"):
        name = name.replace(f"{side}_embedding_model.wrapped_model._model.", f"{side}.backbone.")
        name = name.replace(f"{side}_head.dino_head.", f"{side}.projection_head.")
        name = name.replace(f"{side}_head.ibot_head.", f"{side}.ibot_projection_head.")
    name = name.replace(".mlp.", ".layers.") if "projection_head" in name else name
    name = name.replace("last_layer.parametrizations.weight.original0", "last_layer.weight_g")
    return name.replace("last_layer.parametrizations.weight.original1", "last_layer.weight_v")


def make(dtype, given):
    optimizer_args = dinov2.DINOv2AdamWViTArgs(eps=1e-3)
    args = dinov2.DINOv2Args(
        hidden_dim=HIDDEN,
        dino_bottleneck_dim=BOTTLENECK,
        output_dim=OUTPUT,
        warmup_steps=5,
        teacher_temp_warmup_steps=STEPS * 3 // 10,
        student_freeze_last_layer_steps=STEPS * 3 // 10,
        **given,
    )
    wrapped = package_helpers.get_wrapped_model(
        "dinov2/_vittest14", 3, model_args={"drop_path_rate": 0.0}, load_weights=False
    )
    args.resolve_auto(ScalingInfo(dataset_size=8, epochs=STEPS), optimizer_args, wrapped)
    method = dinov2.DINOv2(args, optimizer_args, EmbeddingModel(wrapped), BATCH, 3)
    method = method.to(dtype).train()
    with torch.no_grad():
        for name, t in method.named_parameters():
            v = torch.from_numpy(rule.value(ours(name), tuple(t.shape), "bn2"))
            t.copy_(v.reshape(t.shape))
    method.trainer = SimpleNamespace(
        global_step=0, estimated_stepping_batches=STEPS, max_epochs=STEPS, current_epoch=0
    )
    return method


def compute_loss(method, views, seed, begin):
    step, part = method.trainer.global_step, method.method_args.mask_probability
    dinov2.create_collated_masks = lambda **given: collate(seed, step, begin, part, **given)
    return method.training_step_impl({"views": views}, 0).loss


def run_step(given, dtype):
    method = make(dtype, given)
    method.method_args.teacher_temp_start = method.method_args.teacher_temp_end = 0.05
    loss = compute_loss(method, make_views(dtype, False)[0], 1, (0, 2 * BATCH))
    loss.backward()
    found = {"loss": loss.detach().numpy()}
    for name, p in method.named_parameters():
        if name.startswith("student") and p.requires_grad:
            found[f"grad/{ours(name)}"] = rule.gradient_row(p.grad)
    return found


def run_steps(given, dtype):
    method = make(dtype, given)
    before = {name: p.detach().clone() for name, p in method.named_parameters()}
    (o,), (schedule,) = method.configure_optimizers()
    head = next(i for i, g in enumerate(o.param_groups) if g["name"].startswith("dino_head.mlp"))
    views = make_views(dtype, True)
    losses, rates = [], []
    for step in range(STEPS):
        method.trainer.global_step = step
        o.zero_grad()
        loss = compute_loss(
            method, views[step], TRAINER_SEED, BEGIN[method.method_args.koleo_loss_weight > 0]
        )
        loss.backward()
        losses.append(loss.item())
        rates.append(o.param_groups[head]["lr"])
        torch.nn.utils.clip_grad_norm_(
            [p for group in o.param_groups for p in group["params"]], 3.0
        )
        method.on_before_optimizer_step(o)
        o.step()
        schedule["scheduler"].step()
        m = cosine_schedule(step, STEPS, 0.992, 1.0)
        update_momentum(method.student_embedding_model, method.teacher_embedding_model, m=m)
        update_momentum(method.student_head, method.teacher_head, m=m)
    found = {"losses": torch.tensor(losses).double().numpy()}
    found["rates"] = torch.tensor(rates, dtype=torch.float64).numpy()
    for name, p in method.named_parameters():
        found[f"grad/{ours(name)}"] = rule.gradient_row(p.detach() - before[name])
    if method.method_args.center_method == "softmax":
        for name, criterion in (("center", method.dino_loss), ("patch_center", method.ibot_loss)):
            criterion.apply_center_update()
            found[f"grad/{name}"] = rule.gradient_row(criterion.center)
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
    add_masks(out)
    for name, given in RUNS.items():
        add(out, f"step/{name}", lambda dtype, given=given: run_step(given, dtype))
        add(out, f"steps/{name}", lambda dtype, given=given: run_steps(given, dtype))
    rule.write(HERE / "dinov2.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
