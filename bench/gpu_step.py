#!/usr/bin/env python3
"""PyTorch's side of gpu_duel.py: training steps of a network on a GPU, eager, compiled, or compiled
with CUDA graphs (mode="reduce-overhead").

usage: gpu_step.py NET PRECISION BATCH SIZE eager|compiled|graphs. The protocol is gpu_step.c's.
Batches are random numbers that stay on the GPU; images channels_last, SGD and AdamW fused.
"""

import sys
import time


def make_gpt2(torch, size):
    F = torch.nn.functional
    width, heads, layers, vocabulary = 768, 12, 12, 50257

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.ln_1, self.ln_2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
            self.qkv, self.proj = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
            self.fc = torch.nn.Linear(width, 4 * width)
            self.out = torch.nn.Linear(4 * width, width)

        def forward(self, x):
            n, t, _ = x.shape
            q, k, v = (
                a.view(n, t, heads, width // heads).transpose(1, 2)
                for a in self.qkv(self.ln_1(x)).split(width, 2)
            )
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(n, t, width))
            return x + self.out(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Gpt2(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.wte = torch.nn.Embedding(vocabulary, width)
            self.wpe = torch.nn.Embedding(1024, width)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(layers))
            self.ln_f = torch.nn.LayerNorm(width)

        def forward(self, ids):
            x = self.wte(ids) + self.wpe.weight[: ids.shape[1]]
            for block in self.blocks:
                x = block(x)
            return F.linear(self.ln_f(x), self.wte.weight)

    return Gpt2()


def main():
    net, precision, batch, size, way = sys.argv[1:]
    batch, size = int(batch), int(size)
    import torch

    torch.backends.cudnn.benchmark = True
    if precision == "32-true":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    if net == "gpt2":
        model = make_gpt2(torch, size).cuda()
        x = torch.randint(50257, (batch, size), device="cuda")
        label = torch.randint(50257, (batch, size), device="cuda")
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    else:
        import torchvision

        model = getattr(torchvision.models, net)(num_classes=1000).cuda()
        model = model.to(memory_format=torch.channels_last)
        x = torch.randn(batch, 3, size, size, device="cuda")
        x = x.contiguous(memory_format=torch.channels_last)
        label = torch.arange(batch, device="cuda") % 1000
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True)
    model.train()
    mode = {"compiled": "default", "graphs": "reduce-overhead"}.get(way)
    run = torch.compile(model, mode=mode) if mode else model
    low = precision == "bf16-mixed"

    def step():
        if way == "graphs":
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=low):
            y = run(x)
            loss = torch.nn.functional.cross_entropy(y.flatten(0, -2), label.flatten())
        loss.backward()
        optimizer.step()
        return loss

    print("ready", torch.cuda.get_device_name(), "torch", torch.__version__, flush=True)
    for line in sys.stdin:
        torch.cuda.synchronize()
        start, used = time.perf_counter(), time.thread_time()
        for _ in range(int(line)):
            loss = step()
        host = time.thread_time() - used
        torch.cuda.synchronize()
        n = int(line)
        print(
            (time.perf_counter() - start) / n,
            host / n,
            torch.cuda.max_memory_allocated(),
            loss.item(),
            flush=True,
        )


main()
