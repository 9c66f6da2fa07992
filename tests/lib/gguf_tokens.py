"""A GGUF file with other names for some of its tokens: what else is in it stays as it is."""

import pathlib
import struct

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, ALIGNMENT = 8, 9, 32


class Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def number(self, form):
        value, = struct.unpack_from(f"<{form}", self.raw, self.at)
        self.at += struct.calcsize(f"<{form}")
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return bytes(self.raw[self.at - length:self.at])

    def skip(self, kind):
        if kind == STRING:
            self.text()
        elif kind == ARRAY:
            inner, count = self.number("I"), self.number("Q")
            for _ in range(count):
                self.skip(inner)
        else:
            self.at += SIZES[kind]


def rename(source, target, names):
    """names: {old: new}; each old one must be there."""
    raw = pathlib.Path(source).read_bytes()
    reader, changes = Reader(raw), []
    reader.at = 8
    n_tensors, n_values = reader.number("Q"), reader.number("Q")
    for _ in range(n_values):
        key, kind = reader.text(), reader.number("I")
        if key != b"tokenizer.ggml.tokens":
            reader.skip(kind)
            continue
        assert reader.number("I") == STRING
        for _ in range(reader.number("Q")):
            start = reader.at
            new = names.get(reader.text().decode("utf-8", "replace"))
            if new:
                changes.append((start, reader.at, struct.pack("<Q", len(new)) + new.encode()))
    for _ in range(n_tensors):
        reader.text()
        n_dims = reader.number("I")
        reader.at += 8 * n_dims + 4 + 8
    assert len(changes) == len(names), names
    head, at = b"", 0
    for start, end, new in changes:
        head += raw[at:start] + new
        at = end
    head += raw[at:reader.at]
    with open(target, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        file.write(memoryview(raw)[reader.at + -reader.at % ALIGNMENT:])
    return target
