"""Random small templates with contexts, for comparison with jinja2. One seed, one sequence."""
import random

TEXTS = ["", "a", "Hello World", " padded ", "a,b,,c", "x\ny\n", "ünïcödé Straße", "<b>&'\"</b>", "{}%s", "héé😀z",
         "1", "42.5", " 7 ", "AbC dEf-gHi (jKl", "line one\nline two\r\nthree", "\u00a0nb\u2003", "ΑΣ ΣΑΣ", "a\tb\\n",
         "0x1F", "tail  "]
CONTEXT = {
    "s": "some Text", "t": "αβγ Ωmega ÄÖ", "e": "", "n": 3, "z": 0, "m": -7, "f": 2.5, "g": 1e20, "yes": True, "no": False,
    "nil": None, "xs": ["b", "A", "c", "a"], "ns_": [3, 1, 2, 2], "mix": [1, "x", None, 2.5, [1, 2], {"k": "v"}],
    "d": {"b": 2, "a": "one", "C": [1, 2]}, "deep": {"x": {"y": [{"z": "end"}]}, "items": 5},
    "msgs": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo", "n": 1},
             {"role": "user", "content": "bye\n"}],
    "pairs": [["a", 1], ["b", 2]], "empty": [],
}
NAMES = list(CONTEXT) + ["nope"]
STRINGS, NUMBERS = ["s", "t", "e"], ["n", "z", "m", "f", "ns_[0]"]
LISTS, DICTS = ["xs", "ns_", "msgs", "pairs", "empty", "mix"], ["d", "deep", "msgs[0]", "msgs[1]"]
TESTS = ["defined", "undefined", "none", "string", "number", "mapping", "sequence", "iterable", "boolean", "integer",
         "float", "true", "false", "odd", "even", "upper", "lower", "callable", "eq 1", "in [1, 'a', none]",
         "divisibleby 2", "gt(2)", "sameas none", "equalto('a')", "ne(0)", "escaped"]
LOOP = ["index", "index0", "revindex", "revindex0", "first", "last", "length", "depth", "depth0", "previtem",
        "nextitem"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = list(NAMES)
        self.loops = 0
        self.macros = []
        self.fresh = 0

    def pick(self, items):
        return items[self.r.randrange(len(items))]

    def chance(self, p):
        return self.r.random() < p

    def quoted(self, text):
        out = "".join({"\\": "\\\\", "\n": "\\n", "'": "\\'"}.get(c, c) for c in text)
        return f"'{out}'" if self.chance(0.8) or '"' in out else f'"{out}"'

    # Expressions of a wanted type, mostly; now and then of another.

    def text(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.2:
            return self.quoted(self.pick(TEXTS)) if self.chance(0.6) else self.pick(STRINGS)
        if r < 0.5:
            return f"{self.text(deep - 1)}|{self.text_filter(deep - 1)}"
        if r < 0.65:
            return f"({self.text(deep - 1)}).{self.text_method(deep - 1)}"
        if r < 0.72:
            return f"({self.text(deep - 1)} + {self.text(deep - 1)})"
        if r < 0.8:
            return f"({self.any(deep - 1)} ~ {self.any(deep - 1)})"
        if r < 0.84:
            return f"({self.text(deep - 1)}){self.slice(deep - 1)}"
        if r < 0.88:
            return self.format(deep - 1)
        if r < 0.92:
            return f"{self.any(deep - 1)}|{self.pick(['string', 'tojson', 'tojson(indent=2)', 'tojson(sort_keys=true)'])}"
        if r < 0.95:
            return f"{self.list(deep - 1)}|join({self.pick(['', self.text(0)])})"
        return f"({self.text(deep - 1)} if {self.truth(deep - 1)} else {self.text(deep - 1)})"

    def text_filter(self, deep):
        return self.pick([
            "upper", "lower", "title", "capitalize", "trim", "string", "safe", "escape", "e", "reverse",
            f"trim({self.text(0)})", f"replace({self.text(0)}, {self.text(deep)})", f"replace('a', {self.text(0)}, 1)",
            f"default({self.text(deep)})", f"d({self.text(0)}, true)", f"indent({self.r.randrange(5)})",
            "indent(2, true)", "indent(blank=true, first=true)", f"center({self.r.randrange(12)})",
            f"truncate({self.r.randrange(3, 12)})", f"truncate({self.r.randrange(3, 9)}, true, leeway=0)", "forceescape",
        ])

    def text_method(self, deep):
        part = self.pick([self.text(0), "'a'", "' '", "','", "'l'"])
        return self.pick([
            "upper()", "lower()", "title()", "capitalize()", "swapcase()", "strip()", "lstrip()", "rstrip()",
            f"strip({part})", f"lstrip({part})", f"rstrip({part})", f"replace({part}, {self.text(deep)})",
            f"replace({part}, {self.text(0)}, 1)", f"removeprefix({part})", f"removesuffix({part})",
            f"ljust({self.r.randrange(12)})", f"rjust({self.r.randrange(12)}, '*')", f"center({self.r.randrange(12)})",
            f"zfill({self.r.randrange(9)})", f"join({self.pick(['xs', 'd', self.list(0)])})",
        ])

    def format(self, deep):
        spec = self.pick(["%s|%s", "%5s|%-5s|", "%d %s", "%05d|%r", "%.2f %s", "%x %s", "%+d%s", "%%%s %s", "%(a)s%(b)s",
                          "%s", "%8.3f|%s", "%e %s", "%g|%s", "%c%s", "%#x %s", "% d%s", "%-8d|%s", "%.3s|%s"])
        brace = self.pick(["{}|{}", "{0}{1}{0}", "{a}-{b}", "{:>8}|{:<8}|", "{:^9}|{}", "{:05d}{}", "{:.2f} {}", "{:,} {}",
                           "{!r} {!s}", "{0[a]}{1}", "{{}}{}{}", "{:x}{}", "{:+d} {}", "{:*^7}{}", "{:.1%} {}", "{:_}{}",
                           "{:e} {}", "{:b} {:o}", "{:#x} {}", "{:>{}}"])
        a, b = self.any(deep), self.any(deep)
        if self.chance(0.6):
            a = self.number(deep)
        if self.chance(0.5):
            return f"({self.quoted(spec)} % ({a}, {b}))" if "(a)" not in spec else f"({self.quoted(spec)} % {{'a': {a}, 'b': {b}}})"
        names = f"a={a}, b={b}" if "{a}" in brace else f"{a}, {b}"
        return f"{self.quoted(brace)}.format({names})"

    def slice(self, deep):
        part = lambda: "" if self.chance(0.4) else self.number(0) if self.chance(0.2) else str(self.r.randrange(-6, 7))
        if self.chance(0.3):
            return f"[{self.r.randrange(-5, 6)}]"
        return f"[{part()}:{part()}]" if self.chance(0.6) else f"[{part()}:{part()}:{self.pick(['', '1', '2', '-1', '-2', 'n'])}]"

    def number(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.3:
            return self.pick([str(self.r.randrange(12)), "0", "1.5", "0.1", "1e3", "100", "-3", "12_3", "2.0", *NUMBERS])
        if r < 0.55:
            return f"({self.number(deep - 1)} {self.pick('+ - * / // %'.split())} {self.number(deep - 1)})"
        if r < 0.75:
            return f"{self.number(deep - 1)}|{self.pick(['abs', 'int', 'float', 'round', 'round(1)', 'round(-1)', 'round(2, method=' + repr(self.pick(['ceil', 'floor'])) + ')'])}"
        if r < 0.85:
            return f"{self.any(deep - 1)}|{self.pick(['length', 'count', 'int', 'float', 'int(5)', 'float(1.5)', 'int(0, 16)'])}"
        if r < 0.92:
            return f"({self.text(deep - 1)}).{self.pick(['find', 'count', 'rfind', 'index'])}({self.pick(['a', 'l', 'e', ' '])!r})"
        if r < 0.94:  # not of anything: Jinja folds (-2) to -2 before it writes -2 ** n
            return self.pick(["(n ** 2)", "(2 ** n)", "(f ** 2)", "(n ** z)", "(2 ** -1)"])
        if r < 0.96:
            return f"{self.list(deep - 1)}|{self.pick(['sum', 'max', 'min', 'first', 'last'])}"
        return f"-{self.number(deep - 1)}"

    def list(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.25:
            return self.pick([*LISTS, "range(4)", "d.keys()", "d.items()", "(1, 'b', none)", "[]"])
        if r < 0.4:
            items = ", ".join(self.any(deep - 1) for _ in range(self.r.randrange(4)))
            return f"[{items}]" if self.chance(0.7) else f"({items}{',' if items else ''})"
        if r < 0.7:
            return f"{self.list(deep - 1)}|{self.list_filter(deep - 1)}"
        if r < 0.8:
            return f"({self.text(deep - 1)}).{self.pick(['split()', 'split(',')'.replace(',', repr(',')), 'splitlines()', 'rsplit(None, 1)', 'split(' + repr('l') + ', 1)', 'rsplit(' + repr('a') + ', 1)', 'partition(' + repr(' ') + ')', 'rpartition(' + repr('l') + ')', 'splitlines(true)', 'split(maxsplit=1)'])}"
        if r < 0.88:
            return f"({self.list(deep - 1)}){self.slice(deep - 1)}"
        if r < 0.94:
            return f"({self.list(deep - 1)} + {self.list(deep - 1)})"
        return self.pick([f"range({self.r.randrange(-2, 9)})", f"range({self.r.randrange(5)}, {self.r.randrange(9)}, 2)",
                          "range(5, 0, -2)", f"{self.dict(deep - 1)}|dictsort", f"{self.dict(deep - 1)}|items|list",
                          f"{self.dict(deep - 1)}.values()|list", "d|dictsort(by='key', reverse=true)"])

    def list_filter(self, deep):
        return self.pick([
            "list", "reverse|list", "sort", "sort(reverse=true)", "sort(case_sensitive=true)", "sort(attribute='role')",
            "unique|list", "map('upper')|list", "map(attribute='role')|list", "map('string')|list",
            "map(attribute='n', default=0)|list", "select|list", "reject|list", "select('string')|list",
            "reject('none')|list", "select('defined')|list", "selectattr('role', 'equalto', 'user')|list",
            "selectattr('n')|list", "selectattr('n', 'defined')|list", "rejectattr('role', '==', 'user')|list",
            "batch(2)|list", "batch(3, 'x')|list", "slice(2)|list", "first", "last", "map('length')|list", "map('tojson')|list",
            "map('default', 'x')|list", "select('in', [1, 'a'])|list", "map(attribute='0')|list", "default([1])",
        ])

    def dict(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.5:
            return self.pick(DICTS)
        if r < 0.8:
            keys = self.r.sample(["'a'", "'b'", "1", "none", "s", "2.5", "(1, 2)", "true"], self.r.randrange(4))
            return "{" + ", ".join(f"{k}: {self.any(deep - 1)}" for k in keys) + "}"
        return f"dict(a={self.any(deep - 1)}, b={self.any(deep - 1)})" if self.chance(0.6) else f"dict({self.pick(['pairs', 'd'])})"

    def truth(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.2:
            return self.pick(["true", "false", "yes", "no", "nil", "s", "xs", "empty", "n", "nope", "d"])
        if r < 0.4:
            return f"{self.any(deep - 1)} is {self.pick(['', 'not '])}{self.pick(TESTS)}"
        if r < 0.55:
            return f"{self.number(deep - 1)} {self.pick('< <= > >= == !='.split())} {self.number(deep - 1)}"
        if r < 0.65:
            return f"{self.any(deep - 1)} {self.pick(['==', '!='])} {self.any(deep - 1)}"
        if r < 0.75:
            return f"{self.any(0)} {self.pick(['in', 'not in'])} {self.pick([self.list(deep - 1), self.dict(0), self.text(0)])}"
        if r < 0.8:
            return f"({self.text(deep - 1)}).{self.pick(['startswith', 'endswith'])}({self.text(0)})"
        if r < 0.83:
            return f"{self.number(0)} < {self.number(0)} <= {self.number(0)}"
        if r < 0.87:
            return f"({self.text(deep - 1)}).{self.pick(['isupper()', 'islower()', 'isspace()'])}"
        if r < 0.91:
            return f"not {self.truth(deep - 1)}"
        return f"({self.truth(deep - 1)} {self.pick(['and', 'or'])} {self.any(deep - 1)})"

    def any(self, deep):
        r = self.r.random()
        if r < 0.3:
            return self.text(deep)
        if r < 0.5:
            return self.number(deep)
        if r < 0.62:
            return self.list(deep)
        if r < 0.7:
            return self.dict(deep)
        if r < 0.78:
            return f"({self.truth(deep)})"
        if r < 0.86:
            return self.pick(["d.a", "d['b']", "deep.x.y[0].z", "deep.items", "d.nope", "msgs[0].role", "msgs[-1]['content']",
                              "d.get('a')", "d.get('q', 5)", "d.get('q')", "xs[0]", "xs[9]", "s[1]", "xs.0", "nope", "d['items']",
                              "mix[4][1]", "nil.foo", "n.foo", "deep['x']['y']|first", "loop.index", "loop.first"])
        if r < 0.93:
            return self.pick(self.names)
        if self.macros:
            name, count = self.pick(self.macros)
            given = ", ".join(self.any(min(deep, 1) - 1) for _ in range(self.r.randrange(count + 1)))
            return f"{name}({given})"
        return self.pick(["none", "true", "1", "''"])

    # Statements.

    def tag(self, inside):
        left, right = self.pick(["", "", "-", "+"]), self.pick(["", "", "-", "+"])
        return "{%" + left + " " + inside + " " + right + "%}"

    def data(self):
        return self.pick(["", " ", "\n", "text", " text ", "\n\n", "  \n", "a\nb", "\t", "\n    ", " x\n  ", "end\n", "{", "}", "#"])

    def body(self, deep, size=3):
        return "".join(self.data() + self.statement(deep) + self.data() for _ in range(self.r.randrange(1, size + 1)))

    def output(self, deep):
        sign = lambda: self.pick(["", "", "", "-"])
        return "{{" + sign() + " " + self.any(self.r.randrange(4)) + " " + sign() + "}}"

    def new_name(self):
        self.fresh += 1
        return self.pick([f"v{self.fresh}", "v1", "s", "n", "xs"])

    def for_statement(self, deep):
        target, items = self.pick([("i", self.list(2)), ("i", self.list(1)), ("k, v", "d.items()"), ("(a, b)", "pairs"),
                                   ("i", self.text(0)), ("k, v", "d|dictsort"), ("i", "msgs"), ("i", "nope"), ("i", "d")])
        test = ""
        if target == "i" and self.chance(0.3):
            test = f" if {self.pick(['i is defined', self.truth(1), 'i', 'loop is undefined'])}"
        kept = list(self.names)
        self.names += ["i"] + ["loop." + f for f in LOOP]
        self.loops += 1
        body = self.body(deep - 1, 2)
        if self.chance(0.3):
            body += self.tag(f"if {self.truth(1)}") + self.tag(self.pick(["break", "continue"])) + self.tag("endif") + self.data()
        if self.chance(0.3):
            body += "{{ loop." + self.pick(LOOP) + " }}"
        if self.chance(0.1):
            body += self.pick(["{{ loop.cycle('odd', 'even') }}", "{{ loop.changed(i) }}", "{{ loop.changed(1, 2) }}"])
        self.loops -= 1
        self.names = kept
        other = self.tag("else") + self.body(deep - 1, 1) if self.chance(0.3) else ""
        return self.tag(f"for {target} in {items}{test}") + body + other + self.tag("endfor")

    def macro_statement(self, deep):
        self.fresh += 1
        name = f"mac{self.fresh}"
        parameters = self.pick([[], ["p"], ["p", "q=2"], ["p='x'", "q=p"], ["p", "q=s"]])
        kept, self.names = list(self.names), self.names + ["p", "q"]
        loops, self.loops = self.loops, 0
        body = self.body(deep - 1, 2)
        if self.chance(0.2):
            body += self.pick(["{{ varargs }}", "{{ kwargs }}", "{{ caller() if caller else '' }}"])
        self.names, self.loops = kept, loops
        self.macros.append((name, len(parameters)))
        text = self.tag(f"macro {name}({', '.join(parameters)})") + body + self.tag("endmacro")
        if self.chance(0.4):
            text += self.tag(f"call {name}({self.pick(['', '1', 'p=s'])})") + self.body(deep - 1, 1) + self.tag("endcall")
        return text

    def statement(self, deep):
        r = self.r.random()
        if deep <= 0 or r < 0.4:
            return self.output(deep)
        if r < 0.55:
            text = self.tag(f"if {self.truth(2)}") + self.body(deep - 1, 2)
            if self.chance(0.3):
                text += self.tag(f"elif {self.truth(1)}") + self.body(deep - 1, 1)
            if self.chance(0.4):
                text += self.tag("else") + self.body(deep - 1, 1)
            return text + self.tag("endif")
        if r < 0.7:
            return self.for_statement(deep)
        if r < 0.78:
            name = self.new_name()
            self.names.append(name)
            return self.tag(f"set {name} = {self.any(2)}")
        if r < 0.82:
            name = self.new_name()
            chain = self.pick(["", "", " | upper", " | trim | length"])
            return self.tag(f"set {name}{chain}") + self.body(deep - 1, 1) + self.tag("endset") + "{{ " + name + " }}"
        if r < 0.87:
            return self.macro_statement(deep)
        if r < 0.9:
            return self.tag("set sp = namespace(x=1, y='a')") + self.tag("for i in xs") + self.tag(f"set sp.x = {self.pick(['sp.x + 1', 'i', 'loop.index', self.any(1)])}") + self.tag("endfor") + "{{ sp.x }}{{ sp.z }}"
        if r < 0.93:
            return self.tag("filter " + self.pick(["upper", "trim", "indent(2)", "replace('a', 'b')|title"])) + self.body(deep - 1, 1) + self.tag("endfilter")
        if r < 0.95:
            return self.tag(f"with s = {self.any(1)}, w = s") + self.body(deep - 1, 1) + "{{ w }}" + self.tag("endwith")
        if r < 0.97:
            sign = self.pick(["", "-", "+"])
            return "{#" + sign + " note {{ x }} " + self.pick(["", "-", "+"]) + "#}"
        if r < 0.985:
            return self.tag("generation") + self.body(deep - 1, 1) + self.tag("endgeneration")
        return "{%" + self.pick(["", "-", "+"]) + " raw " + self.pick(["", "-"]) + "%}" + self.data() + "{{ raw }}{% if %}" + self.data() + self.tag("endraw")

    def template(self):
        return self.body(self.r.randrange(1, 4), self.r.randrange(1, 4))


def cases(seed, count):
    for i in range(count):
        yield {"template": Generator(seed * 1000003 + i).template(), "kwargs": CONTEXT}
