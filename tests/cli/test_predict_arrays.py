"""predict of arrays of numpy: logits of every sample, and what is refused.

usage: test_predict_arrays.py LEVIN [test names]
"""

import math

from weights_case import write_npy, Case, main


class Arrays(Case):
    def test_logits(self):
        shape, values = self.logits(f"model={self.run_dir}")
        self.assertEqual(shape, [5, 4])
        self.assertGreater(max(values) - min(values), 1e-3)
        for arguments in (["eval_batch_size=2"], ["eval_batch_size=5"]):
            self.close(self.logits(f"model={self.run_dir}", *arguments), (shape, values), 1e-5)
        self.assertEqual(
            self.logits(f"model={self.run_dir}/checkpoints/last.safetensors")[1], values
        )
        self.assertEqual(self.logits("model=cnn", f"weights={self.exported}")[1], values)
        self.assertEqual(self.logits("model=cnn", f"weights={self.run_dir}")[1], values)
        ranks = ["devices=2", "strategy=dp", "eval_batch_size=2"]  # of one process
        want = self.logits(f"model={self.run_dir}", "eval_batch_size=2")
        for more in ([f"model={self.run_dir}"], ["model=cnn", f"weights={self.exported}"]):
            self.assertEqual(self.logits(*more, *ranks), want)

    def test_integers_are_used_as_they_are(self):
        u8 = [i * 7 % 256 for i in range(2 * 12 * 12 * 3)]
        write_npy(f"{self.dir}/u8.npy", [2, 12, 12, 3], u8, "|u1")
        write_npy(f"{self.dir}/f32.npy", [2, 12, 12, 3], u8)
        model = f"model={self.run_dir}"
        reported = [
            "warning: ",
            "u8.npy holds uint8: the numbers are used as they are",
            "normalised as in training",
        ]
        self.assertEqual(
            self.logits(model, x=f"{self.dir}/u8.npy", expects=reported),
            self.logits(model, x=f"{self.dir}/f32.npy"),
        )

    def test_other_size_than_in_training(self):
        write_npy(f"{self.dir}/wide.npy", [1, 12, 16, 3], [0.5] * (12 * 16 * 3))
        self.logits(
            f"model={self.run_dir}",
            x=f"{self.dir}/wide.npy",
            expects=["warning: ", "12 x 16 (height x width)", "training were 12 x 12"],
        )

    def test_no_number(self):
        values = [0.5] * (2 * 12 * 12 * 3)
        values[12 * 12 * 3 + 5] = math.nan
        write_npy(f"{self.dir}/nan.npy", [2, 12, 12, 3], values)
        self.logits(
            f"model={self.run_dir}",
            x=f"{self.dir}/nan.npy",
            code=1,
            expects=["as a logit of image 1 of data=", "not finite"],
        )

    def test_refusals(self):
        model = f"model={self.run_dir}"
        write_npy(f"{self.dir}/flat.npy", [2, 432], [0.0] * 864)
        self.logits(
            model,
            x=f"{self.dir}/flat.npy",
            code=1,
            expects=["flat.npy is (2, 432)", "(N, height, width, 3)"],
        )
        self.levin(
            [
                "predict",
                "model=cnn",
                f"weights={self.exported}",
                f"data={self.x}",
                f"output={self.dir}/y.csv",
            ],
            64,
            ["y.csv", ".npy"],
        )
        self.logits(model, "sheet=a.png", code=64, expects=["sheet="])
        self.logits(
            "model=cn", f"weights={self.exported}", code=64, expects=["model=cn", "names a network"]
        )
        self.logits(
            "model=resnet18",
            f"weights={self.exported}",
            code=1,
            expects=["exported_last.safetensors has no fc.weight", "another network"],
        )
        self.logits(code=64, expects=["model= is missing"])
        self.logits(model, x=f"{self.dir}/none.npy", code=64, expects=["none.npy"])
        self.levin(
            ["predict", model, f"data={self.x}"],
            64,
            ["or give levin predict output=NAME.npy for plain logits"],
        )
        self.logits(
            f"model={self.exported}",
            "checkpoint=last",
            code=64,
            expects=["checkpoint=last chooses within a run directory"],
        )
        self.logits(
            "model=cnn",
            f"weights={self.exported}",
            "checkpoint=last",
            code=64,
            expects=["checkpoint=last chooses", "names a network"],
        )
        self.levin(
            ["eval", f"model={self.exported}", "checkpoint=best", "data=builtin:shapes"],
            64,
            ["checkpoint=best chooses within a run"],
        )
        self.levin(
            ["predict", "model=cnn", f"weights={self.exported}", f"data={self.dir}"],
            64,
            ["weights= has no names of classes"],
        )


if __name__ == "__main__":
    main()
