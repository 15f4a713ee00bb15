"""Stand-ins of Slurm's commands, so that a test has the cluster that it writes down, or none."""

import atexit
import os
import shutil
import tempfile


def program(folder, name, text):
    os.makedirs(folder, exist_ok=True)
    path = f"{folder}/{name}"
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n{text}\n")
    os.chmod(path, 0o755)


def cluster(folder, config, partitions, nodes):
    """scontrol and sinfo that answer with these texts."""
    for name, text in (("config", config), ("partition", partitions), ("nodes", nodes)):
        with open(f"{folder}/{name}.txt", "w", encoding="utf-8") as f:
            f.write(text)
    program(
        folder,
        "scontrol",
        f'for last; do :; done\nwhile IFS= read -r line; do echo "$line"; done <{folder}/$last.txt',
    )
    program(
        folder,
        "sinfo",
        f'while IFS= read -r line; do echo "$line"; done <{folder}/nodes.txt',
    )


def without_slurm():
    """For tests that ask no cluster: what this machine has of Slurm is not asked either."""
    folder = tempfile.mkdtemp(prefix="levin-no-slurm-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    program(folder, "scontrol", "echo scontrol: there is none for tests >&2\nexit 1")
    os.environ["PATH"] = f"{folder}:{os.environ['PATH']}"
