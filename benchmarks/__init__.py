"""Speed measurements: `sil bench` or `python -m benchmarks`, in the source checkout."""
