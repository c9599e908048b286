"""Read WordNet's data files into texts, holding out the demo's evaluation set."""

import os

FILES = ("data.noun", "data.verb", "data.adj", "data.adv")
HELD_OUT_PERCENT = 12  # tools/gloss-data.sh draws its evaluation rows from these


def bucket(offset):
    """A hash of a synset's offset, 0 to 99; tools/gloss-data.sh has the same."""
    return offset * 48271 % 2147483647 * 40692 % 2147483399 % 100


def parse(line):
    """(offset, part of speech, words, definition, examples) of a data line."""
    fields, gloss = line.rstrip().split(" | ", 1)
    fields = fields.split(" ")
    count = int(fields[3], 16)
    words = [fields[4 + 2 * i].split("(")[0].replace("_", " ")
             for i in range(count)]
    definition, _, examples = gloss.partition('"')
    return (int(fields[0]), fields[2], words, definition.rstrip("; "),
            ('"' + examples).strip() if examples else "")


def synsets(folder):
    """Every synset of the four data files; the licence heads each file."""
    for name in FILES:
        with open(os.path.join(folder, name), encoding="ascii") as file:
            for line in file:
                if not line.startswith("  "):
                    yield parse(line)


def load(folder):
    """(training synsets, held-out synsets).

    A noun in a held-out bucket is never trained on, nor is any other synset
    whose definition reads the same.
    """
    every = [s for s in synsets(folder) if s[3]]
    held = [s for s in every if s[1] == "n" and bucket(s[0]) < HELD_OUT_PERCENT]
    unseen = {s[3] for s in held}
    return [s for s in every if s[3] not in unseen], held


def forward_text(synset):
    """A dictionary entry: `dog, domestic dog: a member of ...; "an example"`."""
    _, _, words, definition, examples = synset
    entry = ", ".join(words) + ": " + definition
    return entry + "; " + examples if examples else entry


def reverse_text(synset):
    """The entry turned round: the definition, then the words it defines."""
    return synset[3] + "\nWord: " + ", ".join(synset[2])
