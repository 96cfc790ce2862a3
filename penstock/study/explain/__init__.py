"""Which limit binds, and which lever moves it by how much: from an engine's counters and the twin. docs/explain.md."""
