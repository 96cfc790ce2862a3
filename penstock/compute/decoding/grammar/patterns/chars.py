"""Sets of characters, as sorted ranges of code points that neither overlap nor touch."""
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache

Ranges = tuple[tuple[int, int], ...]  # first and last of each

LAST = sys.maxunicode
SURROGATES = (0xD800, 0xDFFF)
CASED = range(0x20000)  # behind it no letter has upper and lower case
EVERY: Ranges = ((0, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST))
# What can be written in a JSON string without \u: of control characters only those with short escapes.
WRITABLE: Ranges = ((8, 10), (12, 13), (0x20, 0x7E), (0x80, SURROGATES[0] - 1), (SURROGATES[1] + 1, LAST))
# The longer names that Unicode gives its general categories (PropertyValueAliases.txt).
CATEGORIES: Mapping[str, str | tuple[str, ...]] = {
    "Cased_Letter": ("Lu", "Ll", "Lt"), "LC": ("Lu", "Ll", "Lt"), "Close_Punctuation": "Pe", "Combining_Mark": "M",
    "Connector_Punctuation": "Pc", "Control": "Cc", "Currency_Symbol": "Sc", "Dash_Punctuation": "Pd", "Decimal_Number": "Nd",
    "Enclosing_Mark": "Me", "Final_Punctuation": "Pf", "Format": "Cf", "Initial_Punctuation": "Pi", "Letter": "L", "Letter_Number": "Nl",
    "Line_Separator": "Zl", "Lowercase_Letter": "Ll", "Mark": "M", "Math_Symbol": "Sm", "Modifier_Letter": "Lm", "Modifier_Symbol": "Sk",
    "Nonspacing_Mark": "Mn", "Number": "N", "Open_Punctuation": "Ps", "Other": "C", "Other_Letter": "Lo", "Other_Number": "No",
    "Other_Punctuation": "Po", "Other_Symbol": "So", "Paragraph_Separator": "Zp", "Private_Use": "Co", "Punctuation": "P", "Separator": "Z",
    "Space_Separator": "Zs", "Spacing_Mark": "Mc", "Symbol": "S", "Titlecase_Letter": "Lt", "Unassigned": "Cn", "Uppercase_Letter": "Lu",
    "cntrl": "Cc", "digit": "Nd", "punct": "P",
}


def of(text: str) -> Ranges:
    return union((ord(char), ord(char)) for char in text)


def union(ranges: Iterable[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], high))
        else:
            found.append((low, high))
    return tuple(found)


def complement(ranges: Ranges) -> Ranges:
    """All other characters; surrogates are not characters."""
    found, next_low = [], 0
    for low, high in union((*ranges, SURROGATES)):
        if next_low < low:
            found.append((next_low, low - 1))
        next_low = high + 1
    if next_low <= LAST:
        found.append((next_low, LAST))
    return tuple(found)


def intersection(a: Ranges, b: Ranges) -> Ranges:
    """The characters in both sets."""
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        low, high = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if low <= high:
            found.append((low, high))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return tuple(found)


def without(ranges: Ranges, code: int) -> Ranges:
    parts = [part for low, high in ranges for part in ((low, min(high, code - 1)), (max(low, code + 1), high))]
    return union(part for part in parts if part[0] <= part[1])


@cache
def where(holds: Callable[[str], bool]) -> Ranges:
    """All characters for which a function of the standard library returns True."""
    found, start = [], None
    for code in range(LAST + 2):
        inside = code <= LAST and not SURROGATES[0] <= code <= SURROGATES[1] and holds(chr(code))
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            found.append((start, code - 1))
            start = None
    return tuple(found)


@cache
def categories() -> dict[str, Ranges]:
    """Of all characters."""
    found: dict[str, list[tuple[int, int]]] = {}
    start = 0
    for code in range(1, LAST + 2):
        kind = unicodedata.category(chr(start))
        if code > LAST or unicodedata.category(chr(code)) != kind:
            found.setdefault(kind, []).append((start, code - 1))
            start = code
    found.pop("Cs")  # surrogates
    return {kind: tuple(ranges) for kind, ranges in found.items()}


@cache
def category(name: str) -> Ranges:
    """A general category of Unicode, such as L, Lu or Uppercase_Letter; () if there is none of this name."""
    short = CATEGORIES.get(name, name)
    return union(each for full, ranges in categories().items() if full.startswith(short) for each in ranges)


@cache
def cases(widely: bool) -> Mapping[int, Sequence[int]]:
    """Of each letter those that are the same but for their case, itself among them: a letter of upper case and one of lower case that are
    each other's, on which all dialects agree; `widely`: all that are the same to one of them, or to several one after another."""
    return same_letters() if widely else {code: pair for pair in pairs_of_letters() for code in pair}


@cache
def cased(widely: bool) -> Ranges:
    """The letters that have another case."""
    return union((code, code) for code in cases(widely))


def pairs_of_letters() -> Iterator[tuple[int, int]]:
    for code in CASED:
        upper, lower = chr(code), chr(code).lower()
        if lower != upper and len(lower) == 1 and lower.upper() == upper:
            yield code, ord(lower)


def same_letters() -> Mapping[int, Sequence[int]]:
    """Two that have one form in common, as where both are the same two letters in upper case."""
    groups: dict[str, set[int]] = {"i": {ord("i"), 0x130}}  # a capital I with a dot, of which Python makes two characters
    for char in map(chr, CASED):
        forms = {char, char.lower(), char.upper(), char.title(), char.casefold()}
        if len(forms) > 1:
            group = {ord(form) for form in forms if len(form) == 1}.union(*(groups.get(form, ()) for form in forms))
            groups |= dict.fromkeys((*forms, *map(chr, group)), group)
    return {code: sorted(group) for form, group in groups.items() if len(form) == 1 for code in group}


DIGIT: Ranges = ((0x30, 0x39),)
WORD: Ranges = union((*DIGIT, (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A)))
BLANK: Ranges = (
    (9, 13), (0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200A), (0x2028, 0x2029), (0x202F, 0x202F), (0x205F, 0x205F),
    (0x3000, 0x3000))
NO_WORD: Ranges = union((*intersection(complement(WORD), ((0, 0x7F),)), (0x2010, 0x2027)))  # enough of those that no dialect counts as such
BREAK: Ranges = ((0x0A, 0x0A), (0x0D, 0x0D), (0x2028, 0x2029))


@cache
def digits(widely: bool) -> Ranges:
    """ECMAScript's class, or, `widely`, the union over all dialects: in Python it has every script's characters."""
    return where(str.isdecimal) if widely else DIGIT


@cache
def words(widely: bool) -> Ranges:
    return union((*where(str.isalnum), *WORD)) if widely else WORD


@cache
def blanks(widely: bool) -> Ranges:
    """White space; `widely`: Python's, and U+FEFF, which is ECMAScript's."""
    return union((*where(str.isspace), *BLANK, (0xFEFF, 0xFEFF))) if widely else BLANK


@cache
def outside(of_class: Callable[[bool], Ranges], widely: bool) -> Ranges:
    """The complement of one of these classes."""
    return complement(of_class(widely))


@cache
def any_but_breaks(widely: bool) -> Ranges:
    """What a dot matches: all but four line breaks in ECMAScript, all but one in Python."""
    return complement(((0x0A, 0x0A),)) if widely else complement(BREAK)
