"""Makes the initial encoders of studies: masked language models of 6 layers, 384 wide, with poor sentence vectors.

    python studies/start.py --output runs/minilm-mlm                     MiniLM, made poor again
    python studies/start.py --output runs/scratch-mlm --from-scratch     from random weights

Needs NEARFAR_DATA. Both are trained on its text/sentences.txt.gz (121,446 sentences; 2.35 million tokens with [CLS] and
[SEP]): 15% of the tokens are masked (of these 80% by [MASK], 10% by a random token, 10% left as they are), batches of
sentences of similar length with about 2,000 tokens, AdamW with a peak of 5e-4 and linear decay, seed 0. What is written
is a BERT of transformers without a pooler, in fp16, and its SHA-256 is printed. The same machine, threads and versions
give the same bytes.

MiniLM, made poor again: sentence-transformers/all-MiniLM-L6-v2, trained on for 3 epochs. The committed studies name it
as {start} with a folder minilm-mlm, whose model.safetensors has the SHA-256

    27673e447b62cdbcb25ac7978ff910316c2258698ad942b541b12573e0b69f2d

Of that folder these are known: start, sentences, epochs, tokens a step, optimiser with its peak and decay, share of
masked tokens, seed 0 and fp16. Not known are its warm-up, weight decay, clipping, dropout, longest sentence, order of
batches and how its language-modelling head began, so this script makes an equivalent and no copy: another SHA-256.
It is no raw encoder. Its layer matrices keep a cosine of 0.90 to 0.99 with all-MiniLM-L6-v2, and its token embeddings
are those of an encoder of similarity, so a student of all-MiniLM-L6-v2 that starts here descends from its teacher.

From random weights: the same architecture and vocabulary, for 20 epochs. It has never seen similarity.
"""

import argparse
import random
import time
from itertools import accumulate
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertForMaskedLM,
    DataCollatorForLanguageModeling,
    get_linear_schedule_with_warmup,
)

from nearfar.data.rows import load_sentences
from nearfar.encoder.weights import locate, sha256_of
from nearfar.evaluation.render import duration

TOKENS = 2000
"""Number of tokens of a step."""
PEAK = 5e-4
WARM_UP = 0.05
"""Share of the steps."""
LONGEST = 128
"""Tokens; longer sentences, two of the data folder's, are cut."""
SHOWN = 100
"""Steps between two printed losses."""


def main() -> None:
    """Train; write the model's folder."""
    options = parse()
    torch.manual_seed(options.seed)
    folder = locate(options.model)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    if options.from_scratch:
        model = BertForMaskedLM(AutoConfig.from_pretrained(folder, dtype=None))
    else:
        model = BertForMaskedLM.from_pretrained(folder, dtype=torch.float32)
    texts = [text for (text,) in load_sentences(options.data).rows]
    ids = tokenizer(texts, truncation=True, max_length=LONGEST)["input_ids"]
    chance = random.Random(options.seed)
    steps = [step for _ in range(options.epochs) for step in batches(list(map(len, ids)), chance)][: options.max_steps]
    print(f"{len(texts):,} sentences, {sum(map(len, ids)):,} tokens, {len(steps):,} steps", flush=True)
    train(model.to(options.device), [[ids[row] for row in rows] for rows in steps], tokenizer, seed=options.seed)
    model.bert.to("cpu", torch.float16).save_pretrained(options.output)
    tokenizer.save_pretrained(options.output)
    print(f"{sha256_of(options.output / 'model.safetensors')}  {options.output / 'model.safetensors'}")


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--from-scratch", action="store_true", help="random weights instead of those of --model")
    parser.add_argument("--model", default="sentence-transformers/all-MiniLM-L6-v2", help="a BERT")
    parser.add_argument("--data", default="sentences", help="sentences, as of nearfar train --data")
    parser.add_argument("--epochs", type=int, help="by default 3, or 20 from scratch")
    parser.add_argument("--max-steps", type=int, help="stop earlier, for a try")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    options.epochs = options.epochs or (20 if options.from_scratch else 3)
    return options


def batches(lengths: list[int], chance: random.Random) -> list[list[int]]:
    """The rows of each step of an epoch: rows of similar length, at most TOKENS tokens, in random order."""
    rows = sorted(range(len(lengths)), key=lambda row: (lengths[row], chance.random()))
    steps: list[list[int]] = []
    for row, end in zip(rows, accumulate(lengths[row] for row in rows), strict=True):
        if end > TOKENS * len(steps):
            steps.append([])
        steps[-1].append(row)
    chance.shuffle(steps)
    return steps


def train(model: BertForMaskedLM, steps: list[list[list[int]]], tokenizer: AutoTokenizer, *, seed: int) -> None:
    """One update for each of the ``steps``, which are token ids [texts, tokens]."""
    masked = DataCollatorForLanguageModeling(tokenizer, mlm_probability=0.15, seed=seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK)
    schedule = get_linear_schedule_with_warmup(optimizer, round(WARM_UP * len(steps)), len(steps))
    model.train()
    losses: list[float] = []
    watch = time.perf_counter()
    for number, ids in enumerate(steps, start=1):
        batch = masked([{"input_ids": one} for one in ids]).to(model.device)
        labels = batch.pop("labels")
        hidden = model.bert(**batch).last_hidden_state
        chosen = labels >= 0  # only these are predicted: the vocabulary is the larger part of the work
        loss = torch.nn.functional.cross_entropy(model.cls(hidden[chosen]), labels[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        if number % SHOWN == 0 or number == len(steps):
            mean = sum(losses) / len(losses)
            print(f"step {number:,}, loss {mean:.3f}, {duration(time.perf_counter() - watch)}", flush=True)
            losses.clear()


if __name__ == "__main__":
    main()
