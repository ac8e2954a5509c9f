"""Texts by which a conversion is checked: a passage that is scored, and short ones that try tokenizers."""

from __future__ import annotations

from collections.abc import Iterator

PASSAGE = '''\
The lighthouse at the end of the breakwater had been dark for eleven years when the council decided to sell
it. Nobody in the town expected a buyer. The stairs were steep, the lamp room leaked, and the nearest shop was
half an hour away on foot. And yet, on the first Monday of March, a woman with two suitcases and a crate of
books signed the papers, paid in full, and asked only one question: did the old bell still work?

It did. The harbour master had kept it oiled out of habit. "You never know," he said, "when the fog comes in
from the north, radios fail and phones lose their signal, but everybody can hear a bell." She nodded as if
that were exactly the answer that she had hoped for, and on the same evening the people in the cafés along the
quay heard it ring three times.

Water boils at 100 degrees Celsius at sea level, but at lower temperatures in the mountains, because the
pressure of the air above it is smaller there. At 3,000 metres it boils at about 90 degrees. That is why pasta
takes longer to cook in a hut in the Alps than in a kitchen in Genoa. The same effect, the other way round,
makes a pressure cooker fast: inside it the pressure is roughly twice that of the air outside, and the water
reaches 120 degrees before it begins to boil.

Question: A train leaves at 9:15 and travels 180 kilometres at 72 kilometres an hour. When does it arrive?
Answer: The journey takes 180 / 72 = 2.5 hours, which is 2 hours and 30 minutes. 9:15 plus 2:30 is 11:45.

def moving_average(values: list[float], width: int) -> list[float]:
    """Return the mean of each run of `width` values."""
    if width < 1:
        raise ValueError(f"width must be positive, not {width}")
    total = sum(values[:width])
    averages = [total / width]
    for left, right in zip(values, values[width:]):
        total += right - left
        averages.append(total / width)
    return averages

{"name": "breakwater", "height_m": 21.5, "lamps": [{"colour": "white", "seconds": 5}, {"colour": "red", "seconds": 10}]}

Le phare est resté éteint pendant onze ans. Der Leuchtturm blieb elf Jahre lang dunkel. El faro estuvo apagado
durante once años. Маяк не горел одиннадцать лет. 灯台は十一年間、暗いままだった。灯塔已经十一年没有亮过了。

To make bread you need flour, water, salt and yeast. Mix 500 grams of flour with 350 grams of water, 10 grams
of salt and 5 grams of dry yeast. Knead the dough for ten minutes, let it rest for an hour, shape it, let it
rest again, and bake it for forty minutes at 230 degrees. The crust should be dark and sound hollow when you
knock on it.

1. Open the valve. 2. Wait until the gauge shows 2 bar. 3. Close the valve. 4. Check the gauge again after
five minutes: if the pressure has dropped by more than 0.1 bar, there is a leak. Repeat the steps from the
beginning after mending it.
'''

_SHORT = (
    "Hello, world!",
    "It's what they'd've said, isn't it?",
    "  two spaces in front",
    "at the end  ",
    "tab\there",
    "a\n\n\nb",
    "a\r\nb\r\n",
    " ",
    "   ",
    "\n",
    "\n\n",
    "\t\t",
    " \n \n ",
    "x" * 40,
    "=" * 33,
    "1234567890",
    "3.14159 1,000,000 0x1F 1e-9",
    "CamelCaseName snake_case_name SHOUTING",
    "https://example.org/a/b?c=d&e=%20#f",
    "name@example.org",
    "C:\\dir\\file.txt",
    "naïve café Zürich Ångström",
    "ﬁ ﬂ Ⅻ ½ ²",
    "e\u0301 \u00e9",
    "Привет, мир",
    "γειά σου",
    "שלום עולם",
    "مرحبا بالعالم",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "你好，世界。",
    "こんにちは世界",
    "안녕하세요 세계",
    "😀 😃 🎉",
    "👩‍👩‍👧‍👦 👍🏽 🇨🇭 ❤️",
    "🧑🏿‍🚀🪐",
    "\u200b\u200d\ufeff",
    "\u0001\u0002\u001f\u007f",
    "\u0085\u00a0\u2028\u2029\u3000",
    "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𐍈",
    "∀x∈ℝ: ⌈x⌉ = −⌊−x⌋ ≠ ±∞",
    "<b>bold</b> &amp; <!-- note -->",
    "{'a': [1, 2, {}], \"b\": null}",
    "if (a && b || !c) { return ~d ^ e; }",
    "for i in range(10):\n    print(f'{i:>3}')\n",
    "\tif x:\n\t\treturn\n",
    "SELECT * FROM t WHERE a >= 1 AND b LIKE '%x%';",
    "#include <stdio.h>\nint main(void) { return 0; }",
    "$HOME/`ls -l` | grep -v '^#' > /dev/null 2>&1",
    "~!@#$%^&*()_+-=[]{}|;':,./<>?",
    "...",
    "…",
    "--- *** ___",
    "“quoted” ‘text’ – and — dashes",
    "a.b,c;d:e!f?g",
    "1st 2nd 3rd 100% $5.00 €7,50 £3",
    "don't DON'T we'll WE'LL I'm I'M",
    "x²+y²=z²",
    "H₂O CO₂",
    "ǅ ǆ ß ẞ İ ı",
)


def snippets() -> Iterator[str]:
    """Short texts of every kind that tokenizers differ on, and the lines of the passage."""
    yield from _SHORT
    yield from (line for line in PASSAGE.splitlines() if line)
    for count in (2, 3, 5, 8, 15, 16, 17, 31, 64):
        yield "a" + " " * count + "b" + "\n" * count + "c"
