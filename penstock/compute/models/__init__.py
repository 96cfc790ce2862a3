"""ModelSpec -> Program, in plain Python: `decoder` assembles `blocks`, `families` hold facts, `load` reads checkpoints."""
