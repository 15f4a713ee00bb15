"""The processes of a run of several ranks, found by the run directory among their words."""

import fcntl
import json
import os

IDENTITY = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CUDA_VISIBLE_DEVICES",
)


def drop_identity():
    """The tests' own surroundings must not count: a Slurm step, torchrun, simulated devices."""
    for name in list(os.environ):
        if name in IDENTITY or name.startswith(
            ("LEVIN_SIM_", "LEVIN_RANK", "LEVIN_WORLD", "LEVIN_LOCAL", "SLURM_", "OMPI_", "PMI")
        ):
            del os.environ[name]


def of_process(pid, what):
    try:
        with open(f"/proc/{pid}/{what}", "rb") as f:
            return f.read().split(b"\0")
    except OSError:
        return []


def thread_names(pid):
    """Of those that still run."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return []
    return [
        name.decode().strip() for task in tasks for name in of_process(pid, f"task/{task}/comm")
    ]


def children(out):
    """The processes of the run, its launcher too; those that have ended and only wait to be
    collected do not count."""
    argument = f"out={out}".encode()
    return [
        int(pid)
        for pid in os.listdir("/proc")
        if pid.isdigit() and argument in of_process(pid, "cmdline")
    ]


def is_held(out):
    """Has a process the run directory? One that dies loses its command line a moment before its
    lock."""
    fd = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def rank_pid(out, rank):
    """None: it is not there (yet)."""
    mine = f"LEVIN_RANK={rank}".encode()
    return next((pid for pid in children(out) if mine in of_process(pid, "environ")), None)


def reached(checkpoint):
    """The step of a checkpoint, read without levin; None: there is none."""
    try:
        with open(checkpoint, "rb") as f:
            return int(
                json.loads(f.read(int.from_bytes(f.read(8), "little")))["__metadata__"][
                    "levin.step"
                ]
            )
    except FileNotFoundError:
        return None


def is_whole(safetensors):
    """Does the content end where its header puts the last tensor's end?"""
    n = int.from_bytes(safetensors[:8], "little")
    try:
        head = json.loads(safetensors[8 : 8 + n])
    except ValueError:
        return False
    ends = [v["data_offsets"][1] for name, v in head.items() if name != "__metadata__"]
    return len(safetensors) == 8 + n + max(ends)


def being_written(out):
    """Checkpoints that a process of the run has open, without a name or under a temporary one."""
    found, folder = [], f"{os.path.realpath(out)}/checkpoints/"
    for pid in children(out):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        found += [link for link in links if link.startswith(folder)]
    return found
