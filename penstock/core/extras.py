"""What is installed only where it is asked for."""

EXTRAS = {  # those of pyproject.toml that a user may lack
    "torch": ("torch>=2.8",),
    "otel": ("opentelemetry-sdk>=1.27", "opentelemetry-exporter-otlp-proto-http>=1.27"),
}


def how_to_install(extra: str) -> str:
    """In words, for messages and help: what the extra names, since naming Penstock itself would compile its kernels once more."""
    return "pip install " + " ".join(f"'{package}'" for package in EXTRAS[extra])
