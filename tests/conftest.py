"""Shapes and types of signatures are checked while the tests run, and compiled programs are kept between runs."""

import os
import tempfile

# A quarter of the suite's time is spent on optimising programs that run for milliseconds. Processes that tests start
# compile as users do.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax
from jaxtyping import install_import_hook

# The processes that tests start inherit the variable; this process also keeps what it compiles outside of runs.
CACHE = os.environ.setdefault("SELF_IMITATION_CACHE", f"{tempfile.gettempdir()}/self-imitation-tests-{os.getuid()}")
jax.config.update("jax_compilation_cache_dir", CACHE)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)

# Not `cli`, `config` and `settings`: they receive what the user typed and explain themselves what is wrong with it.
CHECKED = (
    "algorithm arrays environments experiments exploration networks recording registry replay report rollout storage "
    "training types watch"
)
install_import_hook([f"self_imitation.{name}" for name in CHECKED.split()], "typecheck.check")
