"""Shapes and types of signatures are checked while the tests run, and compiled programs are kept between runs."""

import gc
import os
import signal
import tempfile

import compilation

# Half of the suite's time would be spent on optimising programs that run for milliseconds. Most processes that tests
# start compile as users do.
os.environ.setdefault("XLA_FLAGS", compilation.CHEAP)

# A shell that starts the tests in the background has told them to ignore Ctrl-C, which some tests send.
signal.signal(signal.SIGINT, signal.default_int_handler)

import jax
from jaxtyping import install_import_hook

# The processes that tests start inherit the variable; this process also keeps what it compiles outside of runs.
CACHE = os.environ.setdefault("SELF_IMITATION_CACHE", f"{tempfile.gettempdir()}/self-imitation-tests-{os.getuid()}")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Not `cli`, `config` and `settings`: they receive what the user typed and explain themselves what is wrong with it.
CHECKED = (
    "algorithm arrays cluster environments experiments exploration networks recording registry replay report rollout "
    "storage training types watch"
)
install_import_hook([f"self_imitation.{name}" for name in CHECKED.split()], "typecheck.check")


def pytest_collection_finish():
    """Tracing makes many objects of which few are garbage: the collector need not look for it that often, and never at
    what has been imported until now.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)
