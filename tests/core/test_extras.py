import tomllib
from pathlib import Path

from penstock.core.extras import EXTRAS, how_to_install

ROOT = Path(__file__).parents[2]


def test_what_is_told_to_install_is_what_the_extras_name() -> None:
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra: list(packages) for extra, packages in EXTRAS.items()} == {extra: named[extra] for extra in EXTRAS}
    assert how_to_install("otel") == "pip install 'opentelemetry-sdk>=1.27' 'opentelemetry-exporter-otlp-proto-http>=1.27'"
