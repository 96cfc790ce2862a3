import pytest

from penstock.core.errors import UsageError
from penstock.decide.kv.evict import TABLE
from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.evict.slru import Slru
from penstock.decide.kv.radix import Node


def node(last_used_s, num_uses):
    return Node("", last_used_s=last_used_s, num_uses=num_uses)


OLD_POPULAR, NEW_ONCE, OLDER_ONCE, OLD_TWICE = node(10.0, 9), node(50.0, 1), node(5.0, 1), node(12.0, 2)
NODES = [OLD_POPULAR, NEW_ONCE, OLDER_ONCE, OLD_TWICE]


def victims(policy, now=60.0):
    return sorted(NODES, key=lambda n: policy.priority(n, now))


def test_lru_goes_by_the_last_use():
    assert victims(Lru()) == [OLDER_ONCE, OLD_POPULAR, OLD_TWICE, NEW_ONCE]


def test_lfu_goes_by_the_number_of_uses_then_the_last():
    assert victims(Lfu()) == [OLDER_ONCE, NEW_ONCE, OLD_TWICE, OLD_POPULAR]


def test_slru_gives_up_probation_before_what_was_found_again():
    assert victims(Slru()) == [OLDER_ONCE, NEW_ONCE, OLD_POPULAR, OLD_TWICE]
    assert victims(Slru(Slru.Options(uses=3))) == [OLDER_ONCE, OLD_TWICE, NEW_ONCE, OLD_POPULAR]


def test_slru_protects_for_a_time_only():
    assert victims(Slru(Slru.Options(protect_s=49.0))) == [OLDER_ONCE, OLD_POPULAR, NEW_ONCE, OLD_TWICE]


def test_slru_refuses_what_protects_nothing_or_everything():
    for options, told in (("uses=0", "uses must be from 1 to 1,000,000, not 0"),
                          ("protect_s=-1", "protect_s must be from 0 to .*, not -1.0")):
        with pytest.raises(UsageError, match=f"^eviction policy slru: {told}$"):
            TABLE.parse(f"slru:{options}")


@pytest.mark.parametrize("name", TABLE)
def test_every_policy_of_the_table_gives_priorities(name):
    policy, options = TABLE.parse(name)
    made = policy() if options is None else policy(options)
    assert all(isinstance(x, int | float) for x in made.priority(NEW_ONCE, 60.0))
