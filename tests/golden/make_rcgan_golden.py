#!/usr/bin/env python3
"""Makes rcgan.safetensors: what PyTorch computes, in double precision, for the networks of rcGAN
(src/nn/rcgan.c) and for both phases of a training step (src/recipes/gan/gan_step.c).

usage: python3 make_rcgan_golden.py   by hand, with torch

Weights, images and noise are not stored: both sides make them by one rule (golden_rule.py). The
file holds, under the name of each case: what comes out (largest magnitude, norm, eight elements),
the loss, of every parameter's gradient the same ten numbers, and running statistics after the step.
Prints also how far PyTorch's own f32 is from that.

generator/train, generator/eval, generator/nearest: sides 50, 25, 13 and 7, the last one with
nearest pixels and a convolution for the way up. critic: sides 50, 25, 12, 6. Their loss is the mean
of the result times fixed numbers. step: sides 26, 13, 7 and 26, 13, 6, 3; three samples of noise,
one phase after the other with the same weights.
"""

from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

import golden_rule as rule

HERE = Path(__file__).parent
BATCH, CHANNELS, NOISE = 2, 2, 2
STEP = dict(side=26, batch=3, samples=3, gp=10.0, drift=0.001, w_adv=0.05, std_mult=1.25)
CALLS = 1 << 24  # of a phase: where its draws begin


class Unit(nn.Module):
    def __init__(self, i, o, norm=True, up=None):
        super().__init__()
        self.conv = (
            nn.Conv2d(i, o, 3, padding=1)
            if up is None
            else nn.ConvTranspose2d(i, o, 3, stride=2, padding=1)
        )
        if norm:
            self.norm = nn.BatchNorm2d(o)
        self.act = nn.PReLU()

    def forward(self, x, size=None):
        x = self.conv(x) if size is None else self.conv(x, output_size=size)
        return self.act(self.norm(x) if hasattr(self, "norm") else x)


class Residual(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.skip, self.unit1, self.unit2 = nn.Conv2d(c, c, 1), Unit(c, c), Unit(c, c)

    def forward(self, x):
        return self.skip(x) + self.unit2(self.unit1(x))


class Down(nn.Module):
    def __init__(self, i, o, first):
        super().__init__()
        self.unit, self.res = Unit(i, o, norm=not first), Residual(o)
        self.half = nn.Conv2d(o, o, 3, stride=2, padding=1)

    def forward(self, x):
        skip = self.res(self.unit(x))
        return skip, self._modules["half"](skip)  # Module.half is another thing


class Up(nn.Module):
    def __init__(self, width, o, nearest):
        super().__init__()
        self.nearest = nearest
        self.up = Unit(width, width, up=None if nearest else "transposed")
        self.merge, self.res = Unit(2 * width, o), Residual(o)

    def forward(self, x, skip):
        size = skip.shape[2:]
        if self.nearest:
            x = self.up(functional.interpolate(x, size=size, mode="nearest"))
        else:
            x = self.up(x, size)
        return self.res(self.merge(torch.cat([skip, x], 1)))


class Generator(nn.Module):
    def __init__(self, width, levels, nearest=False):
        super().__init__()
        self.levels = levels
        widths = [width * 2 ** min(i, 3) for i in range(levels)]
        for i, o in enumerate(widths):
            before = CHANNELS + NOISE if i == 0 else widths[i - 1]
            setattr(self, f"down{i}", Down(before, o, i == 0))
            setattr(self, f"up{i}", Up(o, widths[max(i - 1, 0)], nearest))
        self.middle = Unit(widths[-1], widths[-1])
        self.head1 = nn.Conv2d(width, width // 2, 1)
        self.head2 = nn.Conv2d(width // 2, CHANNELS, 1)

    def forward(self, x):
        skips = []
        for i in range(self.levels):
            skip, x = getattr(self, f"down{i}")(x)
            skips.append(skip)
        x = self.middle(x)
        for i in reversed(range(self.levels)):
            x = getattr(self, f"up{i}")(x, skips[i])
        return self.head2(self.head1(x))


class Critic(nn.Module):
    def __init__(self, width, stages, side):
        super().__init__()
        self.stages = stages
        self.input, self.act0 = nn.Conv2d(2 * CHANNELS, width, 3, padding=1), nn.LeakyReLU(0.01)
        widths = [width * 2 ** min(i, 4) for i in range(stages + 1)]
        for i in range(1, stages + 1):
            setattr(self, f"stage{i}", nn.Conv2d(widths[i - 1], widths[i], 3, padding=1))
            setattr(self, f"act{i}", nn.LeakyReLU(0.2))
        self.output = nn.Linear(widths[-1] * (side >> stages) ** 2, 1)

    def forward(self, x):
        x = self.act0(self.input(x))
        for i in range(1, self.stages + 1):
            x = getattr(self, f"stage{i}")(functional.avg_pool2d(x, 2))
            x = getattr(self, f"act{i}")(functional.instance_norm(x, eps=1e-5))
        return self.output(torch.flatten(x, 1))


class Abs(nn.Module):
    def forward(self, x):
        return x.abs()


class Pair(nn.Module):
    """Both, as the recipe has them."""

    def __init__(self, side, width, levels, stages, nearest=False):
        super().__init__()
        self.generator = Generator(width, levels, nearest)
        self.critic = Critic(width, stages, side)
        self.abs = Abs()


def image(name, shape, dtype):
    """(N, C, H, W) of numbers in [-2, 2) that lie as (N, H, W, C)."""
    n, c, h, w = shape
    x = torch.from_numpy(2.0 * rule.uniform(name, n * c * h * w)).float().reshape(n, h, w, c)
    return x.permute(0, 3, 1, 2).to(dtype)


def there(x):
    """As levin has it: channels last."""
    return x.detach().permute(0, 2, 3, 1).contiguous() if x.ndim == 4 else x.detach()


def gradients(out, net, prefix):
    for name, p in net.named_parameters():
        if p.grad is not None:
            out[f"{prefix}grad/{name}"] = rule.gradient_row(p.grad)


def make(dtype, seen, **sizes):
    pair = Pair(**sizes)
    rule.fill(pair, "act")
    for part in pair.modules():
        if seen is not None and isinstance(part, (nn.PReLU, nn.LeakyReLU, Abs)):
            part.register_forward_pre_hook(lambda part, x: seen.append(x[0].detach().clone()))
    return pair.to(dtype)


def network(case, dtype, seen=None):
    """Forward, and the gradients of the mean of the result times `cotangent`."""
    which, mode = case.split("/")
    side = 50
    nearest = mode == "nearest"
    pair = make(dtype, seen, side=side, width=4, levels=3, stages=3, nearest=nearest)
    pair.train(mode != "eval")
    net = pair.generator if which == "generator" else pair.critic
    result = net(image("image", (BATCH, 2 * CHANNELS, side, side), dtype))
    if which == "critic":
        cotangent = 2.0 * rule.uniform("cotangent", BATCH)
        cotangent = torch.from_numpy(cotangent).float().to(dtype).reshape(BATCH, 1)
    else:
        cotangent = image("cotangent", result.shape, dtype)
    (result * cotangent).mean().backward()
    out = {f"{case}/result": rule.gradient_row(there(result))}
    gradients(out, pair, f"{case}/")
    if which == "generator" and mode != "eval":
        statistics(out, {n: t for n, t in pair.named_buffers() if is_statistic(n)}, f"{case}/")
    return out


def is_statistic(name):
    return name.endswith(("running_mean", "running_var"))


def statistics(out, buffers, prefix):
    for name, t in buffers.items():
        out[f"{prefix}buffer/{name}"] = t.numpy()[rule.places(len(t))]


def noise(name, call, dtype):
    n, side = STEP["batch"], STEP["side"]
    z = rule.draw_normal(name, n * side * side * NOISE, call)
    return torch.from_numpy(z).reshape(n, side, side, NOISE).permute(0, 3, 1, 2).to(dtype)


def critic_phase(pair, y, x, prefix):
    """Gulrajani et al. 2017, algorithm 1, and a drift term. The running statistics stay."""
    dtype, n = y.dtype, STEP["batch"]
    with torch.no_grad():
        fake = pair.generator(torch.cat([y, noise("z", 0, dtype)], 1))
    alpha = torch.from_numpy(rule.draw_uniform("alpha", n, 1)).to(dtype).reshape(n, 1, 1, 1)
    u = (alpha * x + (1 - alpha) * fake).requires_grad_()
    score = lambda image: pair.critic(torch.cat([image, y], 1))
    (slope,) = torch.autograd.grad(score(u).sum(), u, create_graph=True)
    norm = slope.flatten(1).norm(dim=1)
    penalty = ((norm - 1) ** 2).mean()
    real = score(x)
    distance, drift = real.mean() - score(fake).mean(), (real**2).mean()
    loss = -distance + STEP["gp"] * penalty + STEP["drift"] * drift
    loss.backward()
    numbers = dict(
        d_wass=distance, d_gp=penalty, d_drift=drift, gp_norm_mean=norm.mean(), d_loss=loss
    )
    out = {f"{prefix}{k}": v.detach().numpy() for k, v in numbers.items()}
    gradients(out, pair, prefix)
    return out


def generator_phase(pair, y, x, prefix):
    """Bendel, Ahmad & Schniter 2023, equations 9 to 12, with the sum over the batch in the
    adversarial term. The running statistics move once, by the mean over the forwards."""
    dtype, count = y.dtype, STEP["samples"]
    norms = {n: m for n, m in pair.named_modules() if isinstance(m, nn.BatchNorm2d)}
    before = {n: (m.running_mean, m.running_var) for n, m in norms.items()}
    after, samples = {}, []
    for p in range(count):
        for n, m in norms.items():
            m.running_mean, m.running_var = (t.clone() for t in before[n])
        samples.append(pair.generator(torch.cat([y, noise(f"z{p}", CALLS + p, dtype)], 1)))
        for n, t in pair.named_buffers():
            if is_statistic(n):
                after[n] = after.get(n, 0) + t / count
    score = torch.stack([pair.critic(torch.cat([g, y], 1))[:, 0] for g in samples])
    adversarial = -STEP["w_adv"] * score.mean(0).sum()
    l1 = pair.abs(torch.stack(samples).mean(0) - x).mean()
    spread = torch.stack(samples).std(0, unbiased=True).mean()
    weight = np.sqrt(2 / (np.pi * count * (count + 1)))
    loss = adversarial + l1 - STEP["std_mult"] * weight * spread
    loss.backward()
    numbers = dict(g_adv=adversarial, g_l1=l1, g_std=spread, g_loss=loss)
    out = {f"{prefix}{k}": v.detach().numpy() for k, v in numbers.items()}
    gradients(out, pair, prefix)
    statistics(out, after, prefix)
    return out


def phase(case, dtype, seen=None):
    n, side = STEP["batch"], STEP["side"]
    pair = make(dtype, seen, side=side, width=4, levels=2, stages=3)
    y, x = (image(name, (n, CHANNELS, side, side), dtype) for name in ("y", "x"))
    first = case == "step/critic"
    (pair.generator if first else pair.critic).requires_grad_(False)
    return (critic_phase if first else generator_phase)(pair, y, x, f"{case}/")


CASES = (
    ("generator/train", network),
    ("generator/eval", network),
    ("generator/nearest", network),
    ("critic/train", network),
    ("step/critic", phase),
    ("step/generator", phase),
)


def kinks(case, run):
    wide, narrow = [], []
    run(case, torch.float64, wide)
    run(case, torch.float32, narrow)
    return rule.count_kinks(wide, narrow)


def main():
    arrays, meta = {}, {"by": f"torch {torch.__version__}, float64"}
    meta.update({k: str(v) for k, v in STEP.items()})
    for case, run in CASES:
        meta[f"{case}_kinks"] = str(rule.choose_seed(case, lambda: kinks(case, run)))
        meta[f"{case}_seed"] = str(rule.seed)
        wide, narrow = (run(case, dtype) for dtype in (torch.float64, torch.float32))
        arrays.update(wide)
        d = max((rule.difference(k, narrow[k], wide[k]), k) for k in wide)
        print(case, "PyTorch's f32 differs by at most %.2g in %s" % d, flush=True)
    rule.write(HERE / "rcgan.safetensors", arrays, meta)


if __name__ == "__main__":
    main()
