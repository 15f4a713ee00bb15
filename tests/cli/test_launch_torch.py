"""levin launch: a script of torch.distributed, as under torchrun.

usage: test_launch_torch.py LEVIN [test names]
"""

import shutil
import subprocess

from launch_case import Case, CLEAN, main


class Torch(Case):
    def test_a_plain_script(self):
        """torch.distributed as under torchrun, two launches at once."""
        python = "/usr/bin/python3"
        if (
            not shutil.which(python)
            or subprocess.run(
                [python, "-c", "import torch.distributed as d; assert d.is_gloo_available()"],
                capture_output=True,
                check=False,
            ).returncode
            != 0
        ):
            self.skipTest(f"{python} has no torch with gloo")
        script = f"{self.dir}/sum.py"
        with open(script, "w", encoding="utf-8") as f:
            f.write(
                "import os, torch, torch.distributed as dist\n"
                "dist.init_process_group('gloo')\n"
                "t = torch.tensor([float(dist.get_rank() + 1)])\n"
                "dist.all_reduce(t)\n"
                "print(dist.get_rank(), dist.get_world_size(), "
                "int(os.environ['LOCAL_RANK']), t.item())\n"
            )
        both = [
            subprocess.Popen(
                self.command("-n", "2", "--no-prefix", program=[python, script]),
                cwd=self.dir,
                env=CLEAN,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for _ in range(2)
        ]
        for p in both:
            out, err = p.communicate(timeout=150)
            self.assertEqual(p.returncode, 0, err)
            self.assertEqual(sorted(out.splitlines()), ["0 2 0 3.0", "1 2 1 3.0"])


main()
