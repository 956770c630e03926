"""A check that a broadcast can't slip past: (B, 1) minus (B,) is B x B numbers, and every one of them wrong."""

from jaxtyping import Array


def require_one_shape(**arrays: Array) -> None:
    """All of one shape, or an error that names them. Costs nothing at run time: shapes are known while tracing."""
    if len({array.shape for array in arrays.values()}) > 1:
        shapes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise ValueError(f"shapes must be the same: {shapes}")
