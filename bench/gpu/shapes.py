"""Whose products and whose steps are timed."""

LAYERS = {  # the four products of a layer, (out, in)
    "llama-3.1-8b": ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)),
    "qwen3-0.6b": ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072)),
    "llama-3.2-1b": ((3072, 2048), (2048, 2048), (16384, 2048), (2048, 8192)),
    "llama-3.1-70b": ((10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)),
}
MODELS = {"llama-3.1-8b": False, "llama-3.2-1b": False, "qwen3-0.6b": True}  # and whether heads are normed
