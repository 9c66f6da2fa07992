#!/usr/bin/env python3
"""Prints tmpl_unicode_table.inc: what Python's str methods say of every code point.

    python3 tokenizer/template/tmpl_unicode_generate.py > tokenizer/template/tmpl_unicode_table.inc

The table is committed, so that a prompt doesn't depend on the Unicode version of the machine.
"""
import sys
import unicodedata

CODES = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]


def ranges(codes):
    """Runs of codes one apart or two apart: (first, last, stride)."""
    out = []
    for c in codes:
        if out:
            first, last, stride = out[-1]
            if c - last == stride or (first == last and c - last == 2):
                out[-1] = (first, c, c - last)
                continue
        out.append((c, c, 1))
    return out


def mapping(name):
    """Simple mappings as ranges of one delta, and those to several code points."""
    by_delta, special = {}, []
    for c in CODES:
        to = getattr(chr(c), name)()
        if name == "lower" and c == 0x3A3:
            to = "\u03c3"  # its final form is the caller's business
        if len(to) > 1:
            special.append((c, [ord(x) for x in to]))
        elif ord(to) != c:
            by_delta.setdefault(ord(to) - c, []).append(c)
    simple = [(f, l, s, d) for d, codes in by_delta.items() for f, l, s in ranges(codes)]
    return sorted(simple), special


def case_ignorable(c):
    """Final sigma looks through such code points: U+03A3 then c then a letter is not final."""
    return f"a\u03a3{chr(c)}b".lower()[1] == "\u03c3" and f"a\u03a3{chr(c)}".lower()[1] == "\u03c2"


def emit(head, rows):
    print(head)
    line = ""
    for row in rows:
        if len(line) + len(row) > 92:
            print("\t" + line.rstrip())
            line = ""
        line += row + ", "
    print("\t" + line.rstrip())
    print("};\n")


def main():
    print(f"/* Made by tmpl_unicode_generate.py from Unicode {unicodedata.unidata_version}. */\n")
    for name in ("upper", "lower", "title"):
        simple, special = mapping(name)
        emit(f"static const struct case_range {name}_ranges[] = {{",
             [f"{{ {f:#x}, {l:#x}, {s}, {d} }}" for f, l, s, d in simple])
        emit(f"static const struct case_special {name}_specials[] = {{",
             [f"{{ {c:#x}, {{ {', '.join(f'{x:#x}' for x in to)} }} }}" for c, to in special])
    sets = {
        "unprintable": lambda c: not chr(c).isprintable(),
        "cased": lambda c: chr(c).islower() or chr(c).isupper() or chr(c).istitle(),
        "lowercase": lambda c: chr(c).islower(),
        "ignorable": case_ignorable,
    }
    for name, test in sets.items():
        emit(f"static const struct code_range {name}_ranges[] = {{",
             [f"{{ {f:#x}, {l:#x}, {s} }}" for f, l, s in ranges([c for c in CODES if test(c)])])


if __name__ == "__main__":
    sys.exit(main())
