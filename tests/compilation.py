"""How tests compile."""

CHEAP = " ".join(
    (
        "--xla_backend_optimization_level=0",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
)
"""Flags of XLA, for programs that run for milliseconds."""
