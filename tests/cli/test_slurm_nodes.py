"""`levin train` on several nodes of a real Slurm, each with a network of its own (namespaces): the
job scripts of others with paths of ours, other launchers, and names that resolve to the wrong
address. With LEVIN_TEST_SLOW=1 also 96 ranks: 12 nodes with 8 devices.

usage: test_slurm_nodes.py SOURCE_DIR LEVIN [test names]
"""

import os
import re
import shutil
import time
import unittest

import slurm_cluster_case
from slurm_cluster_case import Cluster, LEVIN, SIM, STEPS, TRAIN, command, main
from ucx import HAS_UCX

slurm_cluster_case.UP = ["-N", "-n", "3", "-c", "24", "-g", "4"]
START_S = 120  # that 96 ranks may take in all; under 40 on an idle machine
SLOW = os.environ.get("LEVIN_TEST_SLOW") == "1"
if SLOW:
    slurm_cluster_case.UP = ["-N", "-n", "12", "-c", "64", "-g", "8"]
ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
WORK = [*TRAIN[:5], "model=mlp", *TRAIN[6:], STEPS, "accelerator=sim"]
LINE = " ".join([LEVIN, *WORK])


class Nodes(Cluster):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        code, reported = command([LEVIN, *WORK, "devices=1", f"out={cls.dir}/mlp"], SIM)
        assert code == 0, reported

    def assert_run(self, reported, ranks, nodes, out=None):
        where = f" on {nodes} nodes" if nodes > 1 else ""
        self.assertRegex(reported, rf"\b{ranks} ranks{where} |\b{ranks} ranks: processes")
        self.assert_bits(out or self.out, reported, f"{self.dir}/mlp")

    def job(self, nodes, directives, *lines):
        code, reported = self.batch(
            [f"--nodes={nodes}", *directives], *(line.replace("TRAIN", LINE) for line in lines)
        )
        self.assertEqual(code, 0, reported)
        return reported

    # ---- the job scripts of the documents ----

    def test_as_many_tasks_as_devices(self):
        for nodes in (1, 2):
            out = f"{self.out}{nodes}"
            reported = self.job(
                nodes,
                ["--gres=gpu:2          # n_gpus", "--ntasks-per-node=2   # as many"],
                f"srun TRAIN out={out}",
            )
            self.assert_run(reported, 2 * nodes, nodes, out)

    def test_gpus_and_nodes_as_flags(self):
        """Without srun the job ends at once, with what to do; then with it, and with the step that
        levin launch starts."""
        flags = "gpus=4 nb_gpu_nodes=1 distributed_backend=ddp"
        reported = self.job(
            1,
            ["--gres=gpu:4", "--ntasks-per-node=4", "--mem=0", "--time=0-02:00:00"],
            "export MASTER_PORT=$((12000 + RANDOM % 20000))",
            f"TRAIN {flags} out={self.out}x",
            "echo code=$?",
            f"{LEVIN} launch -- TRAIN {flags} out={self.out}",
        )
        self.assertIn("E101: srun was not used", reported)
        self.assertIn("code=64\n", reported)
        self.assertFalse(os.path.exists(f"{self.out}x"))
        self.assert_run(reported, 4, 1)

    def test_cores_of_a_task(self):
        reported = self.job(
            1,
            ["--gres=gpu:2", "--ntasks-per-node=2", "--cpus-per-task=12 # cores", "--mem=0"],
            f"srun TRAIN out={self.out}",
        )
        self.assert_run(reported, 2, 1)

    def test_address_and_port_of_the_script(self):
        reported = self.job(
            2,
            ["--gpus-per-node=A100:2", "--ntasks-per-node=2", "--cpus-per-task=1"],
            "export MASTER_PORT=29400",
            'export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
            "export WORLD_SIZE=$(($SLURM_NNODES * $SLURM_NTASKS_PER_NODE))",
            f"srun TRAIN out={self.out}",
        )
        self.assert_run(reported, 4, 2)

    def test_num_gpus_in_a_config_file(self):
        """A command that starts the other ranks by itself, with two of the job's devices visible;
        then a task per device."""
        with open(f"{self.out}.yaml", "w", encoding="utf-8") as f:
            f.write("num_gpus: 2\n")
        train = f"TRAIN config={self.out}.yaml"
        reported = self.job(
            1,
            ["--gres=gpu:4", "--ntasks-per-node=1"],
            f"CUDA_VISIBLE_DEVICES=0,1 {train} out={self.out}",
        )
        self.assert_run(reported, 2, 1)
        reported = self.job(
            1,
            ["--gres=gpu:2", "--ntasks-per-node=2"],
            f"srun {train} out={self.out}tasks",
        )
        self.assert_run(reported, 2, 1, f"{self.out}tasks")

    # ---- other ways to start ----

    def test_layouts_of_tasks(self):
        for name, options, arguments, ranks, nodes in (
            ("shown", ["-N2", "--ntasks-per-node=2", "--gpus-per-task=1"], [], 4, 2),
            ("uneven", ["-N2", "-n3", "--gres=gpu:4", "--distribution=block"], [], 3, 2),
            ("threads", ["-N2", "--ntasks-per-node=1", "--gres=gpu:2"], ["strategy=ddp2"], 4, 2),
            ("flags", ["-N3", "--ntasks-per-node=1"], ["gpus=1", "nb_gpu_nodes=3"], 3, 3),
            ("net", ["-N2", "--ntasks-per-node=2", "--gres=gpu:2"], ["transport=net"], 4, 2),
        ):
            with self.subTest(name):
                code, reported = command(
                    ["srun", *options, LEVIN, *WORK, *arguments, f"out={self.out}{name}"], SIM
                )
                self.assertEqual(code, 0, reported)
                self.assert_run(reported, ranks, nodes, self.out + name)

    @unittest.skipUnless(shutil.which("mpirun"), "no Open MPI")
    def test_open_mpi(self):
        for name, before in (
            ("pmix", ["srun", "--mpi=pmix", "-N2", "--ntasks-per-node=2", "--gres=gpu:2"]),
            ("mpirun", ["salloc", "-Q", "-N2", "--ntasks-per-node=2", "--gres=gpu:2", "mpirun"]),
        ):
            with self.subTest(name):
                code, reported = command(
                    [*before, LEVIN, *WORK, f"out={self.out}{name}"], {**SIM, **ROOT}
                )
                self.assertEqual(code, 0, reported)
                self.assert_run(reported, 4, 2, self.out + name)

    def test_variables_of_torchrun(self):
        """Uneven nodes: three ranks and one."""
        script = (
            'n=$((SLURM_NODEID == 0 ? 3 : 1)); first=$((SLURM_NODEID * 3)); master="$1"; shift\n'
            "for v in $(compgen -v SLURM_); do unset $v; done\n"
            "for i in $(seq $n); do RANK=$((first + i - 1)) LOCAL_RANK=$((i - 1)) WORLD_SIZE=4 "
            "LOCAL_WORLD_SIZE=$n GROUP_RANK=$((first > 0)) GROUP_WORLD_SIZE=2 "
            'MASTER_ADDR=$master MASTER_PORT=23451 TORCHELASTIC_RUN_ID=x "$@" & done; wait\n'
        )
        code, reported = command(
            ["srun", "-N2", "--ntasks-per-node=1", "--gres=gpu:4", "bash", "-c", script, "bash"]
            + [f"{self.node}", LEVIN, *WORK, f"out={self.out}"],
            SIM,
        )
        self.assertEqual(code, 0, reported)
        self.assert_run(reported, 4, 2)

    # ---- names that resolve to the wrong address ----

    def with_hosts(self, hosts, master):
        """Two nodes; `hosts`: shell lines that print /etc/hosts of a node, which only its tasks
        see."""
        script = (
            f"h={self.out}.hosts$SLURM_PROCID\n{hosts} > $h\nmount --bind $h /etc/hosts\n"
            f'{"export MASTER_ADDR=" + self.node if master else ":"}\nexec "$0" "$@"'
        )
        nodes = f"{self.node},{self.node[:-1]}2"
        code, reported = command(
            ["srun", "-w", nodes, "-N2", "--ntasks-per-node=2", "--gres=gpu:2", "unshare", "-m"]
            + ["bash", "-c", script, LEVIN, *WORK, f"out={self.out}{master}"],
            {**SIM, "LEVIN_RDZV_TIMEOUT": "20"},
        )
        self.assertEqual(code, 0, reported)
        self.assert_run(reported, 4, 2, f"{self.out}{master}")

    def test_own_name_is_loopback(self):
        """As Debian writes it: other nodes have the address."""
        home = rf"s/^[0-9.]*\( {self.node}\)$/127.0.1.1\1/"
        for master in (False, True):
            self.with_hosts(
                f"if [ $SLURM_NODEID = 0 ]; then sed '{home}' /etc/hosts; else cat /etc/hosts; fi",
                master,
            )

    def test_name_is_a_bridge_of_containers(self):
        """The same address on every node, and the first that the name resolves to."""
        bridge = (
            "ip addr add 172.17.0.1/16 dev lo scope global 2>/dev/null; "
            f"{{ echo 172.17.0.1 {self.node}; cat /etc/hosts; }}"
        )
        for master in (False, True):
            self.with_hosts(bridge, master)

    # ---- many ----

    @unittest.skipUnless(SLOW, "96 ranks: LEVIN_TEST_SLOW=1")
    def test_96_ranks(self):
        train = [LEVIN, *WORK, "batch_size=192", "micro_batches=96", "data.count=256"]
        code, reported = command([*train, "devices=1", f"out={self.out}one"], SIM)
        self.assertEqual(code, 0, reported)
        since = time.monotonic()
        code, reported = self.batch(
            [
                "--nodes=12",
                "--gres=gpu:8",
                "--ntasks-per-node=8",
                "--mem=0",
                "--time=0-02:00:00",
            ],
            "export MASTER_PORT=$((12000 + RANDOM % 20000))",
            f"export LEVIN_SIM_DEVICES=8\nsrun {' '.join(train)} gpus=8 nb_gpu_nodes=12 "
            f"distributed_backend=ddp out={self.out}",
        )
        took = time.monotonic() - since
        self.assertEqual(code, 0, reported)
        self.assertRegex(reported, "96 ranks on 12 nodes ")
        self.assert_bits(self.out, reported, f"{self.out}one")
        print(f"96 ranks: {took:.1f} s")
        self.assertLess(took, START_S)

    @unittest.skipUnless(SLOW and HAS_UCX, "12 nodes over UCX: LEVIN_TEST_SLOW=1, libucx0")
    def test_resnet18_over_ucx(self):
        """Two steps, of which every node sends 2 (N - 1) / N of the gradients and a little more."""
        train = [LEVIN, *TRAIN[:5], "model=resnet18", *TRAIN[6:], "max_steps=2", "batch_size=48"]
        train += ["micro_batches=12", "val_split=0", "image_size=32", "data.classes=6"]
        code, reported = command([*train, "devices=1", f"out={self.out}one"], SIM)
        self.assertEqual(code, 0, reported)
        sent = "srun sed -n 's/^ *eth0: *//p' /proc/net/dev"  # /sys is the machine's
        code, reported = self.batch(
            ["--nodes=12", "--ntasks-per-node=1"],
            f"{sent} | sed 's/^/before /'",
            f"srun {' '.join(train)} transport=ucx out={self.out}",
            f"{sent} | sed 's/^/after /'",
        )
        self.assertEqual(code, 0, reported)
        self.assertIn("transport ucx: 12 ranks exchange messages over UCX (requested)", reported)
        self.assert_bits(self.out, reported, f"{self.out}one")
        counted = {  # the ninth number of a line
            w: sum(map(int, re.findall(rf"{w} (?:\d+ +){{8}}(\d+)", reported)))
            for w in ("before", "after")
        }
        parameters = int(re.search(r"(\d+) parameters", reported).group(1))
        least = 2 * 2 * 11 * parameters * 4  # steps, both ways, of all 12 nodes
        share = (counted["after"] - counted["before"]) / least
        print(f"ResNet-18 on 12 nodes: {share:.3f} times 2 (N - 1) / N of the gradients sent")
        self.assertTrue(1.0 <= share < 1.1, share)


main()
