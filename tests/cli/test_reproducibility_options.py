"""One hash for all lanes, cores and resumes, with the options that touch numbers: validation,
spellings of the batch size, groups of parameters, optimizers, averages, mixtures, random effects.

usage: test_reproducibility_options.py LEVIN
"""

import json

from reproducibility_lines import reproducibility_lines
from reproducibility_case import (
    check,
    COMMON,
    CORES,
    DATA,
    hashes,
    levin,
    main,
    resume,
    same,
    train,
)


def validation():
    """Metrics of validation, the choice of the best epoch and predictions do not depend on the
    number of lanes either."""
    first, table = None, None
    for lanes in (1, 2, 3):
        run = train(
            [
                "val_split=0.2",
                "wgrad_threads=2",
                "batch_size=32",
                "max_epochs=3",
                "eval_batch_size=8",
                f"lanes={lanes}",
            ]
        )
        if first is not None:
            same(run, first, f"{lanes} lanes with validation")
            check(
                hashes(run, "best") == hashes(first, "best"), f"{lanes} lanes with validation: best"
            )
        first = first or run
        rows = [row for _, row in reproducibility_lines(run, only="val/")]
        check(
            [("val/loss" in row, "val/acc" in row) for row in rows] == 3 * [(True, True)],
            "every epoch is validated",
        )
        output = f"{run}/predictions.csv"
        levin(
            [
                "predict",
                f"model={run}",
                *[a for a in DATA if a != "data.classes=10"],
                f"output={output}",
                f"lanes={lanes}",
                "eval_batch_size=8",
            ]
        )
        with open(output) as f:
            text = f.read()
        table = table or text
        check(text == table and text.count("\n") == 342, f"{lanes} lanes predict the same table")


def spellings():
    a = train(["batch_size=30", "micro_batches=6", "wgrad_threads=1", "max_steps=4"])
    b = train(
        ["batch_size_per_device=5", "accumulate_grad_batches=6", "wgrad_threads=1", "max_steps=4"],
        common=[a for a in COMMON if a != "micro_batches=6"],
    )
    check(
        hashes(a) == hashes(b),
        "batch_size=30 micro_batches=6 is batch_size_per_device=5 accumulate_grad_batches=6",
    )


def groups():
    """LARS, parameters of different rates, frozen ones, an average of the weights, resumed in the
    middle."""
    arguments = [
        "batch_size=30",
        "wgrad_threads=1",
        "optim=lars",
        "optim.lr=1",
        "optim.nesterov=true",
        "optim.decay_norm_bias=false",
        "freeze=[conv1,norm2.bias]",
        "lr_scale=[head=10,conv3=0.1]",
        "optim.groups=[head:lr=0.05:weight_decay=0.03:momentum=0.5]",
        "optim.layer_decay=0.8",
        "freeze_until=[conv2=4]",
        "ema.decay=0.9",
        "scheduler=step",
        "scheduler.interval=step",
        "scheduler.step_size=2",
        "scheduler.warmup_steps=2",
    ]
    first = train(arguments + ["max_steps=6", "lanes=1"])
    same(train(arguments + ["max_steps=6", "lanes=3"]), first, "groups and averages: 3 lanes")
    stopped = train(arguments + ["max_steps=3", "lanes=2"])
    resume(stopped, "max_steps=6", cores=CORES[:1])
    check(hashes(stopped) == hashes(first), "groups and averages: resumed on one core")
    with open(f"{stopped}/metrics.jsonl") as f:
        times = [json.loads(line)["time_s"] for line in f]
    check(times == sorted(times), "time_s goes on after resuming")


def schedules():
    """Rates, momentum and weight decay that move with the step, and a plateau, whose state is in
    checkpoints; resumed in the middle."""
    moving = [
        "batch_size=30",
        "wgrad_threads=1",
        "optim=adamw",
        "scheduler=onecycle",
        "optim.weight_decay=0.01",
        "optim.weight_decay_end=0.4",
    ]
    plateau = [
        "batch_size=60",
        "wgrad_threads=1",
        "scheduler=plateau",
        "scheduler.monitor=train/loss",
        "scheduler.patience=0",
        "scheduler.threshold=0.9",
        "scheduler.factor=0.5",
    ]
    first = train(moving + ["max_steps=6", "lanes=1"])
    same(train(moving + ["max_steps=6", "lanes=3"]), first, "one cycle: 3 lanes")
    for key in ("scheduler.cycle_momentum=false", "optim.weight_decay_schedule=linear"):
        other = train(moving + ["max_steps=6", key])
        check(hashes(other) != hashes(first), f"{key} changes the weights")
    first = train(plateau + ["max_epochs=5", "lanes=1"])
    stopped = train(plateau + ["max_epochs=3", "lanes=2"])
    resume(stopped, "max_epochs=5", cores=CORES[:1])
    check(hashes(stopped) == hashes(first), "plateau: resumed on one core")
    with open(f"{first}/metrics.jsonl") as f:
        rates = [row["lr"] for row in map(json.loads, f) if "lr" in row]
    check(rates[-1] < rates[0], "the plateau lowers the rate")


OPTIMIZERS = {
    "adafactor": ["optim.lr=0.05", "optim.weight_decay=0.1", "gradient_clip_val=1"],
    "rmsprop": ["optim.centered=true", "optim.momentum=0.9", "optim.lr=0.002"],
    "lamb": ["optim.lr=0.02", "optim.weight_decay=0.1", "optim.decay_norm_bias=false"],
    "lion": [
        "optim.lr=0.001",
        "optim.weight_decay=0.1",
        "gradient_clip_val=0.01",
        "gradient_clip_algorithm=value",
    ],
}


def optimizers():
    """Of each: lanes, frozen parameters and ones of other rates, resumed in the middle."""
    for name, keys in OPTIMIZERS.items():
        arguments = ["batch_size=30", "wgrad_threads=1", f"optim={name}", *keys]
        arguments += ["freeze=[norm2.bias]", "lr_scale=[head=3]"]
        first = train(arguments + ["max_steps=4", "lanes=1"])
        same(train(arguments + ["max_steps=4", "lanes=3"]), first, f"{name}: 3 lanes")
        stopped = train(arguments + ["max_steps=2", "lanes=2"])
        resume(stopped, "max_steps=4", cores=CORES[:1])
        check(hashes(stopped) == hashes(first), f"{name}: resumed on one core")


def mixtures():
    """mixup and CutMix within micro-batches; a weighted loss, samples drawn again; blur, grey,
    solarize by any thread; resumed in the middle."""
    arguments = [
        "batch_size=32",
        "wgrad_threads=1",
        "mixup_alpha=0.4",
        "cutmix_alpha=1",
        "augment.blur=0.5",
        "augment.grey=0.3",
        "augment.solarize=0.3",
        "augment.jitter=0.8",
        "class_weights=auto",
        "label_smoothing=0.1",
        "sampler=balanced",
    ]
    first = train(arguments + ["max_steps=6", "lanes=1", "num_workers=0"])
    same(
        train(arguments + ["max_steps=6", "lanes=3", "num_workers=3"]),
        first,
        "mixup, CutMix, blur: 3 lanes, 3 workers",
    )
    stopped = train(arguments + ["max_steps=3", "lanes=2"])
    resume(stopped, "max_steps=6", cores=CORES[:1])
    check(hashes(stopped) == hashes(first), "mixup, CutMix, blur: resumed on one core")


main(validation, spellings, groups, schedules, optimizers, mixtures, turns=3)
