"""Invents the passengers of a ship, in the form of the competition's data, and who of them was transported.

Only uniform numbers are drawn, by a named bit generator: other streams of numpy may change between its versions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, ndtri

Array = NDArray[Any]

PLANETS = ["Earth", "Europa", "Mars"]
DESTINATIONS = ["TRAPPIST-1e", "55 Cancri e", "PSO J318.5-22"]
DECKS = list("ABCDEFGT")
SPENDING = ["RoomService", "FoodCourt", "ShoppingMall", "Spa", "VRDeck"]
COLUMNS = ["HomePlanet", "CryoSleep", "Cabin", "Destination", "Age", "VIP", *SPENDING, "Name"]

SHARE = 0.503  # of passengers who were transported
GROUP_SIZES = [0.62, 0.19, 0.085, 0.045, 0.025, 0.015, 0.012, 0.008]  # one passenger, two, ...
PLANET_SHARES = [0.53, 0.25, 0.22]
DESTINATION_SHARES = [[0.66, 0.17, 0.17], [0.56, 0.42, 0.02], [0.84, 0.11, 0.05]]  # by planet
DECK_SHARES = [  # by planet
    [0, 0, 0, 0, 0.08, 0.38, 0.54, 0],
    [0.12, 0.37, 0.35, 0.09, 0.066, 0, 0, 0.004],
    [0, 0, 0, 0.17, 0.19, 0.64, 0, 0],
]
ASLEEP = [-0.8, -0.1, -0.3]  # log-odds of cryo-sleep, by planet
SPENDS = [  # log of what a passenger spends on each of SPENDING, by planet
    [4.2, 5.0, 4.4, 4.4, 4.5],
    [4.8, 7.2, 4.9, 6.7, 6.7],
    [6.6, 4.0, 5.6, 4.6, 4.2],
]
CLANS = 600  # surnames, shared by families that do not know each other
CABINS_IN_REGION = 40
MISSING = 0.02

# What each kind of signal adds to the log-odds of being transported.
CRYO = [2.3, 4.8, 3.8]  # by planet
MONEY = [-0.8, 0.5, 0.45, -0.85, -0.8]  # by each of SPENDING, for every unit of its logarithm above SMALL
SMALL = 3.5
DECK = [0.0, 0.9, 1.0, -0.4, -0.7, 0.3, -0.3, -1.0]
SIDE = 0.45
ROUTE = [[-0.6, 0.5, -0.2], [0.3, 1.0, -0.8], [0.1, -0.9, 0.6]]  # planet by destination
REGION, REGION_SIDE = 1.2, 0.9  # standard deviations
CLAN = 1.3  # standard deviation
CHILD, TEENAGER, OLD = 1.2, 0.3, -0.5
VIP = -0.6
COMPANY = [-0.4, 0.3, 0.6, 0.7, 0.2, -0.2, -0.8, -1.0]  # by the size of the group
COMPANIONS_ASLEEP = 1.6  # the share of the others in the group that sleep
COMPANIONS_LUXURY = -0.3  # the logarithm of what the others in the group spend on Spa, VRDeck and RoomService
DRAWN = 0.2  # by how much of itself each of these figures may differ from one ship to another


class Draw:
    """Random numbers, all made from uniform ones."""

    def __init__(self, seed: int) -> None:
        self.source = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, *shape: int) -> Array:
        """Between 0 and 1."""
        return self.source.random(shape)

    def normal(self, *shape: int) -> Array:
        """With mean 0 and standard deviation 1."""
        return np.asarray(ndtri(self.uniform(*shape).clip(1e-12)))

    def pick(self, shares: Array) -> Array:
        """For every row of shares, the number of one of its columns."""
        bounds = np.cumsum(shares, axis=-1)
        return np.asarray((self.uniform(len(shares), 1) * bounds[:, -1:] > bounds).sum(axis=1))

    def order(self, count: int) -> Array:
        """The numbers below `count` in random order."""
        return np.argsort(self.uniform(count), kind="stable")

    def about(self, figures: Any) -> Array:
        """The figures, each a little changed."""
        figures = np.asarray(figures, float)
        return np.asarray(figures * (1 + DRAWN * (2 * self.uniform(*figures.shape) - 1)))


def passengers(seed: int, counts: Sequence[int]) -> list[pd.DataFrame]:
    """Tables with so many passengers each, all of one ship; no group is in two of them.

    The column `chance` is the probability with which a passenger was to be transported. Nobody may see it.
    """
    draw = Draw(seed)
    sizes = [_group_sizes(draw, count) for count in counts]
    group = np.repeat(np.arange(sum(map(len, sizes))), np.concatenate(sizes))
    people = _people(draw, np.concatenate(sizes), group)
    people["chance"] = _chances(draw, people)
    people["Transported"] = (draw.uniform(len(people)) < people["chance"]).astype(int)
    numbers = draw.order(9999)[people["group"]] + 1
    people["PassengerId"] = [f"{a:04d}_{b:02d}" for a, b in zip(numbers, people["member"] + 1, strict=True)]
    shown = _shown(draw, people)
    ends = np.cumsum(counts)
    parts = [shown.iloc[end - count : end] for end, count in zip(ends, counts, strict=True)]
    return [part.sort_values("PassengerId", ignore_index=True) for part in parts]


def _group_sizes(draw: Draw, count: int) -> Array:
    """Sizes of groups that have `count` members in all."""
    sizes = draw.pick(np.tile(GROUP_SIZES, (count, 1))) + 1
    ends = np.cumsum(sizes)
    last = int(np.searchsorted(ends, count))
    sizes[last] -= ends[last] - count
    return sizes[: last + 1]


def _people(draw: Draw, sizes: Array, group: Array) -> pd.DataFrame:
    """Everybody, as they are before anything is forgotten."""
    groups, count = len(sizes), len(group)
    planet = draw.pick(np.tile(PLANET_SHARES, (groups, 1)))
    family = (sizes > 1) & (draw.uniform(groups) < 0.7)
    deck = draw.pick(np.array(DECK_SHARES)[planet])
    side = (draw.uniform(groups) < 0.5).astype(int)
    together = draw.pick(np.array(DESTINATION_SHARES)[planet])
    sleepy, rich = draw.normal(groups), draw.normal(groups)

    member = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    people = pd.DataFrame({"group": group, "member": member, "size": sizes[group]})
    people["planet"], people["deck"], people["side"] = planet[group], deck[group], side[group]
    apart = draw.pick(np.array(DESTINATION_SHARES)[planet[group]])
    people["destination"] = np.where(draw.uniform(count) < 0.1, apart, together[group])
    is_child = family[group] & (member >= 1) & (draw.uniform(count) < np.where(member >= 2, 0.65, 0.2))
    adult = 16 + 40 * draw.uniform(count) ** 1.6 + 5 * np.abs(draw.normal(count))
    people["Age"] = np.where(is_child, 18 * draw.uniform(count), adult).astype(int)
    asleep = np.array(ASLEEP)[planet[group]] + 1.2 * sleepy[group]
    people["cryo"] = draw.uniform(count) < expit(asleep)
    grown = people["Age"].to_numpy() >= 18
    people["vip"] = grown & (people["planet"] > 0) & (draw.uniform(count) < 0.05)

    money = np.array(SPENDS)[planet[group]] + 0.5 * rich[group, None] + 1.5 * draw.normal(count, 5)
    money += 0.7 * people["vip"].to_numpy()[:, None]
    nothing = (draw.uniform(count, 5) < 0.3) | (people["cryo"] | (people["Age"] <= 12)).to_numpy()[:, None]
    people[SPENDING] = np.where(nothing, 0, np.exp(money.clip(0, 10)).astype(int))

    people["clan"], people["Name"] = _names(draw, planet, family, group)
    people["number"], people["place"] = _cabins(draw, sizes, deck, side, group, member)
    return people


def _names(draw: Draw, planet: Array, family: Array, group: Array) -> tuple[Array, list[str]]:
    """The clan and the full name of everybody; a family has one surname, and a surname belongs to one planet."""
    home = np.arange(CLANS) % len(PLANETS)
    often = 0.3 + draw.uniform(CLANS) ** 2
    shares = np.array([np.where(home == number, often, 0) for number in range(len(PLANETS))])
    clan = np.where(family[group], draw.pick(shares[planet])[group], draw.pick(shares[planet[group]]))
    surnames = _words(draw, CLANS, ["son", "ley", "ez", "mond", "ova", "ing", "by", "aux"])
    names = _words(draw, 900, ["a", "en", "is", "o", "y", "ed", "ia", "us"])
    first = (draw.uniform(len(group)) * len(names)).astype(int)
    return clan, [f"{names[a]} {surnames[b]}" for a, b in zip(first, clan, strict=True)]


def _words(draw: Draw, count: int, endings: list[str]) -> list[str]:
    """Different words that could be names."""
    begin = [
        "B",
        "Br",
        "C",
        "D",
        "G",
        "Gr",
        "H",
        "J",
        "K",
        "L",
        "M",
        "N",
        "Qu",
        "R",
        "S",
        "St",
        "T",
        "V",
        "W",
    ]
    middle = [
        a + b for a in ("a", "e", "i", "o", "ai", "ee") for b in ("l", "n", "r", "s", "t", "v", "nd", "rk")
    ]
    words = [a + b + c for a in begin for b in middle for c in endings]
    return [words[number] for number in draw.order(len(words))[:count]]


def _cabins(
    draw: Draw, sizes: Array, deck: Array, side: Array, group: Array, member: Array
) -> tuple[Array, Array]:
    """The number of everybody's cabin, and how far along the deck it lies; no two groups share a cabin."""
    second = (sizes >= 3) & (draw.uniform(len(sizes)) < 0.4)
    owner = np.concatenate([np.arange(len(sizes)), np.flatnonzero(second)])
    corridor = deck[owner] * 2 + side[owner]
    number, place = np.zeros(len(owner), int), np.zeros(len(owner))
    for each in range(2 * len(DECKS)):
        cabins = np.flatnonzero(corridor == each)
        number[cabins] = draw.order(len(cabins))
        place[cabins] = (number[cabins] + 0.5) / max(len(cabins), 1)
    mine = group.copy()
    other = second[group] & (member * 2 >= sizes[group])
    mine[other] = len(sizes) + (np.cumsum(second) - 1)[group[other]]
    return number[mine], place[mine]


def _chances(draw: Draw, people: pd.DataFrame) -> Array:
    """The probability of everybody's being transported."""
    planet, deck, side, cryo, age = (
        people[name].to_numpy() for name in ("planet", "deck", "side", "cryo", "Age")
    )
    spent = np.maximum(np.log1p(people[SPENDING].to_numpy(float)) - SMALL, 0)
    log_odds = draw.about(CRYO)[planet] * cryo + spent @ draw.about(MONEY)
    log_odds += draw.about(DECK)[deck] + draw.about(SIDE) * (2 * side - 1)
    log_odds += draw.about(ROUTE)[planet, people["destination"]]
    log_odds += draw.about(VIP) * people["vip"]
    log_odds += np.select([age <= 12, age < 18, age > 55], draw.about([CHILD, TEENAGER, OLD]).tolist(), 0)
    log_odds += _region(draw, people) + CLAN * draw.normal(CLANS)[people["clan"]]
    log_odds += draw.about(COMPANY)[people["size"] - 1]
    others = (people["size"] - 1).clip(1).to_numpy()
    sleepers = people.groupby("group")["cryo"].transform("sum").to_numpy() - cryo
    log_odds += draw.about(COMPANIONS_ASLEEP) * sleepers / others
    luxury = people[["Spa", "VRDeck", "RoomService"]].sum(axis=1)
    theirs = luxury.groupby(people["group"]).transform("sum") - luxury
    log_odds += draw.about(COMPANIONS_LUXURY) * np.maximum(np.log1p(theirs) - SMALL, 0)
    odds = np.asarray(log_odds, float)
    return expit(odds + brentq(lambda shift: expit(odds + shift).mean() - SHARE, -50, 50))


def _region(draw: Draw, people: pd.DataFrame) -> Array:
    """What the part of the ship adds in which a passenger's cabin lies: every deck is cut into regions of its own."""
    effect = np.zeros(len(people))
    deck, side, place = (people[name].to_numpy() for name in ("deck", "side", "place"))
    for each in range(len(DECKS)):
        here = np.flatnonzero(deck == each)
        cabins = len(np.unique(people[["number", "side"]].to_numpy()[here], axis=0))
        cuts = np.sort(draw.uniform(cabins // CABINS_IN_REGION))
        region = np.searchsorted(cuts, place[here])
        both, by_side = draw.normal(len(cuts) + 1), draw.normal(len(cuts) + 1, 2)
        effect[here] = REGION * both[region] + REGION_SIDE * by_side[region, side[here]]
    return effect


def _shown(draw: Draw, people: pd.DataFrame) -> pd.DataFrame:
    """The table in the competition's form, with about 2 % of the cells of every column empty."""
    shown = people[["PassengerId"]].copy()
    shown["HomePlanet"] = np.array(PLANETS)[people["planet"]]
    shown["CryoSleep"] = np.where(people["cryo"], "True", "False")
    sides = np.where(people["side"] == 1, "S", "P")
    cells = zip(np.array(DECKS)[people["deck"]], people["number"], sides, strict=True)
    shown["Cabin"] = [f"{deck}/{number}/{side}" for deck, number, side in cells]
    shown["Destination"] = np.array(DESTINATIONS)[people["destination"]]
    shown["VIP"] = np.where(people["vip"], "True", "False")
    for name in ("Age", *SPENDING, "Name"):
        shown[name] = people[name].astype(str)
    shown[COLUMNS] = shown[COLUMNS].mask(_forgotten(draw, people), "")
    shown = shown[["PassengerId", *COLUMNS]]
    return shown.assign(Transported=people["Transported"], chance=people["chance"])


def _forgotten(draw: Draw, people: pd.DataFrame) -> Array:
    """Which cells are empty: more often those of people who travel alone, of high ages and of large sums."""
    likely = np.ones((len(people), len(COLUMNS)))
    likely *= np.where(people["size"] == 1, 1.3, 0.7)[:, None]
    likely[:, COLUMNS.index("Age")] *= np.where(people["Age"] > 50, 2.5, 1)
    likely[:, COLUMNS.index("CryoSleep")] *= np.where(people["cryo"], 1.6, 0.8)
    for name in SPENDING:
        likely[:, COLUMNS.index(name)] *= np.where(people[name] > 1000, 2, 0.9)
    return np.asarray(draw.uniform(*likely.shape) < MISSING * likely / likely.mean(axis=0))
