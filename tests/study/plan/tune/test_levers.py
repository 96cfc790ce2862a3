import importlib
from dataclasses import replace

import pytest

from penstock.cli.fields import TABLES
from penstock.cli.tune import choices
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.study.plan.tune.levers import FORMS, Choices, levers
from penstock.study.plan.tune.setting import Setting

GIVEN = EngineConfig()
RESOLVED = replace(GIVEN, kv_tokens=64 * 1024, max_model_len=1024, threads=1)


def test_every_plugin_of_the_tables_is_tried():
    found = levers(GIVEN, RESOLVED, choices(), 2)
    for option in ("quant", "order", "batching", "evict", "propose"):
        table = importlib.import_module(TABLES[option]).TABLE
        assert set(table) - {getattr(GIVEN, option)} <= set(found.of(option))


def test_every_form_can_be_parsed():
    for option, forms in FORMS.items():
        table = importlib.import_module(TABLES[option]).TABLE
        for form in forms:
            plugin, options = table.parse(form)
            assert plugin is table.load(form.partition(":")[0]) and options == plugin.Options(
                **{name: getattr(options, name) for name in plugin.Options.__dataclass_fields__})


def test_what_the_user_chose_is_not_tried_otherwise():
    found = levers(replace(GIVEN, max_num_seqs=32, threads=2), RESOLVED, choices(), 4)
    assert not found.of("max_num_seqs") and not found.of("threads") and found.of("block_size")
    assert ("max_num_seqs", "it was set to 32") in found.left_out


def test_what_the_engine_has_is_no_candidate():
    found = levers(GIVEN, RESOLVED, choices(), 4)
    assert found.of("threads") == (2, 4) and 64 not in found.of("max_num_seqs") and found.of("prefix_cache") == (False,)


def test_a_larger_cache_is_tried_where_memory_binds_it():
    assert not levers(GIVEN, RESOLVED, choices(), 2).of("kv_tokens")
    assert levers(GIVEN, replace(RESOLVED, kv_tokens=3000), choices(), 2).of("kv_tokens") == (4000,)


def test_only_what_is_wanted():
    found = levers(GIVEN, RESOLVED, choices(), 2, ("order", "block_size"))
    assert set(found.values) == {"order", "block_size"}
    assert levers(replace(GIVEN, threads=2), RESOLVED, choices(), 4, ("order",)).left_out == []
    assert [name for name, _ in levers(replace(GIVEN, threads=2), RESOLVED, choices(), 4, ("threads",)).left_out] == ["threads"]
    with pytest.raises(UsageError, match="--levers has no 'speed'; it has: max_num_seqs"):
        levers(GIVEN, RESOLVED, choices(), 2, ("speed",))


def test_how_drafts_are_controlled_is_searched_where_there_are_drafts():
    named = levers(replace(GIVEN, propose="ngram"), RESOLVED, choices(), 2, ("draft_control",))
    assert named.of("draft_control") == ("always",)
    alone = levers(GIVEN, RESOLVED, choices(), 2, ("draft_control",))
    assert not alone.of("draft_control") and "no effect without propose" in dict(alone.left_out)["draft_control"]
    assert levers(GIVEN, RESOLVED, choices(), 2, ("draft_control", "propose")).of("draft_control")


def test_lossy_acceptance_is_left_out_by_name():
    assert choices().lossy == ["typical"]
    left = dict(levers(GIVEN, RESOLVED, Choices({"propose": ("ngram",)}, ("typical",)), 2).left_out)
    assert "lossy" in left["accept=typical"]
    assert not levers(replace(GIVEN, propose="ngram"), RESOLVED, Choices({}, ("typical",)), 2, ("order",)).left_out


def test_a_setting_without_an_option_is_without_what_rests_on_it():
    setting = Setting().given("propose", "suffix").given("draft_control", "patient").given("max_num_seqs", 8)
    assert setting.without("propose").as_json() == {"max_num_seqs": 8}
    assert setting.without("draft_control").as_json() == {"propose": "suffix", "max_num_seqs": 8}
    assert setting.given("max_num_seqs", 9).apply(GIVEN) == replace(GIVEN, propose="suffix", draft_control="patient", max_num_seqs=9)
    assert setting.key == Setting(setting.changes[::-1]).key
