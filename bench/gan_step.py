#!/usr/bin/env python3
"""PyTorch's side of bench_gan_step: training steps of rcGAN on the weights and the batch of a file.
The networks are those that levin's are compared with in tests/golden.

usage: gan_step.py SIDE,GEN_WIDTH,DISC_WIDTH,STAGES FILE LAYOUT PRECISION THREADS, started by
bench_gan_step as resnet_step.py is by bench_resnet_step. In the first steps, whose losses are
compared, the noise and the order of the batch are levin's; then PyTorch draws its own.
"""

import math
import sys
import time
from pathlib import Path

from resnet_step import blas, read

SAMPLES, GP, DRIFT, W_ADV, STD_MULT = 2, 10.0, 0.001, 0.01, 1.0
EQUAL_STEPS = 5  # as in bench_torch.h


class Step:
    """Both phases, and the noise of the step."""

    def __init__(self, pair, y, x, form):
        import torch

        import golden_rule

        self.torch, self.rule, self.form, self.n = torch, golden_rule, form, 0
        self.pair, self.all_y, self.all_x = pair, y, x
        adam = lambda net: torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.0, 0.99), eps=1e-8)
        self.of_critic, self.of_generator = adam(pair.critic), adam(pair.generator)

    def order(self, count):
        """Of the samples in epoch n: as tests/unit/data/order.py has it."""
        draws = (int(w) for w in self.rule.words(self.rule.hash_of("order"), 99, step=self.n))
        order = list(range(count))
        for i in range(count - 1, 0, -1):
            j = next(d for d in draws if d >= 2**32 % (i + 1)) % (i + 1)
            order[i], order[j] = order[j], order[i]
        return order

    def noise(self, name, call):
        b, _, h, w = self.y.shape
        if self.n >= EQUAL_STEPS:
            return self.torch.randn(b, 2, h, w).contiguous(memory_format=self.form)
        z = self.torch.from_numpy(self.rule.draw_normal(name, b * h * w * 2, call, self.n))
        z = z.float().reshape(b, h, w, 2).permute(0, 3, 1, 2)
        return z.contiguous(memory_format=self.form)

    def alpha(self):
        b = self.y.shape[0]
        if self.n >= EQUAL_STEPS:
            return self.torch.rand(b, 1, 1, 1)
        u = self.torch.from_numpy(self.rule.draw_uniform("alpha", b, 1, self.n))
        return u.float().reshape(b, 1, 1, 1)

    def sample(self, name, call):
        return self.pair.generator(self.torch.cat([self.y, self.noise(name, call)], 1))

    def score(self, image, times=1):
        return self.pair.critic(self.torch.cat([image, self.y.repeat(times, 1, 1, 1)], 1))

    def critic(self):
        torch = self.torch
        self.pair.generator.requires_grad_(False)
        self.of_critic.zero_grad(set_to_none=True)
        with torch.no_grad():
            fake = self.sample("z", 0)
        u = torch.lerp(fake, self.x, self.alpha()).requires_grad_()
        (slope,) = torch.autograd.grad(self.score(u).sum(), u, create_graph=True)
        penalty = ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        real = self.score(self.x)
        distance = real.mean() - self.score(fake).mean()
        loss = GP * penalty - distance + DRIFT * (real**2).mean()
        loss.backward()
        self.of_critic.step()
        self.pair.generator.requires_grad_(True)
        return loss

    def generator(self):
        torch = self.torch
        self.pair.critic.requires_grad_(False)
        self.of_generator.zero_grad(set_to_none=True)
        samples = [self.sample(f"z{p}", (1 << 24) + p) for p in range(SAMPLES)]
        stacked = torch.stack(samples)
        scores = self.score(torch.cat(samples), SAMPLES)
        adversarial = -W_ADV / SAMPLES * scores.sum()
        l1 = (stacked.mean(0) - self.x).abs().mean()
        weight = math.sqrt(2 / (math.pi * SAMPLES * (SAMPLES + 1)))
        loss = adversarial + l1 - STD_MULT * weight * stacked.std(0).mean()
        loss.backward()
        self.of_generator.step()
        self.pair.critic.requires_grad_(True)
        return loss

    def run(self):
        if self.n < EQUAL_STEPS:  # each step is an epoch
            order = self.order(len(self.all_y))
            self.y, self.x = self.all_y[order], self.all_x[order]
        loss = self.critic() + self.generator()
        self.n += 1
        return loss.item()


def peak_mb():
    """Not of getrusage(), which has that of the program from before exec, too."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:")) * 1024e-6


def main():
    sizes, path, layout, _, threads = sys.argv[1:]
    side, gen_width, disc_width, stages = map(int, sizes.split(","))
    sys.path.append(str(Path(__file__).parent.parent / "tests" / "golden"))
    try:
        import torch

        from make_rcgan_golden import Critic, Generator
    except ImportError as reason:
        print("absent", reason, flush=True)
        return
    torch.set_num_threads(int(threads))
    form = torch.channels_last if layout == "channels_last" else torch.contiguous_format
    tensors = {name: torch.from_numpy(a) for name, a in read(path).items()}
    pair = torch.nn.Module()
    pair.generator, pair.critic = Generator(gen_width, 4), Critic(disc_width, stages, side)
    with torch.no_grad():
        for name, p in pair.named_parameters():
            w = tensors[name]
            if name == "critic.output.weight":  # (1, H W C) -> (1, C H W)
                s = side >> stages
                w = w.reshape(1, s, s, -1).permute(0, 3, 1, 2).reshape(1, -1)
            elif p.dim() == 4:  # (O, H, W, I); transposed convolutions (I, H, W, O)
                w = w.permute(0, 3, 1, 2)
            p.copy_(w)
    pair = pair.to(memory_format=form).train()
    y, x = (tensors[f].permute(0, 3, 1, 2).contiguous(memory_format=form) for f in ("y", "x"))
    step = Step(pair, y, x, form)
    print(f"ready torch {torch.__version__}, {peak_mb():.0f} MB so far, blas:", blas(), flush=True)
    for line in sys.stdin:
        start, used = time.perf_counter(), time.process_time()
        losses = [step.run() for _ in range(int(line))]
        print(
            (time.perf_counter() - start) / len(losses),
            (time.process_time() - used) / len(losses),
            *losses,
            flush=True
        )


if __name__ == "__main__":
    main()
