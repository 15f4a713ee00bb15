"""How busy other programs keep the machine while a test waits: a bound of the specification in
seconds is for a machine that runs nothing else, and their share of the cores is added to it."""

import os
import threading

EVERY_S = 0.05


def descendants(of):
    """Processes that `of` has started, and those that they have started."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", "rb") as f:
                parents[int(pid)] = int(f.read().rsplit(b")", 1)[1].split()[1])
        except OSError:
            pass
    found, new = set(), {of}
    while new:
        found |= new
        new = {pid for pid, parent in parents.items() if parent in new} - found
    return found


def runnable(pids):
    """Their threads that run or wait for a core."""
    count = 0
    for pid in pids:
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/stat", "rb") as f:
                    count += f.read().rsplit(b")", 1)[1].split()[0] == b"R"
        except OSError:
            pass
    return count


class Neighbours:
    """with Neighbours() as n: wait; then n.slowdown(): 1 on a machine of our own."""

    def __init__(self):
        self.ours, self.samples = set(), []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def watch(self):
        while True:
            self.ours |= descendants(os.getpid())  # also those whose parent has ended since
            with open("/proc/loadavg", encoding="ascii") as f:
                everything = int(f.read().split()[3].split("/")[0])
            self.samples.append(max(0, everything - runnable(self.ours)))
            if self.over.wait(EVERY_S):
                return

    def slowdown(self):
        mean = sum(self.samples) / len(self.samples)
        return 1 + mean / len(os.sched_getaffinity(0))
