"""No error, log or report shows a credential that a server or a library repeats."""

from __future__ import annotations

import logging
import pickle
import traceback

import pytest

from ftfile.core.errors import ConfigError, CorruptData, StillOpen, Unavailable
from ftfile.core.logs import get_logger, redact

SECRET = "eyJhbGciOiJ9.c2VjcmV0X2tleQ-x"
FORMS = (
    f"Authorization: Bearer {SECRET}",
    f"'Authorization': 'bearer {SECRET}'",
    f"Authorization: Basic {SECRET}==",
    f"WWW-Authenticate: Negotiate {SECRET}",
    f"https://host/x?access_token={SECRET}&x=1",
    f'{{"access_token": "{SECRET}", "expires_in": 3599}}',
    f"https://host/x?X-Amz-Security-Token={SECRET}&X-Amz-Date=1",
    f"X-Amz-Security-Token: {SECRET}",
    f"{{'X-Amz-Security-Token': b'{SECRET}'}}",
    f"https://user:{SECRET}@host:9000/bucket",
    f"https://user:p@{SECRET}@host/bucket",
    f"s3://:{SECRET}@host",
    f"GET /x?token={SECRET} HTTP/1.1",
    f'token="{SECRET}"',
    f"aws_session_token = x, sessionToken={SECRET}",
    f"http://namenode:9870/webhdfs/v1/out?op=OPEN&delegation={SECRET}&offset=0",
    f'{{"Token": {{"urlString": "{SECRET}"}}}}',
    f"Cookie: hadoop.auth={SECRET}",
    f"https://host/x?sig={SECRET}&sv=1",
    f"AccountKey={SECRET};EndpointSuffix=x",
    f"password={SECRET}",
)
HARMLESS = (
    "Basic authentication is not offered; a bearer token is",
    "the token is not valid: get a new one, by kinit or from the token file",
    "s3://bucket/a@b/c:d@e",
    "hdfs://namenode:8020/out at 12:30@night",
    "startingVersion=3, option tokens=",
    "delegation tokens are of executors",
)


@pytest.mark.parametrize("text", FORMS)
class TestForms:
    def test_text(self, text: str) -> None:
        shown = redact(text)
        assert SECRET not in shown
        assert "…" in shown
        assert redact(shown) == shown

    def test_errors(self, text: str) -> None:
        errors = [
            ConfigError(text), Unavailable("read", "a/b", text), StillOpen([text]),
            CorruptData("a/b", text, text, "Restore it"),
        ]  # fmt: skip
        for error in errors:
            again = pickle.loads(pickle.dumps(error))
            assert str(again) == str(error)
            assert SECRET not in str(error)
            assert SECRET not in repr(error)
            assert SECRET not in "".join(traceback.format_exception(error))
            assert SECRET not in getattr(error, "detail", "")

    def test_logs(self, text: str, caplog: pytest.LogCaptureFixture) -> None:
        log = get_logger("ftfile.tests")
        log.warning("it failed: %s", text)
        log.error("it failed", exc_info=ValueError(text))
        formatter = logging.Formatter("%(message)s")
        assert not any(SECRET in formatter.format(record) for record in caplog.records)
        assert "ValueError" in caplog.text


@pytest.mark.parametrize("text", HARMLESS)
def test_other_text_stays(text: str) -> None:
    assert redact(text) == text


def test_paths_stay_in_errors() -> None:
    assert CorruptData("token=1/part", "a", "b").path == "token=1/part"
    assert "'token=1/part'" in str(CorruptData("token=1/part", "a", "b"))
    error = Unavailable("read", "token=1/part", "it is away")
    assert str(error) == "token=1/part: read failed: it is away"
    error.url = "s3://user:password@bucket"
    assert str(error).startswith("s3://")
    assert str(error).endswith("bucket/token=1/part: read failed: it is away")
    assert "password" not in str(error)
