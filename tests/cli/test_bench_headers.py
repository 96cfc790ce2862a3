"""What `penstock bench` sends beside a request."""
import pytest

from penstock.cli.bench import BenchOptions, access_of
from penstock.core.config import EngineConfig

URL = EngineConfig(model="http://box")


@pytest.mark.parametrize(("options", "keys"), [
    (BenchOptions(), ("theirs",)), (BenchOptions(api_key=("mine",)), ("mine",)), (BenchOptions(header=("X-Team: a",)), ("theirs",)),
    (BenchOptions(header=("authorization: Basic mine",)), ())])
def test_the_environments_key_is_taken_where_no_other_is_given(
    monkeypatch: pytest.MonkeyPatch, options: BenchOptions, keys: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    found = access_of(options, URL)
    assert found.keys == keys and list(found.headers) == [line.partition(":")[0] for line in options.header]
