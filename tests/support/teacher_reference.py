"""Log-probabilities as transformers computes them in fp32: `python teacher_reference.py MODEL SEQUENCES ANSWERS TOP_K`.

Run with the servers' Python, which has torch. SEQUENCES is a JSON list of lists of token ids; ANSWERS gets for each a
row for every token but the first: `own`, `top_ids` and `top`.
"""

import json
import sys
from pathlib import Path
from typing import Any


def answers(folder: str, sequences: list[list[int]], top_k: int) -> list[dict[str, Any]]:
    """Each sequence by itself."""
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    with torch.no_grad():
        for sequence in sequences:
            ids = torch.tensor([sequence])
            logprobs = torch.log_softmax(model(ids).logits[0, :-1].float(), dim=-1)
            top = logprobs.topk(top_k, dim=-1)
            own = logprobs.gather(1, ids[0, 1:, None])[:, 0]
            found.append({"own": own.tolist(), "top_ids": top.indices.tolist(), "top": top.values.tolist()})
    return found


if __name__ == "__main__":
    _, folder, sequences, to, top_k = sys.argv
    Path(to).write_text(json.dumps(answers(folder, json.loads(Path(sequences).read_text()), int(top_k))))
