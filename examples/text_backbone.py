"""Texts by frozen vectors of words, WordLlama, whose weights come in a package.

pip install --no-deps wordllama==0.4.0.post1 && pip install tokenizers

Then, for texts of your own:
surelabel fit messages.csv --label spam --backbone examples/text_backbone.py:wordllama --out runs/messages
"""

import importlib.util
import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

FOOD = ["soup", "bread", "apples", "rice", "cheese", "noodles", "pancakes", "salad", "curry", "cake"]
PLACES = ["Paris", "a beach", "the Alps", "Rome", "an island", "London", "the lake", "Japan", "Oslo", "the desert"]


def wordllama():
    """Return a function from texts to their features, (N, 256): the mean of the vectors of their pieces."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    home = Path(importlib.util.find_spec("wordllama").origin).parent
    (vectors,) = load_file(home / "weights/l2_supercat_256.safetensors").values()
    tokenizer = Tokenizer.from_file(str(home / "tokenizers/l2_supercat_tokenizer_config.json"))
    tokenizer.no_padding()

    def features(texts: list[str]) -> Tensor:
        found = tokenizer.encode_batch(texts, add_special_tokens=False)
        rows = [vectors[text.ids].float().mean(0) if text.ids else torch.zeros(vectors.shape[1]) for text in found]
        return nn.functional.normalize(torch.stack(rows))

    return features


def main() -> None:
    from surelabel.cli import main as surelabel
    from surelabel.data.tables import write_table

    texts = [
        f"{about} {name} {when}"
        for when in ("today", "tomorrow", "next week")
        for about, names in (("we will eat", FOOD), ("we will go to", PLACES))
        for name in names
    ]
    labels = ["food" if "eat" in text else "travel" for text in texts]
    with tempfile.TemporaryDirectory() as folder:
        table, new, run = f"{folder}/plans.csv", f"{folder}/new.csv", f"{folder}/run"
        given = [label if row % 10 < 5 and row < 20 else None for row, label in enumerate(labels)]
        write_table(table, {"plan": texts, "about": given})
        write_table(new, {"plan": ["a bowl of stew", "a ticket to Madrid"]})
        surelabel(["fit", table, "--label", "about", "--backbone", f"{__file__}:wordllama", "--out", run])
        surelabel(["predict", run, new])


if __name__ == "__main__":
    main()
