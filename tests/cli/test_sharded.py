"""strategy=sharded on processes: one hash with one rank, whatever the ranks and the transport; a
run that three of them begin goes on under four, under dp and alone; SIGUSR2 saves what all have;
what cannot be divided is refused.

usage: test_sharded.py LEVIN [test names]
"""

import signal
import subprocess

from case import LEVIN, main
from rank_case import RankCase, SHAPES

TRAIN = [*SHAPES, "model=cnn", "optim=lamb", "gradient_clip_val=0.5", "ema.decay=0.9"]
TRAIN += ["accumulate_grad_batches=2", "eval_batch_size=30", "max_epochs=2"]


class Sharded(RankCase):
    def run_levin(self, *arguments):
        done = subprocess.run([LEVIN, *arguments], capture_output=True, text=True, cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def hashes(self, out):
        return self.run_levin("ckpt", "hash", f"{out}/checkpoints/last.safetensors")

    def trained(self, out, *arguments):
        self.run_levin("train", "classify", *TRAIN, f"out={out}", *arguments)
        return self.hashes(out)

    def resumed(self, out, *arguments):
        self.run_levin("train", "classify", f"out={out}", "resume=true", "quiet=true", *arguments)
        return self.hashes(out)

    def test_one_hash(self):
        alone = self.trained("alone", "devices=1")
        for i, how in enumerate((["devices=2", "transport=net"], ["devices=4", "sharded_stage=1"])):
            self.assertEqual(self.trained(f"run{i}", "strategy=sharded", *how), alone, how)
        for i, how in enumerate(
            (["devices=4", "strategy=sharded"], ["devices=2", "strategy=dp"], ["devices=1"])
        ):
            out = f"half{i}"
            self.trained(out, "strategy=sharded", "devices=3", "max_steps=3")
            self.assertEqual(self.resumed(out, "max_steps=-1", *how), alone, how)

    def test_a_signal_saves_what_all_ranks_have(self):
        p = self.begin(*TRAIN, "strategy=sharded", "devices=2", "max_epochs=-1")
        self.wait_for(lambda: self.saved() is not None, p)
        before = self.saved()
        p.send_signal(signal.SIGUSR2)
        self.wait_for(lambda: self.saved() != before, p)
        p.send_signal(signal.SIGTERM)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 143)
        step = f"max_steps={self.saved() + 2}"
        self.run_levin(
            *["train", "classify", f"out={self.out}", "resume=true", "quiet=true"],
            *[step, "max_epochs=-1", "devices=1"],
        )
        alone = self.trained("alone", "devices=1", "max_epochs=-1", step)
        self.assertEqual(self.hashes(self.out), alone)

    def test_what_cannot_be_divided(self):
        sharded = ["classify", *SHAPES, "model=mlp", "strategy=sharded", "devices=2", "max_steps=2"]
        for command, how in (
            (["train"], "optim=adafactor"),
            (["train"], "accelerator=sim"),
            (["plan", "train"], "accelerator=sim"),
        ):
            done = subprocess.run(
                [LEVIN, *command, *sharded, how, f"out={self.dir}/{how}"],
                capture_output=True,
                text=True,
                env={"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"},
            )
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("use strategy=ddp", done.stderr.replace("or strategy", "use strategy"))


if __name__ == "__main__":
    main()
