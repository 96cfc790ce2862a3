"""What a search refuses before it begins."""
import pytest

from penstock.cli.tune import TuneOptions, make_request
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.study.plan.tune.engines import Watchers
from penstock.study.plan.tune.request import tune


def test_levers_that_are_all_given_leave_nothing_to_search(tmp_path) -> None:
    output = tmp_path / "tuned.toml"
    request = make_request(TuneOptions(slo="ttft=1s", rate=1.0, levers="threads", output=str(output)), EngineConfig(threads=1))
    with pytest.raises(UsageError, match="--levers threads leaves nothing to search: threads: it was given as 1"):
        tune(request, Watchers(lambda line: None))
    assert not list(tmp_path.iterdir())
