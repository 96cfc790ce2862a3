"""The OpenAI-compatible HTTP server: bytes in, a Request to the engine, JSON or server-sent events out."""
