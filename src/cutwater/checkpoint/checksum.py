"""The checksum of a stored table: it finds damage, and names what travels in messages.

128 bits of XXH3: a tenth of the CPU of a cryptographic hash, which was the largest part of what storing a state cost.
Nobody is kept from forging a file by it; who may write there may forge the metadata as well.
"""

from typing import Final

import xxhash

new_checksum: Final = xxhash.xxh3_128


def checksum_of(content: bytes | memoryview) -> str:
    return xxhash.xxh3_128_hexdigest(content)
