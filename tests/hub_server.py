"""A stand-in of the Hugging Face Hub's HTTP API on loopback: repositories, commits, LFS."""

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import unquote, urlparse

Files = dict[str, bytes]
ROOT = Path(__file__).parents[1]
TOKEN = "hf_" + "aSecretOfTheLogin" * 2


@dataclass
class Repository:
    """Its commits, oldest first."""

    private: bool = False
    commits: list[tuple[str, Files]] = field(default_factory=list)

    def commit(self, files: Files) -> str:
        """Add a revision with these files beside those of before; returns its name."""
        whole = {**(self.commits[-1][1] if self.commits else {}), **files}
        text = repr((len(self.commits), sorted(whole.items())))
        self.commits.append((hashlib.sha1(text.encode()).hexdigest(), whole))
        return self.commits[-1][0]

    def at(self, revision: str) -> tuple[str, Files] | None:
        """(commit, files) of a revision; None for an unknown one."""
        if revision == "main":
            return self.commits[-1] if self.commits else None
        return next((one for one in self.commits if one[0] == revision), None)


@dataclass
class Hub:
    """The state of the stand-in; a request without `token` may read what is public and no more."""

    token: str
    url: str = ""
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    objects: Files = field(default_factory=dict)  # of LFS, by SHA-256
    requests: list[str] = field(default_factory=list)

    def repository(self, kind: str, name: str) -> Repository:
        return self.repositories.setdefault((kind, name), Repository())


class Machine:
    """A user's machine: a home of huggingface_hub with a login, and a cache."""

    def __init__(self, home: Path, hub: Hub) -> None:
        (home / "hf").mkdir(parents=True)
        (home / "hf" / "token").write_text(TOKEN)
        self.home, self.hub = home, hub
        self.output = ""

    def python(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        given = {
            **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
            "HF_HOME": str(self.home / "hf"),
            "HF_ENDPOINT": self.hub.url,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "RANKSWEEP_CACHE": str(self.home / "cache"),
            **more,
        }
        command = [sys.executable, *words]
        done = subprocess.run(
            command, cwd=ROOT, env=given, capture_output=True, text=True, timeout=300
        )
        self.output += done.stdout + done.stderr
        return done

    def tells_the_token(self) -> list[str]:
        """Where the token is, beside the file of the login."""
        places = [
            str(path)
            for path in self.home.rglob("*")
            if path.is_file() and path.name != "token" and TOKEN.encode() in path.read_bytes()
        ]
        return places + ["the output"] * (TOKEN in self.output)


@contextmanager
def running_hub(token: str) -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    hub = Hub(token)
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, content: object, status: int = 200) -> None:
        self._answer(status, json.dumps(content).encode(), Content_Type="application/json")

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, b"", X_Error_Code=code, X_Error_Message=code)

    @property
    def _signed_in(self) -> bool:
        return self.headers.get("Authorization") == f"Bearer {self.hub.token}"

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _begin(self) -> str:
        path = unquote(urlparse(self.path).path)
        self.hub.requests.append(f"{self.command} {path}")
        return path

    def _found(self, kind: str, name: str) -> Repository | None:
        """A repository that the caller may read."""
        found = self.hub.repositories.get((kind, name))
        if found is None or (found.private and not self._signed_in):
            self._refuse(401, "RepoNotFound")
            return None
        return found

    def do_GET(self) -> None:
        path = self._begin()
        if match := re.fullmatch(r"/api/(\w+)s/([^/]+/[^/]+)", path):
            if (repository := self._found(*match.groups())) is not None:
                self._json({"id": match[2], "private": repository.private, "tags": []})
        elif match := re.fullmatch(r"/api/(\w+)s/([^/]+/[^/]+)/(revision|tree)/([^/]+)/?", path):
            kind, name, what, revision = match.groups()
            if (repository := self._found(kind, name)) is None:
                return
            if (at := repository.at(revision)) is None:
                self._refuse(404, "RevisionNotFound")
            elif what == "tree":
                self._json([_entry(file, data) for file, data in at[1].items()])
            else:
                siblings = [{"rfilename": file} for file in at[1]]
                self._json({"id": name, "sha": at[0], "siblings": siblings, "tags": []})
        elif match := re.fullmatch(r"/(?:(dataset)s/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind, name, revision, file = match.groups()
            if (repository := self._found(kind or "model", name)) is None:
                return
            at = repository.at(revision)
            if at is None or file not in at[1]:
                self._refuse(404, "EntryNotFound")
                return
            data = at[1][file]
            tag = hashlib.sha256(data).hexdigest()
            self._answer(200, data, X_Repo_Commit=at[0], ETag=f'"{tag}"')
        else:
            self._refuse(404, f"NoSuchPath {path}")

    do_HEAD = do_GET

    def do_PUT(self) -> None:
        path, data = self._begin(), self._body()
        self.hub.objects[path.rpartition("/")[2]] = data
        self._answer(200)

    def do_POST(self) -> None:
        path, body = self._begin(), self._body()
        if not self._signed_in:
            self._refuse(401, "Unauthorized")
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            if (kind := asked.get("type") or "model", name) in self.hub.repositories:
                known = "You already created this repository"
                self._json({"error": known, "url": f"{self.hub.url}/{name}"}, 409)
                return
            # As of version 2; `private` before.
            private = asked.get("visibility") == "private" or bool(asked.get("private"))
            self.hub.repository(kind, name).private = private
            self._json({"url": f"{self.hub.url}/{name}", "name": name, "id": name})
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif path.endswith("/preupload/main"):
            files = [file["path"] for file in json.loads(body)["files"]]
            modes = ["lfs" if file.endswith(".safetensors") else "regular" for file in files]
            told = [
                {"path": file, "uploadMode": mode, "shouldIgnore": False}
                for file, mode in zip(files, modes, strict=True)
            ]
            self._json({"files": told})
        elif path.endswith(".git/info/lfs/objects/batch"):
            objects = [
                {**one, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{one['oid']}"}}}
                for one in json.loads(body)["objects"]
            ]
            self._json({"objects": objects, "transfer": "basic"})
        elif match := re.fullmatch(r"/api/(\w+)s/([^/]+/[^/]+)/commit/main", path):
            commit = self.hub.repository(*match.groups()).commit(self._files_of(body))
            url = f"{self.hub.url}/{match[2]}/commit/{commit}"
            self._json({"commitUrl": url, "commitOid": commit, "success": True})
        else:
            self._refuse(404, f"NoSuchPath {path}")

    def _files_of(self, body: bytes) -> Files:
        files = {}
        for line in map(json.loads, body.splitlines()):
            about = line["value"]
            if line["key"] == "file":
                files[about["path"]] = base64.b64decode(about["content"])
            elif line["key"] == "lfsFile":
                files[about["path"]] = self.hub.objects[about["oid"]]
        return files


def _entry(file: str, data: bytes) -> dict[str, object]:
    return {
        "type": "file",
        "path": file,
        "size": len(data),
        "oid": hashlib.sha1(data).hexdigest(),
    }
