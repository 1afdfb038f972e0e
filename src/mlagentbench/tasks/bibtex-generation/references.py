"""Writes the entries of the library as plain references, in three styles."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Reference:
    """The fields of an entry; authors are (family name, given names), missing fields are empty."""

    type: str
    authors: tuple[tuple[str, str], ...]
    fields: dict[str, str]

    def __getitem__(self, name: str) -> str:
        return self.fields.get(name, "")

    @property
    def container(self) -> str:
        """Where it was published: the journal, the proceedings or the publisher."""
        return self["journal"] or self["booktitle"] or self["publisher"]


STYLES = ("author-year", "numbered", "medical")


def write_reference(reference: Reference, style: str) -> str:
    """Return one line of text with all fields of an entry."""
    if style == "author-year":
        return _write_author_year(reference)
    return _write_numbered(reference) if style == "numbered" else _write_medical(reference)


def _write_author_year(reference: Reference) -> str:
    names = [f"{family}, {_initials(given)}" if given else family for family, given in reference.authors]
    authors = names[0] if len(names) == 1 else ", ".join(names[:-1]) + ", & " + names[-1]
    issue = reference["volume"] + (f"({reference['number']})" if reference["number"] else "")
    container = f"In {reference.container}" if reference["booktitle"] else reference.container
    details = ", ".join(part for part in (container, issue, reference["pages"]) if part)
    doi = f" https://doi.org/{reference['doi']}" if reference["doi"] else ""
    return f"{authors} ({reference['year']}). {_end(reference['title'])} {details}.{doi}"


def _write_numbered(reference: Reference) -> str:
    names = [f"{_initials(given)} {family}".strip() for family, given in reference.authors]
    authors = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
    container = f"in {reference.container}" if reference["booktitle"] else reference.container
    parts = [container]
    for word, name in (("vol.", "volume"), ("no.", "number"), ("pp.", "pages")):
        parts += [f"{word} {reference[name]}"] if reference[name] else []
    parts.append(reference["year"])
    doi = f", doi: {reference['doi']}" if reference["doi"] else ""
    return f"{authors}, \u201c{reference['title']},\u201d {', '.join(parts)}{doi}."


def _write_medical(reference: Reference) -> str:
    names = [
        f"{family} {_initials(given).replace('. ', '').replace('.', '')}"
        for family, given in reference.authors
    ]
    authors = ", ".join(name.strip() for name in names)
    container = f"In: {reference.container}" if reference["booktitle"] else reference.container
    issue = reference["volume"] + (f"({reference['number']})" if reference["number"] else "")
    details = reference["year"] + (f";{issue}" if issue else "")
    details += f":{reference['pages']}" if reference["pages"] else ""
    doi = f" doi:{reference['doi']}" if reference["doi"] else ""
    return f"{authors}. {_end(reference['title'])} {_end(container)} {details}.{doi}"


def _initials(given: str) -> str:
    return " ".join(f"{name[0]}." for name in given.replace("-", " ").replace(".", " ").split())


def _end(sentence: str) -> str:
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."
