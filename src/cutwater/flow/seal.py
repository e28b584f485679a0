"""Authenticated encryption of payloads, for sessions in which the user asked Spark to protect its network.

Spark's streaming shuffle has neither authentication nor encryption of its own. The key is made per attempt and travels in
the closure. Channel, kind, sequence number and mark are authenticated too: a row cannot be changed, moved or replayed.
"""

import os
import struct
from dataclasses import replace

import pyarrow as pa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from cutwater.errors import ControlError
from cutwater.flow.envelope import Row, RowKind

_NONCE_BYTES = 12


class Seal:
    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @staticmethod
    def new_key() -> bytes:
        return AESGCM.generate_key(bit_length=256)

    def close(self, row: Row) -> Row:
        if row.kind is RowKind.PAD:
            return row
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, row.read().to_pybytes(), _header(row))
        return replace(row, payload=pa.py_buffer(sealed))

    def open(self, row: Row) -> Row:
        sealed = row.read().to_pybytes()
        try:
            payload = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], _header(row))
        except (InvalidTag, ValueError):
            raise ControlError(
                f"Row {row.seq} of channel {row.channel} is not what its sender sealed: somebody changed it on the network."
            ) from None
        return replace(row, payload=pa.py_buffer(payload))


def _header(row: Row) -> bytes:
    """What stays readable on the way but must not change; the target is left out, relays rewrite it."""
    return struct.pack("<iiqq", row.channel, row.kind, row.seq, row.mark)
