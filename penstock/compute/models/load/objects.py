"""Files of JSON: config.json, an index, and the other small files of a checkpoint."""
import json
from pathlib import Path
from typing import Any

from penstock.core.errors import ModelError


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises ModelError when there is none, it cannot be read, or it holds anything else."""
    found = object_if_there(path)
    if found is None:
        raise ModelError(f"{path} is missing")
    return found


def object_if_there(path: Path) -> dict[str, Any] | None:
    """None where there is no such file. Raises ModelError as `read_object` does."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path} is JSON, but not an object in braces")
    return content
