#!/usr/bin/env python3
"""A run in MLflow (pip install mlflow):

levin train ... "logger=exec:python3 examples/12_loggers/to_mlflow.py --experiment mine"

A resumed run goes on in the same place, which is found by a tag with its run_id.
MLFLOW_TRACKING_URI and the other variables of MLflow work as always. What it prints is in
logger.log of the run directory.
"""

import argparse
import json
import os
import sys

import mlflow

TAG = "levin.run_id"
STATUS = {"finished": "FINISHED", "stopped": "KILLED", "failed": "FAILED"}


def start(event, options):
    mlflow.set_experiment(options.experiment)
    earlier = mlflow.search_runs(
        filter_string=f"tags.`{TAG}` = '{event['run_id']}'", output_format="list", max_results=1
    )
    if earlier:
        run = mlflow.start_run(run_id=earlier[0].info.run_id)
    else:
        name = options.name or os.path.basename(event["dir"])
        run = mlflow.start_run(run_name=name, tags={TAG: event["run_id"]})
    known = run.data.params  # a parameter cannot be changed
    new = {k: v for k, v in event["config"].items() if v is not None and k not in known}
    items = list(new.items())
    for i in range(0, len(items), 100):  # as many as MLflow takes at a time
        mlflow.log_params(dict(items[i : i + 100]))


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--experiment", default="levin")
    arguments.add_argument("--name", help="default: that of the run directory")
    options = arguments.parse_args()
    status = "FAILED"  # levin was killed when there is no end
    for line in sys.stdin:
        event = json.loads(line)
        kind = event["event"]
        if kind == "start":
            start(event, options)
        elif kind == "metrics":
            values = event["metrics"]
            step = values.pop("step")
            values.pop("nonfinite", None)
            mlflow.log_metrics({k: v for k, v in values.items() if v is not None}, step=step)
        elif kind == "image":
            mlflow.log_artifact(event["path"], f"{event['name']}/{event['step']}")
        elif kind == "histogram":
            mlflow.log_dict(event, f"{event['name']}/{event['step']}.json")
        elif kind == "text":
            mlflow.log_text(event["text"], f"{event['name']}/{event['step']}.md")
        elif kind == "end":
            status = STATUS[event["status"]]
    if mlflow.active_run() is not None:
        mlflow.end_run(status)


if __name__ == "__main__":
    main()
