"""The page: `page/index.html` with its style sheets and scripts written into it, and the policy that lets the browser load nothing else."""
import base64
import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

PAGE = "penstock.serve.api.dashboard"
PARTS = re.compile(r'<link rel="stylesheet" href="([\w.]+)">|<script src="([\w.]+)"></script>')


@dataclass(frozen=True, slots=True)
class Page:
    body: bytes
    headers: dict[str, str]


@cache
def page() -> Page:
    """Put together once. Its styles and scripts are allowed by their hashes; what it connects to is the server that it came from."""
    folder = files(PAGE) / "page"
    hashes: dict[str, list[str]] = {"style": [], "script": []}

    def inline(found: re.Match[str]) -> str:
        tag = "style" if found[1] else "script"
        text = (folder / (found[1] or found[2])).read_text(encoding="utf-8")
        if f"</{tag}" in text:
            raise ValueError(f"{found[1] or found[2]} would end its own <{tag}>")
        hashes[tag].append(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")
        return f"<{tag}>{text}</{tag}>"

    body = PARTS.sub(inline, (folder / "index.html").read_text(encoding="utf-8"))
    policy = (
        f"default-src 'none'; script-src {' '.join(hashes['script'])}; style-src {' '.join(hashes['style'])}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
    return Page(body.encode(), {
        "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache", "X-Frame-Options": "DENY"})
