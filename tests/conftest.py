"""Shapes and types of signatures are checked while the tests run, and programs that compile the same compile once."""

import os
import tempfile

from jaxtyping import install_import_hook

# Before JAX is imported; the processes that tests start inherit it.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", f"{tempfile.gettempdir()}/self-imitation-tests-{os.getuid()}")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.2")

# Not `cli`, `config` and `settings`: they receive what the user typed and explain themselves what is wrong with it.
CHECKED = (
    "algorithm arrays environments experiments exploration networks registry replay report rollout storage training "
    "types"
)
install_import_hook([f"self_imitation.{name}" for name in CHECKED.split()], "typecheck.check")
