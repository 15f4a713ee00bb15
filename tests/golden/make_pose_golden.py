#!/usr/bin/env python3
"""Makes pose.safetensors beside it: maps, losses and the network of Lightning Pose 2.4.3, in double
precision.

usage: python3 make_pose_golden.py     by hand, with torch, lightning-pose 2.4.3

It asserts first that one bright pixel returns itself: up to 2.4.2 the temperature was lost beside
newer versions of kornia. Numbers that both sides have follow the rule of golden_rule.py; arrays
are in levin's order, (N, h, w, K):
  points/D/...    D doublings: position and confidence of maps, and the gradient of the maps for a
                  gradient of those.
  target/...      points, kinds, and the maps drawn for them.
  loss/KIND/...   of these targets and maps that a soft-max made: its value, and the gradient.
  head/D/...      of feature maps: ten numbers of the maps.
  network/...     a step of resnet18 and the head: the loss, of every gradient ten numbers, and what
                  becomes of running statistics eight.
  adam/losses     of 20 steps with its optimizer on the same images.
"""

from pathlib import Path

import golden_rule as rule
import torch
from lightning_pose.data.heatmaps import generate_heatmaps
from lightning_pose.losses.losses import HeatmapJSLoss, HeatmapKLLoss, HeatmapMSELoss
from lightning_pose.models import HeatmapTracker
from lightning_pose.models.heads.heatmap import HeatmapHead, run_subpixelmaxima

HERE = Path(__file__).parent
N, H, W, K = 2, 16, 24, 3
IMAGES, HIGH, WIDE, KEYPOINTS = 4, 64, 96, 5
STEPS, RATE = 20, 1e-4
TEMPERATURE = torch.tensor(1000.0)
# What Lightning Pose subtracts for three doublings, 2.5, is not the shift of the grid.
SHIFT = {1: 0.0, 2: 0.0, 3: 1.0}
LOSSES = {"mse": HeatmapMSELoss, "kl": HeatmapKLLoss, "js": HeatmapJSLoss}
# x, y, kind; of an image of 64 x 96
POINTS = [
    [[20.0, 30.0, 2], [71.3, 9.8, 2], [float("nan"), float("nan"), 2]],
    [[0.0, 63.0, 2], [50.0, 50.0, 1], [10.0, 10.0, 0]],
]
CHILDREN = ["conv1", "bn1", "relu", "maxpool", "layer1", "layer2", "layer3", "layer4"]


def numbers(name, *shape):
    """As golden_tensor() has them."""
    n = torch.Size(shape).numel()
    return torch.from_numpy(2.0 * rule.uniform(name, n)).float().double().reshape(shape)


def channels_first(x):
    return x.permute(0, 3, 1, 2).contiguous()


def channels_last(x):
    return x.detach().permute(0, 2, 3, 1).contiguous()


def ours(name):
    """backbone.4.0.bn1.bias: backbone.layer1.0.bn1.bias"""
    part, child, *rest = name.split(".")
    return name if part == "head" else ".".join([part, CHILDREN[int(child)], *rest])


def check_bright_pixel():
    maps = torch.zeros(1, 1, 64, 64)
    maps[0, 0, 20, 33] = 1.0
    found, confidence = run_subpixelmaxima(maps, 2, TEMPERATURE)
    assert (found - torch.tensor([132.0, 80.0])).abs().max() < 1e-4, found
    assert confidence.item() > 0.999, confidence


def find_points():
    out = {}
    for d in SHIFT:
        maps = channels_first(0.01 * numbers("maps", N, H, W, K)).requires_grad_()
        found, confidence = run_subpixelmaxima(maps, d, TEMPERATURE)
        found = found.reshape(N, K, 2) - SHIFT[d]
        found = torch.cat([found, confidence.unsqueeze(2)], dim=2)
        found.backward(numbers("dy", N, K, 3))
        out[f"points/{d}/found"] = found.detach()
        out[f"points/{d}/gradient"] = channels_last(maps.grad)
    return out


def draw_targets():
    points = torch.tensor(POINTS)
    maps = generate_heatmaps(
        points[:, :, :2], 4 * H, 4 * W, (H, W), visibility=points[:, :, 2].long()
    )
    return {"target/points": points, "target/maps": channels_last(maps)}


def find_losses(target):
    out = {}
    target = channels_first(target)
    for kind, loss_class in LOSSES.items():
        logits = channels_first(numbers("logits", N, H, W, K))
        maps = torch.softmax(logits.reshape(N, K, H * W), dim=2).reshape(N, K, H, W)
        maps.requires_grad_()
        loss, _ = loss_class(log_weight=0.0)(heatmaps_targ=target, heatmaps_pred=maps)
        loss.backward()
        out[f"loss/{kind}/loss"] = loss.detach().reshape(1)
        out[f"loss/{kind}/gradient"] = channels_last(maps.grad)
    return out


def run_heads():
    out = {}
    for d in SHIFT:
        head = HeatmapHead("resnet18", 512, KEYPOINTS, downsample_factor=d)
        with torch.no_grad():
            rule.fill(head, "bn2", lambda name: f"head.{name}")
            maps = head(channels_first(numbers("features", N, 2, 3, 512)))
        out[f"head/{d}/maps"] = torch.from_numpy(rule.gradient_row(channels_last(maps)))
    return out


def make_network():
    net = HeatmapTracker(KEYPOINTS, backbone="resnet18", pretrained=False, downsample_factor=2)
    with torch.no_grad():
        rule.fill(net, "bn2", ours)
    return net.train()


def relu_inputs(net, image):
    seen = []
    for module in net.modules():
        if isinstance(module, torch.nn.ReLU):
            module.register_forward_pre_hook(lambda _, x: seen.append(x[0].detach().clone()))
    with torch.no_grad():
        net(image)
    return seen


def images():
    return channels_first(numbers("image", IMAGES, HIGH, WIDE, 3))


def count_kinks():
    return rule.count_kinks(
        relu_inputs(make_network(), images()), relu_inputs(make_network().float(), images().float())
    )


def run_network():
    net = make_network()
    points = numbers("label", IMAGES, KEYPOINTS, 2).abs() * torch.tensor([WIDE / 2, HIGH / 2])
    target = generate_heatmaps(points, HIGH, WIDE, (HIGH // 4, WIDE // 4))
    maps = net(images())
    loss = HeatmapMSELoss()
    value = loss.weight.double() * loss(heatmaps_targ=target, heatmaps_pred=maps)[0]
    value.backward()
    out = {"network/loss": value.detach().reshape(1)}
    for name, p in net.named_parameters():
        out[f"network/grad/{ours(name)}"] = torch.from_numpy(rule.gradient_row(p.grad))
    for name, b in net.named_buffers():
        if "running" in name:
            out[f"network/buffer/{ours(name)}"] = b[rule.places(len(b))]
    names = "".join(f"{ours(n)} {n}\n" for n in net.state_dict() if "num_batches" not in n)
    return out, names


def run_steps():
    net = make_network()
    points = numbers("label", IMAGES, KEYPOINTS, 2).abs() * torch.tensor([WIDE / 2, HIGH / 2])
    target = generate_heatmaps(points, HIGH, WIDE, (HIGH // 4, WIDE // 4))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    loss, losses = HeatmapMSELoss(), []
    for _ in range(STEPS):
        optimizer.zero_grad()
        maps = net(images())
        value = loss.weight.double() * loss(heatmaps_targ=target, heatmaps_pred=maps)[0]
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return {"adam/losses": torch.tensor(losses)}


def main():
    torch.set_default_dtype(torch.float64)
    check_bright_pixel()
    rule.choose_seed("resnet18", count_kinks)
    out = find_points() | draw_targets() | run_heads()
    out |= find_losses(out["target/maps"])
    network, names = run_network()
    out |= network | run_steps()
    meta = {"seed": str(rule.seed), "names": names}
    rule.write(HERE / "pose.safetensors", {k: v.numpy() for k, v in out.items()}, meta)


if __name__ == "__main__":
    main()
