"""Drafts: several tokens a step, for rows that may be thrown away. What they gain is measured while they are on, and only then."""
from collections.abc import Iterator
from dataclasses import replace

from penstock.core.config import EngineConfig
from penstock.study.explain.case import Case, Change


class Speculation:
    each = False

    def changes(self, case: Case) -> Iterator[Change]:
        if case.config.propose is not None and case.seen.drafted is not None:
            drafted = case.seen.drafted
            usual = EngineConfig()
            plain = replace(case.config, propose=usual.propose, accept=usual.accept, draft_control=usual.draft_control)
            yield Change("without --propose", replace(case.way, config=plain, drafted=None), (
                f"a step yields 1 token of a sequence instead of {drafted.tokens:.3g}, with {drafted.mean_rows:.3g} fewer rows",))

    def unknown(self, case: Case) -> str | None:
        if case.config.propose is not None:
            return None
        return "how many drafts would be accepted depends on the text: `--propose auto` finds out, and drafts only where it pays"
