#!/usr/bin/env python3
"""Trials of a sweep from Optuna's TPE sampler (pip install optuna):

levin sweep plan --name tpe --sample "optim.lr=loguniform(1e-5,1e-1)" \\
    --list optim.name=sgd,adamw "--strategy=exec:python3 examples/14_sweep/optuna_tpe.py" \\
    --trials 40 -- levin train classify ...
levin sweep run tpe

The space is that of the sweep: its lists, and the samples uniform, loguniform, int and choice. The
study is made of the trials that levin reports, again at each question, so nothing is lost when a
worker is killed, and several workers may ask.
"""

import json
import re
import sys

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

STATES = {"done": TrialState.COMPLETE, "running": TrialState.RUNNING}


def distribution(kind, text):
    """("sample", "lr=loguniform(1e-5,1e-1)") -> "lr", FloatDistribution"""
    name, _, rest = text.partition("=")
    drawn = re.fullmatch(r"(\w+)\((.*)\)", rest) if kind == "sample" else None
    if kind == "list":
        return name, CategoricalDistribution([v.strip() for v in rest.strip("[]").split(",")])
    if drawn is None:
        sys.exit(f"optuna_tpe.py: {kind} {text}: give it as list or sample")
    how, limits = drawn.groups()
    if how == "choice":
        return name, CategoricalDistribution([v.strip() for v in limits.split("|")])
    low, high = (float(x) for x in limits.split(","))
    if how == "int":
        return name, IntDistribution(int(low), int(high))
    if how not in ("uniform", "loguniform"):
        sys.exit(f"optuna_tpe.py: {text}: Optuna has no {how}")
    return name, FloatDistribution(low, high, log=how == "loguniform")


def as_optuna(distributions, name, text):
    of = distributions[name]
    if isinstance(of, CategoricalDistribution):
        same = [c for c in of.choices if c == text or number(c) == number(text) is not None]
        return same[0]
    return int(text) if isinstance(of, IntDistribution) else float(text)


def number(text):
    try:
        return float(text)
    except ValueError:
        return None


def ask(sweep, distributions, trials, index):
    sampler = optuna.samplers.TPESampler(
        seed=sweep["seed"] + index, n_startup_trials=5, constant_liar=True
    )
    direction = "maximize" if sweep["mode"] == "max" else "minimize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    for trial in trials.values():
        state = STATES.get(trial["state"], TrialState.FAIL)
        if state == TrialState.COMPLETE and trial["value"] is None:
            state = TrialState.FAIL
        params = {k: as_optuna(distributions, k, v) for k, v in trial["parameters"].items()}
        study.add_trial(
            create_trial(
                state=state,
                value=trial["value"] if state == TrialState.COMPLETE else None,
                params=params,
                distributions=distributions,
            )
        )
    return study.ask(distributions).params


def main():
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sweep, distributions, trials = None, {}, {}
    for line in sys.stdin:
        event = json.loads(line)
        if "sweep" in event:
            sweep = event
            distributions = dict(distribution(kind, text) for kind, text in event["space"])
        elif "trial" in event:
            trials[event["trial"]] = event
        else:
            parameters = ask(sweep, distributions, trials, event["ask"])
            print(json.dumps({"parameters": parameters}), flush=True)


if __name__ == "__main__":
    main()
