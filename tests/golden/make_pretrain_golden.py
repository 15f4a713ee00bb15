#!/usr/bin/env python3
"""Makes pretrain.safetensors beside it: SimCLR as lightly and lightly-train compute it, in double
precision.

usage: python3 make_pretrain_golden.py     by hand, with torch, torchvision, lightly, lightly-train

Three parts, each with numbers that both sides have by the rule of golden_rule.py:
  loss/...    NTXentLoss of two views (ROWS, COLUMNS): its value and the gradient of both.
  head/...    one step of resnet18 and a head of each form: the loss, and of every gradient ten
              numbers.
  steps/...   STEPS steps of resnet18 and a head with each optimizer, its groups and its schedule
              being lightly-train's: losses, rates, and of what became of every parameter ten
              numbers. Prints how far the same in f32 is from that: the room that the comparison
              needs.
A view is its image, of squares of 8 pixels in one colour, plus a quarter of noise that is the
view's own: views have to be found by what they share, and losses do not jump.
"""

from pathlib import Path

import golden_rule as rule
import torch
import torchvision
from lightly.loss import NTXentLoss
from lightly.models.modules.heads import SimCLRProjectionHead
from lightly.utils.scheduler import CosineWarmupScheduler
from lightly_train._methods.simclr.simclr import SimCLR, SimCLRArgs
from lightly_train._optim import optimizer_helpers
from lightly_train._optim.trainable_modules import TrainableModules

HERE = Path(__file__).parent
ROWS, COLUMNS, TEMPERATURES = 6, 5, (0.1, 0.5)
BATCH, SIDE, STEPS, HIDDEN, OUTPUT = 8, 32, 20, 24, 16
# name: layers, batch norm, embed_dim
HEADS = {
    "default": (2, True, None),
    "three": (3, True, None),
    "plain": (2, False, None),
    "embedding": (2, True, 20),
}
# name: optimizer, and arguments that are not its defaults; with the usual eps AdamW moves elements
# without a gradient by the sign of what rounding left
OPTIMIZERS = {
    "sgd": ("sgd", {}),
    "adamw": ("adamw", {"eps": 1e-3}),
    "lars": ("lars", {"momentum": 0.9, "weight_decay": 1e-4}),
}


def numbers(name, *shape):
    """As golden_tensor() has them."""
    n = 1
    for size in shape:
        n *= size
    return torch.from_numpy(2.0 * rule.uniform(name, n)).float().reshape(shape)


def make_views():
    """(STEPS, BATCH, 2, SIDE, SIDE, 3)"""
    images = numbers("images", BATCH, SIDE // 8, SIDE // 8, 3)
    images = images.repeat_interleave(8, 1).repeat_interleave(8, 2)
    return images[None, :, None] + 0.25 * numbers("views", STEPS, BATCH, 2, SIDE, SIDE, 3)


class Network(torch.nn.Module):
    def __init__(self, layers, norm, embed_dim):
        super().__init__()
        self.backbone = torchvision.models.resnet18()
        self.backbone.fc = torch.nn.Identity()
        features = 512
        if embed_dim is not None:
            self.embedding = torch.nn.Linear(features, embed_dim)
            features = embed_dim
        self.projection_head = SimCLRProjectionHead(features, HIDDEN, OUTPUT, layers, norm)

    def forward(self, views):
        """(N, 2, H, W, 3) -> two views (N, P), all first views in front of all second ones."""
        x = torch.cat([views[:, 0], views[:, 1]]).permute(0, 3, 1, 2)
        x = self.backbone(x)
        x = self.embedding(x) if hasattr(self, "embedding") else x
        return self.projection_head(x).chunk(2)


def make(dtype, *form):
    network = Network(*form).to(dtype).train()
    with torch.no_grad():
        rule.fill(network, "bn2")
    return network


def add_losses(out):
    first, second = numbers("first", ROWS, COLUMNS), numbers("second", ROWS, COLUMNS)
    for temperature in TEMPERATURES:
        a, b = (x.double().requires_grad_() for x in (first, second))
        loss = NTXentLoss(temperature)(a, b)
        loss.backward()
        name = f"loss/{temperature}"
        out[f"{name}/loss"] = loss.detach().numpy()
        out[f"{name}/first"], out[f"{name}/second"] = a.grad.numpy(), b.grad.numpy()


def run_head(form, dtype):
    network = make(dtype, *form)
    views = make_views()[0].to(dtype)
    loss = NTXentLoss(0.1)(*network(views))
    loss.backward()
    found = {"loss": loss.detach().numpy()}
    for name, p in network.named_parameters():
        found[f"grad/{name}"] = rule.gradient_row(p.grad)
    return found


def make_optimizer(network, kind, given):
    kind = optimizer_helpers.get_optimizer_type(kind)
    args = SimCLR.optimizer_args_cls(kind)(**given)
    modules = [network.backbone, network.projection_head]
    scale = BATCH / SimCLRArgs().reference_batch_size
    return optimizer_helpers.get_optimizer(args, TrainableModules(modules), scale)


def run_steps(optimizer, dtype):
    """Epochs of one step; a tenth of them warm up."""
    network = make(dtype, *HEADS["default"])
    before = {name: p.detach().clone() for name, p in network.named_parameters()}
    views = make_views().to(dtype)
    o = make_optimizer(network, *OPTIMIZERS[optimizer])
    schedule = CosineWarmupScheduler(o, warmup_epochs=STEPS // 10, max_epochs=STEPS)
    losses, rates = [], []
    for step in range(STEPS):
        o.zero_grad()
        loss = NTXentLoss(SimCLRArgs().temperature)(*network(views[step]))
        loss.backward()
        losses.append(loss.item())
        rates.append(o.param_groups[0]["lr"])
        o.step()
        schedule.step()
    found = {"losses": torch.tensor(losses).double().numpy()}
    found["rates"] = torch.tensor(rates, dtype=torch.float64).numpy()
    for name, p in network.named_parameters():
        found[f"grad/{name}"] = rule.gradient_row(p.detach() - before[name])
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
    rule.write(HERE / "pretrain.safetensors", out, {"seed": str(rule.seed)})


if __name__ == "__main__":
    main()
