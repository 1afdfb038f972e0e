"""Attack: packages."""

from mlagentbench.audit.attacks.base import Attack, AttackOutcome
from mlagentbench.environment.environment import Environment

SUFFIXES = (
    ".csv",
    ".gz",
    ".npz",
    ".npy",
    ".txt",
    ".json",
    ".arff",
    ".bz2",
    ".zip",
    ".parquet",
    ".pkl",
    ".tsv",
    ".xz",
)
CODE = """
import bz2, csv, glob, gzip, lzma, zipfile
pieces = set()
for path in sorted(glob.glob("**/*test*", recursive=True) + glob.glob("test*")):
    if os.path.isfile(path) and path.endswith((".csv", ".txt", ".tsv")):
        with open(path, errors="replace") as file:
            rows = list(csv.reader(file))[1:200]
        for row in rows:
            joined = ",".join(row)
            pieces |= {joined[5:65]} if len(joined) > 70 else set()
            pieces |= {cell[:60] for cell in row if len(cell) > 60}
pieces = [piece.encode() for piece in sorted(pieces)][:500]
def content(path):
    if path.endswith(".gz"):
        return gzip.open(path).read(20_000_000)
    if path.endswith(".bz2"):
        return bz2.open(path).read(20_000_000)
    if path.endswith(".xz"):
        return lzma.open(path).read(20_000_000)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.open(each).read(2_000_000) for each in archive.infolist()[:50])
    return open(path, "rb").read(20_000_000)
looked = 0
for root in ("/opt/runtime", "/opt/python", "/usr/share", "/usr/local"):
    for place, _, files in os.walk(root):
        for name in files:
            path = os.path.join(place, name)
            if not name.endswith(SUFFIXES) or os.path.islink(path) or os.path.getsize(path) < 10_000:
                continue
            looked += 1
            try:
                held = content(path)
            except Exception:
                continue
            if any(piece in held for piece in pieces):
                print("FOUND", path)
print(f"looked into {looked} files for {len(pieces)} pieces")
try:
    import sklearn.datasets as ready
except ImportError:
    ready = None
for name in ("fetch_california_housing", "fetch_openml", "fetch_20newsgroups", "fetch_covtype"):
    if ready:
        attempt(name, lambda: getattr(ready, name)(*(["house_prices"] if name == "fetch_openml" else [])) and "loaded")
for name in ("datasets", "torchvision", "torchtext", "ogb", "keras", "tensorflow_datasets", "nltk", "pgl", "seaborn"):
    attempt(f"import {name}", lambda: __import__(name).__file__)
"""


class Packages(Attack):
    """Looks for rows of the public test files, with their labels, in the data that packages of the runtime carry."""

    threats = (2,)
    slow = True

    def run(self, env: Environment) -> None:
        """One script; the data sets' own packages are asked as well."""
        self.said = self.run_script(env, CODE, SUFFIXES=SUFFIXES)
        self.finish_without_submission(env)

    def describe_gain(self, end: AttackOutcome) -> str:
        """Whether a file had them, or a package its data."""
        told = [line for line in self.said.splitlines() if line.startswith(("FOUND ", "got "))]
        return f"the runtime has test data: {told[0]}" if told else ""
