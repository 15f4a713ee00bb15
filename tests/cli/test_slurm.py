"""`levin slurm env|expand|compress`, and `levin train` as a task of a step: what is printed where,
and the exit codes.

usage: test_slurm.py LEVIN

Each runs in an environment of its own variables alone. The rows of the record are those of
tests/unit/launch/test_rank_info.c.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

LEVIN = os.path.abspath(sys.argv[1])
STEP = {
    "JOB_ID": 1,
    "STEP_ID": 0,
    "PROCID": 2,
    "LOCALID": 0,
    "NODEID": 1,
    "STEP_NUM_TASKS": 4,
    "STEP_NUM_NODES": 2,
    "STEP_TASKS_PER_NODE": "2(x2)",
    "STEP_NODELIST": "n[08-09]",
    "NTASKS": 4,
    "JOB_NODELIST": "n[08-09]",
}
BATCH = {
    "JOB_ID": 1,
    "PROCID": 0,
    "LOCALID": 0,
    "NODEID": 0,
    "NTASKS": 4,
    "NTASKS_PER_NODE": 2,
    "TASKS_PER_NODE": "2(x2)",
    "JOB_NODELIST": "n[08-09]",
    "JOB_NUM_NODES": 2,
}


def slurm(**variables):
    return {f"SLURM_{name}": str(value) for name, value in variables.items()}


def levin(*arguments, env=None, status=0):
    done = subprocess.run(
        [LEVIN, "slurm", *arguments],
        env=env or {},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (
        done.returncode == status
    ), f"{arguments} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done


class HostLists(unittest.TestCase):
    def test_expand(self):
        self.assertEqual(levin("expand", "n[08-10],login1").stdout, "n08\nn09\nn10\nlogin1\n")
        self.assertEqual(levin("expand", "a[1-2]", "b").stdout, "a1\na2\nb\n")
        self.assertEqual(levin("expand", "--first", "n[08-10]").stdout, "n08\n")
        self.assertEqual(levin("expand", "--count", "n[1-65536]").stdout, "65536\n")
        self.assertEqual(levin("expand", "-0", "n[1-2]").stdout, "n1\0n2\0")

    def test_nothing_to_expand(self):
        self.assertEqual(levin("expand", "").stdout, "")
        self.assertEqual(levin("expand", "--first", "", status=1).stdout, "")
        self.assertEqual(levin("expand", "--count", "").stdout, "0\n")
        for arguments in (
            ["expand"],
            ["expand", "--first"],
            ["compress"],
        ):  # a variable without quotes that is unset
            done = levin(*arguments, status=64)
            self.assertEqual(
                (done.stdout, done.stderr),
                (
                    "",
                    f"error: levin slurm {arguments[0]}: no list of hosts; give one such "
                    "as 'n[08-10],login1'\n",
                ),
            )

    def test_mistakes(self):
        for text in ("node[3-1]", "node[]", "node[1-2", "node1-2]", "node[1-70000]", "a b[x]"):
            done = levin("expand", text, status=64)
            self.assertEqual(done.stdout, "")
            self.assertTrue(done.stderr.startswith("levin: error E112: "), done.stderr)
        self.assertEqual(
            levin("expand", "node[3-1]", status=64).stderr,
            "levin: error E112: bad host list, column 6: this range counts down\n  "
            "found: node[3-1]\n              ^\n",
        )
        self.assertIn("does not take --last", levin("expand", "--last", "a", status=64).stderr)

    def test_compress(self):
        self.assertEqual(levin("compress", "n1", "n2", "n3", "n10").stdout, "n[1-3,10]\n")
        self.assertEqual(levin("compress", "n01", "n02", "n10", "n3").stdout, "n[01-02,10,3]\n")
        self.assertEqual(levin("compress", "n[1-3]", "n4,n5").stdout, "n[1-5]\n")


class Env(unittest.TestCase):
    def test_without_a_launcher(self):
        done = levin("env")
        self.assertEqual(done.stderr, "")
        self.assertTrue(done.stdout.startswith("source=single\nrank=0\nworld=1\n"))

    def test_a_task_of_a_step(self):
        env = slurm(**STEP)
        record = dict(line.split("=", 1) for line in levin("env", env=env).stdout.splitlines())
        reported = json.loads(levin("env", "--json", env=env).stdout)
        for key, value in {
            "source": "slurm",
            "rank": 2,
            "world": 4,
            "local_rank": 0,
            "local_world": 2,
            "node_rank": 1,
            "nnodes": 2,
            "master_addr": "n08",
            "master_port": 15001,
            "from.rank": "SLURM_PROCID",
        }.items():
            self.assertEqual(record[key], str(value), key)
            self.assertEqual(reported[key], value, key)
        self.assertEqual((record["store_host"], reported["store_host"]), ("no", False))
        self.assertEqual((record["hosts"], reported["hosts"]), ("n[08-09]", ["n08", "n09"]))

    def test_lines_for_a_shell(self):
        script = (
            f'eval "$({LEVIN} slurm env --export)"; '
            "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT"
        )
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            env=slurm(**STEP),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        self.assertEqual(done.stdout, "2 4 0 n08 15001\n")
        # and what it exports is a record again, of the same rank
        script = f'eval "$({LEVIN} slurm env --export)"; exec {LEVIN} slurm env'
        done = subprocess.run(
            ["/bin/sh", "-c", script],
            env=slurm(**STEP),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        self.assertIn("source=torchrun\nrank=2\nworld=4\n", done.stdout)

    def test_srun_forgotten(self):
        done = levin("env", env=slurm(**BATCH), status=64)
        self.assertEqual(done.stdout, "")
        self.assertTrue(
            done.stderr.startswith(
                "levin: error E101: srun was not used: only one process is running, 4 "
                "were allocated\n"
            ),
            done.stderr,
        )
        self.assertIn("  fix: srun levin slurm env\n", done.stderr)

    def test_warnings_are_no_results(self):
        done = levin(
            "env",
            "--json",
            env={"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"},
        )
        self.assertEqual(json.loads(done.stdout)["master_port"], 29500)
        self.assertTrue(done.stderr.startswith("levin: warning W204: "), done.stderr)

    def test_the_source_can_be_forced(self):
        stale = {**slurm(**STEP), "RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}
        self.assertIn("levin: error E107: ", levin("env", env=stale, status=64).stderr)
        self.assertIn("source=single\n", levin("env", "--env-source", "single", env=stale).stdout)
        self.assertIn(
            "SLURM_PROCID is not set", levin("env", "--env-source=slurm", status=64).stderr
        )

    def test_an_address_of_another_host(self):
        host = {
            **slurm(**STEP),
            "SLURM_PROCID": "0",
            "SLURM_NODEID": "0",
            "MASTER_ADDR": "192.0.2.1",
        }
        done = levin("env", env=host, status=64)
        self.assertTrue(
            done.stderr.startswith(
                "levin: error E111: the master address 192.0.2.1 is not one of this host"
            ),
            done.stderr,
        )
        levin("env", env={**host, "MASTER_ADDR": "127.0.0.1"})

    def test_mistakes(self):
        self.assertIn("does not take --jsn", levin("env", "--jsn", status=64).stderr)
        self.assertIn("there is no levin slurm envs", levin("envs", status=64).stderr)
        self.assertIn("usage: levin slurm env", levin(status=64).stderr)


class Train(unittest.TestCase):
    """What `levin train` reports of its step before it looks at anything else.
    tests/cli/test_slurm_cluster.py asks srun itself."""

    TASK = {
        "JOB_ID": 2,
        "STEP_ID": 0,
        "PROCID": 0,
        "LOCALID": 0,
        "NODEID": 0,
        "NTASKS": 1,
        "STEP_NUM_TASKS": 1,
        "STEP_NUM_NODES": 1,
        "STEP_TASKS_PER_NODE": 1,
        "STEP_NODELIST": "n08",
    }
    SHAPES = [
        "train",
        "classify",
        "data=builtin:shapes",
        "data.count=12",
        "max_steps=1",
        "batch_size=4",
        "val_split=0",
    ]

    def train(self, env, *more, status=64):
        with tempfile.TemporaryDirectory() as out:
            done = subprocess.run(
                [LEVIN, *self.SHAPES, f"out={out}/run", *more],
                env=env,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(os.path.exists(f"{out}/run"), status == 0)
        return done.stderr

    def test_srun_forgotten(self):
        printed = self.train(slurm(**BATCH), "seed=1")
        self.assertTrue(
            printed.startswith(
                "levin: error E101: srun was not used: only one process is running, 4 "
                "were allocated\n"
            ),
            printed,
        )
        command = " ".join(
            ["  fix: srun", LEVIN, "train", "classify", "data=builtin:shapes data.count=12"]
        )
        self.assertIn(command[: len("  fix: srun ") + 120], printed)

    def test_a_plan_is_no_rank(self):
        for env in (slurm(**BATCH), slurm(**self.TASK)):
            done = subprocess.run(
                [LEVIN, "plan", *self.SHAPES, "devices=2"],
                env=env,
                capture_output=True,
                text=True,
                timeout=30,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("rank 1 owns", done.stdout)

    def test_one_task_for_several_devices(self):
        printed = self.train(slurm(**self.TASK), "devices=2")
        self.assertTrue(
            printed.startswith("levin: error E103: 1 task on this node, but 2 devices\n"), printed
        )
        self.assertIn("  found: devices asks for 2 (command line)\n", printed)
        printed = self.train(slurm(**self.TASK, NTASKS_PER_NODE=2), "devices=2")
        self.assertTrue(
            printed.startswith("levin: error E104: --ntasks=1 won over --ntasks-per-node=2"),
            printed,
        )
        self.assertIn("  fix: remove --ntasks (-n)", printed)
        sim = {
            **slurm(**self.TASK, GPUS_ON_NODE=4),
            "LEVIN_SIM_DEVICES": "4",
            "LEVIN_SIM_MEMORY": "64MiB",
        }
        self.assertIn(
            "E103: 1 task on this node, but 4 devices", self.train(sim, "accelerator=sim")
        )

    def test_a_smaller_step_leaves_devices_idle(self):
        sim = {
            **slurm(**self.TASK, GPUS_ON_NODE=4, NTASKS_PER_NODE=4),
            "LEVIN_SIM_DEVICES": "4",
            "LEVIN_SIM_MEMORY": "64MiB",
        }
        printed = self.train(sim, "accelerator=sim", status=0)
        self.assertIn(
            "warning: W207: devices 1,2,3 stay idle: SLURM_GPUS_ON_NODE=4 but 1 task\n", printed
        )

    def test_several_nodes(self):
        task = {**slurm(**STEP), "SLURM_PROCID": "0", "SLURM_NODEID": "0"}
        printed = self.train(task, "num_nodes=3")
        self.assertTrue(
            printed.startswith(
                "levin: error E119: 3 nodes are asked for, but the ranks run on 2\n"
                "  found: num_nodes=3\n  found: SLURM_STEP_NUM_NODES=2\n"
            ),
            printed,
        )
        self.assertEqual(self.train(slurm(**STEP), "num_nodes=3"), "")  # rank 2: one reports it

    def test_too_few_devices_are_reported_once(self):
        task = {**self.TASK, "NTASKS": 4, "STEP_NUM_TASKS": 4, "STEP_TASKS_PER_NODE": 4}
        sim = {**slurm(**task), "LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "64MiB"}
        self.assertIn(
            "E106: 4 tasks on node n08, but only 2 simulated devices are visible",
            self.train(sim, "accelerator=sim", status=69),
        )
        self.assertEqual(
            self.train(
                {**sim, "SLURM_PROCID": "3", "SLURM_LOCALID": "3"}, "accelerator=sim", status=69
            ),
            "",
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
