"""What can be set, and the values that are tried. Plug-ins come out of the tables (`Choices`), which only the command line reads."""
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.study.plan.tune.setting import Setting
from penstock.study.sizes import doublings

NUMBERS: Mapping[str, Sequence[Any]] = {
    "max_num_seqs": (4, 8, 16, 32, 64, 128, 256),
    "max_num_batched_tokens": (64, 128, 256, 512, 1024, 2048),
    "prefix_cache": (True, False),
    "block_size": (8, 16, 32, 64),
}
PLUGINS = ("quant", "order", "batching", "evict", "propose")
# Forms of plug-ins that are tried beside their defaults.
FORMS: Mapping[str, Sequence[str]] = {
    "quant": ("int8:activations=int8", "int4:activations=int8", "int4:symmetric=false"),
    "batching": ("dynamic:size=16,window_ms=10",),
}
DRAFTS, CONTROL, QUANT, RULE = "propose", "draft_control", "quant", "accept"
KV_MORE = 4 / 3  # of the tokens that the engine would take: 80 % of the memory that weights leave free, instead of 60
NAMES = (*NUMBERS, *PLUGINS, "kv_tokens", CONTROL, "threads")


@dataclass(frozen=True, slots=True)
class Choices:
    """The names in each plug-in table, by the option that chooses; `lossy` are acceptance rules that change what is sampled."""

    plugins: Mapping[str, Sequence[str]]
    lossy: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Levers:
    """`values` of each option that is tried, without the one that the engine has; `left_out`: (what, why), of those that were
    asked about."""

    values: Mapping[str, tuple[Any, ...]]
    left_out: list[tuple[str, str]] = field(default_factory=list)

    def of(self, name: str) -> tuple[Any, ...]:
        return self.values.get(name, ())

    def singles(self, names: Sequence[str]) -> Iterator[Setting]:
        """Each of these options alone, with each of its values."""
        return (Setting(((name, value),)) for name in names for value in self.of(name))


def levers(given: EngineConfig, resolved: EngineConfig, choices: Choices, num_cpus: int, wanted: Sequence[str] = ()) -> Levers:
    """`given` as the user did, `resolved` as the engine would run: what the user chose is not tried otherwise. `wanted`: only
    these options.

    Raises UsageError for an option that is not tried at all.
    """
    for name in wanted:
        if name not in NAMES:
            raise UsageError(f"--levers has no {name!r}; it has: {', '.join(NAMES)}")
    defaults = {each.name: each.default for each in fields(EngineConfig)}
    tried: dict[str, Sequence[Any]] = {**NUMBERS, **{name: (*choices.plugins.get(name, ()), *FORMS.get(name, ())) for name in PLUGINS}}
    tried |= {"kv_tokens": more_cache(resolved), CONTROL: ("patient", "always"), "threads": doublings(num_cpus)}
    values, left_out = {}, []
    for name in wanted or tried:
        if getattr(given, name) != defaults[name]:
            left_out.append((name, f"it was set to {getattr(given, name)}"))
        else:
            values[name] = tuple([value for value in tried[name] if value != getattr(resolved, name)])
    if CONTROL in values and DRAFTS not in values and given.propose is None:
        left_out.append((CONTROL, f"it has no effect without {DRAFTS}, which is neither given nor searched"))
        del values[CONTROL]
    left_out += [(f"{RULE}={rule}", "it is lossy in a way that no budget of KL or flips bounds: where it takes a draft, "
                "the distribution is one token") for rule in choices.lossy if DRAFTS in values]
    return Levers(values, left_out)


def more_cache(resolved: EngineConfig) -> tuple[int, ...]:
    """Larger KV caches to try, where memory and not need bounds the one that there is."""
    tokens, size = resolved.kv_tokens or 0, resolved.block_size
    needed = resolved.max_num_seqs * (resolved.max_model_len or 0)
    return (int(tokens * KV_MORE) // size * size,) if tokens < needed else ()
