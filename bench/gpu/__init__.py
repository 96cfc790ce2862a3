"""What a GPU that is here reaches, by torch's own products and attention: for `gpu_limits.py`."""
