#!/usr/bin/python3
r"""Make models/wordnet-3m: a small LLaMA pretrained on WordNet's definitions.

    tools/pretrain.py [--out DIR] [--wordnet DIR] [--steps N] [--minutes M]

Needs PyTorch (python3-torch) and WordNet (wordnet-base); about half an hour on
two CPU cores.  Steps: read WordNet without the held-out synsets, learn a
byte-level BPE vocabulary, train, and write a Hugging Face folder.  The weights
are also written at every checkpoint, so a stopped run leaves a usable model.

Everything random comes from one seed.  --minutes bounds the time: when the
clock runs ahead of the steps the learning rate follows the clock, so that the
run always ends annealed; the result is then no longer exactly repeatable, and
the last line printed says so.

On a CPU, page faults and spinning threads cost more than the arithmetic.  The
published model was made with

    GOMP_SPINCOUNT=0 OMP_NUM_THREADS=2 MALLOC_ARENA_MAX=1 MALLOC_MMAP_MAX_=0 \
    MALLOC_TRIM_THRESHOLD_=8000000000 tools/pretrain.py --bf16 --minutes 38
"""

import argparse
import contextlib
import json
import math
import os
import random
import struct
import time

import torch
import torch.nn.functional as F

import bpe
import wordnet

HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, FFN = 192, 6, 6, 2, 32, 512
VOCAB, CONTEXT, THETA, EPS = 4096, 512, 10000.0, 1e-5
BOS_ID, EOS_ID = VOCAB - 2, VOCAB - 1

SEED = 20240229
ROW, BATCH = 96, 48              # tokens in a row, rows in a step
PEAK, FLOOR, WARMUP = 3e-3, 0.02, 150
DECAY, BETAS, CLIP = 0.1, (0.9, 0.95), 1.0


# Text -----------------------------------------------------------------------

def tokenizer(folder, out):
    """Learn the vocabulary from the training text, write and return it."""
    texts = [make(s) for s in folder
             for make in (wordnet.forward_text, wordnet.reverse_text)]
    data = bpe.describe(*bpe.train(texts, VOCAB - 2))
    write_json(os.path.join(out, "tokenizer.json"), data)
    return bpe.Encoder(data)


def documents(encoder, synsets):
    """Both readings of each synset as token arrays, BOS to EOS."""
    def ids(text):
        return [BOS_ID, *encoder.encode(text), EOS_ID]
    return [(ids(wordnet.forward_text(s)), ids(wordnet.reverse_text(s)))
            for s in synsets]


def rows(docs, rng):
    """Endless (tokens, document numbers) rows: each epoch reshuffles the
    synsets and draws one of the two readings of each."""
    tokens, owners, number = [], [], 0
    while True:
        for index in rng.sample(range(len(docs)), len(docs)):
            ids = docs[index][rng.random() < 0.5]
            tokens += ids
            owners += [number] * len(ids)
            number += 1
            while len(tokens) > ROW:
                yield tokens[:ROW + 1], owners[:ROW + 1]
                del tokens[:ROW], owners[:ROW]


def batches(docs):
    """Endless (inputs, targets, documents) tensors of BATCH rows."""
    source = rows(docs, random.Random(SEED))
    while True:
        pairs = [next(source) for _ in range(BATCH)]
        tokens = torch.tensor([p[0] for p in pairs])
        owners = torch.tensor([p[1] for p in pairs])
        targets = tokens[:, 1:].clone()
        targets[owners[:, 1:] != owners[:, :-1]] = -100  # nothing predicts a BOS
        yield tokens[:, :-1].contiguous(), targets, owners[:, :-1]


# Model ----------------------------------------------------------------------

def shapes():
    """Name and shape of every tensor, as in a Hugging Face checkpoint."""
    kv = KV_HEADS * HEAD_DIM
    block = {
        "input_layernorm": (HIDDEN,), "post_attention_layernorm": (HIDDEN,),
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (kv, HIDDEN), "self_attn.v_proj": (kv, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (FFN, HIDDEN), "mlp.up_proj": (FFN, HIDDEN),
        "mlp.down_proj": (HIDDEN, FFN)}
    result = {"model.embed_tokens.weight": (VOCAB, HIDDEN),
              "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        for name, shape in block.items():
            result[f"model.layers.{layer}.{name}.weight"] = shape
    return result


def initial_weights():
    """Normal(0, 0.02), smaller where a block writes to the residual stream."""
    torch.manual_seed(SEED)
    weights = {}
    for name, shape in shapes().items():
        if len(shape) == 1:
            weight = torch.ones(shape)
        else:
            writes = "o_proj" in name or "down_proj" in name
            scale = 0.02 / math.sqrt(2 * LAYERS) if writes else 0.02
            weight = torch.randn(shape) * scale
        weights[name] = weight.requires_grad_()
    return weights


def rope_tables(length):
    """cos and sin of the rotary angles, (length, head_dim)."""
    inverse = THETA ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
    angles = torch.outer(torch.arange(length), inverse).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    """Rotary embedding in Hugging Face's half-split layout."""
    low, high = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-high, low), dim=-1) * sin


def rms_norm(x, weight):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


def attention(x, w, rope, mask, linear):
    rows, length, _ = x.shape
    def heads(name, count):
        return linear(name, x).view(rows, length, count, HEAD_DIM).transpose(1, 2)
    q = rotate(heads(w + "q_proj", HEADS), *rope) * HEAD_DIM ** -0.5
    k = rotate(heads(w + "k_proj", KV_HEADS), *rope)
    v = heads(w + "v_proj", KV_HEADS)
    group = HEADS // KV_HEADS
    k, v = (t.repeat_interleave(group, dim=1) for t in (k, v))
    scores = (q @ k.transpose(-1, -2) + mask).softmax(-1)
    return linear(w + "o_proj", (scores @ v).transpose(1, 2).flatten(2))


def hidden_states(weights, tokens, mask, linear=None):
    """The final normalised states; `linear(name, x)` may add an adapter."""
    def plain(name, x):
        return F.linear(x, weights[name + ".weight"])
    linear = linear or plain
    rope = rope_tables(tokens.shape[1])
    x = weights["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        w = f"model.layers.{layer}."
        y = rms_norm(x, weights[w + "input_layernorm.weight"])
        x = x + attention(y, w + "self_attn.", rope, mask, linear)
        y = rms_norm(x, weights[w + "post_attention_layernorm.weight"])
        gate = F.silu(linear(w + "mlp.gate_proj", y))
        x = x + linear(w + "mlp.down_proj", gate * linear(w + "mlp.up_proj", y))
    return rms_norm(x, weights["model.norm.weight"])


def causal_mask(owners):
    """0 where a position may look, -inf at later ones and other documents."""
    length = owners.shape[1]
    allowed = torch.ones(length, length).tril().bool()
    allowed = allowed & (owners[:, :, None] == owners[:, None, :])
    return torch.zeros(allowed.shape).masked_fill(~allowed, -torch.inf)[:, None]


def loss_of(weights, tokens, targets, owners, reduction="mean"):
    states = hidden_states(weights, tokens, causal_mask(owners))
    used = targets != -100
    logits = F.linear(states[used], weights["model.embed_tokens.weight"])
    return F.cross_entropy(logits.float(), targets[used], reduction=reduction)


# Training -------------------------------------------------------------------

def held_out_loss(weights, docs):
    """(nats, tokens) over documents, each alone; similar lengths together."""
    nats = count = 0
    docs = sorted(docs, key=len)
    with torch.no_grad():
        for start in range(0, len(docs), 64):
            some = docs[start:start + 64]
            length = max(map(len, some))
            grid = torch.tensor([d + [-100] * (length - len(d)) for d in some])
            tokens, targets = grid[:, :-1].clamp(min=0), grid[:, 1:]
            owners = torch.zeros_like(tokens)
            nats += loss_of(weights, tokens, targets, owners, "sum").item()
            count += (targets != -100).sum().item()
    return nats, count


def learning_rate(done):
    """Of the finished fraction: a cosine from the peak down to the floor."""
    return PEAK * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * done)))


def optimizer_of(weights):
    matrices = [w for w in weights.values() if w.dim() == 2]
    vectors = [w for w in weights.values() if w.dim() == 1]
    return torch.optim.AdamW(
        [{"params": matrices, "weight_decay": DECAY},
         {"params": vectors, "weight_decay": 0.0}], lr=PEAK, betas=BETAS)


def train(weights, docs, args, checkpoint):
    """Run the schedule; returns (steps done, seconds)."""
    optimizer, start, step = optimizer_of(weights), time.time(), 0
    precision = (torch.autocast("cpu", torch.bfloat16) if args.bf16
                 else contextlib.nullcontext())
    for tokens, targets, owners in batches(docs):
        seconds = time.time() - start
        done = max(step / args.steps, seconds / (60 * args.minutes))
        if done >= 1:
            return step, seconds
        rate = learning_rate(done) * min(1.0, (step + 1) / WARMUP)
        for group in optimizer.param_groups:
            group["lr"] = rate
        with precision:
            loss = loss_of(weights, tokens, targets, owners)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), CLIP)
        optimizer.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} rate {rate:.2e} "
                  f"{time.time() - start:.0f} s", flush=True)
        if step % 250 == 0:
            checkpoint()


# Output ---------------------------------------------------------------------

def write_json(path, data):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(data, file, indent=2, ensure_ascii=False)
        file.write("\n")


def rounded(weights):
    """The weights as a bf16 file keeps them."""
    return {name: w.detach().bfloat16().float() for name, w in weights.items()}


def write_safetensors(path, weights):
    """bf16, tensors in name order, header padded to a multiple of 8."""
    header, data = {"__metadata__": {"format": "pt"}}, []
    end = 0
    for name in sorted(weights):
        raw = weights[name].detach().bfloat16().view(torch.int16).numpy().tobytes()
        header[name] = {"dtype": "BF16", "shape": list(weights[name].shape),
                        "data_offsets": [end, end + len(raw)]}
        data.append(raw)
        end += len(raw)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    # A reader never meets half a file: write aside, then rename.
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(data))
    os.replace(path + ".new", path)


def write_configs(out):
    write_json(os.path.join(out, "config.json"), {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": BOS_ID, "eos_token_id": EOS_ID,
        "head_dim": HEAD_DIM, "hidden_act": "silu", "hidden_size": HIDDEN,
        "initializer_range": 0.02, "intermediate_size": FFN,
        "max_position_embeddings": CONTEXT, "mlp_bias": False,
        "model_type": "llama", "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS, "num_key_value_heads": KV_HEADS,
        "pretraining_tp": 1, "rms_norm_eps": EPS, "rope_scaling": None,
        "rope_theta": THETA, "tie_word_embeddings": True,
        "torch_dtype": "bfloat16", "use_cache": True, "vocab_size": VOCAB})
    write_json(os.path.join(out, "generation_config.json"), {
        "_from_model_config": True,
        "bos_token_id": BOS_ID, "eos_token_id": EOS_ID})
    token = {"lstrip": False, "normalized": False, "rstrip": False,
             "single_word": False, "special": True}
    write_json(os.path.join(out, "tokenizer_config.json"), {
        "added_tokens_decoder": {
            str(BOS_ID): {"content": bpe.BOS, **token},
            str(EOS_ID): {"content": bpe.EOS, **token}},
        "bos_token": bpe.BOS, "eos_token": bpe.EOS,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": CONTEXT,
        "tokenizer_class": "PreTrainedTokenizerFast"})


def report(weights, encoder, held):
    """Held-out loss of the file's weights, over both readings."""
    weights = rounded(weights)
    for name, make in (("entry", wordnet.forward_text),
                       ("reverse", wordnet.reverse_text)):
        texts = [make(s) for s in held]
        docs = [[BOS_ID, *encoder.encode(t), EOS_ID] for t in texts]
        nats, count = held_out_loss(weights, docs)
        size = sum(map(len, texts))  # WordNet is ASCII: characters are bytes
        print(f"held out, {name}: {nats / count:.4f} nats/token, "
              f"{nats / math.log(2) / size:.4f} bits/byte, "
              f"{len(texts)} texts, {count} tokens, {size} bytes", flush=True)


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", default=os.path.join(here, "../models/wordnet-3m"))
    parser.add_argument("--wordnet", default="/usr/share/wordnet")
    parser.add_argument("--steps", type=int, default=3600)
    parser.add_argument("--minutes", type=float, default=600)
    parser.add_argument("--bf16", action="store_true",
                        help="multiply in bf16 (faster where the CPU has it)")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    training, held = wordnet.load(args.wordnet)
    encoder = tokenizer(training, args.out)
    write_configs(args.out)
    docs = documents(encoder, training)
    sample = [[BOS_ID, *encoder.encode(wordnet.forward_text(s)), EOS_ID]
              for s in held[::20]]
    weights = initial_weights()
    print(f"{len(training)} synsets, {sum(len(a) + len(b) for a, b in docs) // 2}"
          f" tokens an epoch, {sum(w.numel() for w in weights.values())} weights,"
          f" {len(held)} synsets held out", flush=True)
    path = os.path.join(args.out, "model.safetensors")

    def checkpoint():
        write_safetensors(path, weights)
        nats, count = held_out_loss(weights, sample)
        print(f"held out, 1 in 20: {nats / count:.4f} nats/token", flush=True)

    steps, seconds = train(weights, docs, args, checkpoint)
    write_safetensors(path, weights)
    report(weights, encoder, held)
    print(f"{steps} steps, {steps * BATCH * ROW} tokens, {seconds:.0f} s"
          + (", cut short by the clock" if steps < args.steps else ""))


if __name__ == "__main__":
    main()
