"""Formats: those that llguidance knows, those that a pattern says, and those that say nothing, because no draft defines them."""

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
# Letters of scripts that run from left to right: an IRI must have no marks of direction, and what is a blank somewhere is none here.
_LETTERS = r"\u00C0-\u052F\u0900-\u167F\u1E00-\u1FFF\u3041-\u30FF\u3400-\u9FFF\uAC00-\uD7A3"
_WIDE = rf"(?:[A-Za-z0-9._~!$&'()*+,;=:@{_LETTERS}\-]|{_PCT})"
_WIDE_FIRST = rf"(?:[A-Za-z0-9._~!$&'()*+,;=@{_LETTERS}\-]|{_PCT})"
_LABEL = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}"  # never two hyphens, which begin a name in Punycode
_HOST = rf"{_LABEL}(?:\.{_LABEL}){{0,3}}"  # at most 253 characters
_AUTHORITY = rf"(?:{_HOST}(?::[0-9]{{1,5}})?)?"
_NAMED = rf"(?:{_LABEL}\.){{0,3}}[A-Za-z](?:-?[A-Za-z0-9]){{0,30}}"  # no address of four numbers
_DOMAIN = rf"(?:{_LABEL}\.){{1,3}}[A-Za-z](?:-?[A-Za-z0-9]){{1,30}}"  # of mail
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_POINTER = r"(?:/(?:[^~/]|~[01])*)*"
_MAIL = r"A-Za-z0-9!#$%&'*+/=?^_`{|}~\-"
_WIDE_MAIL = rf"[{_MAIL}\u00A1-\uD7FF]{{1,10}}"
_MAILBOX = rf"(?:[{_MAIL}]{{1,20}}(?:\.[{_MAIL}]{{1,20}}){{0,2}}|{_WIDE_MAIL}(?:\.{_WIDE_MAIL})?)"  # at most 64 bytes
_LITERAL = rf"(?:[A-Za-z0-9._~!$&()*+,;=:@/?#\-]|{_PCT})"
_VARIABLE = r"[A-Za-z0-9_]+(?::[1-9][0-9]{0,2}|\*)?"
_EXPRESSION = rf"\{{[+#./;?&]?{_VARIABLE}(?:,{_VARIABLE})*\}}"
_REGEX_ATOM = r"(?:[A-Za-z0-9 _,:;=!@#%&<>\-]|\\[dDwWsS.*+?()|/\\^$]|\.|\[[A-Za-z0-9_ ]+\])(?:[*+?]|\{[1-9]\})?"


def _reference(char: str, first: str) -> str:
    """`first`: what the first segment of a path without a scheme is made of, a colon not among it."""
    tail = rf"(?:\?(?:{char}|[/?])*)?(?:#(?:{char}|[/?])*)?"
    relative = rf"(?://{_AUTHORITY}(?:/{char}*)*|/(?:{char}+(?:/{char}*)*)?|{first}+(?:/{char}*)*|)"
    return rf"(?:[A-Za-z][A-Za-z0-9+.\-]*:)?{relative}{tail}"


PATTERNS = {
    "date": _DATE, "time": _TIME, "date-time": f"{_DATE}T{_TIME}",
    "uri-reference": _reference(_CHAR, _FIRST), "iri-reference": _reference(_WIDE, _WIDE_FIRST),
    "iri": rf"[A-Za-z][A-Za-z0-9+.\-]+:(?://{_NAMED}(?::[0-9]{{1,4}})?(?:/{_WIDE}*)*|{_WIDE}+(?:/{_WIDE}*)*)"
           rf"(?:\?(?:{_WIDE}|[/?])*)?(?:#(?:{_WIDE}|[/?])*)?",
    "uri-template": rf"(?:{_LITERAL}|{_EXPRESSION})*",
    "json-pointer": _POINTER, "relative-json-pointer": rf"(?:0|[1-9]+0?)(?:#|{_POINTER})",  # jsonschema knows no digit after a 0
    "idn-email": rf"{_MAILBOX}@{_DOMAIN}", "idn-hostname": _HOST, "hostname": _HOST,
    "regex": rf"\^?(?:{_REGEX_ATOM}|\((?:{_REGEX_ATOM})+(?:\|(?:{_REGEX_ATOM})+)*\)[*+?]?)*\$?",
}
AGREED = {  # of what llguidance takes for these formats, the texts that the common validators do, too
    "email": rf"[^@]{{1,64}}@{_DOMAIN}", "uri": r"[^:]+:[^?#][!-~]*",
}
KNOWN_TEXTS = {  # of what llguidance takes for its formats, some texts: as patterns
    "duration": "P(?:[1-9][0-9]{0,3}[YMWD]|T[1-9][0-9]{0,3}[HMS])", "email": rf"[A-Za-z0-9](?:[._+\-]?[A-Za-z0-9]){{0,31}}@{_DOMAIN}",
    "ipv4": rf"(?:{_BYTE}\.){{3}}{_BYTE}", "ipv6": "(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}",
    "uri": rf"[A-Za-z][A-Za-z0-9+.\-]+:(?://{_NAMED}(?::[0-9]{{1,4}})?(?:/{_CHAR}*)*|{_CHAR}+(?:/{_CHAR}*)*)(?:\?(?:{_CHAR}|[/?])*)?",
    "uuid": "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
}
_CSS = "aqua|black|blue|fuchsia|gray|green|lime|maroon|navy|olive|orange|purple|red|silver|teal|white|yellow"  # CSS 2.1
OLD = {  # draft 3, whose words mean something else, or nothing, in later ones
    "time": "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]", "color": f"#(?:[0-9A-Fa-f]{{3}}){{1,2}}|{_CSS}"}
ALIASES = {"host-name": "hostname", "ip-address": "ipv4"}  # draft 3
INTEGERS = {"int32": 31, "int64": 63, "uint32": 32, "uint64": 64}  # OpenAPI's: bits


def is_defined(name: object, draft: int) -> bool:
    """Whether a draft, or OpenAPI, says which values are of this format."""
    known = isinstance(name, str) and ALIASES.get(name, name)
    return isinstance(known, str) and (known in KNOWN or known in INTEGERS or pattern_of(known, draft) is not None)


def pattern_of(name: str, draft: int) -> str | None:
    """What the texts of a format that llguidance does not know match from their beginning to their end; None where it is not defined."""
    return OLD[name] if draft == 3 and name in OLD else PATTERNS.get(name)
