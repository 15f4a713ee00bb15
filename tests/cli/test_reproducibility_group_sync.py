"""sync_batchnorm: the micro-batches of a group run at once however many lanes were asked for, on
ranks that are processes or threads; resumed in the middle.

usage: test_reproducibility_group_sync.py LEVIN
"""

from reproducibility_case import check, CORES, hashes, main, resume, same, train

SYNC = ["batch_size=30", "wgrad_threads=1", "sync_batchnorm=true"]
RANKS = ((2, "ddp"), (3, "dp"), (4, "ddp"))  # 4 ranks own 2, 2, 1 and 1 micro-batches


def group_sizes():
    want = {}
    for group in ("group=2", "group=6"):
        what = f"sync_batchnorm, {group}"
        first = train(SYNC + [group, "max_steps=6", "lanes=1", "num_workers=0"])
        want[group] = hashes(first)
        same(
            train(SYNC + [group, "max_steps=6", "lanes=4", "num_workers=2"]),
            first,
            f"{what}: 4 lanes",
        )
        stopped = train(SYNC + [group, "max_steps=3", "lanes=2"])
        resume(stopped, "max_steps=6", cores=CORES[:1])
        check(hashes(stopped) == want[group], f"{what}: resumed on one core")
        for devices, strategy in RANKS:
            same(
                train(SYNC + [group, "max_steps=6", f"devices={devices}", f"strategy={strategy}"]),
                first,
                f"{what}: {devices} ranks, {strategy}",
            )
    check(want["group=2"] != want["group=6"], "another group is another run")


def groups_of_one():
    plain, alone = (
        hashes(train(["batch_size=30", "wgrad_threads=1", "max_steps=3", *more]))
        for more in ([], ["sync_batchnorm=true", "group=1"])
    )
    check(plain == alone, "sync_batchnorm with groups of one micro-batch is batch norm")


def default_group():
    run = train(
        [
            "batch_size=15",
            "accumulate_grad_batches=2",
            "wgrad_threads=1",
            "sync_batchnorm=true",
            "max_steps=1",
        ]
    )
    with open(f"{run}/config.yaml") as f:
        check(
            "group: 3" in f.read(),
            "the group is a round of the devices: micro-batches / accumulate_grad_batches",
        )


main(group_sizes, groups_of_one, default_group)
