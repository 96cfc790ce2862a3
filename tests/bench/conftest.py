"""Benchmarks are scripts: their folder is where they find what they share."""
import sys
from pathlib import Path

BENCH = str(Path(__file__).parents[2] / "bench")
if BENCH not in sys.path:
    sys.path.insert(0, BENCH)
