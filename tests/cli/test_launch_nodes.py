#!/usr/bin/env python3
"""`levin launch --nnodes 2` on two nodes (UTS namespaces): a launcher on each, the same bits as one
rank, and what is wrong named on every node that can name it.

usage: test_launch_nodes.py LEVIN
"""

import os
import shutil
import signal
import subprocess
import time
import unittest

from case import LEVIN, OK, USAGE, Case, main
from node_processes import ENTER, end_all, free_port, missing

TIMEOUT = 75
TRAIN = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=60",
    "image_size=16",
    "model=mlp",
    "batch_size=12",
    "micro_batches=6",
    "wgrad_threads=1",
    "eval_batch_size=12",
    "group=6",
    "max_steps=4",
]


class Nodes(Case):
    @classmethod
    def setUpClass(cls):
        if missing():
            raise unittest.SkipTest(missing())
        super().setUpClass()

    def on_nodes(self, *launches, wait_s=10):
        """Options of the launchers, from node 0 on. Returns code and output of each."""
        return end_all(self.start(*launches, wait_s=wait_s))

    def start(self, *launches, wait_s=10, more=((), ())):
        """more: of each node the arguments behind those of the program."""
        port, started = free_port(), []
        for node, options in launches:
            command = [LEVIN, "launch", "--master-addr", "127.0.0.1", "--master-port", str(port)]
            command += [*options, "--run-dir", self.out, "--", LEVIN, *TRAIN, f"out={self.out}"]
            command += more[node]
            started.append(
                subprocess.Popen(
                    ["unshare", "--uts", "sh", "-c", ENTER, f"node{node}", *command],
                    env={
                        **os.environ,
                        "LEVIN_RDZV_TIMEOUT": str(wait_s),
                        "LEVIN_TOKEN": "of a test",
                    },
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
            )
        return started

    def test_the_same_bits(self):
        alone = f"{self.dir}/alone"
        self.levin([*TRAIN, f"out={alone}"], OK)
        ended = self.on_nodes(
            *((k, ["--nnodes=2", f"--node-rank={k}", "--nproc=2"]) for k in (0, 1))
        )
        self.assertEqual([code for code, _ in ended], [0, 0], ended)
        self.assertIn("transport shm+net: 4 ranks on 2 nodes", ended[0][1])
        self.assertEqual(self.hashes(), self.hashes(alone))

    def test_others_numbers(self):
        for first, second in (
            (
                ["--nnodes=2", "--node-rank=0", "--nproc=2"],
                ["--nnodes=3", "--node-rank=1", "--nproc=2"],
            ),
            (
                ["--nnodes=2", "--node-rank=0", "--nproc=1"],
                ["--nnodes=2", "--node-rank=1", "--nproc=2"],
            ),
        ):
            for code, written in self.on_nodes((0, first), (1, second)):
                self.assertEqual(code, USAGE, written)
                self.assertIn("error E102: the processes do not agree how many they are", written)

    def test_other_arguments(self):
        """Named by both, and not by the end of the wait, which is longer than the test's."""
        pair = [(k, ["--nnodes=2", f"--node-rank={k}", "--nproc=1"]) for k in (0, 1)]
        started = self.start(*pair, wait_s=3600, more=([], ["optim.lr=0.5"]))
        for code, written in end_all(started):
            self.assertEqual(code, USAGE, written)
            self.assertRegex(written, r"E117: .*\n.*optim\.lr: \S+ / 0\.5")

    def test_a_stopped_rank_alone_on_its_node(self):
        """Its launcher has no other rank that could notice the end of the run."""
        pair = [(k, ["--nnodes=2", f"--node-rank={k}", "--nproc=1"]) for k in (0, 1)]
        run = ["max_steps=1000000", "peer_timeout_s=2", "log_every_n_steps=1"]
        ddp2 = [*run, "strategy=ddp2", "devices=2"]  # a process of two ranks
        for stopped, more in ((0, run), (1, run), (0, ddp2), (1, ddp2)):
            started = self.start(*pair, more=(more, more))
            lines = f"{self.out}/metrics.jsonl"
            while not os.path.exists(lines) or os.path.getsize(lines) == 0:
                self.assertIsNone(started[0].poll())
                time.sleep(0.05)
            rank = self.rank_of(started[stopped].pid)
            os.kill(rank, signal.SIGSTOP)
            begin = time.monotonic()
            ended = end_all(started)
            self.assertLess(time.monotonic() - begin, 15)
            self.assertNotIn(0, [code for code, _ in ended])
            self.assertIn(
                f"rank {stopped} (pid {rank}) is stopped, and the other nodes have closed all",
                ended[stopped][1],
            )
            shutil.rmtree(self.out)

    def rank_of(self, launcher):
        """The training among the children of a launcher, which exec has made of the shell."""
        with open(f"/proc/{launcher}/task/{launcher}/children", encoding="utf-8") as f:
            children = f.read().split()
        for pid in children:
            with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                if f.read().strip() != "lvn-guard":
                    return int(pid)
        raise AssertionError(children)

    def test_one_node_alone(self):
        ((code, written),) = self.on_nodes(
            (0, ["--nnodes=2", "--node-rank=0", "--nproc=2"]), wait_s=1
        )
        self.assertEqual(code, TIMEOUT, written)
        self.assertIn("ranks 2-3 missing; 2 of 4 present", written)
        ((code, written),) = self.on_nodes(
            (1, ["--nnodes=2", "--node-rank=1", "--nproc=2"]), wait_s=1
        )
        self.assertEqual(code, TIMEOUT, written)
        self.assertIn("found no store of this run within 1 s", written)

    def test_a_number_that_is_missing(self):
        ((code, written),) = self.on_nodes((0, ["--nnodes=2", "--nproc=2"]))
        self.assertEqual(code, USAGE, written)
        self.assertIn("E109: 2 nodes need --node-rank", written)


main()
