"""Random configurations of `levin train`, and random layouts to run them on.

A configuration is drawn from everything that changes results; a layout from everything that may
not. Both are lists of arguments: that of a configuration begins with the recipe, all else is
key=value. What the machine or the layout would choose (micro
batches, wgrad_threads, eval_batch_size, and group where batch norm uses it) is always given, so
that equal arguments mean equal results.
"""

import os
import random

from ucx import HAS_UCX

# Each configuration runs on all of them.
KINDS = ("single", "threads", "shm", "messages")
NODES = "nodes"  # and on ranks of two nodes, where it has several and there can be such nodes
MESSAGES = ("net", "ucx") if HAS_UCX else ("net",)
STOPS = ("SIGTERM", "SIGKILL", "max_steps")
SLOW = ((), (), ("LEVIN_SIM_KERNEL_US=20",), ("LEVIN_SIM_COPY_GBPS=0.1",))


SCHEDULES = (
    "constant",
    "step",
    "multistep",
    "cosine",
    "linear",
    "exponential",
    "polynomial",
    "restarts",
    "onecycle",
    "plateau",
)


def chance(r, p):
    return r.random() < p


def draw_data(r, photos):
    if os.path.isdir(photos) and chance(r, 0.15):
        return [f"data={photos}", f"image_size={r.choice([16, 24])}", "val_split=0.6"]
    return [
        "data=builtin:shapes",
        f"data.count={r.randint(40, 200)}",
        f"data.classes={r.randint(2, 6)}",
        f"data.seed={r.randint(0, 9)}",
        f"image_size={r.choice([12, 16, 20])}",
        f"val_split={r.choice([0, 0.2, 0.35])}",
    ]


def draw_optimizer(r):
    name = r.choice(["sgd", "adam", "adamw", "lars", "rmsprop", "lion", "lamb", "adafactor"])
    rates = [1e-3, 1e-2, 0.1] if name in ("sgd", "lars") else [3e-4, 3e-3]
    keys = [
        f"optim={name}",
        f"optim.lr={r.choice(rates)}",
        f"optim.weight_decay={r.choice([0, 1e-4, 0.05])}",
        f"optim.decay_norm_bias={r.choice(['true', 'false'])}",
    ]
    if name == "sgd" and chance(r, 0.5):
        keys += ["optim.momentum=0.8", f"optim.nesterov={r.choice(['true', 'false'])}"]
    elif name == "sgd" and chance(r, 0.4):
        keys += r.choice([["optim.momentum=0"], ["optim.dampening=0.1"]])
    if name in ("adam", "adamw") and chance(r, 0.3):
        keys += ["optim.betas=[0.8,0.99]", "optim.eps=1e-6"]
    if name == "rmsprop":
        keys += r.choice([[], ["optim.centered=true"], ["optim.momentum=0.8", "optim.alpha=0.9"]])
    if name == "adafactor":
        keys += r.choice([[], ["optim.beta2_decay=-0.5", "optim.d=2"], ["optim.eps2=0.1"]])
    if chance(r, 0.2):
        keys += ["optim.weight_decay=0.01", "optim.weight_decay_end=0.1"]
    if chance(r, 0.5):
        keys += [f"gradient_clip_val={r.choice([0.1, 1, 5])}"]
    return with_own_numbers(keys + draw_groups(r))


def draw_groups(r):
    """Parameters that are treated in their own way, by names that every network has."""
    keys = []
    for key, values in (
        ("freeze_until", ["[*.bias=2]", "[*.bias=1epochs]"]),
        ("lr_zero_until", ["[*.weight=2]", "[*.bias=1epochs]"]),
        ("optim.groups", ["[*.bias:lr=0.01:weight_decay=0]"]),
        ("optim.layer_decay", [0.7]),
        ("lr_scale", ["[*.bias=3]"]),
    ):
        if chance(r, 0.15):
            keys += [f"{key}={r.choice(values)}"]
    return keys


def with_own_numbers(optimizer):
    """A group's numbers of the optimizer, where it has them."""
    name = value_of(optimizer, "optim")
    if name in ("adam", "adamw", "lion", "lamb"):
        own = ":beta2=0.95"
    else:
        own = ":momentum=0.5" if name != "adafactor" and has_momentum(optimizer) else ""
    return [a.replace("lr=0.01:", f"lr=0.01{own}:") for a in optimizer]


def has_momentum(optimizer):
    momentum, name = value_of(optimizer, "optim.momentum"), value_of(optimizer, "optim")
    return momentum != "0" if momentum else name not in ("rmsprop", "adafactor")


def draw_update(r):
    optimizer = draw_optimizer(r)
    return optimizer + draw_schedule(r, optimizer)


# Keys of a schedule, and those that it has only now and then.
SCHEDULES = {
    "constant": ([], []),
    "step": (["step_size=2", "interval=step", "gamma=0.5"], []),
    "multistep": (["milestones=[2,5]", "interval=step"], []),
    "exponential": (["interval=step", "gamma=0.9"], []),
    "restarts": (["interval=step", "period=2"], ["period_factor=2"]),
    "cosine": ([], ["end_factor=0.1"]),
    "linear": ([], ["end_factor=0.1"]),
    "polynomial": ([], ["power=2"]),
    "onecycle": ([], ["anneal=linear", "three_phase=true"]),
    "plateau": (["monitor=train/loss", "patience=0"], ["threshold=0.2", "cooldown=1"]),
}


def draw_schedule(r, optimizer):
    name = r.choice(list(SCHEDULES))
    always, sometimes = SCHEDULES[name]
    keys = [f"scheduler={name}", *(f"scheduler.{key}" for key in always)]
    keys += [f"scheduler.{key}" for key in sometimes if chance(r, 0.5)]
    own = any(":momentum=" in a for a in optimizer)  # of a group
    if name == "onecycle" and (own or not has_momentum(optimizer)):  # which it would move
        keys += ["scheduler.cycle_momentum=false"]
    if name != "onecycle" and chance(r, 0.4):
        keys += [f"scheduler.warmup_steps={r.randint(1, 2)}"]
    return keys


def draw_model(r, bf16):
    model = r.choices(["cnn", "mlp", "resnet18"], [6, 3, 1])[0]
    keys = [f"model={model}"]
    if chance(r, 0.5):
        keys += [f"model.dropout={r.choice([0, 0.1, 0.5])}"]
    if chance(r, 0.3):
        keys += ["ema.decay=0.9", f"ema.warmup={r.choice(['true', 'false'])}"]
        keys += ["use_ema=false"] if chance(r, 0.2) else []
    if model == "cnn" and chance(r, 0.3):
        keys += [f"freeze={r.choice(['[conv1]', '[conv1,norm1]', '[head.bias]'])}"]
    if model == "resnet18" and chance(r, 0.3):
        keys += ["freeze=[conv1,layer1.*]"]
    precisions = ["32-true", "32-true", "16-mixed"] + (["bf16-mixed", "bf16-true"] if bf16 else [])
    return keys + [f"precision={r.choice(precisions)}"]


def draw_augmentation(r):
    keys = []
    for key, values in (
        ("augment.crop", ["true", "false"]),
        ("augment.hflip", [0, 0.5]),
        ("augment.vflip", [0.5]),
        ("augment.brightness", [0.3]),
        ("augment.contrast", [0.3]),
        ("augment.saturation", [0.4]),
        ("augment.hue", [0.1]),
        ("augment.grey", [0.2]),
        ("augment.blur", [0.3]),
        ("augment.solarize", [0.3]),
        ("augment.mixup_alpha", [0.4]),
        ("augment.cutmix_alpha", [1]),
    ):
        if chance(r, 0.25):
            keys += [f"{key}={r.choice(values)}"]
    return keys


def draw_loss(r):
    keys = []
    for key, value in (
        ("label_smoothing", 0.1),
        ("class_weights", "auto"),
        ("sampler", "balanced"),
    ):
        if chance(r, 0.2):
            keys += [f"{key}={value}"]
    return keys


def draw_batch(r):
    micro_batches, accumulate = r.choice([1, 2, 2, 3, 4, 4, 5, 6, 7, 8]), r.choice([1, 1, 2])
    return [
        f"batch_size={max(r.randint(4, 24), -(-micro_batches // accumulate))}",
        f"accumulate_grad_batches={accumulate}",
        f"micro_batches={micro_batches}",
        f"wgrad_threads={r.choice([1, 1, 2])}",
        f"eval_batch_size={r.randint(3, 40)}",
        f"drop_last={'true' if chance(r, 0.15) else 'false'}",
    ]


def draw_group(r, micro_batches):
    """Not all micro-batches where they can be divided: several ranks need several groups."""
    sizes = [d for d in range(1, micro_batches + 1) if micro_batches % d == 0]
    return r.choice(sizes[:-1] or sizes)


def draw_loop(r):
    """When it is validated, and parts of the data."""
    keys = []
    for key, values in (
        ("val_check_interval", [1, 0.5]),
        ("check_val_every_n_epoch", [2]),
        ("limit_train_batches", [1, 2, 3]),
        ("limit_val_batches", [1, 2]),
        ("num_sanity_val_steps", [0, -1]),
        ("checkpoint.save_top_k", [1, -1]),
        ("checkpoint.every_n_epochs", [2]),
    ):
        if chance(r, 0.15):
            keys += [f"{key}={r.choice(values)}"]
    return keys


def draw_classify(r, bf16, photos):
    batch, model = draw_batch(r), draw_model(r, bf16)
    steps = r.randint(4, 9)
    if "model=resnet18" in model:  # its last batch norm needs more than one value of each channel
        data = [*draw_data(r, ""), "data.count=60", "image_size=40"]
        steps = 4
    else:
        data = draw_data(r, photos)
    group = []
    if "model=mlp" not in model and chance(r, 0.3):  # which has no batch norm
        group = [f"group={draw_group(r, number_of(batch, 'micro_batches'))}", "sync_batchnorm=true"]
    return [
        "classify",
        *data,
        *model,
        *batch,
        *group,
        *draw_update(r),
        *draw_augmentation(r),
        *draw_loss(r),
        *draw_loop(r),
        f"seed={r.randint(0, 99)}",
        f"max_steps={steps}",
    ]


# Of two_phases.c: optimizers and more of each phase.
PHASES = (
    "[critic:optimizer=adam:beta1=0:clip=0.5,generator:optimizer=rmsprop:momentum=0.5]",
    "[generator:optimizer=adafactor:every=2,critic:optimizer=lion:lr=0.0003]",
    "[critic:optimizer=sgd:momentum=0:lr=0.01:scheduler=constant]",
    "[critic:optimizer=lamb,generator:optimizer=lars:nesterov=true]",
    "[generator:optimizer=rmsprop:centered=true:alpha=0.9]",
)


def draw_phases(r, update):
    """What a phase's optimizer may lack is not drawn: the numbers of a group, a momentum that
    moves."""
    keys = [a for a in update if not a.startswith(("optim.groups=", "freeze_until="))]
    if "scheduler=onecycle" in keys and "scheduler.cycle_momentum=false" not in keys:
        keys += ["scheduler.cycle_momentum=false"]
    return [*keys, f"optim.phases={r.choice(PHASES)}"]


def draw_shared(r, recipes):
    """A recipe whose network has queues, teachers, groups, or phases."""
    recipe, own = r.choice(sorted(recipes.items()))
    batch = [*draw_batch(r), "drop_last=true"]
    group = [f"group={draw_group(r, number_of(batch, 'micro_batches'))}"]
    update = draw_update(r)
    if "two_phases" in recipe:
        group, update = [], draw_phases(r, update)
    return [
        recipe,
        *own,
        *batch,
        *group,
        # their networks have no blocks
        *(key for key in update if not key.startswith("optim.layer_decay=")),
        f"precision={r.choice(['32-true', '32-true', '16-mixed'])}",
        f"seed={r.randint(0, 99)}",
        f"max_steps={r.randint(4, 6)}",
    ]


def draw_config(r, bf16, photos, recipes):
    """The arguments of one configuration. recipes: of shared objects, with arguments of each."""
    if recipes and chance(r, 0.25):
        return draw_shared(r, recipes)
    return draw_classify(r, bf16, photos)


def value_of(arguments, key):
    """The last one counts; None: the key is not given."""
    values = [a.split("=", 1)[1] for a in arguments if a.startswith(f"{key}=")]
    return values[-1] if values else None


def number_of(arguments, key, otherwise=0):
    value = value_of(arguments, key)
    return otherwise if value is None else int(value)


def with_value(arguments, key, value):
    return [f"{key}={value}" if a.startswith(f"{key}=") else a for a in arguments]


# ---- layouts ----


class Layout:
    """Where a run computes: arguments, whether it is held on one core, and the environment of its
    simulated accelerators. Slow kernels or copies make visible what does not wait for them. nodes:
    of each rank the number of its node, when there are several."""

    def __init__(self, keys, one_core=False, slow=(), nodes=()):
        self.keys, self.one_core, self.slow, self.nodes = keys, one_core, slow, nodes
        self.sim = "accelerator=sim" in keys

    def with_keys(self, keys):
        return Layout(keys, self.one_core, self.slow, self.nodes)

    def ranks(self):
        return len(self.nodes) or number_of(self.keys, "devices")


class Stop:
    """The end of a run in its middle: by a signal once step `after` is logged, to the command or to
    one of its ranks; or by max_steps."""

    def __init__(self, how, after, victim=None):
        self.how, self.after, self.victim = how, after, victim


class Trial:
    """A configuration's way over one layout, or over two with a stop between them."""

    def __init__(self, layouts, stop=None):
        self.layouts, self.stop = layouts, stop


def worlds(config):
    """Numbers of ranks that can run it: a group lies within a rank, or, of `pretrain`, is all there
    is."""
    micro_batches, group = number_of(config, "micro_batches"), number_of(config, "group")
    if config[0] == "pretrain" and group == micro_batches:
        group = 0
    n = micro_batches // group if group else micro_batches
    return [w for w in range(1, n + 1) if not group or n % w == 0]


def draw_strategy(r, config, accelerator):
    """Of processes. The state of adafactor is not divided, and a device's neither."""
    whole = accelerator == "sim" or any("adafactor" in a for a in config)
    return "ddp" if whole or chance(r, 0.5) else "sharded"


def draw_layout(r, kind, config):
    ranks = [1] if kind == "single" else worlds(config)[1:] or [1]
    devices = r.choice(ranks)
    accelerator = r.choice(["cpu", "cpu", "sim"])
    processes = draw_strategy(r, config, accelerator)
    keys = [
        f"strategy={'single' if devices == 1 else 'dp' if kind == 'threads' else processes}",
        f"devices={devices}",
        f"accelerator={accelerator}",
        f"num_workers={r.randint(0, 3)}",
    ]
    if devices > 1:
        keys += [f"bucket_bytes={r.choice([16384, 65536, 4194304])}"]
        transport = r.choice(MESSAGES) if kind == "messages" else kind
        keys += [] if kind == "threads" else [f"transport={transport}"]
        if chance(r, 0.4):
            keys += [f"balance_ranks={[r.randint(1, 5) for _ in range(devices)]}".replace(" ", "")]
    if kind == "single" or chance(r, 0.4):
        keys += [f"lanes={r.randint(1, 4)}"]
    slow = r.choice(SLOW) if value_of(config, "model") != "resnet18" else ()
    return Layout(keys, chance(r, 0.3), slow)


def draw_nodes(r, config):
    """Ranks of two nodes: in two levels, or over messages alone where a node's are not neighbours
    or the transport is one of messages. None: the configuration is for one rank."""
    ranks = worlds(config)[1:]
    if not ranks:
        return None
    n = r.choice(ranks)
    first = r.randint(1, n - 1)
    nodes = [0] * first + [1] * (n - first)
    if chance(r, 0.25):
        nodes = [rank % 2 for rank in range(n)]
    accelerator = r.choice(["cpu", "sim"])
    keys = [
        f"strategy={draw_strategy(r, config, accelerator)}",
        f"accelerator={accelerator}",
        f"num_workers={r.randint(0, 3)}",
        f"bucket_bytes={r.choice([16384, 65536, 4194304])}",
        f"lanes={r.randint(1, 3)}",
    ]
    if chance(r, 0.5):
        keys += [f"transport={r.choice(MESSAGES)}"]
    return Layout(keys, chance(r, 0.3), nodes=nodes)


def draw_nodes_trial(r, config):
    """Half of them stop by max_steps and go on in any layout."""
    layout = draw_nodes(r, config)
    if layout is None or chance(r, 0.5) or not may_stop_early(config):
        return [Trial([layout])] if layout else []
    stop = Stop("max_steps", r.randint(1, number_of(config, "max_steps") // 2))
    other = draw_nodes(r, config) if chance(r, 0.5) else draw_layout(r, r.choice(KINDS), config)
    return [Trial([layout, other], stop)]


def may_stop_early(config):
    """By max_steps: some schedules follow from it, and those of teachers and pretraining."""
    to_the_end = ("cosine", "linear", "polynomial", "onecycle")
    return (
        value_of(config, "scheduler") not in to_the_end
        and value_of(config, "optim.weight_decay_end") is None
        and "student" not in config[0]
        and config[0] != "pretrain"
    )


def draw_trials(r, seed, config):
    """Every kind of layout, two of them with a stop; which, and how, turns with the seed."""
    trials = []
    for i, kind in enumerate(KINDS):
        layouts = [draw_layout(r, kind, config)]
        stop = None
        if (seed + i) % 2 == 0:
            how = STOPS[(seed + i // 2) % len(STOPS)]
            how = how if how != "max_steps" or may_stop_early(config) else "SIGTERM"
            after = r.randint(1, number_of(config, "max_steps") // 2)
            ranks = number_of(layouts[0].keys, "devices")
            victim = r.randrange(ranks) if kind in ("shm", "messages") and ranks > 1 else None
            stop = Stop(how, after, victim if chance(r, 0.7) else None)
            if how == "SIGKILL":
                layouts[0].keys.append(f"checkpoint.every_n_steps={r.randint(1, 3)}")
            layouts.append(draw_layout(r, r.choice(KINDS), config))
        trials.append(Trial(layouts, stop))
    if not any(layout.sim for t in trials for layout in t.layouts):
        last = trials[seed % len(KINDS)].layouts
        keys = with_value(last[-1].keys, "accelerator", "sim")
        if "strategy=sharded" in keys:
            keys = with_value(keys, "strategy", "ddp")
        last[-1] = last[-1].with_keys(keys)
    return trials


def draw(seed, draw_one, several_nodes):
    """(config, trials) of a seed, whatever was drawn before; that on nodes is the last. draw_one
    gives the arguments of a configuration, of the generator of random numbers."""
    r = random.Random(seed)
    config = draw_one(r)
    trials = draw_trials(r, seed, config)
    if several_nodes:
        trials += draw_nodes_trial(random.Random(f"{seed}, nodes"), config)
    return config, trials
