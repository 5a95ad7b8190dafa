"""Both drivers on an HDFS that accepts only Kerberos: tickets, tokens, TLS, and the errors if one is missing."""

from __future__ import annotations

import base64
import datetime
import logging
import os
import re
import shutil
import threading
import time
import traceback
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ftfile.core.errors import ConfigError, PermissionDenied, StorageError
from ftfile.core.per_process import PerProcess
from ftfile.storage.hdfs.configuration import read_configuration
from ftfile.storage.hdfs.credentials.process_tokens import FILE_VARIABLE, ProcessTokens
from ftfile.storage.hdfs.credentials.token_file import read_tokens
from ftfile.testing.context import open_filesystem
from ftfile.testing.micro_batch import MicroBatch
from tests.crash.share import THOROUGH
from tests.hdfs.kdc import Kdc
from tests.hdfs.secured import SecuredCluster, why_not_secured
from tests.hdfs.servers import write_site
from tests.hdfs.support import COLUMNS, TEXT, checked, new_directory, rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ftfile.storage.api import FileSystem

pytestmark = pytest.mark.skipif(bool(why_not_secured()), reason=why_not_secured() or "none")

PRIVACY = {
    "hadoop.rpc.protection": "privacy",
    "dfs.data.transfer.protection": "privacy",
    "dfs.encrypt.data.transfer.cipher.suites": "AES/CTR/NoPadding",
}
OWNER = "hdfs/localhost"
# Permanent errors are reported at once, so the test waits less than for temporary ones.
PATIENT = {"patience": "600"}
AT_ONCE_S = 100.0
SECRET_KIND = b"HDFS_DELEGATION_TOKEN"
# The first byte and the length of a time in milliseconds, in a token.
DATE, DATE_BYTES = b"\x8a", 7


@pytest.fixture(scope="module")
def kdc() -> Iterator[Kdc]:
    with Kdc() as kdc:
        yield kdc


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tokens of earlier tests."""
    monkeypatch.setattr("ftfile.storage.hdfs.credentials.tokens._process", ProcessTokens())


@pytest.fixture(scope="module", params=[{}, PRIVACY] if THOROUGH else [{}])
def secured(kdc: Kdc, request: pytest.FixtureRequest) -> Iterator[SecuredCluster]:
    with SecuredCluster(kdc, request.param) as cluster:
        yield cluster


@pytest.fixture(params=["hdfs", "webhdfs", "swebhdfs"])
def url(
    secured: SecuredCluster, kdc: Kdc, request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> str:
    """A directory for each driver, for a process that has neither a ticket nor a token."""
    monkeypatch.setenv("HADOOP_CONF_DIR", str(secured.conf))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(secured.authority))
    monkeypatch.delenv(FILE_VARIABLE, raising=False)
    for name, text in kdc.variables(tmp_path / "cache").items():
        monkeypatch.setenv(name, text)
    root = {"hdfs": secured.url, "webhdfs": secured.web_url, "swebhdfs": secured.secure_web_url}[request.param]
    return root + new_directory()


@pytest.fixture(scope="module")
def fetched(secured: SecuredCluster, kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of tokens that no test changes."""
    directory = tmp_path_factory.mktemp("tokens")
    kdc.ticket(directory / "cache", OWNER)
    secured.fetch_token(directory / "tokens", directory / "cache")
    return directory / "tokens"


@pytest.fixture
def tokens(url: str, fetched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of tokens; the process has no other credentials."""
    del url
    path = tmp_path / "tokens"
    shutil.copy(fetched, path)
    monkeypatch.setenv(FILE_VARIABLE, str(path))
    return path


def opened(url: str) -> FileSystem:
    return open_filesystem(url, settings={"patience": "2"})


def shown(error: BaseException) -> str:
    return f"{error!r} {''.join(traceback.format_exception(error))}"


def test_a_ticket_is_enough_and_may_be_renewed(
    url: str, kdc: Kdc, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kdc.ticket(tmp_path / "cache", OWNER, life="30m")
    query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
    query.run(0, [rows("a"), rows("b")])
    kdc.renew(tmp_path / "cache")
    query.run(1, [rows("c")])
    checked(url, "a", "b", "c")
    # In the form of an HTTP header, and in the URL of a DataNode, for which the NameNode issues a token.
    assert not re.search(r"(Negotiate |delegation=)[A-Za-z0-9+/_-]{8}", caplog.text)


def test_without_a_ticket_it_is_said_at_once(url: str, caplog: pytest.LogCaptureFixture) -> None:
    began_s = time.monotonic()
    with pytest.raises(PermissionDenied, match="neither a ticket nor a token: HADOOP_TOKEN_FILE_LOCATION is not set"):
        open_filesystem(url, settings=PATIENT).make_directories("")
    assert time.monotonic() - began_s < AT_ONCE_S
    assert "Traceback" not in caplog.text


@pytest.fixture(scope="module")
def expired(kdc: Kdc, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with an expired ticket."""
    cache = tmp_path_factory.mktemp("expired") / "cache"
    kdc.ticket(cache, OWNER, life="1s")
    time.sleep(2)  # longer than the lifetime of the ticket
    return cache


def test_an_expired_ticket_is_named(url: str, kdc: Kdc, expired: Path, tmp_path: Path) -> None:
    shutil.copy(expired, tmp_path / "cache")
    with pytest.raises(PermissionDenied, match="ticket of this process has expired"):
        opened(url).make_directories("")
    kdc.ticket(tmp_path / "cache", OWNER)
    opened(url).make_directories("")


def test_a_token_is_enough_by_whichever_name_of_the_host(
    url: str, tokens: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    urls = [url, url.replace("127.0.0.1", "localhost")] if url.startswith("hdfs:") else [url]
    for number, each in enumerate(urls):
        MicroBatch(each, COLUMNS, TEXT).run(number, [rows(f"a{number}"), rows(f"b{number}")])
    checked(url, *(f"{letter}{number}" for letter in "ab" for number in range(len(urls))))
    fs = opened(url)
    for text in (caplog.text, repr(fs), *written(fs)):
        assert not any(secret in text for secret in secrets_of(tokens))


def written(fs: FileSystem) -> Iterator[str]:
    """Yield the content of each file."""
    waiting = [""]
    while waiting:
        for info in fs.list(waiting.pop()):
            if info.is_directory:
                waiting.append(info.path)
            else:
                yield fs.read(info.path).decode("latin-1")


def secrets_of(path: Path) -> Iterator[str]:
    """Yield parts of each token of a file, in the encodings of URLs and HTTP headers."""
    for token in read_tokens(path.read_bytes()):
        yield token.text()[20:44]
        yield base64.b64encode(token.content).decode()[20:44]
        yield repr(token.content)[20:44]


def test_each_name_service_has_its_own_token(
    url: str, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first token of the file is for another service and is refused."""
    [token] = read_tokens(tokens.read_bytes())
    right = bytearray(token.content.removesuffix(bytes([len(token.service)]) + token.service.encode()))
    wrong = bytearray(right)
    wrong[wrong.index(SECRET_KIND) - 8] ^= 1
    each = b"".join(b"\0%b\x09ha-hdfs:%b" % (bytes(content), name) for content, name in ((wrong, b"a"), (right, b"b")))
    tokens.write_bytes(b"HDTS\0\2" + each + b"\0")
    scheme, place = urllib.parse.urlsplit(url)[:2]
    port = {"hdfs": "rpc", "webhdfs": "http", "swebhdfs": "https"}[scheme]
    services = {"dfs.nameservices": "a,b", "dfs.ha.namenodes.a": "one", "dfs.ha.namenodes.b": "one"}
    services |= {f"dfs.namenode.{port}-address.{name}.one": place for name in "ab"}
    write_site(tmp_path / "hdfs-site.xml", read_configuration({}) | services)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    directory = new_directory()
    fs = opened(f"{scheme}://b{directory}")
    fs.make_directories("")
    fs.create_exclusive("file", b"data")
    assert fs.read("file") == b"data"
    with pytest.raises(PermissionDenied):
        opened(f"{scheme}://a{directory}").stat("file")


@pytest.fixture(scope="module")
def as_protobuf(secured: SecuredCluster, fetched: Path) -> Path:
    """The same tokens in the form of `hadoop dtutil`."""
    path = fetched.with_name("as-protobuf")
    shutil.copy(fetched, path)
    secured.write_as_protobuf(path)
    return path


def test_a_process_without_configuration_is_told_to_set_it(
    url: str, tokens: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The NameNode closes the connection of a client that does not know that the cluster has Kerberos."""
    del tokens
    configuration = Path(os.environ["HADOOP_CONF_DIR"])
    monkeypatch.delenv("HADOOP_CONF_DIR")
    monkeypatch.chdir(tmp_path)
    if url.startswith("hdfs:"):
        began_s = time.monotonic()
        with pytest.raises(ConfigError, match=r"no Hadoop configuration.*set HADOOP_CONF_DIR to the directory"):
            open_filesystem(url, settings=PATIENT).make_directories("")
        assert time.monotonic() - began_s < AT_ONCE_S
    shutil.copytree(configuration, tmp_path / "__spark_conf__/__hadoop_conf__")
    if url.startswith("hdfs:"):
        with pytest.raises(ConfigError, match="set HADOOP_CONF_DIR"):
            opened(url).make_directories("")
    # The configuration that Spark sends to containers of YARN is only read in a container.
    monkeypatch.setenv("CONTAINER_ID", "container_e01_1700000000000_0001_01_000001")
    opened(url).make_directories("")


def test_a_token_may_be_in_either_form(url: str, tokens: Path, as_protobuf: Path) -> None:
    shutil.copy(as_protobuf, tokens)
    assert tokens.read_bytes().startswith(b"HDTS\1")
    MicroBatch(url, COLUMNS, TEXT).run(0, [rows("a"), rows("b")])
    checked(url, "a", "b")


def damage(tokens: Path) -> None:
    """Change the password of a token, which precedes its kind."""
    data = bytearray(tokens.read_bytes())
    data[data.index(SECRET_KIND) - 8] ^= 1
    tokens.write_bytes(data)


def test_a_damaged_token_is_refused(url: str, tokens: Path) -> None:
    damage(tokens)
    today = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"
    origin = rf"is from the file '{tokens}', which {FILE_VARIABLE} names. It was issued at {today} .* UTC, and ends at"
    with pytest.raises(PermissionDenied, match=origin) as caught:
        opened(url).make_directories("")
    assert type(caught.value) is PermissionDenied
    assert not any(secret in shown(caught.value) for secret in secrets_of(tokens))


def test_a_new_token_is_used_when_the_old_one_is_refused(url: str, tokens: Path) -> None:
    """A long-running process reads the token file again, also within a call."""
    good = tokens.read_bytes()
    damage(tokens)
    fs = opened(url)
    with pytest.raises(PermissionDenied, match="A new token in the token file is used by the next call"):
        fs.make_directories("")
    tokens.write_bytes(good)
    fs.make_directories("")
    fs.create_exclusive("file", b"data")
    with fs.create("stream") as stream:
        stream.write(b"data")
    assert [fs.read(name) for name in ("file", "stream")] == [b"data"] * 2


def test_a_token_that_has_ended_is_refused(url: str, tokens: Path) -> None:
    """The token's end becomes its issue date, which its password does not match; the `hdfs://` library skips it."""
    data = tokens.read_bytes()
    issued = data.index(DATE + (round(time.time() * 1000) >> 32).to_bytes(2, "big"))
    ends = issued + DATE_BYTES
    assert data[ends:].startswith(DATE)
    tokens.write_bytes(data[:ends] + data[issued:ends] + data[ends + DATE_BYTES :])
    with pytest.raises(PermissionDenied, match="token") as caught:
        opened(url).make_directories("")
    assert not any(secret in shown(caught.value) for secret in secrets_of(tokens))


def test_tokens_of_others_are_never_shown(url: str, tokens: Path) -> None:
    data = tokens.read_bytes()
    service = data[data.index(SECRET_KIND) + len(SECRET_KIND) + 1 :].split(b"\0")[0]
    other = b"ha-hdfs:other"
    tokens.write_bytes(data.replace(bytes([len(service)]) + service, bytes([len(other)]) + other))
    with pytest.raises(StorageError, match="'ha-hdfs:other'") as caught:
        opened(url).make_directories("")
    assert isinstance(caught.value, PermissionDenied)


def test_a_tls_that_is_not_believed_is_a_setting(
    url: str, kdc: Kdc, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not url.startswith("swebhdfs"):
        pytest.skip("does not speak TLS")
    kdc.ticket(tmp_path / "cache", OWNER)
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    with pytest.raises(ConfigError, match="REQUESTS_CA_BUNDLE"):
        opened(url).put("hint", b"data")


@pytest.mark.parametrize("call", [lambda fs: fs.stat("file"), lambda fs: fs.put("hint", b"data")], ids=["stat", "put"])
@pytest.mark.parametrize("url", ["hdfs"], indirect=True)  # configures the process
def test_a_port_of_the_other_kind_is_named(
    url: str, secured: SecuredCluster, kdc: Kdc, tmp_path: Path, call: Callable[[FileSystem], object]
) -> None:
    del url
    kdc.ticket(tmp_path / "cache", OWNER)
    plain, secure = (each.rpartition("/")[2] for each in (secured.web_url, secured.secure_web_url))
    began_s = time.monotonic()
    with pytest.raises(ConfigError, match=f"{plain}: the server does not speak TLS.*webhdfs://"):
        call(open_filesystem(f"swebhdfs://{plain}/out", settings=PATIENT))
    with pytest.raises(ConfigError, match=f"{secure}: the server speaks TLS.*swebhdfs://"):
        call(open_filesystem(f"webhdfs://{secure}/out", settings=PATIENT))
    assert time.monotonic() - began_s < AT_ONCE_S


@pytest.fixture(scope="module")
def keytab(kdc: Kdc) -> Path:
    """A keytab with the key of the owner."""
    return kdc.add(OWNER)


def test_a_keytab_is_enough_and_is_preferred_to_a_token_that_has_ended(
    url: str, tokens: Path, keytab: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    damage(tokens)
    settings = {"storage.keytab": str(keytab), "storage.principal": OWNER}
    MicroBatch(url, COLUMNS, TEXT | settings).run(0, [rows("a"), rows("b")])
    monkeypatch.setenv("FTFILE_KEYTAB", str(keytab))
    monkeypatch.setenv("FTFILE_PRINCIPAL", OWNER)
    MicroBatch(url, COLUMNS, TEXT).run(1, [rows("c")])
    checked(url, "a", "b", "c")
    assert not re.search(r"(Negotiate |delegation=)[A-Za-z0-9+/_-]{8}", caplog.text)


@pytest.mark.parametrize("principal", ["unknown", f"{OWNER}@ELSEWHERE.INVALID"])
def test_a_login_that_fails_is_named(url: str, keytab: Path, principal: str) -> None:
    settings = {"keytab": str(keytab), "principal": principal, **PATIENT}
    began_s = time.monotonic()
    with pytest.raises(PermissionDenied, match=rf"the login of '{principal}' with the keytab '{keytab}' failed"):
        open_filesystem(url, settings=settings).make_directories("")
    assert time.monotonic() - began_s < AT_ONCE_S


def test_tokens_are_used_if_the_login_with_the_keytab_of_spark_fails(
    url: str,
    tokens: Path,
    keytab: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """In the container of a driver on YARN."""
    del tokens
    properties = tmp_path / "__spark_conf__/__spark_conf__.properties"
    properties.parent.mkdir()
    properties.write_text(f"spark.kerberos.keytab={keytab}\nspark.kerberos.principal=unknown\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ftfile.storage.hdfs.credentials.keytab._failed", PerProcess(set))
    monkeypatch.setenv("CONTAINER_ID", "container_e01_1700000000000_0001_01_000001")
    opened(url).make_directories("")
    opened(url).create_exclusive("file", b"data")
    assert caplog.text.count("the login of 'unknown' with the keytab") == 1
    properties.write_text(f"spark.kerberos.keytab={keytab}\nspark.kerberos.principal={OWNER}\n")
    monkeypatch.delenv(FILE_VARIABLE)
    assert opened(url).read("file") == b"data"


def test_a_keytab_that_cannot_be_used_is_a_setting(url: str, keytab: Path, tmp_path: Path) -> None:
    for settings, message in (
        ({"keytab": str(keytab)}, r"storage\.keytab and storage\.principal belong together"),
        ({"keytab": str(tmp_path / "none"), "principal": OWNER}, r"storage\.keytab=.* cannot read the file"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_filesystem(url, settings=settings)


@pytest.fixture
def short_tickets(kdc: Kdc, tmp_path: Path, url: str) -> Iterator[None]:
    """Tickets of a few seconds, each replaced long before it expires."""
    del url  # which configures where tickets are found
    ended = threading.Event()

    def get() -> None:
        kdc.ticket(tmp_path / "new", OWNER, life="8s")
        shutil.move(tmp_path / "new", tmp_path / "cache")

    def get_more() -> None:
        while not ended.wait(1.0):
            get()

    get()
    with ThreadPoolExecutor(1) as pool:
        getting = pool.submit(get_more)
        yield
        ended.set()
        getting.result()


@pytest.mark.skipif(not THOROUGH, reason="takes minutes: FTFILE_THOROUGH=1")
@pytest.mark.usefixtures("short_tickets")
def test_a_stream_outlives_many_tickets(url: str) -> None:
    query = MicroBatch(url, COLUMNS, TEXT, checkpoint=f"{url}-checkpoint")
    for batch in range(30):
        query.run(batch, [rows(f"{batch}")])
        time.sleep(1)  # the batches last longer than a few ticket lifetimes
    checked(url, *map(str, range(30)))
