"""Operations on sets of strings, for one compilation: each result is computed once, and its steps are counted."""
from collections.abc import Callable
from typing import TypeVar

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars, derive, language, write
from penstock.compute.decoding.grammar.patterns.automaton import Automaton, has_text
from penstock.compute.decoding.grammar.patterns.completions import Completions
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import NOTHING, Tree, both

T = TypeVar("T")
A_LOOK = 5  # steps of finding a known result


class Algebra:
    """All methods raise TooLargeError when the compilation exceeds its effort. A single set that is too large is a PatternError."""

    def __init__(self, effort: Effort) -> None:
        self.effort = effort
        self._read: dict[tuple[str, bool], Tree] = {}
        self._wholes: dict[str, Tree] = {}
        self._automata: dict[Tree, Automaton | PatternError] = {}
        self._completions: dict[Tree, Completions] = {}
        self._held: dict[Tree, dict[str, bool]] = {}
        self._seen: dict[int, tuple[Tree, dict[str, bool]]] = {}  # the same by identity: hashing a large tree takes longer than an answer
        self._empty: dict[Tree, bool | PatternError] = {}
        self._overlaps: dict[tuple[Tree, Tree], bool] = {}
        self._writable: dict[Tree, bool] = {}
        self._regexes: dict[tuple[Tree, bool], str] = {}

    def matching(self, pattern: str, widely: bool = False) -> Tree:
        """The strings in which the pattern is found: by all dialects of regexes, or, `widely`, by any of them. Raises PatternError."""
        if (pattern, widely) not in self._read:
            self._read[pattern, widely] = language.matching(pattern, widely, self.effort)
        return self._read[pattern, widely]

    def whole(self, pattern: str) -> Tree:
        """The strings that the pattern matches from beginning to end. Raises PatternError."""
        if pattern not in self._wholes:
            self._wholes[pattern] = language.whole(pattern, self.effort)
        return self._wholes[pattern]

    def holds(self, tree: Tree, text: str) -> bool:
        """Whether the string is in the set."""
        self.effort.spend(1, PATTERNS)
        if id(tree) not in self._seen:
            self._seen[id(tree)] = tree, self._held.setdefault(tree, {})
        known = self._seen[id(tree)][1]
        if text not in known:
            known[text] = derive.holds(tree, text, self.effort)
        return known[text]

    def is_empty(self, tree: Tree) -> bool:
        """Whether the set is empty. Raises PatternError if deciding it takes too many states."""
        return self._known(self._empty, tree, lambda: not has_text(tree, self.effort))

    def overlap(self, a: Tree, b: Tree) -> bool:
        """Whether the sets have a common string. Raises PatternError if deciding it takes too many states."""
        self.effort.spend(A_LOOK, PATTERNS)
        if (a, b) not in self._overlaps:
            self._overlaps[a, b] = a == b or not self.is_empty(both([a, b]))
        return self._overlaps[a, b]

    def is_writable(self, names: Tree) -> bool:
        """Whether any of the strings can be written in JSON without \\u."""
        self.effort.spend(A_LOOK, PATTERNS)
        if names not in self._writable:
            plain = write.is_plain(names)
            self._writable[names] = write.writable(names) != NOTHING if plain else not self.is_empty(both([names, write.TYPED]))
        return self._writable[names]

    def automaton(self, tree: Tree) -> Automaton:
        """The automaton of a set. Raises PatternError if it needs too many states."""
        return self._known(self._automata, tree, lambda: Automaton(tree, self.effort))

    def completions(self, tree: Tree) -> Completions:
        """Of the strings that can be written in JSON without \\u. Raises PatternError if the automaton needs too many states."""
        if tree not in self._completions:
            self._completions[tree] = Completions(self.automaton(both([tree, write.TYPED])))
        return self._completions[tree]

    def _known(self, answers: dict[Tree, T | PatternError], tree: Tree, find: Callable[[], T]) -> T:
        """Computes an answer, or repeats the answer or the PatternError of the first time."""
        self.effort.spend(A_LOOK, PATTERNS)
        if tree not in answers:
            try:
                answers[tree] = find()
            except PatternError as error:
                answers[tree] = error
        found = answers[tree]
        if isinstance(found, PatternError):
            raise found
        return found

    def regex(self, tree: Tree, in_json: bool = False) -> str:
        """The set as a regex in the syntax of Rust's crate, to be matched as a whole. `in_json`: without strings that need \\u in JSON.

        Raises PatternError if eliminating complements and intersections takes too many states.
        """
        self.effort.spend(A_LOOK, PATTERNS)
        if (tree, in_json) not in self._regexes:
            plain = write.simplified(tree, lambda set_: self.automaton(set_).tree(self.effort))
            allowed = chars.WRITABLE if in_json else chars.EVERY  # halves of surrogate pairs are in neither
            self._regexes[tree, in_json] = write.regex(write.writable(plain, allowed), self.effort)
        return self._regexes[tree, in_json]
