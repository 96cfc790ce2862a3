"""What `penstock info` tells is what `penstock serve` would do."""
from penstock.core.config import EngineConfig, ServerConfig
from penstock.serve.engine.build import choose, find
from penstock.serve.engine.describe import describe
from penstock.serve.engine.machine import look
from penstock.serve.engine.resolve import resolve
from penstock.serve.run import options


def test_the_cache_that_is_told_is_the_one_that_would_be_made() -> None:
    for config in (EngineConfig("rill", max_num_seqs=3), EngineConfig("rill", kv_tokens=100)):
        chosen = choose(config, find(config))
        made = resolve(chosen.config, find(config).spec, chosen.holding.held, look())
        found = describe(config)
        assert (found.served_tokens, found.served_told) == (made.engine.kv_tokens, made.reasons["kv_tokens"])
    assert describe(EngineConfig("rill", max_num_seqs=3)).served_tokens == 3 * found.max_model_len


def test_a_cache_that_does_not_fit_is_told_and_the_rest_as_well() -> None:
    found = describe(EngineConfig("rill", kv_tokens=10**12))
    assert found.served_tokens == 0 and "GiB are free" in found.served_told and found.parameters > 0


def test_options_are_told_from_defaults_and_secrets_are_not_told() -> None:
    assert list(options(EngineConfig("rill"))) == list(options(ServerConfig())) == []
    assert list(options(EngineConfig(max_num_seqs=8, prefix_cache=False))) == ["--max-num-seqs 8", "--no-prefix-cache"]
    assert list(options(ServerConfig(api_key="s3cret", no_auth=True, otlp_endpoint="http://u:p@h"))) == [
        "--api-key", "--no-auth", "--otlp-endpoint"]
