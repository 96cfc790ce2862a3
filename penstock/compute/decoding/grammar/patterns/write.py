"""Writes a set of strings as a regex in the syntax of Rust's regex crate, to be matched as a whole."""
from collections.abc import Callable

from penstock.compute.decoding.grammar.effort import PATTERNS, Effort
from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.chars import EVERY, Ranges
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import EMPTY, Alt, Both, Chars, Other, Rep, Seq, Tree, alt, rep, seq

MAX_LENGTH = 100_000  # characters
NO_TEXT = r"[^\s\S]"
TYPED = rep(Chars(chars.WRITABLE), 0, None)  # strings that can be written in JSON without \u
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ,:;!@%'\"<>=")


def regex(tree: Tree, effort: Effort) -> str:
    """The regex of a tree without complements and intersections. Raises PatternError if it is too long."""
    text = written(tree, effort)
    if len(text) > MAX_LENGTH:
        raise PatternError(f"a pattern, or what it excludes, takes {len(text)} characters; at most {MAX_LENGTH} are written")
    return text


def simplified(tree: Tree, rewritten: Callable[[Tree], Tree]) -> Tree:
    """The same set without complements and intersections: subtrees that have any are replaced by `rewritten` of them."""
    if is_plain(tree):
        return tree
    if isinstance(tree, Seq):
        return seq([simplified(item, rewritten) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([simplified(item, rewritten) for item in tree.items])
    return rewritten(tree)


def is_plain(tree: Tree) -> bool:
    """Whether the tree has no complements and intersections."""
    if isinstance(tree, Both | Other):
        return False
    if isinstance(tree, Seq | Alt):
        return all(is_plain(item) for item in tree.items)
    return not isinstance(tree, Rep) or is_plain(tree.item)


def written(tree: Tree, effort: Effort) -> str:
    """The regex of a tree without complements and intersections, of any length."""
    if isinstance(tree, Chars):
        effort.spend(1 + len(tree.ranges) // 2, PATTERNS)
        return one_of(tree.ranges)
    effort.spend(2, PATTERNS)
    if isinstance(tree, Seq):
        return "".join([grouped(item, isinstance(item, Alt), effort) for item in tree.items])
    if isinstance(tree, Alt):
        return "|".join(sorted([written(item, effort) for item in tree.items], key=lambda text: (text == "", text)))
    assert isinstance(tree, Rep)
    item = grouped(tree.item, not isinstance(tree.item, Chars), effort)
    if tree.high is None:
        return item + {0: "*", 1: "+"}.get(tree.low, f"{{{tree.low},}}")
    if (tree.low, tree.high) == (0, 1):
        return item + "?"
    return item + (f"{{{tree.low}}}" if tree.low == tree.high else f"{{{tree.low},{tree.high}}}")


def grouped(tree: Tree, needed: bool, effort: Effort) -> str:
    return f"(?:{written(tree, effort)})" if needed or tree == EMPTY else written(tree, effort)


def one_of(ranges: Ranges) -> str:
    """A character class."""
    if ranges == EVERY:
        return "(?s:.)"
    if not ranges:
        return NO_TEXT
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return shown(ranges[0][0])
    inside = "".join([shown(low) if low == high else f"{shown(low)}-{shown(high)}" for low, high in ranges])
    return f"[{inside}]"


def shown(code: int) -> str:
    char = chr(code)
    return char if char in PLAIN else f"\\x{{{code:X}}}"


def writable(tree: Tree, allowed: Ranges = chars.WRITABLE) -> Tree:
    """The strings of the set that have only `allowed` characters. The tree has no complements and intersections."""
    if isinstance(tree, Chars):
        return Chars(chars.intersection(tree.ranges, allowed))
    if isinstance(tree, Seq):
        return seq([writable(item, allowed) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([writable(item, allowed) for item in tree.items])
    assert isinstance(tree, Rep)
    return rep(writable(tree.item, allowed), tree.low, tree.high)
