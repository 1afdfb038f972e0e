"""Generates the passengers of a ship, in the competition's format, and who of them was transported.

Only uniform numbers of a fixed bit generator are used: other streams of numpy may change between versions.
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

TRANSPORTED_SHARE = 0.503  # of all passengers
GROUP_SIZE_SHARES = [0.62, 0.19, 0.085, 0.045, 0.025, 0.015, 0.012, 0.008]  # one passenger, two, ...
PLANET_SHARES = [0.53, 0.25, 0.22]
DESTINATION_SHARES = [[0.66, 0.17, 0.17], [0.56, 0.42, 0.02], [0.84, 0.11, 0.05]]  # by planet
DECK_SHARES = [  # by planet
    [0, 0, 0, 0, 0.08, 0.38, 0.54, 0],
    [0.12, 0.37, 0.35, 0.09, 0.066, 0, 0, 0.004],
    [0, 0, 0, 0.17, 0.19, 0.64, 0, 0],
]
CRYO_LOG_ODDS = [-0.8, -0.1, -0.3]  # log-odds of cryo-sleep, by planet
LOG_SPENDING = [  # mean logarithm of what a passenger spends on each of SPENDING, by planet
    [4.2, 5.0, 4.4, 4.4, 4.5],
    [4.8, 7.2, 4.9, 6.7, 6.7],
    [6.6, 4.0, 5.6, 4.6, 4.2],
]
SURNAMES = 600  # shared by unrelated families
CABINS_IN_REGION = 40
MISSING_SHARE = 0.02

# Effects on the log-odds of being transported.
CRYO_EFFECTS = [2.3, 4.8, 3.8]  # by planet
SPENDING_EFFECTS = [
    -0.8,
    0.5,
    0.45,
    -0.85,
    -0.8,
]  # by each of SPENDING, per unit of its logarithm above SPENDING_THRESHOLD
SPENDING_THRESHOLD = 3.5
DECK_EFFECTS = [0.0, 0.9, 1.0, -0.4, -0.7, 0.3, -0.3, -1.0]
SIDE_EFFECT = 0.45
ROUTE_EFFECTS = [[-0.6, 0.5, -0.2], [0.3, 1.0, -0.8], [0.1, -0.9, 0.6]]  # planet by destination
REGION_SD, REGION_SIDE_SD = 1.2, 0.9  # standard deviations
SURNAME_SD = 1.3  # standard deviation
CHILD_EFFECT, TEENAGER_EFFECT, OLD_EFFECT = 1.2, 0.3, -0.5
VIP_EFFECT = -0.6
GROUP_SIZE_EFFECTS = [-0.4, 0.3, 0.6, 0.7, 0.2, -0.2, -0.8, -1.0]  # by the size of the group
COMPANIONS_ASLEEP_EFFECT = 1.6  # per share of the other group members that sleep
COMPANIONS_LUXURY_EFFECT = -0.3  # per logarithm of what the others spend on Spa, VRDeck and RoomService
MAX_RELATIVE_CHANGE = 0.2  # by which each of these effects may differ from ship to ship


class PortableRandom:
    """Random numbers derived from uniform ones, to be the same in all versions of numpy."""

    def __init__(self, seed: int) -> None:
        self._uniforms = np.random.Generator(np.random.PCG64(seed))

    def uniform(self, *shape: int) -> Array:
        """Draw numbers between 0 and 1."""
        return self._uniforms.random(shape)

    def normal(self, *shape: int) -> Array:
        """Draw standard normal numbers."""
        return np.asarray(ndtri(self.uniform(*shape).clip(1e-12)))

    def choice(self, shares: Array) -> Array:
        """Draw a column number for every row, with the probabilities in that row."""
        bounds = np.cumsum(shares, axis=-1)
        return np.asarray((self.uniform(len(shares), 1) * bounds[:, -1:] > bounds).sum(axis=1))

    def permutation(self, count: int) -> Array:
        """Return the numbers below `count` in random order."""
        return np.argsort(self.uniform(count), kind="stable")

    def perturb(self, values: Any) -> Array:
        """Change each value by up to MAX_RELATIVE_CHANGE."""
        values = np.asarray(values, float)
        return np.asarray(values * (1 + MAX_RELATIVE_CHANGE * (2 * self.uniform(*values.shape) - 1)))


def generate_passengers(seed: int, counts: Sequence[int]) -> list[pd.DataFrame]:
    """Generate tables with `counts` passengers each, all of one ship; no group is in two of them.

    The column `probability` is the probability that the passenger is transported. It must stay hidden.
    """
    rng = PortableRandom(seed)
    sizes = [_draw_group_sizes(rng, count) for count in counts]
    group = np.repeat(np.arange(sum(map(len, sizes))), np.concatenate(sizes))
    people = _draw_people(rng, np.concatenate(sizes), group)
    people["probability"] = _compute_probabilities(rng, people)
    people["Transported"] = (rng.uniform(len(people)) < people["probability"]).astype(int)
    numbers = rng.permutation(9999)[people["group"]] + 1
    people["PassengerId"] = [f"{a:04d}_{b:02d}" for a, b in zip(numbers, people["member"] + 1, strict=True)]
    table = _format_table(rng, people)
    ends = np.cumsum(counts)
    parts = [table.iloc[end - count : end] for end, count in zip(ends, counts, strict=True)]
    return [part.sort_values("PassengerId", ignore_index=True) for part in parts]


def _draw_group_sizes(rng: PortableRandom, count: int) -> Array:
    """Draw sizes of groups with `count` members in total."""
    sizes = rng.choice(np.tile(GROUP_SIZE_SHARES, (count, 1))) + 1
    ends = np.cumsum(sizes)
    last = int(np.searchsorted(ends, count))
    sizes[last] -= ends[last] - count
    return sizes[: last + 1]


def _draw_people(rng: PortableRandom, sizes: Array, group: Array) -> pd.DataFrame:
    """Draw all passengers, before any values are removed."""
    groups, count = len(sizes), len(group)
    planet = rng.choice(np.tile(PLANET_SHARES, (groups, 1)))
    family = (sizes > 1) & (rng.uniform(groups) < 0.7)
    deck = rng.choice(np.array(DECK_SHARES)[planet])
    side = (rng.uniform(groups) < 0.5).astype(int)
    group_destination = rng.choice(np.array(DESTINATION_SHARES)[planet])
    group_sleepiness, group_wealth = rng.normal(groups), rng.normal(groups)

    member = np.arange(count) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    people = pd.DataFrame({"group": group, "member": member, "size": sizes[group]})
    people["planet"], people["deck"], people["side"] = planet[group], deck[group], side[group]
    own_destination = rng.choice(np.array(DESTINATION_SHARES)[planet[group]])
    people["destination"] = np.where(rng.uniform(count) < 0.1, own_destination, group_destination[group])
    is_child = family[group] & (member >= 1) & (rng.uniform(count) < np.where(member >= 2, 0.65, 0.2))
    adult = 16 + 40 * rng.uniform(count) ** 1.6 + 5 * np.abs(rng.normal(count))
    people["Age"] = np.where(is_child, 18 * rng.uniform(count), adult).astype(int)
    cryo_log_odds = np.array(CRYO_LOG_ODDS)[planet[group]] + 1.2 * group_sleepiness[group]
    people["cryo"] = rng.uniform(count) < expit(cryo_log_odds)
    is_adult = people["Age"].to_numpy() >= 18
    people["vip"] = is_adult & (people["planet"] > 0) & (rng.uniform(count) < 0.05)

    log_spending = (
        np.array(LOG_SPENDING)[planet[group]] + 0.5 * group_wealth[group, None] + 1.5 * rng.normal(count, 5)
    )
    log_spending += 0.7 * people["vip"].to_numpy()[:, None]
    spends_nothing = (rng.uniform(count, 5) < 0.3) | (people["cryo"] | (people["Age"] <= 12)).to_numpy()[
        :, None
    ]
    people[SPENDING] = np.where(spends_nothing, 0, np.exp(log_spending.clip(0, 10)).astype(int))

    people["surname"], people["Name"] = _draw_names(rng, planet, family, group)
    people["number"], people["position"] = _draw_cabins(rng, sizes, deck, side, group, member)
    return people


def _draw_names(rng: PortableRandom, planet: Array, family: Array, group: Array) -> tuple[Array, list[str]]:
    """Draw surname numbers and full names; a family has one surname, and a surname belongs to one planet."""
    planet_of_surname = np.arange(SURNAMES) % len(PLANETS)
    frequency = 0.3 + rng.uniform(SURNAMES) ** 2
    shares = np.array([np.where(planet_of_surname == number, frequency, 0) for number in range(len(PLANETS))])
    surname_number = np.where(
        family[group], rng.choice(shares[planet])[group], rng.choice(shares[planet[group]])
    )
    surnames = _draw_words(rng, SURNAMES, ["son", "ley", "ez", "mond", "ova", "ing", "by", "aux"])
    first_names = _draw_words(rng, 900, ["a", "en", "is", "o", "y", "ed", "ia", "us"])
    first_name_number = (rng.uniform(len(group)) * len(first_names)).astype(int)
    return surname_number, [
        f"{first_names[a]} {surnames[b]}" for a, b in zip(first_name_number, surname_number, strict=True)
    ]


def _draw_words(rng: PortableRandom, count: int, endings: list[str]) -> list[str]:
    """Draw distinct words that look like names."""
    beginnings = [
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
    middles = [
        a + b for a in ("a", "e", "i", "o", "ai", "ee") for b in ("l", "n", "r", "s", "t", "v", "nd", "rk")
    ]
    words = [a + b + c for a in beginnings for b in middles for c in endings]
    return [words[number] for number in rng.permutation(len(words))[:count]]


def _draw_cabins(
    rng: PortableRandom, sizes: Array, deck: Array, side: Array, group: Array, member: Array
) -> tuple[Array, Array]:
    """Draw cabin numbers, and how far along the deck each lies; no two groups share a cabin."""
    has_second_cabin = (sizes >= 3) & (rng.uniform(len(sizes)) < 0.4)
    group_of_cabin = np.concatenate([np.arange(len(sizes)), np.flatnonzero(has_second_cabin)])
    corridor_of_cabin = deck[group_of_cabin] * 2 + side[group_of_cabin]
    number, relative_position = np.zeros(len(group_of_cabin), int), np.zeros(len(group_of_cabin))
    for corridor_number in range(2 * len(DECKS)):
        cabins = np.flatnonzero(corridor_of_cabin == corridor_number)
        number[cabins] = rng.permutation(len(cabins))
        relative_position[cabins] = (number[cabins] + 0.5) / max(len(cabins), 1)
    cabin = group.copy()
    in_second_cabin = has_second_cabin[group] & (member * 2 >= sizes[group])
    cabin[in_second_cabin] = len(sizes) + (np.cumsum(has_second_cabin) - 1)[group[in_second_cabin]]
    return number[cabin], relative_position[cabin]


def _compute_probabilities(rng: PortableRandom, people: pd.DataFrame) -> Array:
    """Compute each passenger's probability of being transported."""
    planet, deck, side, cryo, age = (
        people[name].to_numpy() for name in ("planet", "deck", "side", "cryo", "Age")
    )
    spent = np.maximum(np.log1p(people[SPENDING].to_numpy(float)) - SPENDING_THRESHOLD, 0)
    log_odds = rng.perturb(CRYO_EFFECTS)[planet] * cryo + spent @ rng.perturb(SPENDING_EFFECTS)
    log_odds += rng.perturb(DECK_EFFECTS)[deck] + rng.perturb(SIDE_EFFECT) * (2 * side - 1)
    log_odds += rng.perturb(ROUTE_EFFECTS)[planet, people["destination"]]
    log_odds += rng.perturb(VIP_EFFECT) * people["vip"]
    log_odds += np.select(
        [age <= 12, age < 18, age > 55], rng.perturb([CHILD_EFFECT, TEENAGER_EFFECT, OLD_EFFECT]).tolist(), 0
    )
    log_odds += _region_effects(rng, people) + SURNAME_SD * rng.normal(SURNAMES)[people["surname"]]
    log_odds += rng.perturb(GROUP_SIZE_EFFECTS)[people["size"] - 1]
    others = (people["size"] - 1).clip(1).to_numpy()
    sleepers = people.groupby("group")["cryo"].transform("sum").to_numpy() - cryo
    log_odds += rng.perturb(COMPANIONS_ASLEEP_EFFECT) * sleepers / others
    luxury = people[["Spa", "VRDeck", "RoomService"]].sum(axis=1)
    luxury_of_others = luxury.groupby(people["group"]).transform("sum") - luxury
    log_odds += rng.perturb(COMPANIONS_LUXURY_EFFECT) * np.maximum(
        np.log1p(luxury_of_others) - SPENDING_THRESHOLD, 0
    )
    values = np.asarray(log_odds, float)
    return expit(values + brentq(lambda shift: expit(values + shift).mean() - TRANSPORTED_SHARE, -50, 50))


def _region_effects(rng: PortableRandom, people: pd.DataFrame) -> Array:
    """Draw the effect of the region in which a cabin lies; every deck is cut into its own regions."""
    effect = np.zeros(len(people))
    deck, side, relative_position = (people[name].to_numpy() for name in ("deck", "side", "position"))
    for deck_number in range(len(DECKS)):
        on_deck = np.flatnonzero(deck == deck_number)
        cabins = len(np.unique(people[["number", "side"]].to_numpy()[on_deck], axis=0))
        cuts = np.sort(rng.uniform(cabins // CABINS_IN_REGION))
        region = np.searchsorted(cuts, relative_position[on_deck])
        region_effects, region_side_effects = rng.normal(len(cuts) + 1), rng.normal(len(cuts) + 1, 2)
        effect[on_deck] = (
            REGION_SD * region_effects[region] + REGION_SIDE_SD * region_side_effects[region, side[on_deck]]
        )
    return effect


def _format_table(rng: PortableRandom, people: pd.DataFrame) -> pd.DataFrame:
    """Return the table in the competition's format, with about 2 % of the cells of every column empty."""
    table = people[["PassengerId"]].copy()
    table["HomePlanet"] = np.array(PLANETS)[people["planet"]]
    table["CryoSleep"] = np.where(people["cryo"], "True", "False")
    sides = np.where(people["side"] == 1, "S", "P")
    parts = zip(np.array(DECKS)[people["deck"]], people["number"], sides, strict=True)
    table["Cabin"] = [f"{deck}/{number}/{side}" for deck, number, side in parts]
    table["Destination"] = np.array(DESTINATIONS)[people["destination"]]
    table["VIP"] = np.where(people["vip"], "True", "False")
    for name in ("Age", *SPENDING, "Name"):
        table[name] = people[name].astype(str)
    table[COLUMNS] = table[COLUMNS].mask(_draw_missing_cells(rng, people), "")
    table = table[["PassengerId", *COLUMNS]]
    return table.assign(Transported=people["Transported"], probability=people["probability"])


def _draw_missing_cells(rng: PortableRandom, people: pd.DataFrame) -> Array:
    """Draw which cells are empty: more often for passengers who travel alone, high ages and large amounts."""
    weights = np.ones((len(people), len(COLUMNS)))
    weights *= np.where(people["size"] == 1, 1.3, 0.7)[:, None]
    weights[:, COLUMNS.index("Age")] *= np.where(people["Age"] > 50, 2.5, 1)
    weights[:, COLUMNS.index("CryoSleep")] *= np.where(people["cryo"], 1.6, 0.8)
    for name in SPENDING:
        weights[:, COLUMNS.index(name)] *= np.where(people[name] > 1000, 2, 0.9)
    return np.asarray(rng.uniform(*weights.shape) < MISSING_SHARE * weights / weights.mean(axis=0))
