"""Runs on one and on several devices, for a process in which a CPU is several: see test_several_devices.py."""

import dataclasses
import sys
from pathlib import Path

import jax
from helpers import Recorder, small_config

from self_imitation.errors import UsageError
from self_imitation.training.run import continue_run, start
from self_imitation.training.trainer import create


def main(folder: Path) -> None:
    assert len(jax.devices()) == 2
    small = {"seeds": 4, "sil.updates": 1, "engine": "jax", "workers": 2}
    for devices in (1, 2):
        start(small_config(folder / f"on-{devices}", devices=devices, **small), [Recorder()])
    _train_on_others(folder / "moved", small)
    small["workers"] = 1
    trainer = create(small_config(folder, devices=2, **{**small, "seeds": 3}))
    print("placed", [(group.device.id, len(group.seeds)) for group in trainer.groups], trainer.device)
    print("default", len(create(small_config(folder, **small)).groups))
    for settings in ({"devices": 3}, {"devices": 2, "env": "gym:CartPole-v1", "engine": "gymnasium"}):
        try:
            start(small_config(folder / "refused", **{**small, **settings}), [Recorder()])
        except UsageError as error:
            print("refused", error)


def _train_on_others(path: Path, small: dict[str, object]) -> None:
    """A run on two devices that goes on with the same groups on one."""
    config = small_config(path, devices=2, **small)
    start(dataclasses.replace(config, steps=400), [Recorder()])
    (path / "config.json").write_text((path / "config.json").read_text().replace('"devices": 2', '"devices": 1'))
    recorder = Recorder()
    continue_run(path, config.steps, [recorder])
    print("moved", *recorder.messages)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
