"""Reads the content of one key file: a key per line, as clear text or as a digest."""

import hashlib

_HASHED = "sha256:"
MIN_KEY_LENGTH = 8
"""Minimum length of a clear-text key, because a shorter text could be guessed, or be the beginning of another key."""


class KeyFileError(ValueError):
    """A key file can't be used. The message names the line, if any, and never shows a key."""


def parse_keys(content: bytes) -> frozenset[bytes]:
    """Returns the SHA-256 digests of the keys in a key file's content.

    Raises:
        KeyFileError: a line is not a key.
    """
    try:
        # Do not use splitlines(), because it also splits at other Unicode line separators, which a key might contain.
        lines = content.decode().replace("\r\n", "\n").split("\n")
    except UnicodeDecodeError:
        raise KeyFileError("not UTF-8 text") from None
    digests = set()
    for number, line in enumerate(lines, start=1):
        if key := line.strip(" \t"):
            digests.add(_digest_of_line(number, key))
    return frozenset(digests)


def _digest_of_line(number: int, key: str) -> bytes:
    if key.startswith(_HASHED):
        try:
            digest = bytes.fromhex(key.removeprefix(_HASHED))
        except ValueError:
            digest = b""
        if len(digest) != hashlib.sha256().digest_size:
            raise KeyFileError(f"line {number}: expected 64 hexadecimal digits after {_HASHED!r}")
        return digest
    if not key.isascii() or not key.isprintable() or " " in key:
        raise KeyFileError(f"line {number}: a key must consist of printable ASCII characters without spaces")
    if len(key) < MIN_KEY_LENGTH:
        raise KeyFileError(f"line {number}: a key must have at least {MIN_KEY_LENGTH} characters")
    return hashlib.sha256(key.encode()).digest()
