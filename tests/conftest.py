"""Shapes and types of every signature are checked while the tests run."""

from jaxtyping import install_import_hook

install_import_hook("self_imitation", "beartype.beartype")
