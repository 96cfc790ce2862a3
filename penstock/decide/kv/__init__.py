"""Where keys and values live: blocks, the prefix tree over them, and who holds which."""
