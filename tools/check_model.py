#!/usr/bin/python3
"""Check a folder written by pretrain.py, with PyTorch as the reference.

    tools/check_model.py --data DIR       LoRA fine-tuning on the demo's task
    tools/check_model.py --vectors DIR    write the C tests' reference vectors

DIR holds the files of tools/gloss-data.sh, or takes tokenizer.jsonl and
logits.json.  Only the model's files are read: nothing is kept from training.
"""

import argparse
import json
import os
import random
import struct
import time

import torch
import torch.nn.functional as F

import bpe
import pretrain

RANK, ALPHA, TARGETS = 8, 16, ("q_proj", "v_proj")
STEPS, BATCH, RATE, SEED = 200, 32, 3e-3, 1


def load_weights(path):
    """Every tensor of a bf16 safetensors file, as f32."""
    with open(path, "rb") as file:
        size, = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(size))
        data = bytearray(file.read())
    header.pop("__metadata__")
    weights = {}
    for name, entry in header.items():
        assert entry["dtype"] == "BF16", name
        begin, end = entry["data_offsets"]
        raw = torch.frombuffer(data[begin:end], dtype=torch.bfloat16)
        weights[name] = raw.reshape(entry["shape"]).float()
    shapes = {name: tuple(w.shape) for name, w in weights.items()}
    assert shapes == pretrain.shapes(), "not the tensors of the configuration"
    return weights


def padded(sequences):
    """Right-padded tokens and the mask that hides later positions."""
    length = max(map(len, sequences))
    tokens = torch.tensor([s + [0] * (length - len(s)) for s in sequences])
    return tokens, pretrain.causal_mask(torch.zeros_like(tokens))


# LoRA -----------------------------------------------------------------------

def adapter_of(weights):
    """A is uniform within 1/sqrt(in) and B is zero, as PEFT starts them."""
    torch.manual_seed(SEED)
    adapter = {}
    for name in sorted(weights):
        if name.split(".")[-2] in TARGETS:
            rows, columns = weights[name].shape
            a = (torch.rand(RANK, columns) * 2 - 1) / columns ** 0.5
            adapter[name] = (a.requires_grad_(),
                             torch.zeros(rows, RANK).requires_grad_())
    return adapter


def adapted(weights, adapter):
    """A `linear` for pretrain.hidden_states that adds the adapter."""
    def linear(name, x):
        name += ".weight"
        y = F.linear(x, weights[name])
        if name in adapter:
            a, b = adapter[name]
            y = y + ALPHA / RANK * F.linear(F.linear(x, a), b)
        return y
    return linear


def read_rows(path, encoder):
    """(prompt ids with BOS, completion ids with EOS) of each line."""
    with open(path, encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    return [([pretrain.BOS_ID] + encoder.encode(r["prompt"]),
             encoder.encode(r["completion"]) + [pretrain.EOS_ID]) for r in rows]


def label_loss(weights, linear, rows):
    """Mean over the completions' tokens."""
    tokens, mask = padded([p + c for p, c in rows])
    targets = torch.full_like(tokens, -100)
    for i, (p, c) in enumerate(rows):
        targets[i, len(p) - 1:len(p) + len(c) - 1] = torch.tensor(c)
    used = targets != -100
    states = pretrain.hidden_states(weights, tokens, mask, linear)[used]
    logits = F.linear(states, weights["model.embed_tokens.weight"])
    return F.cross_entropy(logits, targets[used])


@torch.no_grad()
def accuracy(weights, linear, rows):
    """How often the right label's first token beats the other labels'."""
    labels = sorted({c[0] for _, c in rows})
    right = 0
    for start in range(0, len(rows), 50):
        some = rows[start:start + 50]
        tokens, mask = padded([p for p, _ in some])
        states = pretrain.hidden_states(weights, tokens, mask, linear)
        last = states[range(len(some)), [len(p) - 1 for p, _ in some]]
        scores = F.linear(last, weights["model.embed_tokens.weight"][labels])
        right += sum(labels[best] == c[0] for best, (_, c)
                     in zip(scores.argmax(-1).tolist(), some))
    return right / len(rows)


def fine_tune(weights, encoder, folder):
    train = read_rows(os.path.join(folder, "train.jsonl"), encoder)
    test = read_rows(os.path.join(folder, "eval.jsonl"), encoder)
    adapter = adapter_of(weights)
    linear = adapted(weights, adapter)
    print(f"accuracy before: {accuracy(weights, linear, test):.4f}", flush=True)
    parameters = [p for pair in adapter.values() for p in pair]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.0)
    start = time.time()
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
        rows = [train[(step * BATCH + i) % len(train)] for i in range(BATCH)]
        loss = label_loss(weights, linear, rows)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    print(f"accuracy after: {accuracy(weights, linear, test):.4f} "
          f"({sum(p.numel() for p in parameters)} trained values, "
          f"{time.time() - start:.0f} s)")


# Reference vectors ----------------------------------------------------------

PLAIN = [
    "", " ", "  ", "   x", "x   ", "\n", "\n\n", " \n", "\n ", " \n \n x",
    "a\r\nb", "\r", "\t\ttabs", "end.\n", "end. \n\n", "(a)\n\n(b)",
    "a dog", "A dog.", "a  dog", "a   dog barks", "any of various animals",
    "someone who is excellent at something\nClass:", " person", " animal",
    " plant", " food", " object", " act", "\nWord: dog, domestic dog",
    "dog, domestic dog: a member of the genus Canis",
    "I'm you're he's we'll they'd I've don't", "I'M YOU'RE HE'S WE'LL DON'T",
    "'tis the dogs' dinner", "''s", "'sx", "'lx", "rock'n'roll", "o'clock",
    "1", "12", "123", "1234", "1234567", " 12", "3.14159", "1,000,000",
    "in 1969-07-20", "x2y3", "2nd", "100%", "$5.00", "a+b=c", "a_b_c",
    "C:\\path\\file.txt", "https://example.org/a?b=c&d=e#f", "user@example.org",
    "\"quoted\" words; and 'more'", "(parentheses) [brackets] {braces}",
    "!!!", "?!", "...", " ...", "--option", "a--b", "#include <stdio.h>",
    "int main(void) { return 0; }\n", "    indented\n\tmore", "CamelCaseWord",
    "UPPERCASE", "pneumonoultramicroscopicsilicovolcanoconiosis", "zzzzzzzz",
    "caf\u00e9 na\u00efve \u00fcber", "\u00c5ngstr\u00f6m", "\u4f60\u597d\u4e16\u754c",
    "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440!", "\u03b1\u03b2\u03b3 \u03b4",
    "a\u00a0b", "\u3000wide", "\u00bd cup", "x\u00b2", "\u0664\u0665\u0666\u0667",
    "\U0001f642 smile", "5\u20ac", "\u201cquotes\u201d \u2014 dash\u2026",
    "it\u2019s", "'\u017f", "e\u0301", "\u1680x", "\u2028line", "\x1c\x1d", "\x00\x7f",
    bpe.BOS, bpe.BOS + "hello" + bpe.EOS, "a " + bpe.EOS + "\n",
    "<|begin_of_text|", "<|end_of_text|> <|other|>"]

FRAGMENTS = [
    " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'", "1", "23", "4567", ".", "!?",
    "-", "(", ")", "dog", "Dog", "the", " of", "\u00e9", "\u4e2d", "\u00a0", "\u0660",
    "\U0001f600", "\u20ac", "x", "_", "\"", "\\", ": ", ", "]


def tokenizer_vectors(encoder):
    rng = random.Random(SEED)
    mixed = ["".join(rng.choices(FRAGMENTS, k=rng.randint(3, 14)))
             for _ in range(40)]
    for text in PLAIN + mixed:
        yield {"text": text, "ids": encoder.encode(text)}


@torch.no_grad()
def logits_vectors(weights, encoder):
    def logits(text):
        ids = [pretrain.BOS_ID] + encoder.encode(text)
        states = pretrain.hidden_states(weights, *padded([ids]))[0]
        return ids, F.linear(states, weights["model.embed_tokens.weight"])
    prompt = "a large cat of forests with a striped coat\nWord:"
    text = "kettle: a metal pot for boiling water; usually has a lid"
    ids, all_logits = logits(prompt)
    text_ids, text_logits = logits(text)
    nll = F.cross_entropy(text_logits[:-1], torch.tensor(text_ids[1:]))
    return {"prompt": prompt, "ids": ids,
            "last_logits": [float(f"{x:.6g}") for x in all_logits[-1].tolist()],
            "text": text, "text_ids": text_ids, "mean_nll": nll.item()}


def write_vectors(weights, encoder, folder):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer.jsonl"), "w") as file:
        for row in tokenizer_vectors(encoder):
            file.write(json.dumps(row) + "\n")
    with open(os.path.join(folder, "logits.json"), "w") as file:
        file.write(json.dumps(logits_vectors(weights, encoder)) + "\n")


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default=os.path.join(here, "../models/wordnet-3m"))
    parser.add_argument("--data")
    parser.add_argument("--vectors")
    args = parser.parse_args()
    weights = load_weights(os.path.join(args.model, "model.safetensors"))
    encoder = bpe.load(os.path.join(args.model, "tokenizer.json"))
    if args.vectors:
        write_vectors(weights, encoder, args.vectors)
    if args.data:
        fine_tune(weights, encoder, args.data)


if __name__ == "__main__":
    main()
