"""Byte-level BPE: a small trainer, a plain encoder and the Hugging Face file.

The encoder is the slow, obvious reading of a Llama-3 style tokenizer.json; the
C tokenizer is tested against the vectors it produces.  Only the standard
library is used.
"""

import collections
import heapq
import json
import re
import unicodedata

# The pre-tokenizer as tokenizer.json states it.
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

# The same expression over text in which `class_of` has replaced each
# non-ASCII character by an ASCII one of the same class: Python's re has no
# \p{L}.  Lengths do not change, so matches are slices of the real text.
ASCII_SPLIT = re.compile(
    LLAMA3_SPLIT.replace(r"\p{L}+", "[A-Za-z]+").replace(r"\p{L}", "A-Za-z")
    .replace(r"\p{N}{1,3}", "[0-9]{1,3}").replace(r"\p{N}", "0-9"), re.ASCII)

WHITE_SPACE = ("\u0085\u00a0\u1680\u2028\u2029\u202f\u205f\u3000"
               + "".join(map(chr, range(0x2000, 0x200b))))

BOS, EOS = "<|begin_of_text|>", "<|end_of_text|>"


def class_of(char):
    """An ASCII stand-in for a character, equal to it as far as the split sees."""
    if ord(char) < 128:
        return char
    if char == "\u017f":          # long s is an s when case is ignored
        return "s"
    if char in WHITE_SPACE:
        return "\v"               # white space, but neither " " nor a newline
    kind = unicodedata.category(char)[0]
    return {"L": "q", "N": "0"}.get(kind, "!")  # no contraction has a q


def split(text):
    """Cut text into pre-tokens."""
    shadow = text if text.isascii() else "".join(map(class_of, text))
    return [text[m.start():m.end()] for m in ASCII_SPLIT.finditer(shadow)]


def byte_alphabet():
    """The printable character that stands for each of the 256 bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    chars, extra = [], 256
    for byte in range(256):
        chars.append(chr(byte if byte in keep else extra))
        extra += byte not in keep
    return chars


ALPHABET = byte_alphabet()


def spell(text):
    """Text as byte-level characters."""
    return [ALPHABET[byte] for byte in text.encode("utf-8")]


def train(texts, size):
    """Return (vocab, merges) with `size` entries, learnt from word counts."""
    counts = collections.Counter()
    for text in texts:
        counts.update(split(text))
    words = [(spell(word), n) for word, n in counts.items()]
    vocab = sorted(ALPHABET)
    pairs, where = collections.Counter(), collections.defaultdict(set)
    for index, (parts, n) in enumerate(words):
        count_pairs(parts, n, index, pairs, where)
    heap = [(-n, pair) for pair, n in pairs.items()]
    heapq.heapify(heap)
    merges = []
    while len(vocab) < size:
        # Ties go to the smaller pair, so the result is the same everywhere.
        minus, best = heapq.heappop(heap)
        if -minus != pairs[best]:      # it has shrunk since it was pushed
            heapq.heappush(heap, (-pairs[best], best))
            continue
        merges.append(best)
        vocab.append(best[0] + best[1])
        grown = set()                  # only pairs with the new token can grow
        for index in where.pop(best):
            parts, n = words[index]
            count_pairs(parts, -n, index, pairs, where)
            merge(parts, best)
            count_pairs(parts, n, index, pairs, where)
            grown.update(p for p in zip(parts, parts[1:]) if vocab[-1] in p)
        for pair in grown:
            heapq.heappush(heap, (-pairs[pair], pair))
    return vocab, merges


def count_pairs(parts, n, index, pairs, where):
    """Add n to the count of every pair in a word, noting where it occurs."""
    for pair in zip(parts, parts[1:]):
        pairs[pair] += n
        if n > 0:
            where[pair].add(index)


def merge(parts, pair):
    """Join every occurrence of a pair, left to right, in place."""
    i = 0
    while i + 1 < len(parts):
        if parts[i] == pair[0] and parts[i + 1] == pair[1]:
            parts[i:i + 2] = [pair[0] + pair[1]]
        i += 1


class Encoder:
    """Encode text with the vocabulary and merges of a tokenizer.json."""

    def __init__(self, data):
        model = data["model"]
        self.vocab = model["vocab"]
        self.rank = {tuple(pair): i for i, pair in enumerate(model["merges"])}
        self.special = {t["content"]: t["id"] for t in data["added_tokens"]}
        self.cache = {}

    def word(self, word):
        """Ids of one pre-token: always merge the pair of the lowest rank."""
        if word not in self.cache:
            parts = spell(word)
            while len(parts) > 1:
                pair = min(zip(parts, parts[1:]),
                           key=lambda p: self.rank.get(p, len(self.rank)))
                if pair not in self.rank:
                    break
                merge(parts, pair)
            self.cache[word] = [self.vocab[part] for part in parts]
        return self.cache[word]

    def encode(self, text):
        """Ids of a text; special tokens written out in it are recognised."""
        ids = []
        specials = "|".join(map(re.escape, self.special))
        for piece in re.split(f"({specials})", text):
            if piece in self.special:
                ids.append(self.special[piece])
            else:
                ids += [i for word in split(piece) for i in self.word(word)]
        return ids


def load(path):
    """The encoder of a tokenizer.json."""
    with open(path, encoding="utf-8") as file:
        return Encoder(json.load(file))


def describe(vocab, merges):
    """The contents of a Llama-3 style tokenizer.json."""
    ids = {token: i for i, token in enumerate(vocab)}
    specials = {token: len(vocab) + i for i, token in enumerate((BOS, EOS))}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False,
                  "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": i, "content": token, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False, "special": True}
            for token, i in specials.items()],
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": LLAMA3_SPLIT},
             "behavior": "Isolated", "invert": False},
            byte_level]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": BOS, "type_id": 0}},
                       {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": BOS, "type_id": 0}},
                     {"Sequence": {"id": "A", "type_id": 0}},
                     {"SpecialToken": {"id": BOS, "type_id": 1}},
                     {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {BOS: {"id": BOS, "ids": [specials[BOS]],
                                     "tokens": [BOS]}}},
        "decoder": dict(byte_level, add_prefix_space=True, use_regex=True),
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None,
            "continuing_subword_prefix": None, "end_of_word_suffix": None,
            "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
            "vocab": ids, "merges": [list(pair) for pair in merges]},
    }
