"""The loop from requests to deltas, and the one place where everything is wired (build.py)."""
