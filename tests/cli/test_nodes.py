"""Runs over several nodes that fail: all end in time, and one sentence names the first cause.

usage: test_nodes.py LEVIN
"""

import json
import os
import re
import signal
import socket
import time
import unittest

from case import LEVIN
from neighbours import descendants
from node_processes import end_all, missing, start_on_nodes
from rank_case import RankCase, SHAPES
from rank_processes import children, of_process

LONG = [*SHAPES, "model=mlp", "max_epochs=10000", "group=6", "eval_batch_size=30"]
DDP2 = ["strategy=ddp2", "devices=2"]
GONE_S = float(os.environ.get("LEVIN_TEST_NODES_GONE_S", "15"))
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}


@unittest.skipIf(missing(), missing())
class Nodes(RankCase):
    def start(self, nodes, *arguments, **how):
        command = [LEVIN, "train", "classify", *arguments, f"out={self.out}"]
        started = start_on_nodes(nodes, command, cwd=self.dir, **how)
        for p in started:
            self.addCleanup(p.kill)
        return started

    def test_the_store_listens_where_ranks_came(self):
        """Before the rendezvous at every address; then at none that no rank has used."""
        met = f"rdzv=file:{self.dir}/met"
        started = self.start([0, 1], *LONG, met, env={"MASTER_ADDR": "", "MASTER_PORT": ""})
        self.has_begun()
        listening = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with open(table, encoding="ascii") as f:
                for line in list(f)[1:]:
                    fields = line.split()
                    if fields[3] == "0A" and self.holds(started[0].pid, fields[9]):
                        listening.add(fields[1].split(":")[0])
        loopback = socket.inet_aton("127.0.0.1")[::-1].hex().upper()
        self.assertEqual(listening, {loopback})

    @staticmethod
    def holds(pid, inode):
        """Does a process of this one's have the socket?"""
        for process in descendants(pid):
            try:
                for fd in os.listdir(f"/proc/{process}/fd"):
                    if os.readlink(f"/proc/{process}/fd/{fd}") == f"socket:[{inode}]":
                        return True
            except OSError:
                pass
        return False

    def has_begun(self):
        path = f"{self.out}/metrics.jsonl"
        for _ in range(3000):
            if os.path.exists(path):
                with open(path, encoding="utf-8") as f:
                    if any("step" in json.loads(line) for line in f if line.endswith("\n")):
                        return
            time.sleep(0.01)
        self.fail("no step")

    def kill_one(self, nodes, victim, *arguments, env=None):
        """Returns what all others have written, once all have ended."""
        started = self.start(nodes, *LONG, *arguments, env=env)
        self.has_begun()
        mine = f"RANK={victim}".encode()
        pid = next(p for p in children(self.out) if mine in of_process(p, "environ"))
        os.kill(pid, signal.SIGKILL)
        since = time.monotonic()
        ended = end_all(started)
        self.assertLess(time.monotonic() - since, GONE_S, ended)
        self.assertEqual(ended[victim][0], -signal.SIGKILL)
        self.assertEqual({code for i, (code, _) in enumerate(ended) if i != victim}, {76}, ended)
        return "".join(written for i, (_, written) in enumerate(ended) if i != victim), pid

    def test_a_rank_of_another_node_dies(self):
        written, pid = self.kill_one([0, 0, 1, 1], 3)
        self.assertEqual(written.count("error: "), 1, written)
        self.assertRegex(written, rf"error: rank 3 \(node1, pid {pid}\) failed first at step \d+: ")

    def test_rank_0_dies(self):
        """One of the others reports it, on whichever node."""
        for nodes in ([0, 0, 1, 1], [0, 1, 1]):
            self.out = f"{self.dir}/run{len(nodes)}"
            written, _ = self.kill_one(nodes, 0)
            self.assertEqual(written.count("error: "), 1, written)
            self.assertRegex(written, r"error: rank 0 \(node0\) failed first at step \d+: ")

    def test_a_process_of_threads_dies(self):
        for victim in (1, 0):
            self.out = f"{self.dir}/run{victim}"
            written, _ = self.kill_one([0, 1], victim, *DDP2)
            self.assertEqual(written.count("error: "), 1, written)
            self.assertRegex(written, rf"error: rank {victim} \(node{victim}(, pid \d+)?\) failed")

    def test_what_a_rank_finds_is_reported(self):
        """A loss that is not finite, which several ranks find at once: no rank reports another as
        lost."""
        for name, nodes, arguments in (("ddp", [0, 0, 1], []), ("ddp2", [0, 1], DDP2)):
            self.out = f"{self.dir}/{name}"
            ended = end_all(self.start(nodes, *LONG, "optim.lr=1e38", *arguments))
            written = "".join(w for _, w in ended)
            self.assertRegex(written, "error: the loss is nan at step 1 ")
            self.assertEqual(
                written.count("failed first"),
                len(re.findall("failed first.*: the loss is", written)),
            )
            self.assertLessEqual({code for code, _ in ended}, {1, 76}, ended)
            self.assertIn(1, [code for code, _ in ended])

    def test_a_signal_stops_all_after_the_same_step(self):
        for name, nodes, arguments, env in (
            ("ddp", [0, 0, 1], [], {}),
            ("ddp2", [0, 1], DDP2, {}),
            ("devices", [0, 1], [*DDP2, "accelerator=sim"], SIM),
        ):
            self.out = f"{self.dir}/{name}"
            started = self.start(nodes, *LONG, *arguments, env=env)
            self.has_begun()
            mine = f"RANK={len(nodes) - 1}".encode()
            pid = next(p for p in children(self.out) if mine in of_process(p, "environ"))
            os.kill(pid, signal.SIGTERM)
            ended = end_all(started)
            self.assertEqual({code for code, _ in ended}, {143}, ended)
            self.assertTrue(os.path.exists(f"{self.out}/checkpoints/last.safetensors"))

    def test_many_devices_are_counted(self):
        """Where a list of them would fill the screen."""
        for nodes, expects in (
            ([0] * 4 + [1] * 4, "sim:0,sim:1,sim:2,sim:3,sim:0,sim:1,sim:2,sim:3"),
            ([0] * 5 + [1] * 4, "9 x sim: 2 hosts x 4 to 5"),
            ([0] * 5 + [1] * 5, "10 x sim: 2 hosts x 5"),
        ):
            self.out = f"{self.dir}/run{len(nodes)}"
            run = [*SHAPES, "model=mlp", "max_steps=1", f"group={len(nodes)}", "accelerator=sim"]
            run += [f"micro_batches={len(nodes)}", f"batch_size={len(nodes)}"]
            ended = end_all(self.start(nodes, *run, env={**SIM, "LEVIN_SIM_DEVICES": "5"}))
            self.assertEqual({code for code, _ in ended}, {0}, ended)
            with open(f"{self.out}/train.log", encoding="utf-8") as f:
                self.assertIn(
                    f"{len(nodes)} ranks: processes (strategy=ddp), devices {expects}\n", f.read()
                )

    def test_threads_of_devices_started_by_hand(self):
        """No variable has the number of a node's processes, and there can be only one."""
        run = [*SHAPES, "model=mlp", "max_steps=2", "micro_batches=4", "batch_size=4"]
        for strategy in ("dp", "ddp2"):
            self.out = f"{self.dir}/{strategy}"
            more = [f"strategy={strategy}", "devices=2", "accelerator=sim"]
            by_hand = ["env", "-u", "LOCAL_WORLD_SIZE", "-u", "GROUP_RANK"]
            command = [*by_hand, LEVIN, "train", "classify", *run, *more, f"out={self.out}"]
            ended = end_all(start_on_nodes([0, 1], command, cwd=self.dir, env=SIM))
            self.assertEqual({code for code, _ in ended}, {0}, ended)
            with open(f"{self.out}/train.log", encoding="utf-8") as f:
                self.assertIn("4 ranks: threads of a process on each node", f.read())

    def test_two_processes_on_a_node(self):
        """Known from the environment, or at the rendezvous."""
        for nodes, host, expects in (
            ([0, 0], "node{}", "error E103: 2 tasks on this node"),
            ([0, 1], "both", "strategy=ddp2 is one process per node, and both has several"),
        ):
            ended = end_all(self.start(nodes, *LONG, *DDP2, host=host))
            self.assertEqual({code for code, _ in ended} - {76}, {64}, ended)
            self.assertIn(expects, "".join(written for _, written in ended))


if __name__ == "__main__":
    unittest.main(argv=["test_nodes.py"])
