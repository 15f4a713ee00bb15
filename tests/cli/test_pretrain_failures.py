"""What goes wrong in a pretraining: each ends with its code and one sentence, and the export of the
epoch before is there, to the byte.

usage: test_pretrain_failures.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import unittest

from patterns import draw_patterns
from rank_processes import drop_identity

LEVIN = os.path.abspath(sys.argv.pop(1))
drop_identity()
SMALL = (
    "data=builtin:shapes data.count=48 model=cnn image_size=16 batch_size=16 num_workers=0"
    " method_args.hidden_dim=16 method_args.output_dim=16 micro_batches=2 wgrad_threads=1"
).split()
DINO = "method=dino transform_args.local_view.view_size=8 optim.lr=1 epochs=8".split()
ENDED, USAGE = 1, 64


class Failures(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="levin-failures-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def levin(self, *arguments, code=0, **how):
        done = subprocess.run(
            [LEVIN, *arguments], cwd=self.dir, capture_output=True, text=True, timeout=60, **how
        )
        text = done.stdout + done.stderr
        self.assertEqual(done.returncode, code, f"{arguments}\n{text}")
        return text

    def exports(self, run="run"):
        folder = f"{self.dir}/{run}/exported_models"
        found = {}
        for name in sorted(os.listdir(folder)):
            with open(f"{folder}/{name}", "rb") as f:
                found[name] = f.read()
        self.assertEqual(len(found), 4, list(found))
        return found

    def only_error(self, text):
        """The one line of it."""
        lines = [line for line in text.splitlines() if line.startswith("error: ")]
        self.assertEqual(len(lines), 1, text)
        return lines[0]

    def test_collapse_is_one_warning(self):
        """Answers of one image, or of none: without centring, and with a temperature of 10."""
        for keys in (
            ["method_args.center_momentum=1"],
            ["method_args.teacher_temp=10", "method_args.warmup_teacher_temp=10"],
        ):
            text = self.levin(
                "pretrain", *SMALL, *DINO, *keys, "out=run", "log_every_n_steps=4", "overwrite=true"
            )
            warnings = [line for line in text.splitlines() if line.startswith("warning: ")]
            self.assertEqual(len(warnings), 1, text)
            [step] = re.findall(
                "same for all images: teacher_information is .* at step ([0-9]+),", warnings[0]
            )
            self.assertLessEqual(int(step), 12)
            self.exports()
        text = self.levin("pretrain", *SMALL, *DINO, "out=good", "optim.lr=0.03")
        self.assertNotIn("warning", text)

    def test_a_loss_that_is_not_a_number(self):
        for layout in ([], ["devices=2"]):
            self.levin("pretrain", *SMALL, *layout, "epochs=2", "out=run", "overwrite=true")
            before = self.exports()
            text = self.levin(
                "pretrain", "out=run", "resume=true", "epochs=4", "optim.lr=1e30", *layout,
                code=ENDED,
            )  # fmt: skip
            error = self.only_error(text)
            self.assertRegex(error, r"the loss is nan at step 7 \(epoch 3\), micro-batch [01]")
            self.assertIn("run/checkpoints/last.safetensors keeps step 6", error)
            if layout:
                self.assertIn("levin launch: rank ", text)
            self.assertTrue(self.exports() == before)

    def test_a_disk_that_is_full(self):
        self.levin("pretrain", *SMALL, "epochs=1", "out=run")
        before = self.exports()
        size = len(before["exported_last.pt"]) // 2

        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        text = self.levin(
            "pretrain", "out=run", "resume=true", "epochs=2", code=ENDED, preexec_fn=limit
        )
        error = self.only_error(text)
        self.assertIn('cannot write "run/checkpoints/last.safetensors": File too large', error)
        self.assertTrue(self.exports() == before)
        self.levin("pretrain", "out=run", "resume=true", "epochs=2")
        self.assertFalse(self.exports() == before)

    def test_an_image_is_removed(self):
        """It is left out, with its name, as one that cannot be decoded; others go on."""
        draw_patterns(f"{self.dir}/photos", 6)
        more = ["data=photos", *SMALL[2:], "batch_size=8", "epochs=10000", "out=run"]
        with subprocess.Popen(
            [LEVIN, "pretrain", *more], cwd=self.dir, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as run:  # fmt: skip
            for line in run.stdout:
                if line.startswith("epoch 2 "):
                    os.remove(f"{self.dir}/photos/rings/3.png")
                if line.startswith("warning: "):
                    break
            self.assertIn("1 unreadable training sample left out: rings/3.png: cannot open", line)
            run.terminate()
            rest = run.communicate(timeout=60)[0]
        self.assertEqual(run.returncode, 143, rest)
        self.assertNotIn("warning: ", rest)
        self.exports()

    def test_out_that_another_run_has(self):
        self.levin("pretrain", *SMALL, "epochs=1", "out=run")
        before = self.exports()
        text = self.levin("pretrain", *SMALL, "epochs=1", "out=run", "seed=1", code=USAGE)
        self.assertIn("out=run exists: resume=true continues that run", self.only_error(text))
        self.assertTrue(self.exports() == before)

    def test_ranks_with_different_out(self):
        self.levin("pretrain", *SMALL, "epochs=1", "out=run0")
        before = self.exports("run0")
        step = {
            "SLURM_JOB_ID": "1",
            "SLURM_STEP_ID": "0",
            "SLURM_NODEID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NUM_NODES": "1",
            "SLURM_STEP_TASKS_PER_NODE": "2",
            "SLURM_STEP_NODELIST": "localhost",
        }
        tasks = [
            subprocess.Popen(
                [LEVIN, "pretrain", *SMALL, "epochs=1", f"out=run{i}", "overwrite=true"],
                cwd=self.dir, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                env=dict(os.environ, SLURM_PROCID=str(i), SLURM_LOCALID=str(i), **step),
            )
            for i in range(2)
        ]  # fmt: skip
        text = [task.communicate(timeout=60)[0] for task in tasks]
        self.assertEqual([task.returncode for task in tasks], [USAGE, USAGE], text)
        self.assertIn("rank 1 has out=run1 where rank 0 has out=run0", self.only_error(text[0]))
        self.assertFalse(os.path.exists(f"{self.dir}/run1"))
        self.assertTrue(self.exports("run0") == before)
        self.assertFalse(re.search("done after", text[0]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv, verbosity=0)
