"""Random configurations of `levin pretrain`: methods, networks, views, batches and groups
(random_configs.py draws all else, and the layouts)."""

from random_configs import chance, draw_update, value_of

OPTIMIZERS = {
    "simclr": ("sgd", "adamw", "lars"),
    "dino": ("sgd", "adamw"),
    "dinov2": ("adamw",),
    "distillation": ("adamw", "lars"),
    "distillationv1": ("adamw", "lars"),
}


def draw_method(r, teacher):
    """Keys of the method, and of its views."""
    method = r.choice(list(OPTIMIZERS))
    keys = [f"method={method}"]
    if method == "simclr":
        keys += ["method_args.hidden_dim=16", f"method_args.output_dim={r.choice([8, 12])}"]
        keys += [f"method_args.temperature={r.choice([0.1, 0.5])}"]
        keys += ["method_args.num_layers=3"] if chance(r, 0.3) else []
    elif method == "dino":
        keys += ["method_args.hidden_dim=16", "method_args.bottleneck_dim=8"]
        keys += ["method_args.output_dim=24"]
        keys += ["method_args.batch_norm=true"] if chance(r, 0.3) else []
        keys += ["method_args.norm_last_layer=false"] if chance(r, 0.3) else []
        keys += ["method_args.student_freeze_last_layer_steps=2"] if chance(r, 0.5) else []
        keys += r.choice(
            [
                ["transform_args.local_view=null"],
                [
                    "transform_args.local_view.view_size=[8,8]",
                    "transform_args.local_view.num_views=2",
                ],
            ]
        )
    elif method == "dinov2":
        keys += ["method_args.hidden_dim=16", "method_args.output_dim=24"]
        keys += ["method_args.dino_bottleneck_dim=8", "transform_args.local_view.view_size=[28,28]"]
        keys += [f"transform_args.local_view.num_views={r.choice([0, 2])}"]
        keys += ["method_args.center_method=sinkhorn_knopp"] if chance(r, 0.4) else []
        keys += ["method_args.ibot_separate_head=true"] if chance(r, 0.3) else []
        keys += [f"method_args.mask_probability={r.choice([0, 0.3, 1])}"] if chance(r, 0.5) else []
        keys += ["method_args.student_freeze_backbone_steps=2"] if chance(r, 0.3) else []
    else:
        keys += ["method_args.teacher=cnn", f"method_args.teacher_weights={teacher}"]
        keys += [f"method_args.queue_size={r.choice([5, 16, 30])}"]
    return keys


def draw_views(r):
    keys = []
    for key, values in (
        ("transform_args.random_flip.horizontal_prob", [0, 1]),
        ("transform_args.gaussian_blur.prob", [0, 1]),
        ("transform_args.color_jitter.prob", [0, 1]),
        ("transform_args.random_gray_scale", [0.5]),
        ("transform_args.random_resize.min_scale", [0.4]),
    ):
        if chance(r, 0.3):
            keys += [f"{key}={r.choice(values)}"]
    return keys


def draw_batch(r, method):
    """A group must be in flight at once, on all ranks together."""
    micro_batches = r.choice([1, 2, 3, 4, 4, 6])
    sizes = [d for d in range(1, micro_batches + 1) if micro_batches % d == 0]
    group = micro_batches if method.startswith("distillation") else r.choice(sizes)
    least = 2 * micro_batches  # a batch norm needs two images
    return [
        f"batch_size={r.randint(least, least + 10)}",
        f"micro_batches={micro_batches}",
        f"group={group}",
        f"wgrad_threads={r.choice([1, 1, 2])}",
        f"eval_batch_size={r.randint(3, 40)}",
        *([] if method == "dinov2" else [f"sync_batchnorm={r.choice(['true', 'true', 'false'])}"]),
    ]


def draw_own_update(r, method):
    """What is drawn for all recipes, with an optimizer that the method trains with."""
    while True:
        keys = draw_update(r)
        if value_of(keys, "optim") in OPTIMIZERS[method]:
            # SimCLR's lars has none by itself, which a group or a schedule may move
            lars = value_of(keys, "optim") == "lars"
            keys += ["optim.momentum=0.9"] if lars and method == "simclr" else []
            # the heads' names, and decay by the method's own rule
            return [a for a in keys if not a.startswith(("optim.decay_norm_bias=", "optim.layer"))]


def draw_pretrain(r, teacher):
    """The arguments of one configuration; teacher: the path of an exported model=cnn."""
    keys = draw_method(r, teacher)
    method = value_of(keys, "method")
    masks = method == "dinov2"
    size, model = r.choice([42, 56] if masks else [12, 16]), "dinov2/_vittest14" if masks else "cnn"
    return [
        "pretrain",
        *keys,
        "data=builtin:shapes",
        f"data.count={r.randint(40, 90)}",
        f"data.seed={r.randint(0, 9)}",
        f"image_size={size}",
        f"model={model}",
        *([f"embed_dim={r.choice([8, 20])}"] if chance(r, 0.3) and not masks else []),
        f"precision={r.choice(['32-true', '32-true', '16-mixed'])}",
        *draw_views(r),
        *draw_batch(r, method),
        *draw_own_update(r, method),
        f"seed={r.randint(0, 99)}",
        f"max_steps={r.randint(4, 7)}",
    ]
