"""docs/api.md's tables, written from the table of fields: `python -m penstock.serve.api.reference docs/api.md`."""
import json
import sys
from pathlib import Path

from penstock.serve.api.fields import BY_ENDPOINT, HARMLESS, OBEYED, REFUSED, Field

BEGIN, END = "<!-- fields: generated from penstock/serve/api/fields.py -->", "<!-- end of fields -->"
TITLES = {
    "chat": "`/v1/chat/completions`", "responses": "`/v1/responses`", "completions": "`/v1/completions`",
    "embeddings": "`/v1/embeddings`", "tokenize": "`/tokenize`", "detokenize": "`/detokenize`",
    "stream_options": "`stream_options` of chat and completions",
}


def render() -> str:
    """The tables in Markdown, one per endpoint."""
    parts = []
    for endpoint, title in TITLES.items():
        fields = BY_ENDPOINT[endpoint].values()
        parts += [f"### {title}", "", "| field | fate | meaning or reason |", "|---|---|---|"]
        for fate in (OBEYED, HARMLESS, REFUSED):
            parts += [_row(f) for f in sorted(fields, key=lambda f: f.name) if f.fate == fate]
        parts.append("")
    return "\n".join(parts)


def _row(field: Field) -> str:
    accepted = f" (accepted: {', '.join(f'`{json.dumps(v)}`' for v in field.accepted)})" if field.accepted else ""
    return f"| `{field.name}` | {field.fate} | {field.note}{accepted} |"


def updated(text: str) -> str:
    """`text` with the tables between its markers replaced."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{render()}\n{END}{after}"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(updated(path.read_text("utf-8")), "utf-8")
