"""`levin doctor`: what it prints of a machine without GPUs, of every way in which a driver, its
devices and the backend can fail (stand-ins compiled here from doctor_stand_ins.c, in a folder that
stands for the machine's /), and of variables that an earlier run has left. No other command loads
the driver.

usage: test_doctor.py SOURCE_DIR LEVIN CC     registered in tests/cli/CMakeLists.txt
"""

import ctypes
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SOURCE, LEVIN, CC = Path(sys.argv[1]).resolve(), os.path.abspath(sys.argv[2]), sys.argv[3]
del sys.argv[1:4]
OK, FAILURE, USAGE = 0, 1, 64
LEFT_OVER = ("SLURM_", "CUDA_", "NCCL_", "OMP_", "MASTER_", "LEVIN_", "RANK", "WORLD_SIZE", "LOCAL")
MODULE = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.129.03  Thu Oct 19 2023\n"


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith(LEFT_OVER)}


class Doctor(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.made = Path(folder.name)
        # a build has its own backend beside the program
        cls.levin = shutil.copy(LEVIN, cls.made / "levin")
        for name in ("driver", "old", "backend", "needy", "library", "stray"):
            (cls.made / name).mkdir()
        cls.compile("driver/libcuda.so.1", "-DDRIVER")
        cls.compile("old/libcuda.so.1", "-DDRIVER", "-DOLD")
        cls.compile("system.so", "-DSYSTEM")
        cls.compile("dnnl.so", "-DDNNL")
        cls.compile("backend/levin_backend_cuda.so", "-DBACKEND")
        name = "libcudnn_none.so.9"  # which no machine has
        library = cls.compile(f"library/{name}", "-DLIBRARY", f"-Wl,-soname,{name}")
        cls.compile("needy/levin_backend_cuda.so", "-DBACKEND", "-DLIBRARY_NEEDED", str(library))
        (cls.made / "stray/libcuda.so.1").write_text("")

    @classmethod
    def compile(cls, out, *flags):
        source = SOURCE / "tests/cli/doctor_stand_ins.c"
        subprocess.run(
            [CC, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Werror", f"-I{SOURCE}/include"]
            + ["-shared", "-fPIC", str(source), "-o", str(cls.made / out), *flags],
            check=True,
        )
        return cls.made / out

    def setUp(self):
        """A machine without GPUs."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.put("proc/meminfo", "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\n")
        self.put("dev/shm/.keep", "")

    def put(self, path, text=""):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def put_gpus(self):
        for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps/cap1"):
            self.put(f"dev/{name}")
        self.put("proc/driver/nvidia/version", MODULE)

    def doctor(self, *arguments, status=OK, driver="driver", backend=None, preload=None, **more):
        environment = clean_environment()
        environment["LEVIN_TEST_ROOT"] = str(self.root)
        if driver is not None:
            environment["LD_LIBRARY_PATH"] = str(self.made / driver)
        if backend is not None:
            environment["LEVIN_BACKEND_PATH"] = str(self.made / backend)
        if preload:
            environment["LD_PRELOAD"] = str(self.made / preload)
            environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        environment.update(more)
        done = subprocess.run(
            [self.levin, "doctor", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def needs_no_driver(self):
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            return
        self.skipTest("this machine has an NVIDIA driver")

    def check(self, reported, *lines):
        for line in lines:
            self.assertIn(line + "\n", reported)

    def last(self, reported):
        return reported.splitlines()[-1]

    # ---- the machine ----

    def test_nothing_is_wrong_without_gpu_and_slurm(self):
        """T123"""
        self.needs_no_driver()
        reported = self.doctor(driver=None)
        self.check(
            reported,
            "ok driver: no NVIDIA driver (libcuda.so.1) and no GPU here",
            "ok Slurm: not in Slurm",
            "ok memory: 8.58 GiB, usable 7.63 GiB",
        )
        self.assertRegex(reported, r"(?m)^ok cpu: .+, \d+ of \d+ CPUs usable, kernels: .*oneDNN")
        self.assertRegex(
            reported,
            r"(?m)^ok backend cuda: .*no levin_backend_cuda\.so .*; `make LEVIN_CUDA=on` builds it "
            "where nvcc is, `make cuda` fetches nvcc first$",
        )
        self.assertRegex(reported, r"(?m)^ok files: \d+ open files a process, up to ")
        self.assertNotIn("FAIL", reported)
        self.assertNotIn("fix:", reported)
        self.assertEqual(
            self.last(reported),
            "accelerator=auto uses cpu: no NVIDIA driver (libcuda.so.1) and no GPU here",
        )

    def test_this_machine(self):
        """Without the folder that stands for it; whatever it has, there is a last line."""
        done = subprocess.run([LEVIN, "doctor"], capture_output=True, text=True, check=False)
        self.assertIn(done.returncode, (OK, FAILURE), done.stderr)
        self.assertTrue(self.last(done.stdout).startswith("accelerator=auto uses "), done.stdout)

    def test_port_busy_rank_stale_shm_small(self):
        """T124"""
        with socket.socket() as busy:
            busy.bind(("", 0))
            busy.listen()
            port = str(busy.getsockname()[1])
            reported = self.doctor(
                status=FAILURE, preload="system.so", MASTER_PORT=port, RANK="3", WORLD_SIZE="8"
            )
        self.check(
            reported,
            f"warn ranks: RANK=3 WORLD_SIZE=8 MASTER_PORT={port} set without a launcher, maybe by "
            "an earlier run; levin train would refuse them: E109: there may be several nodes, and "
            "the address of the first is not given (source torchrun)",
            "    fix: unset RANK WORLD_SIZE MASTER_PORT (levin launch sets them for its ranks)",
            f"FAIL port: MASTER_PORT={port} is in use by process {os.getpid()} ({self.comm()})",
            "    fix: end that process, or unset MASTER_PORT: levin launch finds a free one",
            "warn shm: /dev/shm: 64 MiB, unused 64 MiB",
            "    fix: docker run --ipc=host, or --shm-size=8g; elsewhere mount -o "
            "remount,size=8g /dev/shm: with less than 1 GiB several ranks of a node can end in a "
            "bus error of NCCL or UCX",
        )

    def comm(self):
        return Path("/proc/self/comm").read_text().strip()

    def test_limits_of_control_groups(self):
        self.put("proc/self/cgroup", "0::/job\n")
        self.put("sys/fs/cgroup/job/memory.max", str(512 << 20))
        self.put("sys/fs/cgroup/job/cpu.max", "50000 100000")
        reported = self.doctor(STAND_IN_DEVICES="0")
        self.check(
            reported, "warn memory: 8.58 GiB, usable 512 MiB, limit of the control group 512 MiB"
        )
        self.assertRegex(
            reported, r"(?m)^warn cpu: .*usable, control group: time of 0\.5 CPUs, kernels"
        )
        self.assertIn("raise the limit (docker --cpus, Slurm --cpus-per-task), or start", reported)

    def test_a_version_of_onednn_that_was_not_measured(self):
        """Named by doctor, and once by a training."""
        self.needs_no_driver()
        line = "oneDNN 3.99.1 is a version"
        reported = self.doctor(driver=None, preload="dnnl.so")
        self.assertRegex(reported, rf"(?m)^warn cpu: {line}")
        self.assertIn("    fix: install a measured version, or keep wgrad_threads near", reported)
        environment = clean_environment()
        environment["LD_PRELOAD"] = str(self.made / "dnnl.so")
        environment["ASAN_OPTIONS"] = "verify_asan_link_order=0"
        done = subprocess.run(
            [self.levin, "train", "classify", "data=builtin:shapes", "model=mlp", "max_steps=1"]
            + ["micro_batches=2", "devices=2", "limit_val_batches=1", f"out={self.root}/out"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        self.assertEqual((done.stdout + done.stderr).count(line), 1, done.stdout + done.stderr)

    # ---- the driver ----

    def test_driver_absent_or_broken(self):
        self.put("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n")
        self.put("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n")
        self.put("sys/bus/pci/devices/0000:00:1f.0/vendor", "0x8086\n")
        reported = self.doctor(driver="stray", status=FAILURE)
        self.assertRegex(reported, r"(?m)^FAIL driver: libcuda\.so\.1 cannot be loaded: .*short")
        self.assertIn(f"LD_LIBRARY_PATH ({self.made / 'stray'}) must not lead to", reported)
        self.check(
            self.doctor(driver="old", status=FAILURE),
            "FAIL driver: libcuda.so.1 has no cuMemGetInfo_v2: it is too old, or not NVIDIA's",
        )
        self.needs_no_driver()
        reported = self.doctor(driver=None, status=FAILURE)
        self.check(
            reported,
            "FAIL driver: a GPU is here, but not the driver's library libcuda.so.1 (no kernel "
            "module, 0 in /dev/nvidia*, 1 on the PCI bus)",
        )
        self.assertIn("    fix: install the NVIDIA driver; in a container", reported)

    def test_driver_does_not_start(self):
        self.put_gpus()
        library = (self.made / "driver/libcuda.so.1").resolve()
        for code, name, fix in (
            (999, "CUDA_ERROR_UNKNOWN (999)", "nvidia-modprobe -u -c=0 as root"),
            (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803)", "reboot after an update"),
            (802, "CUDA_ERROR_SYSTEM_NOT_READY (802)", "systemctl status nvidia-fabricmanager"),
            (804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)", "remove cuda-compat"),
            (34, "CUDA_ERROR_STUB_LIBRARY (34)", "remove its folder .../stubs"),
            (304, "CUDA_ERROR_OPERATING_SYSTEM (304)", "ls -l /dev/nvidia*"),
            (777, "CUDA error 777", "nvidia-smi and `dmesg | grep -i nvrm` show more"),
        ):
            for backend in (None, "backend"):
                reported = self.doctor(status=FAILURE, backend=backend, STAND_IN_INIT=str(code))
                finding = (
                    f"the driver does not start: {name} (for CUDA 13.0, kernel module "
                    f"535.129.03, library {library})"
                )
                self.check(reported, f"FAIL driver: {finding}")
                self.assertRegex(reported, r"(?m)^FAIL driver: .*\n    fix: ")
                self.assertIn(fix, reported)
                self.assertEqual(self.last(reported), f"accelerator=auto uses cpu: {finding}")

    def test_driver_too_old(self):
        self.put_gpus()
        reported = self.doctor(status=FAILURE, backend="backend", STAND_IN_VERSION="11040")
        why = (
            "cuda: the NVIDIA driver is for CUDA 11.4, this build needs one for CUDA 12.8 or newer"
        )
        self.check(
            reported,
            "ok driver: NVIDIA driver 535.129.03, for CUDA up to 11.4, shows 2 GPUs",
            f"FAIL backend cuda: {why}",
        )
        self.assertEqual(
            self.last(reported),
            f"accelerator=auto uses cpu, although the driver shows 2 GPUs: {why}",
        )

    # ---- no device ----

    def test_no_device(self):
        """cuInit reports it, as the real driver does, or the count is 0."""
        for variables in ({"STAND_IN_INIT": "100"}, {"STAND_IN_DEVICES": "0"}):
            self.check(
                self.doctor(backend="backend", **variables),
                "ok driver: no GPU here (the driver's library is installed, for CUDA 13.0)",
                "ok backend cuda: it finds no device",
            )
        job = {"SLURM_JOB_ID": "77", "CUDA_VISIBLE_DEVICES": ""}  # of the CPU, on a node of CPUs
        self.assertIn("ok driver: no GPU here", self.doctor(STAND_IN_DEVICES="0", **job))

    def test_devices_hidden(self):
        self.put_gpus()

        def none(status=FAILURE, **more):
            return self.doctor(status=status, preload="system.so", STAND_IN_INIT="100", **more)

        for value in ("", "-1", "NoDevFiles"):
            reported = none(status=OK, CUDA_VISIBLE_DEVICES=value)
            finding = f"no GPU is visible: CUDA_VISIBLE_DEVICES={value} hides all"
            self.check(
                reported,
                f"warn driver: {finding}",
                "    fix: unset CUDA_VISIBLE_DEVICES to use the GPUs",
            )
            self.assertEqual(self.last(reported), f"accelerator=auto uses cpu: {finding}")
        self.check(
            none(CUDA_VISIBLE_DEVICES="7"),
            "FAIL driver: no GPU is visible: CUDA_VISIBLE_DEVICES=7 names none of this machine",
        )
        self.check(
            none(SLURM_JOB_ID="77", CUDA_VISIBLE_DEVICES=""),
            "FAIL driver: no GPU is visible: the Slurm job 77 has none (SLURM_GPUS_ON_NODE is not "
            "set)",
            "    fix: request them: #SBATCH --gpus-per-node=1 (or --gres=gpu:1)",
            "ok Slurm: in the job 77, outside of its steps: srun or levin launch starts ranks",
        )
        self.check(
            none(SLURM_JOB_ID="77", SLURM_GPUS_ON_NODE="2", STAND_IN_DENIED="/dev/nvidia-uvm"),
            "FAIL driver: no GPU is visible: this user may not open /dev/nvidia-uvm",
        )
        reported = none(STAND_IN_DENIED="/dev/nvidiactl")
        self.check(
            reported, "FAIL driver: no GPU is visible: this user may not open /dev/nvidiactl"
        )
        self.assertIn("    fix: this user may not open /dev/nvidiactl: ls -l shows its", reported)
        reported = self.doctor(
            status=FAILURE,
            preload="system.so",
            STAND_IN_INIT="999",
            STAND_IN_DENIED="/dev/nvidia-uvm",
        )
        self.assertIn("    fix: this user may not open /dev/nvidia-uvm: ls -l shows its", reported)
        self.check(
            none(),
            "FAIL driver: the driver shows no GPU (kernel module 535.129.03, 2 in /dev/nvidia*, 0 "
            "on the PCI bus)",
        )
        shutil.rmtree(self.root / "dev")
        self.assertIn("    fix: in a container start it with its GPUs (docker run", none())

    # ---- devices ----

    def test_two_devices(self):
        reported = self.doctor(backend="backend", CUDA_VISIBLE_DEVICES="0,1")
        self.assertNotIn("FAIL", reported)
        self.check(
            reported,
            "ok driver: NVIDIA driver, for CUDA up to 13.0, shows 2 GPUs",
            "ok gpu 0: Stand-in 0, compute capability 9.0, PCI 0001:3b:00.0, "
            "GPU-0a1a2a3a-4a5a-6a7a-8a9a-aabacadaeafa, memory 80.00 GiB, free 80.00 GiB (100 %)",
            "ok gpu 1: Stand-in 1, compute capability 9.0, PCI 0001:3c:00.0, "
            "GPU-0b1b2b3b-4b5b-6b7b-8b9b-abbbcbdbebfb, memory 80.00 GiB, free 80.00 GiB (100 %)",
            "ok peers: each of the 2 GPUs reaches the others' memory: 0:-y 1:y-",
            "ok backend cuda: usable, 2 devices",
            "ok libraries: cuda:0: Stand-in, cuFFT 12000, NVRTC 13000",
            "ok visible: CUDA_VISIBLE_DEVICES=0,1 shows the 2 GPUs above",
        )
        self.assertIn(
            self.last(reported),
            (
                "accelerator=auto uses cpu; accelerator=cuda uses the GPUs",
                "accelerator=auto uses cuda: 2 devices",
            ),
        )
        self.assertNotIn("peers", self.doctor(backend="backend", STAND_IN_DEVICES="1"))

    def test_devices_without_peers_or_memory(self):
        reported = self.doctor(backend="backend", STAND_IN_PEERS="0", STAND_IN_TAKEN="30")
        self.check(
            reported,
            "warn peers: 2 of 2 pairs of GPUs do not reach each other's memory: 0:-n 1:n-",
        )
        self.assertRegex(reported, r"(?m)^ok gpu 0: .* free 80.00 GiB \(100 %\)$")
        self.assertRegex(
            reported,
            r"(?m)^warn gpu 1: .* memory 80.00 GiB, free 56.00 GiB \(70 %\)\n    fix: others use",
        )
        for taken, level in (("9", "ok"), ("11", "warn")):
            reported = self.doctor(backend="backend", STAND_IN_TAKEN=taken)
            self.assertRegex(reported, f"(?m)^{level} gpu 1: ")

    def test_device_that_cannot_be_opened(self):
        reported = self.doctor(status=FAILURE, backend="backend", STAND_IN_RETAIN="214")
        self.assertRegex(
            reported,
            r"(?m)^FAIL gpu 0: .* it cannot be opened: CUDA_ERROR_ECC_UNCORRECTABLE \(214\)\n"
            r"    fix: nvidia-smi -q -d ECC",
        )
        reported = self.doctor(
            status=FAILURE, backend="backend", STAND_IN_RETAIN="46", STAND_IN_MODE="2"
        )
        self.assertRegex(
            reported, r"(?m)^FAIL gpu 0: .*UNAVAILABLE \(46\), its compute mode is prohibited$"
        )
        self.assertIn("    fix: nvidia-smi -i 0 -c DEFAULT (as root)", reported)
        self.assertRegex(
            self.doctor(backend="backend", STAND_IN_MODE="3"),
            r"(?m)^warn gpu 1: .*, compute mode exclusive\n    fix: one process at a time",
        )

    # ---- the backend ----

    def test_backend_absent_or_not_loaded(self):
        reported = self.doctor(status=FAILURE)
        why = re.search(r"(?m)^FAIL backend cuda: (.*no levin_backend_cuda\.so .*)$", reported)[1]
        self.assertIn(
            "    fix: `make LEVIN_CUDA=on` builds it where nvcc is, `make cuda` fetches nvcc "
            "first; or LEVIN_BACKEND_PATH=FOLDER, where",
            reported,
        )
        self.assertEqual(
            self.last(reported),
            f"accelerator=auto uses cpu, although the driver shows 2 GPUs: {why}",
        )
        reported = self.doctor(status=FAILURE, backend="needy")
        self.check(
            reported,
            "FAIL backend cuda: the backend cuda cannot be loaded: libcudnn_none.so.9: cannot open "
            "shared object file: No such file or directory",
            "    fix: install cuDNN (package libcudnn9-cuda-NN, or pip's nvidia-cudnn-cuNN), of "
            "the toolkit that levin was built with; or put the folder of libcudnn_none.so.9 into "
            "LD_LIBRARY_PATH",
        )
        found = f"{self.made / 'driver'}:{self.made / 'library'}"
        self.check(
            self.doctor(backend="needy", LD_LIBRARY_PATH=found),
            "ok backend cuda: usable, 2 devices",
        )

    def test_libraries_of_devices(self):
        reported = self.doctor(backend="backend")
        self.assertEqual(reported.count("libraries: "), 1)  # the devices are alike
        reported = self.doctor(backend="backend", STAND_IN_LIBRARIES="cuFFT 12000, NVRTC 0")
        self.check(
            reported,
            "warn libraries: cuda:0: Stand-in, cuFFT 12000, NVRTC 0",
            "    fix: NVRTC was not found: attention on Hopper is slower; install package "
            "cuda-nvrtc-NN-N, or pip's nvidia-cuda-nvrtc, or put its folder into LD_LIBRARY_PATH",
        )
        self.check(
            self.doctor(backend="backend", STAND_IN_LIBRARIES="cuFFT 0, NVRTC 13000"),
            "    fix: cuFFT was not found: Fourier transforms are slower; install package "
            "libcufft-NN-N, or pip's nvidia-cufft, or put its folder into LD_LIBRARY_PATH",
        )
        reported = self.doctor(status=FAILURE, backend="backend", STAND_IN_CLOSED="1")
        self.check(
            reported,
            "ok libraries: cuda:0: Stand-in, cuFFT 12000, NVRTC 13000",
            "FAIL libraries: cuda:1: cuDNN does not start: no reason",
        )

    # ---- variables ----

    def test_variables(self):
        reported = self.doctor(STAND_IN_DEVICES="0", NCCL_P2P_DISABLE="1", OMP_NUM_THREADS="4")
        self.check(
            reported,
            "warn NCCL: NCCL_P2P_DISABLE=1 set",
            "    fix: unset NCCL_P2P_DISABLE unless it is needed: gradients then take a slower way",
        )
        self.assertIn("ok OpenMP: OMP_NUM_THREADS=4 set: levin chooses its threads", reported)
        self.check(
            self.doctor(STAND_IN_DEVICES="0", NCCL_P2P_DISABEL="1"),
            "    fix: NCCL knows no NCCL_P2P_DISABEL and ignores it; did you mean NCCL_P2P_DISABLE",
        )
        self.check(
            self.doctor(STAND_IN_DEVICES="0", NCCL_DEBUG="INFO"), "ok NCCL: NCCL_DEBUG=INFO set"
        )
        stale = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "8"}
        whole = dict(stale, MASTER_ADDR="127.0.0.1", MASTER_PORT="29500")
        self.assertIn(
            "; levin train would be rank 3 of 8 and wait for the others\n",
            self.doctor(STAND_IN_DEVICES="0", **dict(whole, MASTER_ADDR="far.example")),
        )
        reported = self.doctor(STAND_IN_DEVICES="0", **dict(stale, RANK="9"))
        self.assertIn("; levin train would refuse them: E102: ", reported)
        reported = self.doctor(
            STAND_IN_DEVICES="0", TORCHELASTIC_RUN_ID="x", **dict(whole, MASTER_PORT="1")
        )
        self.check(
            reported,
            "ok ranks: this is rank 3 of 8, by torchrun",
            "ok port: MASTER_PORT=1 of this rank's run, not tried",
        )
        self.check(
            self.doctor(status=FAILURE, STAND_IN_DEVICES="0", MASTER_PORT="70000"),
            "FAIL port: MASTER_PORT=70000 is not a port, which is 1 to 65535",
        )

    def test_rank_of_the_launcher(self):
        environment = clean_environment()
        done = subprocess.run(
            [LEVIN, "launch", "-n", "2", "-q", "--", LEVIN, "doctor", "--json"],
            env=dict(environment, LEVIN_TEST_ROOT=str(self.root), STAND_IN_DEVICES="0")
            | {"LD_LIBRARY_PATH": str(self.made / "driver")},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
        for rank in range(2):
            self.assertIn(f'"this is rank {rank} of 2, by levin"', done.stdout)

    # ---- the command ----

    def test_json(self):
        self.put_gpus()
        reported = json.loads(self.doctor("--json", status=FAILURE, STAND_IN_INIT="999"))
        self.assertEqual(set(reported), {"checks", "failed", "accelerator", "conclusion"})
        checks = {check["name"]: check for check in reported["checks"]}
        self.assertEqual(checks["driver"]["level"], "FAIL")
        self.assertIn("CUDA_ERROR_UNKNOWN (999)", checks["driver"]["finding"])
        self.assertIn("nvidia-modprobe", checks["driver"]["fix"])
        self.assertNotIn("fix", checks["Slurm"])
        levels = [check["level"] for check in reported["checks"]]
        self.assertEqual(reported["failed"], levels.count("FAIL"))
        self.assertEqual(reported["accelerator"], "cpu")
        text = self.doctor(status=FAILURE, STAND_IN_INIT="999")
        self.assertEqual(self.last(text), reported["conclusion"])
        lines = [f"{c['level']} {c['name']}: {c['finding']}" for c in reported["checks"]]
        live = ("ok memory: ", "ok shm: ")  # what is free may be another number by now
        self.check(text, *[line for line in lines if not line.startswith(live)])
        for begin in live:
            self.assertIn("\n" + begin, text)

    def test_usage(self):
        reported = self.doctor("--quick", status=USAGE)
        self.assertIn("error: levin doctor does not take --quick\n", reported)
        self.assertIn("usage: levin doctor [--json]\n", reported)

    def test_no_other_command_loads_the_driver(self):
        seen = self.root / "loaded"
        environment = dict(clean_environment(), STAND_IN_LOADED=str(seen))
        environment["LD_LIBRARY_PATH"] = str(self.made / "driver")
        environment["LEVIN_BACKEND_PATH"] = str(self.made / "backend")
        for arguments in (
            ["--help"],
            ["--version"],
            ["help", "doctor"],
            ["doctor", "--help"],
            ["slurm", "env"],
            ["completion", "bash"],
            ["plan", "train", "classify", "data=builtin:shapes", "accelerator=cpu"],
            ["launch", "-n", "1", "accelerator=cpu", "--", "true"],
        ):
            done = subprocess.run(
                [LEVIN, *arguments], env=environment, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, OK, done.stdout + done.stderr)
            self.assertFalse(seen.exists(), arguments)
        subprocess.run([LEVIN, "doctor"], env=environment, capture_output=True, check=False)
        self.assertTrue(seen.exists())


if __name__ == "__main__":
    unittest.main()
