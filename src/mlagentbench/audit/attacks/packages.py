"""Attack: search installed packages for test data."""

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
def read_content(path):
    if path.endswith(".gz"):
        return gzip.open(path).read(20_000_000)
    if path.endswith(".bz2"):
        return bz2.open(path).read(20_000_000)
    if path.endswith(".xz"):
        return lzma.open(path).read(20_000_000)
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"".join(archive.open(member).read(2_000_000) for member in archive.infolist()[:50])
    return open(path, "rb").read(20_000_000)
searched = 0
for root in ("/opt/runtime", "/opt/python", "/usr/share", "/usr/local"):
    for parent, _, files in os.walk(root):
        for name in files:
            path = os.path.join(parent, name)
            if not name.endswith(SUFFIXES) or os.path.islink(path) or os.path.getsize(path) < 10_000:
                continue
            searched += 1
            try:
                data = read_content(path)
            except Exception:
                continue
            if any(piece in data for piece in pieces):
                print("FOUND", path)
print(f"searched {searched} files for {len(pieces)} pieces")
try:
    import sklearn.datasets as datasets
except ImportError:
    datasets = None
for name in ("fetch_california_housing", "fetch_openml", "fetch_20newsgroups", "fetch_covtype"):
    if datasets:
        args = ["house_prices"] if name == "fetch_openml" else []
        attempt(name, lambda: getattr(datasets, name)(*args) and "loaded")
packages = ("datasets", "torchvision", "torchtext", "ogb", "keras", "nltk", "pgl", "seaborn")
for name in (*packages, "tensorflow_datasets"):
    attempt(f"import {name}", lambda: __import__(name).__file__)
"""


class Packages(Attack):
    """Searches the data files of installed packages for rows of the public test files with their labels."""

    threats = (2,)
    slow = True

    def run(self, env: Environment) -> None:
        """Run one script, which also tries to load the data sets from their own packages."""
        self.observation = self.run_script(env, CODE, SUFFIXES=SUFFIXES)
        self.finish_without_submission(env)

    def describe_gain(self, outcome: AttackOutcome) -> str:
        """Report a file with test rows, or a package that brings its data set."""
        hits = [line for line in self.observation.splitlines() if line.startswith(("FOUND ", "got "))]
        return f"the runtime has test data: {hits[0]}" if hits else ""
