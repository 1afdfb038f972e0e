"""Read the references of library.txt with one pattern for each style, and write them as BibTeX."""

import re

STYLES = {
    "author-year": re.compile(
        r"(?P<author>.+?) \((?P<year>\d{4})\)\. (?P<title>.+?)[.?!] (?P<container>[^,]+)"
        r"(?:, (?P<volume>\d+)(?:\((?P<number>[^)]*)\))?)?(?:, (?P<pages>[\w\u2013.]+))?\."
        r"(?: https://doi\.org/(?P<doi>\S+))?$"
    ),
    "numbered": re.compile(
        r"(?P<author>.+?), \u201c(?P<title>.+),\u201d (?P<container>.+?)(?:, vol\. (?P<volume>[^,]+))?"
        r"(?:, no\. (?P<number>[^,]+))?(?:, pp\. (?P<pages>[^,]+))?, (?P<year>\d{4})(?:, doi: (?P<doi>\S+))?\.$"
    ),
    "medical": re.compile(
        r"(?P<author>.+?)\. (?P<title>.+)[.?!] (?P<container>[^.]+)\. (?P<year>\d{4})(?:;(?P<volume>[^:(]*)"
        r"(?:\((?P<number>[^)]*)\))?)?(?::(?P<pages>[^.]*))?\.(?: doi:(?P<doi>\S+))?$"
    ),
}


def read_library(path="library.txt"):
    """Return the text and the fields of each reference, by key."""
    texts, entries = {}, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, text = re.match(r"\[(.+?)\] (.*)", line).groups()
            texts[key], entries[key] = text, parse_reference(text)
    return texts, entries


def parse_reference(text):
    """Return the type and the fields of a reference."""
    for style, pattern in STYLES.items():
        if match := pattern.match(text):
            fields = {name: value.strip() for name, value in match.groupdict().items() if value}
            fields["author"] = read_authors(fields["author"], style)
            container = fields.pop("container")
            if re.match(r"[Ii]n:? ", container):
                booktitle = re.sub(r"^[Ii]n:? ", "", container)
                return {"type": "inproceedings", **fields, "booktitle": booktitle}
            return {"type": "article", **fields, "journal": container}
    return {"type": "misc", "title": text}


def read_authors(text, style):
    """Return the authors in the form "Family, Initials and Family, Initials"."""
    if style == "author-year":
        names = re.findall(r"([^,]+), ((?:\w\. ?)+)", text.replace(", & ", ", "))
    elif style == "numbered":
        names = [
            (family, initials) for initials, family in re.findall(r"((?:\w\. )+)([^,]+?)(?:,| and |$)", text)
        ]
    else:
        names = re.findall(r"([^,]+) ([A-Z]+)(?:,|$)", text)
    return " and ".join(f"{family.strip()}, {initials.strip()}" for family, initials in names) or text


def write_bibtex(key, entry):
    """Return an entry as BibTeX."""
    lines = []
    for name, value in entry.items():
        if name != "type":
            value = re.sub(r"([&%$#_])", r"\\\1", value).replace("\u2013", "--")
            lines.append(f"  {name} = {{{value}}},\n")
    return f"@{entry['type']}{{{key},\n{''.join(lines)}}}\n"
