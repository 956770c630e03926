"""Compiled programs are kept on disk, and a cache that can't be used is no error."""

import os

import compilation
import jax
import pytest
from helpers import SMALL_FLAGS, finish, sil, small_config

from self_imitation.training import backends, devices

FLAGS = [*SMALL_FLAGS, "--agent", "a2c", "--steps", 40]
FLAGS = [
    word
    for i, word in enumerate(FLAGS)
    if not str(word).startswith("--sil.") and not str(FLAGS[i - 1]).startswith("--sil.")
]


@pytest.fixture
def no_cache(monkeypatch, tmp_path):
    """As in a process that has none yet; what is changed in JAX's settings is undone."""
    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_raise_persistent_cache_errors",
    )
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR", raising=False)
    monkeypatch.setenv(devices.CACHE_VARIABLE, str(tmp_path / "cache"))
    yield tmp_path / "cache"
    for name, value in before.items():
        jax.config.update(name, value)


def test_the_directory_can_be_chosen(no_cache):
    devices.enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir == str(no_cache)
    assert no_cache.is_dir()


def test_by_default_it_is_in_the_users_cache_directory(monkeypatch, tmp_path):
    monkeypatch.delenv(devices.CACHE_VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert devices.cache_directory() == tmp_path / "self-imitation" / f"jax-{jax.__version__}"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert devices.cache_directory().is_relative_to(tmp_path / ".cache" / "self-imitation")


def test_a_users_own_cache_is_respected(no_cache, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "/somewhere")
    devices.enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None
    assert not no_cache.exists()


def test_a_directory_that_can_not_be_made_is_no_error(no_cache, monkeypatch):
    monkeypatch.setenv(devices.CACHE_VARIABLE, "/dev/null/cache")
    devices.enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


def test_a_read_only_directory_is_no_error(no_cache, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    devices.enable_compilation_cache()
    assert jax.config.jax_compilation_cache_dir is None


@pytest.mark.parametrize("wanted", [True, False])
def test_runs_use_it_unless_told_not_to(no_cache, tmp_path, wanted):
    config = small_config(tmp_path / "run", compilation_cache=wanted)
    devices.prepare(config, backends.create(config).spec)
    assert no_cache.exists() == wanted
    assert (jax.config.jax_compilation_cache_dir is None) == (not wanted)


@pytest.mark.slow
def test_runs_use_the_cache_and_a_broken_one_is_no_error(monkeypatch, tmp_path):
    cache = tmp_path / "cache"
    monkeypatch.setenv(devices.CACHE_VARIABLE, str(cache))
    code, output = finish(sil("train", *FLAGS, "--out", tmp_path / "one", xla_flags=compilation.CHEAP))
    assert code == 0, output
    entries = [path for path in cache.iterdir() if path.is_file()]
    assert len(entries) > 3
    for path in entries:
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    code, output = finish(sil("train", *FLAGS, "--out", tmp_path / "two", xla_flags=compilation.CHEAP))
    assert code == 0, output
    assert "rror" not in output
    assert "arning" not in output
