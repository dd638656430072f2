"""Exports a training step of GPT-2 for 06_train_exported.cc, and checks the parameters that came back.

    python 06_export_gpt2.py                      # gpt2.program.json and gpt2.parameters.pt, in the current folder
    06_train_exported gpt2.program.json gpt2.trained.pt
    python 06_export_gpt2.py --check gpt2.trained.pt
"""

import argparse

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

import reprise

TOKENS, BATCH, LENGTH = 64, 8, 48


def new_model() -> GPT2LMHeadModel:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=4, n_embd=64, vocab_size=TOKENS, n_positions=LENGTH,
                                      bos_token_id=0, eos_token_id=0))


def loss(model: GPT2LMHeadModel, ids: Tensor) -> Tensor:
    return model(input_ids=ids, labels=ids).loss


def counting() -> Tensor:
    """Sequences that count upwards from random numbers, as in the C++ program."""
    return (torch.randint(TOKENS, (BATCH, 1)) + torch.arange(LENGTH)) % TOKENS


def check(path: str) -> None:
    model = new_model().eval()
    ids = counting()
    with torch.no_grad():
        before = loss(model, ids)
        model.load_state_dict(torch.load(path, weights_only=True), strict=False)
        after = loss(model, ids)
    print(f"loss {before:.3f} before, {after:.3f} after training in C++")
    if after >= before:
        raise SystemExit("it learned nothing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="TRAINED", help="check the parameters that the C++ program wrote to this file")
    trained = parser.parse_args().check
    if trained:
        check(trained)
    else:
        print("written:", reprise.export(new_model().train(), loss, (counting(),), "gpt2.program.json"))


if __name__ == "__main__":
    main()
