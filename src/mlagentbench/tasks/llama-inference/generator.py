"""Generates beginnings of plain English texts from templates, for a language model to continue."""

import random

WORDS = {
    "name": "Anna Ben Clara David Elena Frank Grace Henry Irene "
    "Jonas Karin Leo Maria Nils Olga Peter Rosa Simon Tilda",
    "trade": "baker carpenter doctor farmer gardener judge "
    "librarian miller nurse painter sailor teacher watchmaker",
    "place": "bridge church factory garden harbour island library "
    "market mill museum orchard railway river village",
    "thing": "book boat clock coat garden house horse kettle "
    "lamp letter map mirror piano table violin window",
    "quality": "broken cheap cold dark famous heavy large modern narrow new quiet simple small warm wooden",
    "science": "astronomy biology chemistry economics geography geology history mathematics medicine physics",
    "subject": "bread bees coffee copper earthquakes glaciers glass "
    "maps money oceans paper rain salt ships tides",
    "deed": "bought carried cleaned found forgot hid lost "
    "mended painted remembered sold stole wanted watched",
    "season": "spring summer autumn winter",
    "year": " ".join(map(str, range(1802, 1998, 7))),
    "number": "two three four five six seven eight nine ten eleven twelve",
}
WORD_LISTS = {kind: words.split() for kind, words in WORDS.items()}
TEMPLATES = """
It was a {quality} day in {season}, and {name} the {trade} had not yet seen the {quality} {thing}.
In the year {year} a {trade} called {name} came to the {quality} {place} and asked for work.
The history of {subject} is longer than most people think, and it begins near the {place}.
There are {number} reasons why {subject} should interest anyone who studies {science}.
When {name} {deed} the {thing}, nobody at the {place} said a word about it.
Students of {science} often ask how {subject} and {subject} are related to each other.
The {trade} looked at the {thing}, which was {quality} and {quality}, and began to laugh.
Every {season} the people of the {place} talk about {subject}, and about what happened in {year}.
A short introduction to {science} should also say a few words about {subject}.
"I never {deed} your {thing}," said {name}, "but I know the {trade} who did."
To reach the {place} you walk {number} miles along the river and then turn left at the {quality} {place}.
The {quality} {thing} in the museum was made in {year} by {name}, who was then a {trade}.
If you have {number} apples and give some of them to {name}, you will see that arithmetic is useful.
Dear {name}, thank you for the {thing}, which arrived at the {place} last {season}.
""".strip().splitlines()


def generate_text(rng: random.Random, count: int) -> str:
    """Return a few sentences, each from a different template."""
    return " ".join(_fill_template(template, rng) for template in rng.sample(TEMPLATES, count))


def _fill_template(template: str, rng: random.Random) -> str:
    for kind, words in WORD_LISTS.items():
        while "{" + kind + "}" in template:
            template = template.replace("{" + kind + "}", rng.choice(words), 1)
    return template
