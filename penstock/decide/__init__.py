"""Who goes next, and where its keys and values live. No arrays, no I/O."""
