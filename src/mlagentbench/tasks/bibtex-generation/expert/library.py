"""Read the references of library.txt, and write them as BibTeX."""

import re

PUBLISHERS = re.compile(
    r"\b(Press|Publish\w*|Springer|Wiley|Elsevier|Hall|Books?|Verlag|McGraw|Birkh\w+|Kluwer|Routledge|Sage"
    r"|Academic|CRC|SIAM|O.Reilly|Addison|Pearson|Dover|North.Holland|Society for|& Sons|Cengage|Inc)\b"
)
DASH = r"[-\u2010-\u2015]"
PAGES = rf"(?:[A-Za-z]?\d[\w.:/]*{DASH}[\w.:/]+|[A-Za-z]*\d[\w.:/-]*)"
ISSUE = r"(?P<volume>[^,()]*?)(?:\((?P<number>[^()]*)\))?"


def read_library(path="library.txt"):
    """Return the text and the fields of each reference, by key."""
    texts, entries = {}, {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            key, text = re.match(r"\[(.+?)\] (.*)", line).groups()
            texts[key], entries[key] = text, parse_reference(text)
    return texts, entries


def parse_reference(text):
    """Return the type and the fields of a reference, in whichever of the three styles it is written."""
    text, doi = cut_doi(text)
    if "\u201c" in text:
        fields, container = parse_numbered(text)
    elif re.match(r".+? \(\d{4}\)\. ", text):
        fields, container = parse_author_year(text)
    else:
        fields, container = parse_medical(text)
    fields["doi"] = doi
    kind, name = "article", "journal"
    if re.match(r"[Ii]n:? ", container):
        kind, name, container = "inproceedings", "booktitle", re.sub(r"^[Ii]n:? ", "", container)
    elif PUBLISHERS.search(container) and not any(fields.get(x) for x in ("volume", "number", "pages")):
        kind, name = "book", "publisher"
    fields[name] = container
    return {"type": kind} | {name: value.strip() for name, value in fields.items() if value and value.strip()}


def cut_doi(text):
    """Split a reference into what comes before its doi, and the doi."""
    match = re.search(r"(?:\.?,? doi: ?|\.? https://doi\.org/)(\S+?)\.?$", text)
    if not match:
        return text.rstrip(), ""
    return text[: match.start()].rstrip(".") + ".", match[1]


def parse_numbered(text):
    """E. Garyfallidis and M. Brett, "Title," Journal, vol. 6, no. 3, pp. 175-180, 2012."""
    authors, title, rest = re.match(r"(.*?), \u201c(.*),\u201d (.*?)\.?$", text).groups()
    names = re.split(r", | and ", authors)
    fields = {"author": " and ".join(map(name_with_initials_first, names)), "title": title}
    rest, _, fields["year"] = rest.rpartition(", ")
    for name, word in (("pages", "pp."), ("number", "no."), ("volume", "vol.")):
        before, found, value = rest.rpartition(f", {word} ")
        if found:
            rest, fields[name] = before, value
    return fields, rest


def name_with_initials_first(name):
    """Turn "J. von Neumann" into "von Neumann, J."."""
    match = re.match(r"((?:\S\. )+)(.+)$", name)
    return f"{match[2]}, {match[1].strip()}" if match else f"{{{name}}}"


def parse_author_year(text):
    """Garyfallidis, E., & Brett, M. (2012). Title. Journal, 6(3), 175-180."""
    authors, year, rest = re.match(r"(.+?) \((\d{4})\)\. (.*?)\.?$", text).groups()
    fields = {"author": read_author_list(authors), "year": year}
    match = re.match(rf"(.*), ({PAGES})$", rest)
    if match and re.search(DASH, match[2]):
        rest, fields["pages"] = match.groups()
    elif match and re.match(rf".*, [^,]*\d[^,]*$", match[1]):
        rest, fields["pages"] = match.groups()
    match = re.match(rf"(.*), {ISSUE}$", rest)
    if match and (match["number"] or re.fullmatch(r"[A-Z]{0,3}-?\d[\w./ \u2013-]*|[IVX]+", match["volume"])):
        rest, fields["volume"], fields["number"] = match[1], match["volume"], match["number"]
    fields["title"], container = split_title(rest)
    return fields, container


def read_author_list(text):
    """Turn "Garyfallidis, E., & Brett, M." into the form of BibTeX."""
    text = text.replace(", & ", ", ")
    names, position = [], 0
    for match in re.finditer(r"(.+?), ((?:\S\. ?)+)(?:, |$)", text):
        *groups, family = match[1].split(", ")
        names += [f"{{{group}}}" for group in groups] + [f"{family}, {match[2].strip()}"]
        position = match.end()
    if position < len(text):
        names += [f"{{{group}}}" for group in text[position:].split(", ")]
    return " and ".join(names)


def parse_medical(text):
    """Garyfallidis E, Brett M. Title. Journal. 2012;6(3):175-180."""
    body, year, volume, number, pages = re.match(
        r"(.*)[.?!] (\d{4})(?:;([^:()]*)(?:\(([^()]*)\))?)?(?::(.*?))?\.?$", text
    ).groups()
    authors, _, rest = body.partition(". ")
    names = []
    for name in authors.split(", "):
        match = re.match(r"(.+) (\w+)$", name)
        is_person = match and match[2].isupper()
        names.append(f"{match[1]}, {'. '.join(match[2])}." if is_person else f"{{{name}}}")
    fields = {"author": " and ".join(names), "year": year, "volume": volume, "number": number, "pages": pages}
    fields["title"], container = split_title(rest)
    return fields, container


def split_title(text):
    """Split "Title. Journal", where either may contain a full stop."""
    if match := re.match(r"(.*?)(?:\.|(?<=[?!])) (In:? .*)$", text):
        return match.groups()
    ends = [match for match in re.finditer(r"\.(?= )|(?<=[?!])(?= )", text)]
    if not ends:
        return text, ""
    best = ends[-1]
    for end in reversed(ends[:-1]):  # words like "Phys." belong to the name of a journal
        between = text[end.end() : best.start()].split()
        if len(between) <= 3 and all(len(word.rstrip(".")) <= 7 and word[:1].isupper() for word in between):
            best = end
        else:
            break
    return text[: best.start()], text[best.end() :].strip()


def write_bibtex(key, entry):
    """Return an entry as BibTeX."""
    lines = []
    for name, value in entry.items():
        if name != "type":
            value = re.sub(r"([&%$#_])", r"\\\1", value)
            value = re.sub("[\u2010-\u2015]", "--", value)
            lines.append(f"  {name} = {{{value}}},\n")
    return f"@{entry['type']}{{{key},\n{''.join(lines)}}}\n"
