import pytest

from penstock.core.errors import UsageError
from penstock.study.plan.tune.budget import Budget, Drift, parse_budget


def test_a_budget_bounds_what_it_names():
    assert parse_budget("kl=0.02,flips=0.05").most == {"kl": 0.02, "flips": 0.05}
    assert parse_budget(None) == Budget()
    assert Budget({"kl": 0.02}).refusal(Drift(0.02, 0.5, 100)) is None
    assert "its flips of 0.5 is above the budget of 0.05" in (Budget({"kl": 0.02, "flips": 0.05}).refusal(Drift(0.02, 0.5, 100)) or "")


@pytest.mark.parametrize(("text", "told"), [
    ("ppl=1", "--quality-budget has no 'ppl'; it has: kl, flips"), ("kl=-1", "kl must be a number from 0 on"),
    ("kl=nan", "kl must be a number"), ("kl=much", "not 'much'"), ("", "is like kl=0.02"), ("0.02", "is not key=value"),
])
def test_a_budget_that_cannot_be_kept_is_refused(text, told):
    with pytest.raises(UsageError) as refusal:
        parse_budget(text)
    assert told in str(refusal.value)
