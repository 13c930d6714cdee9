# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from railweave.topologies.cluster import TlsFiles

NEW = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")


def authority(folder: Path, name: str = "ca") -> Path:
    """Make a CA and return its certificate. The key lies beside the certificate."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder.mkdir(exist_ok=True)
    ca = folder / f"{name}.pem"
    _openssl("-subj", f"/CN=test {name}", "-keyout", f"{folder}/{name}.key", "-out", str(ca))
    return ca


def certificate(ca: Path, name: str, alternative: str) -> TlsFiles:
    """Make a certificate, signed by a CA, for an alternative name such as IP:127.0.0.1."""
    key, own = ca.with_name(f"{name}.key"), ca.with_name(f"{name}.pem")
    signed = ("-CA", str(ca), "-CAkey", str(ca.with_suffix(".key")), "-addext", "basicConstraints=CA:FALSE")
    request = ("-subj", f"/CN={name}", "-addext", f"subjectAltName={alternative}")
    _openssl(*request, *signed, "-keyout", str(key), "-out", str(own))
    return TlsFiles(str(ca), str(own), str(key))


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *NEW, *arguments], check=True, capture_output=True)
