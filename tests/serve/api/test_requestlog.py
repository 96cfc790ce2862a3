import errno
import json
import shlex
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.core.config import ServerConfig
from penstock.core.errors import UsageError
from penstock.serve.api.requestlog import LONGEST_ARGUMENT, RequestLog
from tests.serve.api.fakes import serve, wait_for


def parsed(curl: str) -> tuple[str, list[str], str]:
    """(url, headers, data) of a curl command."""
    words = shlex.split(curl)
    headers = [words[at + 1] for at, word in enumerate(words) if word == "-H"]
    return words[1], headers, words[words.index("--data-binary") + 1]


def test_each_request_has_a_file_with_a_curl_that_sends_it_again(tmp_path: Path) -> None:
    server = serve(log_requests=str(tmp_path / "log"), api_key="sesame")
    try:
        bodies: list[dict[str, Any]] = [{"prompt": "it's the 日本 fox", "max_tokens": 3}, {"prompt": "x", "no_such_field": 1}]
        key = {"Authorization": "Bearer sesame"}
        first, _ = (server.client.post("/v1/completions", json=body, headers=key) for body in bodies)
        files = sorted((tmp_path / "log").iterdir())
        records = [json.loads(file.read_text("utf-8")) for file in files]
        assert [record["body"] for record in records] == bodies and {record["path"] for record in records} == {"/v1/completions"}
        assert all("sesame" not in file.read_text("utf-8") and file.stat().st_mode & 0o077 == 0 for file in files)
        url, headers, data = parsed(records[0]["curl"])
        assert "Authorization: Bearer $PENSTOCK_API_KEY" in headers and url.endswith("/v1/completions")
        again = server.client.post("/v1/completions", content=data.encode(), headers={"Content-Type": "application/json", **key})
        assert again.json()["choices"] == first.json()["choices"]
    finally:
        server.stop()


def test_a_long_body_lies_beside_its_record(tmp_path: Path) -> None:
    log = RequestLog(ServerConfig(log_requests=str(tmp_path), host="::1", port=8001))
    body = {"prompt": "x" * 200_000}
    record = json.loads(log.write("/tokenize", body).read_text("utf-8"))
    url, _, data = parsed(record["curl"])
    assert url == "http://[::1]:8001/tokenize" and json.loads(Path(data.removeprefix("@")).read_text("utf-8")) == body


def test_no_half_written_file_is_left(tmp_path: Path) -> None:
    log = RequestLog(ServerConfig(log_requests=str(tmp_path)))
    written = [log.write("/tokenize", {"prompt": str(number)}) for number in range(20)]
    wait_for(lambda: len(list(tmp_path.iterdir())) == 20)
    assert len(set(written)) == 20 and not list(tmp_path.glob(".*"))


def test_a_folder_that_cannot_be_made_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--log-requests"):
        RequestLog(ServerConfig(log_requests=str(tmp_path / "file" / "log")))


def test_requests_are_served_where_none_can_be_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")

    server = serve(log_requests=str(tmp_path / "log"))
    try:
        monkeypatch.setattr(Path, "rename", full)
        for _ in range(2):
            assert server.client.post("/v1/completions", json={"prompt": "x", "max_tokens": 1}).status_code == 200
    finally:
        server.stop()
    assert [record.message.count("No space left") for record in caplog.records if "--log-requests" in record.message] == [1]
    assert not list((tmp_path / "log").iterdir())


def test_a_record_that_cannot_be_written_takes_its_body_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put, written = RequestLog._put, []

    def only_first(self: RequestLog, name: str, text: str) -> Path:
        if written:
            raise OSError(errno.ENOSPC, "No space left on device")
        written.append(put(self, name, text))
        return written[0]

    monkeypatch.setattr(RequestLog, "_put", only_first)
    log = RequestLog(ServerConfig(log_requests=str(tmp_path)))
    assert log.write("/tokenize", {"prompt": "x" * LONGEST_ARGUMENT}) is None
    assert written and not list(tmp_path.iterdir())


def test_servers_that_share_a_folder_have_names_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "strftime", lambda _: "20260101T000000")
    one, other = (RequestLog(ServerConfig(log_requests=str(tmp_path))) for _ in range(2))
    assert one.write("/tokenize", {"prompt": "a"}) != other.write("/tokenize", {"prompt": "b"})
    assert len(list(tmp_path.iterdir())) == 2
