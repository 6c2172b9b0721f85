"""A peer: sentence-transformers' MultipleNegativesRankingLoss on NLI triplets, as its users run it.

A script step of nearfar study:

    script = { file = "../peers/mnrl.py", data = "snli:dev+test", evaluate_on = "stsb:dev" }

It uses the library's own trainer, its sampler without duplicates, and bf16. It keeps the step with the best Spearman on
the dev pairs. The record of seen texts in the model folder has the triplets and, because they choose the step, the dev
pairs.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses, modules
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.training_args import BatchSamplers

from nearfar.data.fingerprints import row_hashes
from nearfar.data.sts import load_pairs
from nearfar.data.triplets import load_triplets
from nearfar.disk import SeenHashes, write_seen
from nearfar.evaluation.results import provenance


def main() -> None:
    """Train, and write the model of the best step, run.json and numbers.json."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--evaluate-on", required=True)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=5e-5)
    parser.add_argument("--evaluate-every", type=int, default=33)
    parser.add_argument("--max-steps", type=int, default=-1)
    options = parser.parse_args()
    triplets = load_triplets(options.data)
    columns = dict(zip(("anchor", "positive", "negative"), map(list, zip(*triplets.rows, strict=True)), strict=True))
    pairs = load_pairs(options.evaluate_on)
    transformer = modules.Transformer(options.model, model_kwargs={"dtype": "float32"})
    pooling = modules.Pooling(transformer.get_embedding_dimension(), pooling_mode="cls")
    model = SentenceTransformer(modules=[transformer, pooling], device="cpu")
    evaluator = EmbeddingSimilarityEvaluator(
        [pair.first for pair in pairs], [pair.second for pair in pairs], [pair.score / 5 for pair in pairs], name="dev"
    )
    with tempfile.TemporaryDirectory() as scratch:
        arguments = SentenceTransformerTrainingArguments(
            output_dir=scratch,
            num_train_epochs=1,
            max_steps=options.max_steps,
            per_device_train_batch_size=options.batch_size,
            learning_rate=options.learning_rate,
            warmup_steps=0,
            lr_scheduler_type="linear",
            weight_decay=0.0,
            max_grad_norm=1.0,
            bf16=True,
            use_cpu=True,
            seed=options.seed,
            batch_sampler=BatchSamplers.NO_DUPLICATES,
            eval_strategy="steps",
            eval_steps=options.evaluate_every,
            save_strategy="steps",
            save_steps=options.evaluate_every,
            load_best_model_at_end=True,
            metric_for_best_model="eval_dev_spearman_cosine",
            report_to=[],
            disable_tqdm=True,
        )
        trainer = SentenceTransformerTrainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=losses.MultipleNegativesRankingLoss(model),
            evaluator=evaluator,
        )
        trainer.train()
        history = [
            (entry["step"], entry["eval_dev_spearman_cosine"])
            for entry in trainer.state.log_history
            if "eval_dev_spearman_cosine" in entry
        ]
    model.save_pretrained(str(options.output / "model"))
    seen = SeenHashes(*(np.unique(hashes) for rows in (triplets.rows, pairs) for hashes in row_hashes(rows)))
    write_seen(options.output / "model", seen)
    run_info = {
        **provenance().to_dict(),
        "config": {**vars(options), "output": str(options.output)},
        "history": history,
    }
    (options.output / "run.json").write_text(json.dumps(run_info, indent=1) + "\n", encoding="utf-8")
    numbers = {"validation": 100 * max(score for _, score in history)}
    (options.output / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
