"""Our side of each workload. Each module runs alone, as `python -m bench.ours.w1`, and prints one RESULT line."""
