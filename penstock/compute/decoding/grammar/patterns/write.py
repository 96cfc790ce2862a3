"""A set of texts as a regex in the syntax of Rust's crate, to be matched as a whole."""
from functools import lru_cache

from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.patterns.automaton import automaton
from penstock.compute.decoding.grammar.patterns.chars import EVERY, Ranges
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import EMPTY, Alt, Both, Chars, Other, Rep, Seq, Tree, alt, rep, seq

MAX_LENGTH = 100_000  # characters
TYPED = rep(Chars(chars.WRITABLE), 0, None)  # texts that a JSON string can show
PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ,:;!@%'\"<>=")


@lru_cache(maxsize=1024)
def regex(tree: Tree, in_json: bool = False) -> str:
    """`in_json`: without characters that a JSON string cannot show. Raises PatternError for one whose complements and intersections take
    too many states."""
    plain = simplified(tree)
    text = written(writable(plain) if in_json else plain)
    if len(text) > MAX_LENGTH:
        raise PatternError(f"a pattern, or what it excludes, takes {len(text)} characters; at most {MAX_LENGTH} are written")
    return text


def simplified(tree: Tree) -> Tree:
    """The same texts without complements and intersections."""
    if is_plain(tree):
        return tree
    if isinstance(tree, Seq):
        return seq([simplified(item) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([simplified(item) for item in tree.items])
    return automaton(tree).tree()


def is_plain(tree: Tree) -> bool:
    """Whether it does without complements and intersections."""
    if isinstance(tree, Both | Other):
        return False
    if isinstance(tree, Seq | Alt):
        return all(is_plain(item) for item in tree.items)
    return not isinstance(tree, Rep) or is_plain(tree.item)


def written(tree: Tree) -> str:
    """Of a tree without complements and intersections."""
    if isinstance(tree, Chars):
        return one_of(tree.ranges)
    if isinstance(tree, Seq):
        return "".join([grouped(item, isinstance(item, Alt)) for item in tree.items])
    if isinstance(tree, Alt):
        return "|".join(sorted([written(item) for item in tree.items], key=lambda text: (text == "", text)))
    assert isinstance(tree, Rep)
    item = grouped(tree.item, not isinstance(tree.item, Chars))
    if tree.high is None:
        return item + {0: "*", 1: "+"}.get(tree.low, f"{{{tree.low},}}")
    if (tree.low, tree.high) == (0, 1):
        return item + "?"
    return item + (f"{{{tree.low}}}" if tree.low == tree.high else f"{{{tree.low},{tree.high}}}")


def grouped(tree: Tree, needed: bool) -> str:
    return f"(?:{written(tree)})" if needed or tree == EMPTY else written(tree)


def one_of(ranges: Ranges) -> str:
    """A class of characters."""
    if ranges == EVERY:
        return "(?s:.)"
    if not ranges:
        return r"[^\s\S]"
    if len(ranges) == 1 and ranges[0][0] == ranges[0][1]:
        return shown(ranges[0][0])
    inside = "".join([shown(low) if low == high else f"{shown(low)}-{shown(high)}" for low, high in ranges])
    return f"[{inside}]"


def shown(code: int) -> str:
    char = chr(code)
    return char if char in PLAIN else f"\\x{{{code:X}}}"


def writable(tree: Tree) -> Tree:
    """The same without characters that a JSON string cannot show; the tree has no complements."""
    if isinstance(tree, Chars):
        return Chars(chars.intersection(tree.ranges, chars.WRITABLE))
    if isinstance(tree, Seq):
        return seq([writable(item) for item in tree.items])
    if isinstance(tree, Alt):
        return alt([writable(item) for item in tree.items])
    assert isinstance(tree, Rep)
    return rep(writable(tree.item), tree.low, tree.high)
