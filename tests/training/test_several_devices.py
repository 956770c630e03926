"""Seeds spread over the devices of one machine; here a CPU that XLA shows as two."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import assert_same_checkpoint, rows, small_config

from self_imitation.config import MAY_CHANGE
from self_imitation.errors import UsageError

pytestmark = pytest.mark.slow
TESTS = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The runs of several_devices.py, and what it printed."""
    folder = tmp_path_factory.mktemp("devices")
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    flags = "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"
    environment = {**os.environ, "PYTHONPATH": path, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-m", "training.several_devices", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def test_the_same_groups_of_seeds_give_the_same_bits_on_any_number_of_devices(trained):
    folder, _ = trained
    assert rows(folder / "on-2") == rows(folder / "on-1")
    assert_same_checkpoint(folder / "on-2", folder / "on-1", 800)


def test_a_run_goes_on_with_another_number_of_devices(trained):
    folder, output = trained
    assert "moved trained so far on 2 x cpu, now on cpu: results may differ in the last bits" in output
    assert_same_checkpoint(folder / "moved", folder / "on-1", 800)


def test_seeds_are_spread_evenly_over_the_devices(trained):
    assert "placed [(0, 2), (1, 1)] 2 x cpu" in trained[1]


def test_all_devices_are_used_by_default(trained):
    assert "default 2" in trained[1]


def test_more_devices_than_there_are_is_one_clear_line(trained):
    text = "devices: 3 is not allowed; JAX sees 2 of the kind that this run uses (cpu); allowed: at most 2"
    assert f"refused {text}\n" in trained[1]


def test_python_environments_stay_on_one_device(trained):
    text = "devices: 2 is not allowed; engine gymnasium trains all seeds together, on one device; allowed: 1"
    assert f"refused {text}\n" in trained[1]


def test_each_device_needs_a_seed(tmp_path):
    with pytest.raises(UsageError, match="devices: 3 is not allowed; allowed: at most one per seed, with seeds = 2"):
        small_config(tmp_path, devices=3)


def test_the_number_of_devices_may_change():
    assert "devices" in MAY_CHANGE
