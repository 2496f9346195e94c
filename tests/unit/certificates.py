# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A certificate authority and one certificate for tests, for `localhost` and for clients."""

from __future__ import annotations

import datetime
import ssl
from dataclasses import dataclass

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


@dataclass(frozen=True)
class Authority:
    """Paths of PEM files."""

    ca: str
    cert: str
    key: str


def _certificate(name, key, issuer, issuer_key, *extensions):
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        issuer, name, key.public_key(), x509.random_serial_number(), now - datetime.timedelta(hours=1), now + datetime.timedelta(days=1))
    for extension in extensions:
        builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
    return builder.sign(issuer_key, hashes.SHA256())


def make(folder):
    """Authority with its files in that folder."""
    ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    ca_name, name = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)]) for text in ("Test authority", "localhost"))
    usage = x509.KeyUsage(True, False, False, False, False, True, True, False, False)
    identifier = x509.SubjectKeyIdentifier.from_public_key(ca_key.public_key())
    ca = _certificate(ca_name, ca_key, ca_name, ca_key, x509.BasicConstraints(True, None), usage, identifier)
    cert = _certificate(
        name, key, ca_name, ca_key, x509.SubjectAlternativeName([x509.DNSName("localhost")]),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
        x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier))
    files = {
        "ca": ca.public_bytes(serialization.Encoding.PEM), "cert": cert.public_bytes(serialization.Encoding.PEM),
        "key": key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())}
    for what, data in files.items():
        (folder / f"{what}.pem").write_bytes(data)
    return Authority(**{what: str(folder / f"{what}.pem") for what in files})


def server_context(authority, ask_client):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.cert, authority.key)
    if ask_client:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.ca)
    return context
