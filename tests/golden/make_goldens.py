#!/usr/bin/env python3
"""Makes the golden files beside it: what PyTorch computes, in double precision, for the networks of
the zoo.

usage: python3 make_goldens.py [NAME ...]   by hand, with torch, torchvision, for vit_s_16 and
vit_tiny_patch16_224 timm, and for vits14* lightly-train, which has DINOv2's definition; no names:
all

Weights are not stored: both sides fill them by one rule (golden_rule.py and golden_support.c), f32
numbers of the tensor's name and the element's place in PyTorch's layout. A file holds, for train
and eval mode: logits, loss, of every parameter's gradient the largest magnitude, the norm and eight
elements, and the running statistics after one step; of eval mode also the features in front of the
classifier, the map as (N, h, w, C) and the pooled vector, each by such ten numbers. Prints also how
far PyTorch's own f32 is from that: the room that a comparison in f32 needs.

vit_s_16 is timm's vit_small_patch16_224, which torchvision does not have. Its file has the names
that levin has (torchvision's); `names` in it lists what timm calls each tensor, so that the test
can write a file of timm's and load it.

vit_tiny_patch16_224 is timm's and vits14, vits14-noreg are DINOv2's, under their own names; their
images are smaller than those that their positions are for, which are interpolated. A linear layer
stands behind DINOv2's.

dino_vits16 is written out here (VisionTransformer), with the tensors of DINO's files: as Hugging
Face runs these, norms have an epsilon of 1e-12 and positions of other sizes are interpolated
bicubically without antialiasing. `names` lists what Hugging Face calls them, for queries, keys and
values, which are three tensors there, the first.

The seed of each mode is one for which no input of a relu is near zero, or the fewest are
(`train_kinks`, `eval_kinks` in the file; one in the training of resnet50). A kernel that rounds in
another way and fails the test of gradients there alone may have met it.
"""

import re
import sys
from pathlib import Path

import torch
import torchvision

import golden_rule as rule

HERE = Path(__file__).parent

TIMM_NAMES = (
    (r"^cls_token$", "class_token"),
    (r"^pos_embed$", "encoder.pos_embedding"),
    (r"^patch_embed\.proj\.", "conv_proj."),
    (r"^blocks\.(\d+)\.", r"encoder.layers.encoder_layer_\1."),
    (r"\.norm(\d)\.", r".ln_\1."),
    (r"\.attn\.qkv\.", ".self_attention.in_proj_"),
    (r"\.attn\.proj\.", ".self_attention.out_proj."),
    (r"\.mlp\.fc1\.", ".mlp.0."),
    (r"\.mlp\.fc2\.", ".mlp.3."),
    (r"^norm\.", "encoder.ln."),
    (r"^head\.", "heads.head."),
)


HUGGING_FACE_NAMES = (
    (r"^cls_token$", "embeddings.cls_token"),
    (r"^pos_embed$", "embeddings.position_embeddings"),
    (r"^patch_embed\.proj\.", "embeddings.patch_embeddings.projection."),
    (r"^blocks\.", "encoder.layer."),
    (r"\.norm1\.", ".layernorm_before."),
    (r"\.norm2\.", ".layernorm_after."),
    (r"\.attn\.qkv\.", ".attention.attention.query."),
    (r"\.attn\.proj\.", ".attention.output.dense."),
    (r"\.mlp\.fc1\.", ".intermediate.dense."),
    (r"\.mlp\.fc2\.", ".output.dense."),
    (r"^norm\.", "layernorm."),
)


def to_hugging_face(name):
    for ours, theirs in HUGGING_FACE_NAMES:
        name = re.sub(ours, theirs, name)
    return name


def from_timm(name):
    """timm's name of a vision transformer's tensor -> torchvision's, which levin has."""
    for theirs, ours in TIMM_NAMES:
        name = re.sub(theirs, ours, name)
    return name


def hook_features(net, model, out):
    """The network leaves its features in `out` when it runs."""

    def of_map(part, x, y):  # (N, C, h, w)
        out["map"] = y.detach().permute(0, 2, 3, 1)
        out["pooled"] = y.detach().mean((2, 3))

    def of_tokens(part, x, y):  # (N, 1 + registers + h w, C)
        out["map"], out["pooled"] = y.detach()[:, 1 + net.get("registers", 0) :], y.detach()[:, 0]

    if "features" in net:
        part, kind = net["features"]
        hook = {"map": of_map, "tokens": of_tokens}[kind]
        model.get_submodule(part).register_forward_hook(hook)


def run(net, mode, dtype, seen=None):
    """Everything of one mode: name -> array. With a list `seen` only the inputs of relu, which go
    there."""
    model = net["make"]().to(dtype)
    ours = net.get("names", str)
    rule.fill(model, net["last"], ours)
    model.train(mode == "train")
    for part in model.modules():
        if seen is not None and isinstance(part, torch.nn.ReLU):
            part.register_forward_pre_hook(lambda part, x: seen.append(x[0].detach().clone()))
    features = {}
    hook_features(net, model, features)
    n, s, c = net["batch"], net["size"], net.get("channels", 3)
    image = torch.from_numpy(2.0 * rule.uniform("image", n * s * s * c)).float().reshape(n, s, s, c)
    logits = model(image.permute(0, 3, 1, 2).to(dtype))
    if seen is not None:
        return None
    labels = torch.arange(n) % net["classes"]
    if logits.ndim == 4:  # every pixel has a class
        logits = logits.permute(0, 2, 3, 1)
        labels = torch.arange(logits.numel() // net["classes"]) % net["classes"]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, net["classes"]), labels)
    loss.backward()
    out = {f"{mode}/logits": logits.detach().numpy(), f"{mode}/loss": loss.detach().numpy()}
    for name, t in features.items() if mode == "eval" else ():
        out[f"eval/features/{name}"] = rule.gradient_row(t)
    for name, p in model.named_parameters():
        given = torch.zeros_like(p) if p.grad is None else p.grad  # of the mask token
        out[f"{mode}/grad/{ours(name)}"] = rule.gradient_row(given)
    if mode == "train":
        for name, t in model.named_buffers():
            if not name.endswith("num_batches_tracked"):
                out[f"{mode}/buffer/{name}"] = t.numpy()[rule.places(len(t))]
    return out


def kinks(net, mode):
    wide, narrow = [], []
    with torch.no_grad():
        run(net, mode, torch.float64, wide)
        run(net, mode, torch.float32, narrow)
    return rule.count_kinks(wide, narrow)


class DoubleConv(torch.nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(
            i, o, 3, padding=1, bias=False
        ), torch.nn.BatchNorm2d(o)
        self.conv2, self.bn2 = torch.nn.Conv2d(
            o, o, 3, padding=1, bias=False
        ), torch.nn.BatchNorm2d(o)
        self.relu1, self.relu2 = torch.nn.ReLU(), torch.nn.ReLU()

    def forward(self, x):
        return self.relu2(self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x))))))


class UNet(torch.nn.Module):
    """Ronneberger, Fischer & Brox 2015 with batch norm and padding; two levels, width 8."""

    def __init__(self, bilinear):
        super().__init__()
        self.bilinear = bilinear
        self.down0, self.down1, self.down2 = DoubleConv(3, 8), DoubleConv(8, 16), DoubleConv(16, 32)
        up = (
            (lambda i, o: torch.nn.Conv2d(i, o, 1))
            if bilinear
            else (lambda i, o: torch.nn.ConvTranspose2d(i, o, 2, stride=2))
        )
        self.up1, self.merge1, self.up0, self.merge0 = (
            up(32, 16),
            DoubleConv(32, 16),
            up(16, 8),
            DoubleConv(16, 8),
        )
        self.head = torch.nn.Conv2d(8, 5, 1)

    def raised(self, up, x, skip):
        if self.bilinear:
            x = torch.nn.functional.interpolate(
                x, size=skip.shape[2:], mode="bilinear", align_corners=False
            )
        return torch.cat([skip, up(x)], 1)

    def forward(self, x):
        a = self.down0(x)
        b = self.down1(torch.nn.functional.max_pool2d(a, 2))
        c = self.down2(torch.nn.functional.max_pool2d(b, 2))
        return self.head(
            self.merge0(self.raised(self.up0, self.merge1(self.raised(self.up1, c, b)), a))
        )


class Segmenter(torch.nn.Module):
    def __init__(self, bilinear):
        super().__init__()
        self.unet = UNet(bilinear)

    def forward(self, x):
        return self.unet(x)


class Flatten(torch.nn.Module):
    """A linear layer behind a flattened image: (C, H, W) in PyTorch's files."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(3, 6, 3, padding=1), torch.nn.Conv2d(
            6, 8, 3, padding=1
        )
        self.fc1, self.fc2 = torch.nn.Linear(8 * 5 * 5, 12), torch.nn.Linear(12, 7)
        self.relu1, self.relu2, self.relu3 = torch.nn.ReLU(), torch.nn.ReLU(), torch.nn.ReLU()

    def forward(self, x):
        x = torch.nn.functional.max_pool2d(self.relu1(self.conv1(x)), 2)
        x = torch.nn.functional.max_pool2d(self.relu2(self.conv2(x)), 2)
        return self.fc2(self.relu3(self.fc1(torch.flatten(x, 1))))


class Layer(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = (torch.nn.LayerNorm(width, eps=1e-12) for _ in range(2))
        self.attn, self.mlp = torch.nn.Module(), torch.nn.Module()
        self.attn.qkv = torch.nn.Linear(width, 3 * width)
        self.attn.proj = torch.nn.Linear(width, width)
        self.mlp.fc1 = torch.nn.Linear(width, 4 * width)
        self.mlp.fc2 = torch.nn.Linear(4 * width, width)

    def attend(self, x):
        n, t, width = x.shape
        qkv = self.attn.qkv(x).reshape(n, t, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # of each (n, heads, t, width / heads)
        chance = (q @ k.mT / (width // self.heads) ** 0.5).softmax(-1)
        return self.attn.proj((chance @ v).transpose(1, 2).reshape(n, t, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.mlp.fc2(torch.nn.functional.gelu(self.mlp.fc1(self.norm2(x))))


class VisionTransformer(torch.nn.Module):
    """Patches of 16 pixels, 14 x 14 positions, 12 layers."""

    def __init__(self, width, heads, classes):
        super().__init__()
        self.cls_token = torch.nn.Parameter(torch.zeros(1, 1, width))
        self.pos_embed = torch.nn.Parameter(torch.zeros(1, 14 * 14 + 1, width))
        self.patch_embed = torch.nn.Module()
        self.patch_embed.proj = torch.nn.Conv2d(3, width, 16, stride=16)
        self.blocks = torch.nn.ModuleList(Layer(width, heads) for _ in range(12))
        self.norm = torch.nn.LayerNorm(width, eps=1e-12)
        self.head = torch.nn.Linear(width, classes)

    def positions(self, h, w):
        grid = self.pos_embed[:, 1:].reshape(1, 14, 14, -1).permute(0, 3, 1, 2)
        grid = torch.nn.functional.interpolate(
            grid, size=(h, w), mode="bicubic", align_corners=False
        )
        return torch.cat([self.pos_embed[:, :1], grid.flatten(2).mT], 1)

    def forward(self, x):
        x = self.patch_embed.proj(x)
        h, w = x.shape[2:]
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x.flatten(2).mT], 1)
        x = x + self.positions(h, w)
        for layer in self.blocks:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])


def timm_model(*arguments, **options):
    import timm

    return timm.create_model(*arguments, **options)


def dinov2(name):
    from lightly_train._models.dinov2_vit.dinov2_vit_package import DINOV2_VIT_PACKAGE

    model = DINOV2_VIT_PACKAGE.get_model(name, load_weights=False)
    model.head = torch.nn.Linear(model.embed_dim, 10)
    return model


PARTS = (
    "train/logits",
    "train/grad/",
    "train/buffer/",
    "eval/logits",
    "eval/grad/",
    "eval/features/",
)
TV = torchvision.models
TIMM_VIT = "vit_small_patch16_224"
NETS = {
    "resnet18": dict(
        make=lambda: TV.resnet18(num_classes=10),
        batch=2,
        size=36,
        classes=10,
        last="bn2",
        features=("layer4", "map"),
    ),
    "resnet34": dict(
        make=lambda: TV.resnet34(num_classes=10),
        batch=2,
        size=36,
        classes=10,
        last="bn2",
        features=("layer4", "map"),
    ),
    "resnet50": dict(
        make=lambda: TV.resnet50(num_classes=10),
        batch=2,
        size=36,
        classes=10,
        last="bn3",
        features=("layer4", "map"),
    ),
    "unet": dict(make=lambda: Segmenter(False), batch=2, size=24, classes=5, last="none"),
    "unet_bilinear": dict(make=lambda: Segmenter(True), batch=2, size=22, classes=5, last="none"),
    "flatten": dict(make=Flatten, batch=3, size=20, classes=7, last="none"),
    "vit_b_16": dict(
        make=lambda: TV.vit_b_16(num_classes=10),
        batch=1,
        size=224,
        classes=10,
        last="none",
        modes=("eval",),
        features=("encoder", "tokens"),
    ),  # no dropout, no batch norm: training is the same
    "vit_s_16": dict(
        make=lambda: timm_model(TIMM_VIT, num_classes=10),
        batch=1,
        size=224,
        classes=10,
        last="none",
        modes=("eval",),
        names=from_timm,
        features=("norm", "tokens"),
    ),
    "convnext_tiny": dict(
        make=lambda: TV.convnext_tiny(num_classes=10),
        batch=2,
        size=70,
        classes=10,
        last="none",
        modes=("eval",),
        features=("features", "map"),
    ),  # no dropout, no batch norm: training differs by the paths that it drops
    "efficientnet_b0": dict(
        make=lambda: TV.efficientnet_b0(num_classes=10, dropout=0.0, stochastic_depth_prob=0.0),
        batch=2,
        size=70,
        classes=10,
        last="block.3.1",
        features=("features", "map"),
    ),
    "vit_tiny_patch16_224": dict(
        make=lambda: timm_model("vit_tiny_patch16_224", num_classes=10, dynamic_img_size=True),
        batch=2,
        size=64,
        classes=10,
        last="none",
        modes=("eval",),
        features=("norm", "tokens"),
    ),
    "dino_vits16": dict(
        make=lambda: VisionTransformer(384, 6, 10),
        theirs=to_hugging_face,
        batch=2,
        size=64,
        classes=10,
        last="none",
        modes=("eval",),
        features=("norm", "tokens"),
    ),
    "vits14": dict(
        make=lambda: dinov2("vits14"),
        batch=2,
        size=56,
        classes=10,
        last="none",
        modes=("eval",),
        features=("norm", "tokens"),
        registers=4,
    ),
    "vits14-noreg": dict(
        make=lambda: dinov2("vits14-noreg"),
        batch=2,
        size=70,
        classes=10,
        last="none",
        modes=("eval",),
        features=("norm", "tokens"),
    ),
}


def main(names):
    for name in names or NETS:
        net = NETS[name]
        meta = {
            "model": name,
            **{k: str(net[k]) for k in ("batch", "size", "classes", "last")},
            "by": f"torch {torch.__version__}, torchvision {torchvision.__version__}, float64",
        }
        if "names" in net:
            import timm

            meta["by"] += f", timm {timm.__version__} {TIMM_VIT}"
            theirs = net["make"]().state_dict()
            meta["names"] = "".join(f"{net['names'](name)} {name}\n" for name in theirs)
            meta["naming"] = "timm"
        if "theirs" in net:
            own = net["make"]().state_dict()
            meta["names"] = "".join(f"{name} {net['theirs'](name)}\n" for name in own)
            meta["naming"] = "Hugging Face"
        arrays, narrow = {}, {}
        for mode in net.get("modes", ("train", "eval")):
            meta[f"{mode}_kinks"] = str(
                rule.choose_seed(f"{name} {mode}", lambda: kinks(net, mode))
            )
            meta[f"{mode}_seed"] = str(rule.seed)
            arrays.update(run(net, mode, torch.float64))
            narrow.update(run(net, mode, torch.float32))
        for part in PARTS:
            keys = [k for k in arrays if k.startswith(part)]
            d = [(rule.difference(k, narrow[k], arrays[k]), k) for k in keys]
            if d:
                print(
                    name, part, "PyTorch's f32 differs by at most %.2g in %s" % max(d), flush=True
                )
        rule.write(HERE / f"{name}.safetensors", arrays, meta)


if __name__ == "__main__":
    main(sys.argv[1:])
