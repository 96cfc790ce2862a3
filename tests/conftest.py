"""What every test shares: no network, one thread, and property tests that try the same cases every time."""
import os

from hypothesis import HealthCheck, settings

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
for _library in ("OMP", "OPENBLAS", "MKL"):  # tiny products gain nothing from threads, and wait for each other on a busy machine
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("repeatable")
