"""Run directories as `sil train --record` leaves them, written by hand: fast, and with known contents."""

import numpy as np

from self_imitation.config import override, resolve
from self_imitation.recording import grid_world
from self_imitation.recording.series import PLAYED, SNAPSHOTS, Series
from self_imitation.storage.run_directory import RunDirectory

COLUMNS = (
    "seed,step,episodes,return_mean,return_best,length_mean,sil_imitated,sil_advantage,policy_kl,sil_kl,sil_step_share,"
    "steps_per_second,seconds"
)
SEEDS = (3, 4)
PIXEL = "data:image/webp;base64,UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA=="


def create(path, env="apple-key-door-treasure", **settings):
    path.mkdir(parents=True)
    run = RunDirectory(path)
    run.write_config(override(resolve(env, "authors", {"seed": 3, "seeds": 2, "steps": 1600}), settings))
    (path / "metrics.csv").write_text(COLUMNS + "\n")
    return run


def add_row(run, step, value):
    with open(run.path / "metrics.csv", "a") as file:
        for seed in SEEDS:
            file.write(f"{seed},{step},{step // 50},{value},{value + 1},50,0.5,0.1,0.01,0.001,0.2,1000,{step / 1000}\n")


def add_snapshot(run, step, note=""):
    """With more episodes, the later it is."""
    seeds = [{"seed": seed, **_memory(step // 100), **_maze(run, step // 100)} for seed in SEEDS]
    data = {"step": step, "recording_seconds": 0.0, "seconds": step / 1000, "note": note, "seeds": seeds}
    Series(run.path, SNAPSHOTS, 100).write(step, data)


def add_played(run, step, total):
    film = {"image": PIXEL, "columns": 1, "width": 1, "height": 1, "steps": [0], "rewards": [total], "returns": [total]}
    data = {
        "step": step,
        "recording_seconds": 0.0,
        "seed": 3,
        "return": total,
        "length": 9,
        "ended": True,
        "film": film,
    }
    Series(run.path, PLAYED, 12).write(step, data)


def _memory(episodes):
    share = [1 / max(1, episodes)] * episodes
    points = {"return": [1.0] * episodes, "age": list(range(episodes)), "length": [9] * episodes, "share": share}
    histogram = {"return": [1.0], "width": 1, "episodes": [1.0], "sampling": [1.0]} if episodes else _no_bars()
    return {
        "memory": {
            "steps": 9 * episodes,
            "capacity": 1000,
            "episodes": episodes,
            "best": 1.0 if episodes else None,
            "points": points,
            "histogram": histogram,
        },
        "imitated": {"steps": 2, "of_memory": 0.5, "of_sampling": 0.9, "return": [1.0, 0.2], "value": [0.5, 0.5]},
    }


def _no_bars():
    return {"return": [], "width": 1, "episodes": [], "sampling": []}


def _maze(run, episodes):
    world = grid_world.of_environment(run.config().env)
    if world is None:
        return {}
    generator = np.random.default_rng(episodes)
    chances = generator.dirichlet(np.ones(4), len(world.observations))
    states = [world.start]
    for action in [1, 1, 2] if episodes else []:
        states.append(int(world.next_state[states[-1], action]))
    path = {
        "return": 1.0,
        "age": 7,
        "cells": [state % len(world.cells) for state in states],
        "stages": [0] * 3,
        "actions": [1, 1, 2],
        "rewards": [0.0, 0.0, 1.0],
    }
    return {
        "policy": world.policy(chances, generator.normal(size=len(chances))),
        "remembered": world.counts(np.array(states)),
        "best": path if episodes else {},
    }
