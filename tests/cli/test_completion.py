"""What bash completes of a command line of levin, with the script of `levin completion bash`: the
words are cut as bash cuts them, at = and : or not.

usage: test_completion.py LEVIN     registered in tests/cli/CMakeLists.txt
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

LEVIN = os.path.abspath(sys.argv[1])
del sys.argv[1]

ASK = """
source ./levin.bash
COMP_WORDBREAKS=$1; shift
COMP_WORDS=(levin "$@") COMP_CWORD=$#
complete -p levin | grep -q -- '-F _levin' || exit 3
_levin levin
for one in "${COMPREPLY[@]}"; do printf '%s\\n' "$one"; done
"""


def levin(*arguments, status=0):
    done = subprocess.run([LEVIN, *arguments], capture_output=True, text=True, timeout=60)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def cut(line, breaks):
    """The words of a line in front of the cursor, as bash cuts them."""
    words = []
    for word in line.split(" "):
        parts = re.split(f"([{breaks}])", word) if breaks else [word]
        words += [part for part in parts if part != ""] or [""]
    return words


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cwd = Path(folder.name)
        (cls.cwd / "levin.bash").write_text(levin("completion", "bash"))
        (cls.cwd / "photos one").mkdir()
        (cls.cwd / "photos.csv").touch()
        (cls.cwd / "mine.so").touch()  # completing loads no shared object

    def ask(self, line, breaks="=:"):
        done = subprocess.run(
            ["bash", "-c", ASK, "ask", breaks, *cut(line, breaks)],
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""), line)
        return done.stdout.splitlines()

    def test_commands_and_recipes(self):
        self.assertEqual(self.ask("tr"), ["train"])
        self.assertEqual(self.ask("e"), ["eval", "export"])
        self.assertGreaterEqual(set(self.ask("")), {"train", "predict", "plan", "cc", "help"})
        self.assertEqual(self.ask("train cl"), ["classify"])
        self.assertEqual(self.ask("train ./mi"), ["./mine.so"])
        self.assertEqual(self.ask("plan "), ["train", "classify", "gan", "pretrain", "pose"])
        self.assertEqual(self.ask("pret"), ["pretrain"])
        for front in ("pretrain", "train pretrain", "plan pretrain", "plan train pretrain"):
            self.assertEqual(
                self.ask(f"{front} method_args.teacher_w"), ["method_args.teacher_weights="]
            )
        self.assertEqual(self.ask("plan train cl"), ["classify"])
        self.assertEqual(self.ask("ckpt h"), ["hash"])
        self.assertEqual(self.ask("ckpt ver"), ["verify"])
        self.assertEqual(self.ask("completion "), ["bash", "zsh"])
        self.assertEqual(self.ask("slurm ex"), ["expand"])
        self.assertEqual(self.ask("slurm script ntas"), ["ntasks_per_node="])
        self.assertEqual(self.ask("slurm script --ntas"), ["--ntasks_per_node="])
        self.assertEqual(self.ask("slurm script gpu_syntax=g"), ["gpus-per-node", "gres"])
        self.assertEqual(self.ask("slurm submit -p main tr"), ["train"])
        self.assertEqual(self.ask("slurm script --time=3 train cl"), ["classify"])
        self.assertEqual(self.ask("slurm submit --dr"), ["--dry-run"])
        letters = self.ask("slurm script -")
        self.assertLessEqual({"-p", "-t", "-c", "-N"}, set(letters))
        self.assertNotIn("--dry-run", letters)
        self.assertIn("photos.csv", self.ask("slurm check pho"))
        self.assertEqual(self.ask("slurm check -"), ["--no-ask-cluster"])
        self.assertEqual(self.ask("slurm expand -"), [])
        self.assertEqual(self.ask("slurm script --time=3 train classify max_e"), ["max_epochs="])
        self.assertEqual(self.ask("doctor "), ["--json"])
        self.assertIn("conv2d", self.ask("ops conv"))
        self.assertIn("train.classify", self.ask("help tr"))

    def test_keys(self):
        self.assertEqual(self.ask("train classify max_e"), ["max_epochs="])
        self.assertEqual(self.ask("plan train classify max_e"), ["max_epochs="])
        self.assertEqual(self.ask("train classify data=x max_e"), ["max_epochs="])
        self.assertEqual(self.ask("train classify --max_e"), ["--max_epochs="])
        self.assertEqual(self.ask("predict top"), ["top_k="])
        self.assertEqual(self.ask("predict classify top"), ["top_k="])
        self.assertEqual(self.ask("eval conf"), ["config=", "confusion="])
        self.assertEqual(self.ask("train classify top"), [])
        self.assertEqual(self.ask("eval li"), ["linear"])
        self.assertEqual(self.ask("eval linear stan"), ["standardize="])
        self.assertEqual(self.ask("eval knn tem"), ["temperature="])
        self.assertEqual(self.ask("eval gan conf"), ["config="])
        self.assertEqual(self.ask("predict embed feat"), ["features="])
        # aliases are completed, and are not in the list of all
        self.assertEqual(self.ask("train classify gpu"), ["gpus="])
        everything = self.ask("train classify ")
        self.assertIn("optim.lr=", everything)
        self.assertNotIn("gpus=", everything)
        self.assertIn("num_nodes=", everything)

    def test_sweeps(self):
        self.assertEqual(self.ask("sweep tr"), ["train", "trial"])
        self.assertEqual(self.ask("sweep train cl"), ["classify"])
        self.assertEqual(self.ask("sweep train classify max_e"), ["max_epochs="])
        self.assertEqual(self.ask("sweep train classify optim.name=adamw"), ["adamw"])
        self.assertEqual(self.ask("sweep train classify dry"), ["dry_run="])
        self.assertEqual(self.ask("sweep train classify --gpu_s"), ["--gpu_sets="])
        self.assertEqual(self.ask("sweep train ./mine.so max_e"), ["max_epochs="])
        self.assertEqual(self.ask("sweep plan --zi"), ["--zip="])
        self.assertEqual(self.ask("sweep plan x=1 -- levin train classify max_e"), ["max_epochs="])
        self.assertIn("photos one", self.ask("sweep run pho"))
        self.assertEqual(self.ask("sweep run x para"), ["parallel="])
        self.assertEqual(self.ask("sweep submit x ntas"), ["ntasks_per_node="])
        self.assertEqual(self.ask("sweep submit x as=j"), ["jobs"])
        self.assertLessEqual({"-p", "-t", "-c", "--dry-run"}, set(self.ask("sweep submit x -")))
        self.assertEqual(self.ask("sweep best x print=ch"), ["checkpoint"])
        self.assertEqual(self.ask("sweep best x zi"), [])

    def test_keys_of_shared_objects(self):
        self.assertEqual(self.ask("train ./mine.so max_e"), ["max_epochs="])
        self.assertEqual(self.ask("plan train ./mine.so max_e"), ["max_epochs="])
        self.assertEqual(self.ask("train ./mine.so augment"), [])
        self.assertEqual(self.ask("eval ./mine.so sp"), ["split="])
        self.assertEqual(self.ask("predict ./mine.so outp"), ["output="])
        self.assertEqual(self.ask("predict ./mine.so top"), [])

    def test_values(self):
        for breaks, front in (("=:", ""), ("", "optim.name="), ("=", "")):
            self.assertEqual(
                self.ask("train classify optim.name=ad", breaks),
                [front + "adam", front + "adamw", front + "adafactor"],
            )
        self.assertEqual(self.ask("train classify resume=t"), ["true"])
        self.assertEqual(self.ask("train classify resume="), ["true", "false"])
        self.assertEqual(self.ask("train classify strategy=sh"), ["sharded"])
        self.assertEqual(self.ask("train classify strategy=ba"), ["balance"])
        self.assertEqual(self.ask("eval strategy=ba"), [])  # of a later version
        self.assertEqual(
            self.ask("train classify model=resnet"),
            ["resnet18", "resnet34", "resnet50", "resnet101", "resnet152"],
        )
        self.assertEqual(self.ask("train classify --model resnet10"), ["resnet101"])
        self.assertEqual(self.ask("train classify seed="), [])
        self.assertEqual(self.ask("train ./mine.so precision=b"), ["bf16-mixed", "bf16-true"])
        self.assertEqual(self.ask("eval ./mine.so split=v"), ["val"])
        self.assertEqual(self.ask("eval split=t"), ["train", "test"])

    def test_files(self):
        self.assertEqual(sorted(self.ask("train classify data=ph")), ["photos one", "photos.csv"])
        self.assertEqual(self.ask("train classify data=photos.", ""), ["data=photos.csv"])
        self.assertEqual(self.ask("predict model=mi"), ["mine.so"])
        self.assertEqual(self.ask("cc mi"), ["mine.so"])

    def test_other_shells(self):
        self.assertTrue(levin("completion", "zsh").startswith("#compdef levin\n"))
        self.assertIn("bash and zsh are known", levin("completion", "fish", status=64))
        self.assertIn("bash and zsh are known", levin("completion", status=64))


unittest.main()
