"""Trains the tokenizer of brook and rill: byte-level BPE, 4,096 tokens, on the training books.

    python recipes/tokenizer.py --corpus FOLDER --out penstock/bundled/brook
"""
import argparse
import json
from pathlib import Path

from corpus import split
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
VOCAB_SIZE = 4096
# Words with their leading space, runs of at most three digits, punctuation, whitespace.
WORDS = r"(?:'[sdmt]|'ll|'ve|'re)| ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def train(texts: list[str]) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE, special_tokens=[BOS, EOS, PAD], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=True
    )
    tokenizer.train_from_iterator(texts, trainer)
    bos = tokenizer.token_to_id(BOS)
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, bos)])
    return tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    texts, held_out = split(args.corpus)
    tokenizer = train(texts)
    args.out.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(args.out / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": BOS, "eos_token": EOS, "pad_token": PAD,
        "model_max_length": 1024, "clean_up_tokenization_spaces": False, "add_bos_token": True,
    }
    (args.out / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
    sample = "".join(held_out[:20])
    bytes_a_token = len(sample.encode()) / len(tokenizer.encode(sample).ids)
    print(f"{tokenizer.get_vocab_size()} tokens; {bytes_a_token:.2f} bytes a token on held-out text")


if __name__ == "__main__":
    main()
