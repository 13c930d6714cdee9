# SPDX-License-Identifier: Apache-2.0
"""Model, text and training loop of ddp.py and fsdp.py: a small transformer that learns Python's manual."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from pydoc_data.topics import topics  # text that comes with Python
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import railweave.torch

CONTEXT, BATCH, CHARACTERS = 32, 4, 128


class Transformer(nn.Module):
    """Predict the next character: from shape (batch, context) to (batch, context, CHARACTERS)."""

    def __init__(self, width: int = 192, layers: int = 2, heads: int = 4) -> None:
        """Make a model, by default of about 1 million parameters."""
        super().__init__()
        self.characters = nn.Embedding(CHARACTERS, width)
        self.places = nn.Parameter(torch.zeros(CONTEXT, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )
        self.out = nn.Linear(width, CHARACTERS)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of the next characters."""
        mask = nn.Transformer.generate_square_subsequent_mask(CONTEXT, device=x.device)
        hidden = self.characters(x) + self.places
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        return self.out(hidden)


def batches(rank: int, seed: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield random batches of a rank: characters, and the characters that follow them."""
    codes = torch.frombuffer(
        bytearray("".join(topics.values()).encode("ascii", "replace")), dtype=torch.uint8
    )
    draw = torch.Generator().manual_seed(1000 * seed + rank)
    while True:
        starts = torch.randint(len(codes) - CONTEXT - 1, (BATCH,), generator=draw)
        lines = torch.stack([codes[start : start + CONTEXT + 1] for start in starts.tolist()]).long()
        yield lines[:, :-1], lines[:, 1:]


def main(description: str, parallel: Any) -> None:
    """Train `parallel(model)`, and print the mean loss of all ranks every 10 steps."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--backend", default="railweave", help="railweave or gloo")
    parser.add_argument("--device", default="cpu", help="cpu or cuda; ranks take turns at the GPUs")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--out", type=Path, help="a JSON file for losses and samples/s")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    railweave.torch.rank_from_launcher()
    dist.init_process_group(asked.backend)
    if asked.device == "cuda":
        torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
    model = parallel(Transformer().to(asked.device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    begin = 0.0
    for step, batch in enumerate(islice(batches(dist.get_rank()), asked.steps)):
        seen, following = (x.to(asked.device) for x in batch)
        if step == asked.steps // 5:  # measure from here on: splits and caches are warm
            dist.barrier()
            begin = time.monotonic()
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(seen).flatten(0, 1), following.flatten())
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
        if dist.get_rank() == 0 and step % 10 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}", flush=True)
    steps_per_s = (asked.steps - asked.steps // 5) / (time.monotonic() - begin)
    samples_per_s = BATCH * dist.get_world_size() * steps_per_s
    if dist.get_rank() == 0:
        print(f"loss {losses[-1]:.4f}, {samples_per_s:.1f} samples/s over {asked.backend}")
        if asked.backend == "railweave":
            print(railweave.torch.report())
        if asked.out:
            asked.out.write_text(json.dumps({"losses": losses, "samples_per_s": samples_per_s}))
    dist.destroy_process_group()
