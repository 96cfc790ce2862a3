from penstock.core.errors import UsageError
from penstock.study.plan.tune.levers import Levers
from penstock.study.plan.tune.proposals import Seen, proposals
from penstock.study.plan.tune.setting import Setting
from tests.study.plan.tune.fake_bench import FakeBench, score


def quiet(line):
    pass


def test_options_that_help_each_other_are_found():
    """More seats pay only once a step has room for them."""
    def predict(setting):
        values = dict(setting)
        tokens, seats = values.get("max_num_batched_tokens", 512), values.get("max_num_seqs", 64)
        return score(10.0 + (tokens >= 1024) + (5 if seats >= 128 and tokens >= 1024 else 0))

    levers = Levers({"max_num_seqs": (32, 128), "max_num_batched_tokens": (256, 1024)})
    best, _ = proposals(levers, (), predict, quiet).best(1)[0]
    assert best.as_json() == {"max_num_batched_tokens": 1024, "max_num_seqs": 128}


def test_each_format_has_its_best_and_ties_go_to_the_fewest_changes():
    bench = FakeBench({("quant", "int8"): 1.5, ("max_num_seqs", 128): 1.2, ("block_size", 64): 1.001})
    found = proposals(Levers({"max_num_seqs": (128,), "block_size": (64,)}), ("int8",), bench.predicted, quiet).best(4)
    assert [setting.as_json() for setting, _ in found] == [
        {"quant": "int8", "max_num_seqs": 128}, {"quant": "int8"}, {"max_num_seqs": 128}]


def test_what_is_proposed_pays_by_itself_and_is_told_with_its_own_score():
    """Of settings as good as one another within a hundredth, the one with the fewest changes may be no better than what there is."""
    def best(worth):
        seen = Seen({Setting(tuple([(name, 1) for name in names])): score(10.0 * times) for names, times in {"": 1.0, **worth}.items()})
        return [("".join(name for name, _ in setting), its.goodput) for setting, its in seen.best(4)]

    assert best({"ab": 1.0105, "a": 1.003}) == [("ab", 10.105)]
    assert best({"abc": 1.029, "a": 1.02, "bc": 1.012}) == [("a", 10.2)]


def test_nothing_is_proposed_that_is_not_better():
    bench = FakeBench({("max_num_seqs", 8): 0.5})
    assert proposals(Levers({"max_num_seqs": (8, 128)}), (), bench.predicted, quiet).best(4) == []


def test_what_the_twin_does_not_know_is_handed_on_once():
    asked = []

    def predict(setting):
        asked.append(setting.key)
        if "order" in dict(setting):
            raise UsageError("it needs a step timer")
        return score(10.0 * (1.5 if "quant" in dict(setting) else 1.0))

    seen = proposals(Levers({"order": ("deadline",), "evict": ("lfu",)}), ("int8",), predict, quiet)
    assert seen.unknown == [Setting((("order", "deadline"),))]
    assert len(asked) == len(set(asked))


def test_a_format_that_cannot_be_learned_is_measured_instead():
    def predict(setting):
        if "quant" in dict(setting):
            raise UsageError("it cannot be swept")
        return score(10.0)

    said = []
    assert proposals(Levers({}), ("int8",), predict, said.append).unknown == [Setting((("quant", "int8"),))]
    assert "quant=int8" in said[0]
