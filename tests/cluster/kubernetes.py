"""A server for the part of Kubernetes' API that Spark calls."""

from __future__ import annotations

import base64
import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from tests.cluster.cluster import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from typing_extensions import Self

__all__ = ("ApiServer", "Json", "container_of", "file_at", "name_of", "source_of")

Json: TypeAlias = dict[str, Any]

# A kind of objects of a namespace, or one object.
PLACE = re.compile(r"/apis?/.+/namespaces/[^/]+/(?P<kind>[a-z]+)(?:/(?P<name>[^/]+))?")
# The conditions of a label selector that Spark sends.
LABEL = re.compile(r"(?P<label>[^!=]+)(?P<operator>!=|=)(?P<value>[^=]*)")
CREATED_AT = "2026-01-01T00:00:00Z"


class ApiServer:
    """Objects of one namespace, which clients create, read, watch and delete; a `with` block ends the server.

    No pod runs. Requests that this server does not support get status 501, and `refused` contains them.
    """

    def __init__(self) -> None:
        self.refused: list[str] = []
        self.is_closed = False
        self._objects: dict[tuple[str, str], Json] = {}
        # Each change as its kind, its type and the object. Its position plus one is the resource version.
        self._events: list[tuple[str, str, Json]] = []
        self._changed = threading.Condition(threading.RLock())
        self._http = _HttpServer(self)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    @property
    def url(self) -> str:
        """The address for clients."""
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    @property
    def master(self) -> str:
        """The address for Spark."""
        return f"k8s://{self.url}"

    def objects(self, kind: str, *, role: str = "") -> list[Json]:
        """Return the objects of a kind, such as `pods`, in the order of their creation; only of a role, if given."""
        with self._changed:
            objects = [value for (other_kind, _), value in self._objects.items() if other_kind == kind]
        return [value for value in objects if not role or value["metadata"]["labels"].get("spark-role") == role]

    def get(self, kind: str, name: str) -> Json | None:
        """Return an object, or None."""
        with self._changed:
            return self._objects.get((kind, name))

    def wait_for_pods(self, role: str, count: int) -> list[Json]:
        """Wait until this number of pods of a role of Spark exist, and return them."""

        def pods() -> list[Json] | None:
            existing = self.objects("pods", role=role)
            return existing if len(existing) >= count else None

        return wait_for(pods, f"{count} pods of the role {role}")

    def put(self, kind: str, value: Json) -> Json:
        """Create or replace an object, and return it as it is stored."""
        name = name_of(value)
        with self._changed:
            earlier = self._objects.get((kind, name))
            uid = str(uuid.uuid4())
            if earlier is not None:
                uid = earlier["metadata"]["uid"]
            version = str(len(self._events) + 1)
            metadata = {"labels": {}, **value["metadata"], "uid": uid, "resourceVersion": version}
            metadata |= {"creationTimestamp": CREATED_AT, "namespace": "default"}
            stored = {**value, "metadata": metadata}
            if kind == "pods":
                stored.setdefault("status", {"phase": "Pending"})
            self._objects[kind, name] = stored
            self._record(kind, "MODIFIED" if earlier else "ADDED", stored)
            return stored

    def set_status(self, name: str, status: Json) -> None:
        """Change the status of a pod; nothing if the pod does not exist."""
        with self._changed:
            pod = self._objects.get(("pods", name))
            if pod is not None:
                self.put("pods", {**pod, "status": status})

    def delete(self, kind: str, name: str) -> Json | None:
        """Delete an object, and return it; None if it does not exist."""
        with self._changed:
            value = self._objects.pop((kind, name), None)
            if value is not None:
                metadata = {**value["metadata"], "deletionTimestamp": CREATED_AT}
                value = {**value, "metadata": metadata | {"resourceVersion": str(len(self._events) + 1)}}
                self._record(kind, "DELETED", value)
            return value

    def events(self, kind: str, since: int = 0) -> Iterator[tuple[str, Json]]:
        """Yield the changes of a kind after a resource version, with their types, until the server ends."""
        position = since
        while True:
            with self._changed:
                while len(self._events) == position and not self.is_closed:
                    self._changed.wait()
                if self.is_closed:
                    return
                event = self._events[position]
                position += 1
            if event[0] == kind:
                yield event[1], event[2]

    def variables_of(self, pod: Json) -> dict[str, str]:
        """Return the environment variables of a pod's container, with values of its fields and of secrets."""
        variables: dict[str, str] = {}
        for variable in container_of(pod)["env"]:
            source = variable.get("valueFrom", {})
            if "fieldRef" in source:
                value: Any = pod
                for field in source["fieldRef"]["fieldPath"].split("."):
                    value = value.get(field, "")
            elif "secretKeyRef" in source:
                reference = source["secretKeyRef"]
                value = self.data("secrets", reference["name"])[reference["key"]].decode()
            else:
                value = variable["value"]
            variables[variable["name"]] = value
        return variables

    def data(self, kind: str, name: str) -> dict[str, bytes]:
        """Return the files of a config map or of a secret."""
        value = self.get(kind, name)
        assert value is not None, f"{kind}/{name} does not exist"
        if kind == "secrets":
            return {key: base64.b64decode(content) for key, content in value["data"].items()}
        return {key: content.encode() for key, content in value["data"].items()}

    def changes(self, kind: str) -> list[tuple[str, Json]]:
        """Return the changes of a kind until now, with their types."""
        with self._changed:
            return [(change, value) for other_kind, change, value in self._events if other_kind == kind]

    def version(self) -> str:
        """Return the resource version of the newest change."""
        with self._changed:
            return str(len(self._events))

    def _record(self, kind: str, change: str, value: Json) -> None:
        self._events.append((kind, change, value))
        self._changed.notify_all()


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: ApiServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.api = api


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: _HttpServer

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        """Respond with an object, a list or a stream of changes."""
        kind, name, query = self._request()
        if not kind:
            self._refuse()
        elif "watch" in query:
            self._watch(kind, query)
        elif name:
            self._respond_object(self.server.api.get(kind, name))
        else:
            version = self.server.api.version()
            items = [value for value in self.server.api.objects(kind) if _matches(value, query)]
            self._respond(200, {"kind": "List", "metadata": {"resourceVersion": version}, "items": items})

    def do_POST(self) -> None:
        """Create an object."""
        kind, name, _ = self._request()
        if name or not kind:
            return self._refuse()
        return self._respond(201, self.server.api.put(kind, json.loads(self.body)))

    def do_PATCH(self) -> None:
        """Create or replace an object: Spark's client applies whole objects."""
        kind, _, _ = self._request()
        if not kind or self.headers["Content-Type"] != "application/apply-patch+yaml":
            return self._refuse()
        return self._respond(200, self.server.api.put(kind, json.loads(self.body)))

    def do_DELETE(self) -> None:
        """Delete an object, or all objects that match a selector."""
        kind, name, query = self._request()
        if not kind:
            return self._refuse()
        if name:
            return self._respond_object(self.server.api.delete(kind, name))
        for value in self.server.api.objects(kind):
            if _matches(value, query):
                self.server.api.delete(kind, name_of(value))
        return self._respond(200, {"kind": "Status", "status": "Success"})

    def do_PUT(self) -> None:
        """Refuse the request."""
        self._request()
        self._refuse()

    def _request(self) -> tuple[str, str, dict[str, str]]:
        """Read the request; return the kind, the name, empty for all objects, and the query."""
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        place = PLACE.fullmatch(parts.path)
        if place is None:
            return "", "", {}
        return place["kind"], place["name"] or "", dict(parse_qsl(parts.query))

    def _watch(self, kind: str, query: dict[str, str]) -> None:
        if self.headers.get("Upgrade"):
            # The client first tries a web socket. After this response it repeats the request without one.
            return self._respond(200, {})
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.flush()
        try:
            for change, value in self.server.api.events(kind, int(query.get("resourceVersion") or 0)):
                if _matches(value, query):
                    self.wfile.write(json.dumps({"type": change, "object": value}).encode() + b"\n")
                    self.wfile.flush()
        except OSError:  # the client has closed its watch
            pass
        return None

    def _respond_object(self, value: Json | None) -> None:
        if value is None:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
            return self._respond(404, status)
        return self._respond(200, value)

    def _refuse(self) -> None:
        self.server.api.refused.append(f"{self.command} {self.path} {self.headers['Content-Type']} {self.body!r}")
        self._respond(501, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 501})

    def _respond(self, code: int, value: Json) -> None:
        content = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def name_of(value: Json) -> str:
    """Return the name of an object."""
    name: str = value["metadata"]["name"]
    return name


def container_of(pod: Json) -> Json:
    """Return the only container of a pod."""
    (container,) = pod["spec"]["containers"]
    assert isinstance(container, dict)
    return container


def file_at(pod: Json, path: str) -> tuple[str, str, str]:
    """Return the file at a path of a pod's container: the kind and the name of the mounted object, and the file's key.

    Raises:
        LookupError: no object is mounted at the directory of the path.
    """
    for mount in container_of(pod)["volumeMounts"]:
        directory, _, key = path.rpartition("/")
        if mount["mountPath"] == directory:
            (volume,) = [volume for volume in pod["spec"]["volumes"] if volume["name"] == mount["name"]]
            source = source_of(volume)
            if source is not None:
                return (*source, key)
    raise LookupError(f"nothing is mounted at {path}")


def source_of(volume: Json) -> tuple[str, str] | None:
    """Return the kind and the name of the object that a volume contains; None for an empty directory."""
    if "configMap" in volume:
        return "configmaps", volume["configMap"]["name"]
    if "secret" in volume:
        return "secrets", volume["secret"]["secretName"]
    if "persistentVolumeClaim" in volume:
        return "persistentvolumeclaims", volume["persistentVolumeClaim"]["claimName"]
    return None


def _matches(value: Json, query: dict[str, str]) -> bool:
    """Return True if an object has the labels, and the name, that a query selects."""
    labels = value["metadata"]["labels"]
    for text in filter(None, query.get("labelSelector", "").split(",")):
        condition = LABEL.fullmatch(text)
        assert condition is not None, text
        is_equal = labels.get(condition["label"]) == condition["value"]
        if is_equal != (condition["operator"] == "="):
            return False
    _, _, name = query.get("fieldSelector", "").partition("metadata.name=")
    return name in {"", name_of(value)}
