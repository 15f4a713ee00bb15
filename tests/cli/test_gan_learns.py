#!/usr/bin/env python3
"""The generator of `levin train gan` learns the posterior of maps whose posterior is known, with
the network and the data of `builtin:mass` as they are: rows 32 and 33. Ten minutes of two cores,
only with LEVIN_TEST_SLOW=1.

usage: test_gan_learns.py LEVIN     registered in CMakeLists.txt
"""

import json
import os
import subprocess
import sys
import tempfile

LEVIN = os.path.abspath(sys.argv[1])
SKIP = 77  # for ctest


def main():
    if os.environ.get("LEVIN_TEST_SLOW") != "1":
        print("left out: takes ten minutes (LEVIN_TEST_SLOW=1)")
        return SKIP
    with tempfile.TemporaryDirectory() as folder:
        train = ["train", "gan", "data=builtin:mass", "max_epochs=30", "batch_size=4", "quiet=true"]
        subprocess.run([LEVIN, *train, "wgrad_threads=1", "out=run"], cwd=folder, check=True)
        use = ["eval", "model=run", "json=true"]
        done = subprocess.run([LEVIN, *use], cwd=folder, check=True, stdout=subprocess.PIPE)
        with open(f"{folder}/run/metrics.jsonl", encoding="ascii") as f:
            rows = [json.loads(line) for line in f]
    measured = json.loads(done.stdout)
    psnr = {n: measured[f"PSNR of {n}"]["mean"] for n in (1, 2, 4, 8, 16, 32)}
    bound = measured["PSNR posterior mean"]["mean"]
    baseline = measured["PSNR Kaiser-Squires"]["mean"]
    # the root of the mean squared error of the posterior's mean, which is the posterior's deviation
    deviation = measured["RMSE"]["mean"] * 10 ** ((psnr[32] - bound) / 20)
    gains = [row["val/psnr_p"] - row["val/psnr_1"] for row in rows if "val/psnr_p" in row]
    print(psnr, baseline, bound, measured["APSD"]["mean"], deviation, gains[-5:])
    assert baseline < psnr[8] < bound + 0.1
    assert abs(psnr[8] - psnr[1] - 2.5) < 0.5
    assert all(abs(gain - 2.5) < 0.5 for gain in gains[-5:])
    assert abs(measured["APSD"]["mean"] / deviation - 1) < 0.3
    assert sorted(psnr.values()) == list(psnr.values())
    assert psnr[32] - psnr[1] < 2.877 + 0.3
    for level, share in measured["coverage"]:
        assert abs(share - level) < 0.1, (level, share)
    return 0


if __name__ == "__main__":
    sys.exit(main())
