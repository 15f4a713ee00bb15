#!/usr/bin/env python3
"""A run in Weights & Biases (pip install wandb):

levin train ... "logger=exec:python3 examples/12_loggers/to_wandb.py --project mine"

A resumed run goes on in the same place, as it keeps its run_id. WANDB_MODE=offline and the other
variables of wandb work as always. What wandb prints is in logger.log of the run directory.
"""

import argparse
import json
import os
import sys

import wandb


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--project")
    arguments.add_argument("--name", help="default: that of the run directory")
    options = arguments.parse_args()
    run, exit_code = None, 1  # levin was killed when there is no end
    for line in sys.stdin:
        event = json.loads(line)
        kind = event["event"]
        if kind == "start":
            run = wandb.init(
                project=options.project,
                name=options.name or os.path.basename(event["dir"]),
                id=event["run_id"],
                resume="allow",
                config=event["config"],
                dir=event["dir"],
            )
            # levin's steps, which a resumed run may count again from its checkpoint
            run.define_metric("step")
            run.define_metric("*", step_metric="step")
        elif kind == "metrics":
            run.log({k: v for k, v in event["metrics"].items() if v is not None})
        elif kind == "image":
            run.log({event["name"]: wandb.Image(event["path"]), "step": event["step"]})
        elif kind == "histogram":
            edges = [event["min"], *event["limits"]]
            values = wandb.Histogram(np_histogram=(event["counts"], edges))
            run.log({event["name"]: values, "step": event["step"]})
        elif kind == "text":
            run.summary[event["name"]] = event["text"]
        elif kind == "end":
            exit_code = 1 if event["status"] == "failed" else 0
    if run is not None:
        run.finish(exit_code=exit_code)


if __name__ == "__main__":
    main()
