"""Strings that find tokenizers out: the same for the same seed, on every machine (no Unicode data of Python is used
but its normalisation)."""
import random
import unicodedata

SCRIPTS = [(0x41, 0x5A), (0x61, 0x7A), (0xC0, 0x24F), (0x250, 0x2AF), (0x370, 0x3FF), (0x400, 0x52F), (0x531, 0x58F),
           (0x590, 0x5FF), (0x600, 0x6FF), (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F),
           (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xD80, 0xDFF), (0xE00, 0xE7F), (0xE80, 0xEFF),
           (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF),
           (0x1680, 0x16FF), (0x1780, 0x17FF), (0x1800, 0x18AF), (0x1C80, 0x1C8F), (0x1D00, 0x1DBF), (0x1E00, 0x1FFF),
           (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x218F), (0x2190, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x27BF),
           (0x2C00, 0x2DFF), (0x3000, 0x303F), (0x3040, 0x309F), (0x30A0, 0x30FF), (0x3130, 0x318F), (0x3200, 0x33FF),
           (0x3400, 0x3450), (0x4E00, 0x9FFF), (0xA000, 0xA4CF), (0xA640, 0xA7FF), (0xAA00, 0xABFF), (0xAC00, 0xD7A3),
           (0xE000, 0xE010), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFB50, 0xFDFF), (0xFE30, 0xFEFF), (0xFF00, 0xFFEF),
           (0x10000, 0x100FF), (0x10300, 0x1034F), (0x10400, 0x1044F), (0x10900, 0x1091F), (0x11000, 0x1107F),
           (0x11300, 0x113FF), (0x12000, 0x12050), (0x16A00, 0x16A6F), (0x1D400, 0x1D7FF), (0x1E900, 0x1E95F),
           (0x1F000, 0x1F02F), (0x1F100, 0x1F1FF), (0x1F300, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x20100),
           (0x2F800, 0x2FA1F), (0xE0100, 0xE01EF)]
SPACES = [chr(c) for c in [*range(0x9, 0xE), 0x1C, 0x1F, 0x20, 0x85, 0xA0, 0xAD, 0x1680, 0x180E, *range(0x2000, 0x2010),
                           0x2028, 0x2029, 0x202F, 0x205F, 0x2060, 0x3000, 0xFEFF]]
COMMON_SPACES = [" ", " ", " ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\r", " \n", "\n ", "\t\t", "\u00a0", "\u3000"]
NUMBERS = ["0123456789", "٠١٢٣٤٥٦٧٨٩", "०१२३४५६७८९", "０１２３４５６７８９", "¹²³½¾⅓", "ⅠⅡⅣⅩ", "①②⑳", "〇一二三十百千", "𝟎𝟏𝟗",
           "\U00011de0\U00011de5", "\U00010107\U00010108"]
EMOJI = ["😀", "🦙", "👍🏽", "👩‍👩‍👧", "👨‍💻", "🏳️‍🌈", "🇩🇪", "🇯🇵", "1️⃣", "#️⃣", "❤️", "☺", "🧑🏿‍🚀", "🫠", "©", "™️", "‼️"]
SENTENCES = [
    "The quick brown fox doesn't jump over the lazy dog's back; it'll rest, we're sure — they've said so.",
    "Café déjà vu — 123 😊, naïve façade, Ærøskøbing, Žluťoučký kůň", "Größe, Straße, ÄÖÜ und ſ mit 'ſ und 'S 'LL 'Ve",
    "Быстрая бурая лиса перепрыгнула через ленивую собаку. 1234567 раз!", "Η γρήγορη καφέ αλεπού πηδάει πάνω από",
    "敏捷的棕色狐狸跳过了懒狗。歪，你好吗？三百六十五天", "素早い茶色の狐がのろまな犬を飛び越える。カタカナ・ひらがな12個ー",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 한국어 텍스트", "الثعلب البني السريع يقفز فوق الكلب الكسول، ١٢٣",
    "השועל החום המהיר קופץ מעל הכלב העצלן שָׁלוֹם", "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है। क़्ष", "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัข",
    "Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng. Tiếng Việt có dấu ở khắp nơi", "ქართული ენა", "Հայերեն լեզու",
    "አማርኛ ቋንቋ", "தமிழ் மொழி", "বাংলা ভাষা", "မြန်မာဘာသာ", "ភាសាខ្មែរ", "x² + y³ ≤ ∑ᵢ αᵢ·βᵢ ≠ ∞ ∈ ℝ", "HTTPServer getElementById snake_case_name SCREAMING_CASE camelCaseXMLParser iPhone",
    "def f(x):\n    return {'a': [1, 2.5e-10], \"b\": None}  # comment\n\n\nclass A(B):\n\tpass\n",
    "for (int i = 0; i < n; ++i) {\n\t\tif (a[i] != '\\0' && *p++ == 0x1F) goto out;\n\t}\n\n",
    "<div class=\"x\">\n  <p>Text &amp; more</p>\n</div>\r\n\r\n", "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x%'; -- ok",
    "https://example.org/a/b?c=d&e=%20#frag user@example.com C:\\Users\\x\\file.txt ~/.config/x",
    "{\"key\": [true, false, null, -1.0E+5], \"nested\": {\"a\": \"\\u00e9\"}}", "$ ls -la | grep '^d' > out.txt 2>&1 && echo \"done\"",
    "1. First\n2. Second\n\n- item\n  - sub\n\n| a | b |\n|---|---|\n", "ﬁne ﬂow Ⅷ № ℡ ㎏ ｆｕｌｌ ﾊﾝｶｸ", "I'M YOU'RE he'd it's 's 't '5 ''s 's's 'll've",
    "x>▁</ a▁b ▁▁ c", "<s> hello", "  \n\t x", "1234567", "…“quoted” ‘single’ «guillemets» ¿qué? ¡sí!", "a\u200bb\u200cc\u200dd\ufeffe",
]
RUNS = ["a", " ", "\n", "\t", "ä", "=", "-", "0", "7", "A", "aB", "歪", "▁", "\u0301", "e\u0301", "é", "🦙", " a", "\r\n", ".", "\u00a0",
        "'", "'s", "abc", "한", "ア", "\\", "<", "</", "ab ", "١", "\u3000", "x\n"]


def word(rng):
    first, last = rng.choice(SCRIPTS)
    return "".join(chr(rng.randint(first, last)) for _ in range(rng.randint(1, 8)))


def number(rng):
    digits = rng.choice(NUMBERS)
    text = "".join(rng.choice(digits) for _ in range(rng.randint(1, 9)))
    return text + rng.choice(["", "", ".5", ",000", "%", "e-3", "px", "²", "th"])


def marks(rng):
    text = rng.choice("aeoucnyAEIαωиㄱ가한각のけ \u0915\u0928\u09c7\u0b47\u0dd9\u1025\u1b05q")
    for _ in range(rng.randint(1, 5)):
        text += chr(rng.choice([rng.randint(0x300, 0x36F), rng.randint(0x591, 0x5C7), rng.randint(0x64B, 0x65F), 0x93C, 0x9BE,
                                0xB56, 0x1161, 0x11A8, 0x3099, 0x309A, 0x345, 0x327, 0x338, 0x20D0, 0x7FD, 0x1DF6, 0x11A34]))
    return text


def anything(rng):
    out = []
    for _ in range(rng.randint(1, 8)):
        c = rng.choice([rng.randint(0, 0x7F), rng.randint(0, 0x24FF), rng.randint(0, 0xFFFF), rng.randint(0, 0x1FFFF),
                        rng.randint(0, 0x10FFFF)])
        out.append(chr(c) if not 0xD800 <= c <= 0xDFFF else "\ufffd")
    return "".join(out)


def ascii_noise(rng):
    return "".join(chr(rng.randint(0x20, 0x7E)) for _ in range(rng.randint(1, 20)))


def near_special(rng, specials):
    text = rng.choice(specials)
    kind = rng.randrange(8)
    if kind == 0:
        return text
    if kind == 1:
        return text + rng.choice(specials)
    at = rng.randint(0, len(text))
    if kind == 2:
        return text[:at]
    if kind == 3:
        return text[at:]
    if kind == 4:
        return text[:at] + rng.choice([" ", "x", "\n", "|", "<", text]) + text[at:]
    if kind == 5:
        return text.upper()
    if kind == 6:
        return text[:at] + rng.choice(specials)
    return " " + text + rng.choice([" ", "\n", "a", "1"])


def run(rng):
    return rng.choice(RUNS) * rng.choice([2, 3, 5, 17, 31, 32, 33, 48, 49, 64, 100, 257])


def part(rng, specials):
    kind = rng.randrange(16)
    if kind < 3:
        return word(rng)
    if kind == 3:
        return number(rng)
    if kind == 4:
        return rng.choice(EMOJI)
    if kind == 5:
        return marks(rng)
    if kind == 6:
        return anything(rng)
    if kind == 7:
        return ascii_noise(rng)
    if kind == 8:
        return near_special(rng, specials)
    if kind == 9:
        return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5)))
    if kind == 10 and rng.random() < 0.2:
        return run(rng)
    text = rng.choice(SENTENCES)
    a, b = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
    return text[a:b]


def strings(seed, count, specials):
    """count strings; specials: what the tokenizer under test has as added tokens."""
    rng = random.Random(seed)
    out = ["", *SENTENCES, *EMOJI, *SPACES]
    out += [c * n for c in RUNS for n in (1, 2, 3, 4, 15, 31, 32, 33, 63, 64, 65, 1000)]
    out += [chr(c) for c in range(0x250)]
    while len(out) < count:
        text = ""
        for _ in range(rng.randint(1, 5)):
            text += part(rng, specials) + rng.choice(["", "", *COMMON_SPACES])
        form = rng.randrange(6)
        if form == 0:
            text = unicodedata.normalize("NFD", text)
        elif form == 1:
            text = unicodedata.normalize("NFC", text)
        out.append(text)
    return out[:count]
