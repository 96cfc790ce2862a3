"""Formats: those that llguidance knows, those that a pattern says, and those that say nothing, because no draft defines them."""
from penstock.compute.decoding.grammar.patterns.language import whole
from penstock.compute.decoding.grammar.patterns.tree import Tree

KNOWN = frozenset(("duration", "email", "ipv4", "ipv6", "uuid", "uri"))

# RFC 3339, 3986, 3987, 6570, 6901, 6531; of idn-hostname those names that are plain, of regex those without groups in groups.
_YEAR = "(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"
_MONTHS = "(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
_DATE = f"(?:{_YEAR}-{_MONTHS}|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
_HEX = "[0-9A-Fa-f]"
_UNRESERVED = r"[A-Za-z0-9._~!$&'()*+,;=:@\-]"
_PCT = f"%{_HEX}{_HEX}"
_CHAR = rf"(?:{_UNRESERVED}|{_PCT})"
_FIRST = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@\-]|{_PCT})"
_WIDE = rf"(?:{_UNRESERVED}|[\u00A0-\uD7FF\uF900-\uFDCF\uFDF0-\uFFEF]|{_PCT})"
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}"  # never two hyphens, which begin a name in Punycode
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"  # at most 253 characters
_AUTHORITY = rf"(?:{_HOST}(?::[0-9]{{1,5}})?)?"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_ATOM = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~\u00A1-\uD7FF\-]+"
_EXPRESSION = r"\{[+#./;?&]?[A-Za-z0-9_]+(?::[1-9][0-9]{0,3}|\*)?(?:,[A-Za-z0-9_]+(?::[1-9][0-9]{0,3}|\*)?)*\}"
_REGEX_ATOM = r"(?:[A-Za-z0-9 _,:;=!@#%&<>\-]|\\[dDwWsS.*+?()|/\\^$]|\.|\[[A-Za-z0-9_ ]+\])(?:[*+?]|\{[1-9]\})?"


def _reference(char: str, first: str) -> str:
    """`first`: what the first segment of a path without a scheme is made of, a colon not among it."""
    tail = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    relative = rf"(?://{_AUTHORITY}(?:/{char}*)*|/(?:{char}+(?:/{char}*)*)?|{first}+(?:/{char}*)*|)"
    return rf"(?:[A-Za-z][A-Za-z0-9+.\-]*:)?{relative}{tail}"


PATTERNS = {
    "date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}",
    "uri-reference": _reference(_CHAR, _FIRST), "iri-reference": _reference(_WIDE, _FIRST),
    "iri": rf"[A-Za-z][A-Za-z0-9+.\-]*:(?://{_AUTHORITY}(?:/{_WIDE}*)*|(?:{_WIDE}+(?:/{_WIDE}*)*)?)"
           rf"(?:\?(?:{_WIDE}|[/?])*)?(?:#(?:{_WIDE}|[/?])*)?",
    "uri-template": rf"(?:{_CHAR}|[/?#]|{_EXPRESSION})*",
    "json-pointer": _POINTER, "relative-json-pointer": rf"(?:0|[1-9][0-9]*)(?:#|{_POINTER})",
    "idn-email": rf"{_ATOM}(?:\.{_ATOM})*@{_HOST}", "idn-hostname": _HOST, "hostname": _HOST,
    "regex": rf"\^?(?:{_REGEX_ATOM}|\((?:{_REGEX_ATOM})+(?:\|(?:{_REGEX_ATOM})+)*\)[*+?]?)*\$?",
}
ALIASES = {"host-name": "hostname", "ip-address": "ipv4"}  # draft 3
INTEGERS = {"int32": 31, "int64": 63, "uint32": 32, "uint64": 64}  # OpenAPI's: bits


def pattern_of(name: str) -> Tree | None:
    """The texts of a format that llguidance does not know; None where it is not defined."""
    return whole(PATTERNS[name]) if name in PATTERNS else None
