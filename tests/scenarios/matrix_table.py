"""The README's table: made from what a run has seen, and found again in the README."""

from clients import KINDS
from harness import CACHE, ROOT
from matrix_expected import NOTES, REFUSED
from matrix_operations import OPERATIONS

BEGIN = "<!-- The table of tests/scenarios/test_matrix.py: begin -->"
END = "<!-- The table of tests/scenarios/test_matrix.py: end -->"
FILE = CACHE / "compatibility.md"
SHOWN = {"yes": "yes", "refused": "refused", "no API": "–"}


def render(outcomes, versions):
    """The table in Markdown. `outcomes` by client, operation and kind; `versions` by client, in the order of columns."""
    notes = []

    def mark(note):
        if note not in notes:
            notes.append(note)
        return f"<sup>{notes.index(note) + 1}</sup>"

    names = [f"{client} {version}{mark(NOTES[client]) if client in NOTES else ''}" for client, version in versions.items()]
    lines = ["| Operation | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for operation, (title, _) in OPERATIONS.items():
        cells = []
        for client in versions:
            kinds = [SHOWN.get(outcomes[client, operation, kind], "no") for kind in KINDS]
            cell = kinds[0] if kinds[0] == kinds[1] else " / ".join(kinds)
            cells.append(cell + (mark(REFUSED[operation]) if "refused" in kinds else ""))
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *(f"{i}. {note}" for i, note in enumerate(notes, 1))])


def in_readme():
    text = (ROOT / "README.md").read_text()
    return text.partition(BEGIN)[2].partition(END)[0].strip()


def write(table):
    FILE.write_text(table + "\n")


def main():
    """Puts the table of the last run into the README."""
    text = (ROOT / "README.md").read_text()
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    (ROOT / "README.md").write_text(f"{before}{BEGIN}\n\n{FILE.read_text().strip()}\n\n{END}{after}")


if __name__ == "__main__":
    main()
