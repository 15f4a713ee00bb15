"""Ranks that find each other, or do not: what each prints and leaves with. They are started as
MPI's launcher would, which gives numbers and no address.

usage: test_rendezvous.py LEVIN [test names]
"""

import os
import signal
import subprocess
import time

from case import Case, LEVIN, main, OK, USAGE, WAIT_S, write

RENDEZVOUS, RESOURCE, PEER = 75, 69, 76
CLEAN = {
    name: value
    for name, value in os.environ.items()
    if not name.startswith(("LEVIN_", "SLURM_", "OMPI_", "PMI_", "MASTER_"))
}


class Meet(Case):
    def start(self, rank, *more, world=2, cores=None, **env):
        arguments = [
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            "image_size=16",
            "model=mlp",
            "batch_size=6",
            "max_steps=2",
            "val_split=0",
            f"out={self.dir}/run",
            *more,
        ]
        pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
        return subprocess.Popen(
            [LEVIN, *arguments],
            preexec_fn=pin,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**CLEAN, "PMI_RANK": str(rank), "PMI_SIZE": str(world), **env},
        )

    def ends(self, process, code, *expects):
        out, err = process.communicate(timeout=WAIT_S)
        self.assertEqual(process.returncode, code, out + err)
        for piece in expects:
            self.assertIn(piece, out if code == OK else err)

    def test_ranks_without_an_address(self):
        """A file beside the run names the store's address, and is gone afterwards."""
        second = self.start(1)
        self.ends(self.start(0), OK, "effective batch 6 = 2 micro-batches x 3")
        self.ends(second, OK)
        self.assertEqual(os.listdir(self.dir), ["run"])

    def test_a_run_without_a_name(self):
        """The folder that the file needed goes with it."""
        done = subprocess.run(
            [LEVIN, "train", "classify", "data=builtin:shapes"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            cwd=self.dir,
            env=dict(CLEAN, PMI_RANK="0", PMI_SIZE="2", LEVIN_RDZV_TIMEOUT="1"),
        )
        self.assertEqual(done.returncode, RENDEZVOUS, done.stderr)
        self.assertEqual(os.listdir(self.dir), [])

    def test_a_directory_that_both_see(self):
        """Given by an option or a variable, to ranks whose launcher gives no address; without
        either that is an error."""
        alone = {
            "PMI_RANK": "",
            "PMI_SIZE": "",
            "WORLD_SIZE": "2",
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
        }
        self.ends(
            self.start(0, RANK="0", **alone),
            USAGE,
            "levin: error E109: ",
            "or LEVIN_RDZV=file:DIR (levin train: rdzv=file:DIR)",
        )
        for arguments, env in (
            (["rdzv=file:" + self.dir + "/meet"], {}),
            ([], {"LEVIN_RDZV": "file:" + self.dir + "/meet"}),
        ):
            second = self.start(1, "overwrite=true", *arguments, RANK="1", **alone, **env)
            self.ends(
                self.start(0, "overwrite=true", *arguments, RANK="0", **alone, **env),
                OK,
                "effective batch 6 = 2 micro-batches x 3",
            )
            self.ends(second, OK)
            self.assertEqual(os.listdir(self.dir), ["run"])
        self.ends(
            self.start(0, "rdzv=tcp://n08", RANK="0", **alone),
            USAGE,
            "error: rdzv tcp://n08: expected tcp or file:DIR",
        )
        self.ends(
            self.start(0, RANK="0", **alone, LEVIN_RDZV="udp"),
            USAGE,
            "levin: error E100: LEVIN_RDZV='udp' is neither tcp nor file:DIR\n",
        )

    def test_a_variable_for_all_runs(self):
        """LEVIN_RDZV does not concern ranks that levin's own launcher starts: it gives all of them
        the address."""
        env = dict(CLEAN, LEVIN_RDZV=f"file:{self.dir}/meet", LEVIN_RDZV_TIMEOUT="20")
        arguments = [
            "train",
            "classify",
            "data=builtin:shapes",
            "data.count=60",
            "image_size=16",
            "model=mlp",
            "batch_size=6",
            "max_steps=2",
            "val_split=0",
        ]
        for command in (
            [LEVIN, *arguments, "devices=2", f"out={self.dir}/a"],
            [
                LEVIN,
                "launch",
                f"--run-dir={self.dir}/logs",
                "-n",
                "2",
                "--",
                LEVIN,
                *arguments,
                f"out={self.dir}/b",
            ],
        ):
            done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, env=env)
            self.assertEqual(done.returncode, OK, done.stderr)
        self.assertFalse(os.path.exists(f"{self.dir}/meet"))

    def test_variables_set_by_hand(self):
        """What is wrong in one shell no other rank can know: each reports its own."""
        by_hand = {
            "PMI_RANK": "",
            "PMI_SIZE": "",
            "WORLD_SIZE": "2",
            "RANK": "1",
            "LOCAL_RANK": "1",
        }
        self.ends(self.start(1, **by_hand), USAGE, "levin: error E109: ")
        self.ends(
            self.start(1, "strict=true", **by_hand, MASTER_ADDR="127.0.0.1"),
            USAGE,
            "levin: error W204: ",
        )
        self.ends(
            self.start(1, "devices=4", **by_hand, MASTER_ADDR="127.0.0.1", MASTER_PORT="2000"),
            USAGE,
            "levin: error E103: ",
            "4 device",
            "2 task",
        )
        shown = subprocess.run(
            [LEVIN, "slurm", "env"],
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            env={**CLEAN, **by_hand, "TORCHELASTIC_RUN_ID": "x"},
        )
        self.assertEqual(shown.returncode, USAGE)
        self.assertIn("levin: error E109: ", shown.stderr)

    def test_the_first_rank_is_killed(self):
        """It reports for all, and no launcher is there: one of the others reports its end, and
        what is kept."""
        self.first_rank_is_killed()

    def test_the_first_rank_is_killed_and_another_is_late(self):
        """Rank 2 notices the end of rank 0 when rank 1 has reported it and is gone."""

        def late(ranks):
            ranks[2].send_signal(signal.SIGSTOP)
            ranks[0].kill()
            ranks[1].wait(timeout=WAIT_S)
            ranks[2].send_signal(signal.SIGCONT)

        self.first_rank_is_killed(late)

    def first_rank_is_killed(self, kill=lambda ranks: ranks[0].kill()):
        arguments = [
            "max_steps=-1",
            "max_epochs=100000",
            "data.count=600",
            "checkpoint.every_n_steps=2",
        ]
        ranks = [self.start(r, *arguments, world=3) for r in range(3)]
        end = time.monotonic() + WAIT_S
        while not os.path.exists(f"{self.dir}/run/checkpoints/last.safetensors"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        write(
            f"{self.dir}/run/checkpoints/last.safetensors.tmp-1", b"of a run that goes on already"
        )
        kill(ranks)
        reported = [p.communicate(timeout=WAIT_S)[1] for p in ranks]
        self.assertEqual([p.returncode for p in ranks], [-9, PEER, PEER], reported)
        self.assertRegex(
            "".join(reported[1:]),
            r"\Aerror: rank 0 \(.*\) failed first at step \d+: the store in its "
            r"process is lost: .*; step \d+ \(epoch \d+\) is saved: "
            r"resume=true goes on from there\n\Z",
        )
        self.assertTrue(os.path.exists(f"{self.dir}/run/checkpoints/last.safetensors.tmp-1"))

    def test_the_first_rank_stands_still(self):
        """It may go on, so it reports itself what is kept."""
        arguments = [
            "max_steps=-1",
            "max_epochs=100000",
            "data.count=600",
            "checkpoint.every_n_steps=2",
            "peer_timeout_s=1",
        ]
        second, first = self.start(1, *arguments), self.start(0, *arguments)
        end = time.monotonic() + WAIT_S
        while not os.path.exists(f"{self.dir}/run/checkpoints/last.safetensors"):
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)
        first.send_signal(signal.SIGSTOP)
        reported = second.communicate(timeout=WAIT_S)[1]
        first.send_signal(signal.SIGCONT)
        self.ends(first, PEER)
        self.assertEqual(second.returncode, PEER, reported)
        self.assertRegex(
            reported,
            r"\Aerror: rank 0 \(.*\) failed first at step \d+: the store in its "
            r"process is lost: nothing was heard from it for 1\.0 s: .*\n\Z",
        )
        self.assertNotIn("is saved", reported)

    def test_a_signal_before_they_have_met(self):
        """It ends at once, and takes the file and its folders with it."""
        for signal_number, name in (
            (signal.SIGTERM, "SIGTERM"),
            (signal.SIGINT, "Ctrl-C"),
            (signal.SIGHUP, "SIGHUP"),
        ):
            process = self.start(0, f"rdzv=file:{self.dir}/a/meet")
            until = time.monotonic() + WAIT_S
            while (
                not any(
                    name.endswith(".addr") for _, _, names in os.walk(self.dir) for name in names
                )
                and time.monotonic() < until
            ):
                time.sleep(0.01)
            self.assertEqual(os.listdir(self.dir), ["a"])
            process.send_signal(signal_number)
            self.ends(process, 128 + signal_number, f"stopped: {name} before the first step")
            self.assertEqual(os.listdir(self.dir), [])

    def test_a_directory_that_is_none(self):
        with open(f"{self.dir}/a.txt", "w"):
            pass
        second = self.start(1, f"rdzv=file:{self.dir}/a.txt")
        self.ends(
            self.start(0, f"rdzv=file:{self.dir}/a.txt"),
            USAGE,
            f"rdzv=file:{self.dir}/a.txt: this is a file; give a directory that all ranks see",
        )
        self.ends(second, USAGE)
        self.assertEqual(os.listdir(self.dir), ["a.txt"])

    def test_folders_of_a_rendezvous_that_failed(self):
        self.ends(
            self.start(0, f"rdzv=file:{self.dir}/a/meet", LEVIN_RDZV_TIMEOUT="1"),
            RENDEZVOUS,
            "E113: ",
        )
        self.assertEqual(os.listdir(self.dir), [])

    def test_one_that_never_comes(self):
        self.ends(
            self.start(0, LEVIN_RDZV_TIMEOUT="1"),
            RENDEZVOUS,
            "levin: error E113: not all ranks came",
            "rank 1 missing; 1 of 2 present",
        )
        self.assertEqual(os.listdir(self.dir), [])

    def test_threads_on_nodes_that_are_not_known(self):
        """Without LOCAL_WORLD_SIZE only the rendezvous knows how many processes a node has."""
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(12000 + os.getpid() % 20000)}
        by_hand = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", **address}
        for missing in (True, False):
            more = ["strategy=ddp2", "devices=2", "accelerator=cpu"]
            by_hand["LEVIN_RDZV_TIMEOUT"] = "1" if missing else "20"
            second = None if missing else self.start(1, *more, RANK="1", **by_hand)
            text = "E113: " if missing else "strategy=ddp2 is one process per node, and "
            first = self.start(0, *more, RANK="0", **by_hand)
            self.ends(first, RENDEZVOUS if missing else USAGE, text)
            if second:
                second.communicate(timeout=WAIT_S)

    def test_a_timeout_that_is_no_number(self):
        for value in ("1m", "0", "-3", " 5", "inf", "nan", "0x10"):
            self.ends(
                self.start(0, LEVIN_RDZV_TIMEOUT=value),
                USAGE,
                f"error E100: LEVIN_RDZV_TIMEOUT='{value}' is not a number of seconds above 0",
            )

    def test_a_store_that_never_comes(self):
        self.ends(
            self.start(1, LEVIN_RDZV_TIMEOUT="1"),
            RENDEZVOUS,
            "E114: rank 1 ",
            ".addr: the file is not there",
        )

    def test_different_options(self):
        second = self.start(1, "optim.lr=0.5")
        self.ends(self.start(0), USAGE, "E117: ", "optim.lr: 0.001 / 0.5\n")
        self.ends(second, USAGE)
        self.assertEqual(os.listdir(self.dir), [])

    def test_cores_that_some_share(self):
        """The banner counts each once."""
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            self.skipTest("2 cores are needed")
        second = self.start(1, cores=cores[:1])
        out, err = self.start(0, cores=cores).communicate(timeout=WAIT_S)
        self.ends(second, OK)
        self.assertTrue(
            [line for line in (out + err).splitlines() if line == "device cpu: 2 cores"], out + err
        )

    def test_one_device_for_two(self):
        """As where every task is shown the same one."""
        one = {"CUDA_VISIBLE_DEVICES": "0", "LEVIN_SIM_DEVICES": "1", "MPI_LOCALNRANKS": "2"}
        second = self.start(1, "accelerator=sim", MPI_LOCALRANKID="1", **one)
        self.ends(
            self.start(0, "accelerator=sim", MPI_LOCALRANKID="0", **one),
            RESOURCE,
            "E105: two ranks use one device",
            "ranks 0 and 1 on ",
            ": sim:0\n",
        )
        self.ends(second, RESOURCE)
        self.assertEqual(os.listdir(self.dir), [])
        second = self.start(
            1, "accelerator=sim", "allow_shared_device=true", MPI_LOCALRANKID="1", **one
        )
        self.ends(
            self.start(
                0, "accelerator=sim", "allow_shared_device=true", MPI_LOCALRANKID="0", **one
            ),
            OK,
            "2 ranks",
        )
        self.ends(second, OK)

    def test_strangers(self):
        """Another secret: neither finds the other."""
        second = self.start(1, LEVIN_TOKEN="two", LEVIN_RDZV_TIMEOUT="1")
        self.ends(self.start(0, LEVIN_TOKEN="one", LEVIN_RDZV_TIMEOUT="1"), RENDEZVOUS, "E113: ")
        self.ends(second, RENDEZVOUS, "E114: ")


main()
