"""What people bring from other trainers: keys, values, empty paths, bare folders and scripts. Each gets what works.

usage: test_foreign_words.py LEVIN [test names]
"""
from bad_support import Case, main, OK, USAGE, write

SHAPES = ["data=builtin:shapes", "data.count=60", "model=mlp", "image_size=16"]


class Keys(Case):
    def plan(self, words, code=OK, says=()):
        return self.levin(["plan", "train", "classify", *SHAPES, *words], code, says)

    def test_names_of_other_trainers_work(self):
        """The same run under both names."""
        for theirs, ours in ((["--epochs", "3"], ["max_epochs=3"]), (["-b", "8"], ["batch_size=8"]), (["-b8"], ["batch_size=8"]), (["--batch-size=8"], ["batch_size=8"]),
                             (["optimizer=SGD", "wd=0.1", "--lr=0.1"], ["optim.name=sgd", "optim.weight_decay=0.1", "optim.lr=0.1"]),
                             (["validation_split=0.5"], ["val_split=0.5"]), (["--grad-accum-steps", "2"], ["accumulate_grad_batches=2"]),
                             (["-j", "0", "precision=16", "device=cpu"], ["num_workers=0", "precision=16-mixed", "accelerator=cpu"])):
            self.assertEqual(self.plan(theirs)[0], self.plan(ours)[0])
        write(f"{self.dir}/job.yaml", b"epochs: 3\noptimizer: sgd\n")
        self.assertEqual(self.plan([f"config={self.dir}/job.yaml"])[0], self.plan(["max_epochs=3", "optim=sgd"])[0])
        self.plan(["wd=0.1", "weight_decay=0.2"], USAGE, ["two names of `optim.weight_decay`"])

    def test_what_is_not_here_says_what_is(self):
        for word, says in (("amp=true", "use precision=bf16-mixed or precision=16-mixed"), ("--amp", "use precision"), ("fast_dev_run=true", "use max_steps=1"),
                           ("strategy=fsdp", "use strategy=ddp"), ("strategy=ddp_spawn", "use strategy=ddp"), ("precision=fp16", "use precision=16-mixed"),
                           ("accelerator=tpu", "use accelerator=cpu"), ("accelerator=cuda:0", "accelerator=gpu devices=[N]"), ("min_lr=1e-5", "scheduler.end_factor=F"),
                           ("naflex_loader=1", "images have one size, image_size"), ("val_split=validation", "is found by its name")):
            self.plan([word], USAGE, ["is not in this version: ", says, "(command line)"])
        write(f"{self.dir}/job.yaml", b"seed: 1\ncallbacks: early\n")
        self.plan([f"config={self.dir}/job.yaml"], USAGE, ["`callbacks` is not in this version", "job.yaml:2"])

    def test_meaning_before_spelling(self):
        for word, says in (("optimzer=sgd", "did you mean `optimizer` (optim.name)?"), ("optimizer.lr=1", "did you mean `optim.lr`?"),
                           ("trainer.max_epochs=3", "did you mean `max_epochs`?"), ("bachsize=3", "did you mean `batch_size`?"),
                           ("fast_dev_rn=1", "did you mean `fast_dev_run`? It is not in this version: use max_steps=1"),
                           ("model=resnet-18", "did you mean `resnet18`?")):
            self.plan([word], USAGE, [says])
        for model in ("resnet101", "vit_b_32", "resnet34d2"):
            told = self.plan([f"model={model}"], USAGE, ["expected one of cnn, mlp, resnet18, resnet34, resnet50"])[1]
            self.assertNotIn("did you mean", told)

    def test_empty_paths(self):
        """Every row that is a path, in every command, by every way: an unset variable of a shell must not become another run."""
        commands = {"train.classify": ["plan", "train", "classify"], "predict": ["predict"], "eval": ["eval"], "export": ["export"], "launch": ["launch"]}
        behind = {"launch": ["--", "true"]}
        for topic, command in commands.items():
            paths = [line.split()[0] for line in self.levin(["help", topic], OK)[0].splitlines() if line.startswith("  ") and line.split()[1:2] == ["path,"]]
            self.assertTrue(paths)
            for key in paths:
                for words in ([f"{key}="], [f"--{key}", ""], [f"{key}=' '"]):
                    if key != "config" or words != [f"{key}=' '"]:
                        self.levin([*command, *words, *behind.get(topic, [])], USAGE, [f"`{key}`: the path is empty"])
            texts = ["''", '""', "' '", ""]
            for key, text in zip(paths, texts):
                write(f"{self.dir}/job.yaml", f"{key}: {text}\n".encode())
                if key != "config":
                    self.levin([*command, f"config={self.dir}/job.yaml", *behind.get(topic, [])], USAGE, [f"`{key}`: the path is empty", "job.yaml:1"])
        write(f"{self.dir}/job.yaml", b"weights: null\n")
        self.plan([f"config={self.dir}/job.yaml", "out=null"])


if __name__ == "__main__":
    main()
