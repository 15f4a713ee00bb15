"""Run directories that exist, cannot be written, or fill up.

usage: test_bad_out.py LEVIN [test names]
"""

import os
import shutil

from case import Case, FAILURE, main, OK, read, tree, USAGE, write


class Out(Case):
    """Where a run is written."""

    def test_exists(self):
        self.train()
        before = tree(self.out)
        self.train(
            code=USAGE,
            expects=[f"out={self.out} exists", "resume=true continues", "overwrite=true replaces"],
        )
        self.train(
            "resume=true",
            "overwrite=true",
            code=USAGE,
            expects=["resume=true and overwrite=true exclude each other"],
        )
        self.assertEqual(tree(self.out), before)
        write(f"{self.out}/notes.txt", b"mine")
        write(f"{self.out}/checkpoints/last.safetensors.tmp-1", b"of a killed process")
        self.train("overwrite=true", "seed=5")
        self.assertNotEqual(
            read(f"{self.out}/checkpoints/last.safetensors"), before["checkpoints/last.safetensors"]
        )
        self.assertEqual(read(f"{self.out}/notes.txt"), b"mine")
        self.no_leftovers()

    def test_only_the_own_files_are_overwritten(self):
        """A name that ends like one of ours is not ours."""
        self.train()
        mine = [
            f"{self.out}/{name}"
            for name in (
                "pretrain.log",
                "base_config.yaml",
                "old_metrics.jsonl",
                "pretrain.log.tmp-12",
                "weights.safetensors",
            )
        ]
        for path in mine:
            write(path, b"mine")
        write(f"{self.out}/train.log.tmp-12", b"of a killed process")
        self.train("overwrite=true")
        self.assertEqual([path for path in mine if not os.path.exists(path)], [])
        self.assertFalse(os.path.exists(f"{self.out}/train.log.tmp-12"))

    def test_inside_a_folder_of_classes(self):
        """The run would be a class at the next start, which could then not resume."""
        before = tree(self.photos)
        arguments = self.arguments(self.photos, self.out)
        name = os.path.basename(self.photos)
        for out in (f"{self.photos}/{below}" for below in ("run", "a/b/run", f"../{name}/run")):
            for more in ([], ["devices=2", "accelerator=cpu"]):
                here = [
                    f"out={out}" if argument.startswith("out=") else argument
                    for argument in arguments
                ] + more
                self.levin(here, USAGE, [f"{out} lies inside of data={self.photos}"])
        self.assertEqual(tree(self.photos), before)
        bare = [argument for argument in arguments if not argument.startswith(("out=", "data="))]
        for more in ([], ["devices=2", "accelerator=cpu"]):
            self.levin(
                [*bare, "data=.", *more],
                USAGE,
                ["lies inside of data=."],
                before=["env", "-C", self.photos],
            )
        self.assertFalse(os.path.exists(f"{self.photos}/out"))
        self.assertEqual(tree(self.photos), before)

    def test_beside_parts(self):
        os.mkdir(f"{self.dir}/parts")
        for part in ("Train", "valid"):
            shutil.copytree(self.photos, f"{self.dir}/parts/{part}")
        out = f"{self.dir}/parts/run"
        self.levin(self.arguments(f"{self.dir}/parts", out), OK)
        self.levin(["train", "classify", f"out={out}", "resume=true", "max_steps=3"], OK)
        shutil.rmtree(f"{self.dir}/parts/valid")
        self.levin(self.arguments(f"{self.dir}/parts", f"{self.dir}/parts/new"), USAGE)

    def test_an_empty_folder_will_do(self):
        os.mkdir(self.out)
        self.train()

    def test_refused_words_do_not_overwrite(self):
        self.train()
        before = tree(self.out)
        self.train("overwrite=true", "micro_batches=9", code=USAGE)
        self.train("overwrite=true", data=f"{self.dir}/none", code=USAGE)
        self.train(
            "overwrite=true", f"weights={self.dir}/none", code=USAGE, expects=[f"{self.dir}/none"]
        )
        self.assertEqual(tree(self.out), before)

    def test_is_a_file(self):
        write(self.out, b"precious")
        for more in ([], ["overwrite=true"], ["resume=true"]):
            self.train(
                *more, code=USAGE, expects=[f"out={self.out} is a file", "a run needs a directory"]
            )
        self.assertEqual(read(self.out), b"precious")
        self.levin(
            self.arguments(self.photos, f"{self.out}/below"), FAILURE, [self.out, "Not a directory"]
        )
        self.assertEqual(read(self.out), b"precious")

    def test_read_only(self):
        who = self.other_user()
        os.mkdir(self.out)
        os.chmod(self.out, 0o555)
        self.train(
            code=FAILURE,
            expects=[
                self.out,
                "Permission denied",
                "check the permissions or choose another place",
            ],
            before=who,
        )
        self.assertEqual(os.listdir(self.out), [])
        self.levin(
            ["predict", f"model={self.model}", f"data={self.photos}", f"output={self.out}/p.csv"],
            FAILURE,
            [f"{self.out}/p.csv", "Permission denied"],
            before=who,
        )
        self.assertEqual(os.listdir(self.out), [])

    def test_files_may_not_grow(self):
        """ulimit -f: an error of the write, not the end of the process."""
        self.train(
            code=FAILURE,
            expects=[
                "error: cannot write",
                "checkpoints/last.safetensors",
                "File too large",
                "ulimit -f",
            ],
            before=["sh", "-c", 'ulimit -f 16; exec "$0" "$@"'],
        )
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])
        self.no_leftovers()

    def test_64_kilobytes(self):
        """The checkpoint does not fit: an error, and no half of it."""
        self.mount("64k")
        expects = [
            "error: cannot write",
            "checkpoints/last.safetensors",
            "No space left on device",
            "free some space",
        ]
        self.train(code=FAILURE, expects=expects)
        self.assertEqual(os.listdir(f"{self.out}/checkpoints"), [])
        self.no_leftovers()
        self.assertIn(b"No space left", read(f"{self.out}/train.log"))

    def test_fills_up(self):
        """The old checkpoint and the old model stay whole, and the run can go on when there is
        space again."""
        self.mount("12m")
        self.train()
        kept, old = self.hashes(), tree(self.out)
        for leave in (65536, 0):
            self.fill(leave)
            self.train(
                "resume=true",
                "max_steps=4",
                code=FAILURE,
                expects=["No space left on device", "free some space"],
            )
            os.remove(f"{self.dir}/small/filler")
            self.assertEqual(self.hashes(), kept)
            for name in old:
                if name.endswith(".safetensors"):
                    self.assertEqual(read(f"{self.out}/{name}"), old[name], name)
            self.no_leftovers()
        self.train("resume=true", "max_steps=4", expects=["resuming from", "step 2"])
        whole = f"{self.dir}/whole"
        self.levin(self.arguments(self.photos, whole, "max_steps=4"), OK)
        self.assertEqual(self.hashes(), self.hashes(whole))  # as if nothing had happened

    def test_predictions_fill_up(self):
        self.mount("64k")
        table = f"{self.dir}/small/p.csv"
        write(table, b"old")
        self.fill(0)
        self.levin(
            ["predict", f"model={self.model}", f"data={self.photos}", f"output={table}"],
            FAILURE,
            [table, "No space left on device"],
        )
        self.assertEqual(read(table), b"old")
        self.assertEqual(sorted(os.listdir(f"{self.dir}/small")), ["filler", "p.csv"])


if __name__ == "__main__":
    main()
