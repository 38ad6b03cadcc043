"""What an attacker needs against a coordinator: connections that speak any bytes over TCP or TLS 1.3, frames and join
tokens as the daemons write them (common/messages/frame.hpp, launcher/net/join_token.cpp), certificates of all kinds.

Nothing of the project's own code is used, so that what it refuses is tried and not avoided.
"""

import base64
import hashlib
import json
import os
import socket
import ssl
import struct
import subprocess
import threading

JSON, CHUNK = 1, 2
HELLO = {"type": "hello", "protocol_min": 1, "protocol_max": 1}
WAIT_S = 30.0  # For an end that should come at once, or with a deadline of 5 s, on a busy machine.


def frame(content, kind=JSON, length=None):
    """One frame; `length` is what its header says in place of the truth."""
    if not isinstance(content, bytes):
        content = json.dumps(content).encode()
    return struct.pack(">IB", len(content) if length is None else length, kind) + content


class Wire:
    """One connection to `address` (host:port, or unix:path in plain text); without `identity` (a PEM file with certificate and key) TLS
    shows none."""

    def __init__(self, address, identity=None, tls=True, source="127.0.0.1", old_tls=False, said_host="x"):
        host, port = address.rsplit(":", 1)
        if host == "unix":
            self.raw = self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(WAIT_S)
            self.socket.connect(port)
        else:
            self.raw = self.socket = socket.create_connection((host, int(port)), WAIT_S, (source, 0))
        if not tls or host == "unix":
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.minimum_version = ssl.TLSVersion.TLSv1_2 if old_tls else ssl.TLSVersion.TLSv1_3
        context.maximum_version = ssl.TLSVersion.TLSv1_2 if old_tls else ssl.TLSVersion.TLSv1_3
        if identity:
            context.load_cert_chain(identity)
        self.socket = context.wrap_socket(self.raw, server_hostname=said_host)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, *parts):
        """Objects become JSON frames. What the other side no longer takes is dropped: its end is what counts."""
        try:
            self.socket.sendall(b"".join(part if isinstance(part, bytes) else frame(part) for part in parts))
        except OSError:
            pass
        return self

    def _exactly(self, count):
        data = b""
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise ConnectionError("closed")
            data += part
        return data

    def read(self):
        """The next frame: an object, or bytes."""
        length, kind = struct.unpack(">IB", self._exactly(5))
        content = self._exactly(length)
        return json.loads(content) if kind == JSON else content

    def read_until(self, kind, most=100):
        for _ in range(most):
            message = self.read()
            if isinstance(message, dict) and message.get("type") == kind:
                return message
        raise AssertionError(f"no {kind} among {most} messages")

    def end(self):
        """How the other side ends it: "closed", "reset", or the name of its alert. Fails when it does not."""
        try:
            while self.socket.recv(65536):
                pass
            return "closed"
        except TimeoutError as error:
            raise AssertionError("the connection is still there") from error
        except ssl.SSLError as error:
            return error.reason or "closed"
        except OSError:
            return "reset"


def attempt(address, *parts, **how):
    """Connects, says `parts`, and hears how it ends, also when TLS itself is refused."""
    try:
        with Wire(address, **how) as wire:
            return wire.send(*parts).end()
    except ssl.SSLError as error:
        return error.reason or "closed"
    except ConnectionError:
        return "reset"


# ---- tokens ----

FRONT = "sgd-join-"


def token_bytes(text):
    """Version, id (8), secret (32), digest of the authority's key (32), role; without the check sum."""
    body = text.strip()[len(FRONT):]
    return bytearray(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))[:74]


def token_text(body):
    """With a check sum that fits."""
    check = hashlib.sha256(bytes(body)).digest()[:4]
    return FRONT + base64.urlsafe_b64encode(bytes(body) + check).decode().rstrip("=")


# ---- certificates ----

class Forge:
    """Makes keys and certificates in `folder` with openssl's command."""

    def __init__(self, folder):
        self.folder = folder

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def read(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return file.read()

    def _key(self, name):
        self.openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")

    def request(self, name):
        """A signing request, PEM."""
        self._key(name)
        self.openssl("req", "-new", "-key", f"{name}.key", "-subj", f"/CN={name}", "-out", f"{name}.csr")
        return self.read(f"{name}.csr")

    def authority(self, name):
        self._key(name)
        self.openssl("req", "-x509", "-key", f"{name}.key", "-subj", f"/CN={name}", "-days", 10, "-out", f"{name}.pem")
        return self.path(f"{name}.pem"), self.path(f"{name}.key")

    def certificate(self, name, uris, authority=None, days=1, usage="clientAuth"):
        """A PEM file with certificate and key; signed by itself without `authority` (certificate, key)."""
        self.request(name)
        names = ",".join(f"URI:{uri}" for uri in uris) or "DNS:nobody"
        with open(self.path(f"{name}.ext"), "w", encoding="ascii") as file:
            file.write(f"basicConstraints=critical,CA:FALSE\nkeyUsage=critical,digitalSignature\n"
                       f"extendedKeyUsage={usage}\nsubjectAltName={names}\n")
        by = ["-CA", authority[0], "-CAkey", authority[1], "-CAcreateserial"] if authority else ["-signkey", f"{name}.key"]
        self.openssl("x509", "-req", "-in", f"{name}.csr", *by, "-days", days, "-extfile", f"{name}.ext", "-out", f"{name}.crt")
        with open(self.path(f"{name}.pem"), "w", encoding="ascii") as file:
            file.write(self.read(f"{name}.crt") + self.read(f"{name}.key"))
        os.chmod(self.path(f"{name}.pem"), 0o644)  # Whatever account attacks with it.
        return self.path(f"{name}.pem")


class Impostor:
    """Listens with somebody's certificate, and keeps what it hears after the handshake."""

    def __init__(self, identity):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(identity)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                raw, _ = self.listener.accept()
            except OSError:
                return
            try:
                raw.settimeout(WAIT_S)
                with self.context.wrap_socket(raw, server_side=True) as wire:
                    self.heard += wire.recv(65536)
            except OSError:
                continue

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


def checksum(run, file, offset, content):
    """CRC-32C of a chunk's place and bytes, as common/messages/transfer.hpp says."""
    crc = 0xFFFFFFFF
    for byte in run.encode() + b"\0" + file.encode() + b"\0" + offset.to_bytes(8, "little") + b"\0" + content:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
