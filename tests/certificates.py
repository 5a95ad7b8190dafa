"""Certificates of servers on this host, which nobody else has signed."""

from __future__ import annotations

import datetime
import ipaddress
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ("make_certificate",)


def make_certificate(directory: Path, password: str = "changeit") -> tuple[Path, Path, Path]:
    """Make a certificate for `localhost` and 127.0.0.1, valid for a day.

    Returns:
        Files with the certificate, with its key, and with both as a JVM reads them (PKCS12, under the password).
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ftfile's tests")])
    now, day = datetime.datetime.now(datetime.timezone.utc), datetime.timedelta(days=1)
    hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now - day, now + day)
        .add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    kind, nobody = serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    under = serialization.BestAvailableEncryption(password.encode())
    contents = {
        "certificate.pem": made.public_bytes(serialization.Encoding.PEM),
        "key.pem": key.private_bytes(serialization.Encoding.PEM, kind, nobody),
        "store.p12": pkcs12.serialize_key_and_certificates(b"tls", key, made, None, under),
    }
    for file, content in contents.items():
        (directory / file).write_bytes(content)
    certificate, of_key, store = (directory / file for file in contents)
    return certificate, of_key, store
