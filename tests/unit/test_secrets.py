"""How long it takes to refuse an API key says nothing of it: its hash is compared whole with that of every key."""

import re
from pathlib import Path

SOURCE = (Path(__file__).resolve().parents[2] / "gateway/keys.c").read_text()


def tells_by_time(source):
    """What in the look-up of a key would end early."""
    found = re.findall(r"(?<!CRYPTO_)\b(?:memcmp|strcmp|strncmp|bcmp)\([^;]*digest[^;]*", source)
    body = re.search(r"gw_keys_find\(const struct gw_keys \*keys, struct span given\)\n\{(.*?)\n\}", source, re.S)[1]
    assert "CRYPTO_memcmp" in body
    loop = body[body.index("for ("):]
    return found + re.findall(r"\b(?:break|goto|return)\b[^;]*", loop[:loop.rindex("return")])


def test_every_key_is_compared_whole():
    assert tells_by_time(SOURCE) == []


def test_an_early_end_would_be_seen():
    assert tells_by_time(SOURCE.replace("\t\t\tfound = &keys->keys[i];", "\t\t\treturn &keys->keys[i];"))
    assert tells_by_time(SOURCE.replace("CRYPTO_memcmp(other->digest", "memcmp(other->digest"))
