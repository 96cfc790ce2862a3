"""Our engine and its rivals on the same work, in turns: what the benchmarks of the CPU share. See bench/README.md."""
