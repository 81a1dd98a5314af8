"""A tiny judge that takes pictures, an Idefics3 of random weights, and what transformers says with it in fp32.

    python tiny_vision.py make FOLDER PICTURE…
    python tiny_vision.py next FOLDER QUESTION.json PICTURE ANSWER.json

Run with the servers' Python. PICTURE is a PNG, which `make` fills with noise. QUESTION has messages whose content is
parts, one of them the picture, and ANSWER gets the logarithms of the first token's probabilities, by token.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

IMAGE = "<image>"
SIZE, PATCH = 56, 14
"""Of pictures and their patches, in pixels."""
SHRINK = 2
"""So many patches become one token, in each direction."""
CHAT_TEMPLATE = (
    "{% for message in messages %}<|user|>{% for part in message.content %}"
    "{% if part.type == 'text' %}{{ part.text }}{% else %}" + IMAGE + "{% endif %}"
    "{% endfor %}<|end|>{% endfor %}<|assistant|>"
)


def make(folder: Path) -> None:
    """Save a random model, with its tokenizer and what turns pictures into its numbers; it cuts no picture up."""
    import torch
    import transformers
    from tiny_models import CLASSES, configuration, make_tokenizer

    torch.manual_seed(7)
    words = make_tokenizer()
    edge = {"longest_edge": SIZE}
    processor = transformers.Idefics3Processor(
        image_processor=transformers.Idefics3ImageProcessorPil(
            size=edge, max_image_size=edge, do_image_splitting=False
        ),
        tokenizer=words,
        image_seq_len=(SIZE // PATCH // SHRINK) ** 2,
        chat_template=CHAT_TEMPLATE,
    )
    # The processor has given the tokenizer tokens of its own.
    config = transformers.Idefics3Config(
        vision_config={
            "hidden_size": 64,
            "intermediate_size": 64,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": SIZE,
            "patch_size": PATCH,
        },
        text_config=configuration(CLASSES["generative"], words),
        image_token_id=words.convert_tokens_to_ids(IMAGE),
        scale_factor=SHRINK,
        pad_token_id=words.pad_token_id,
    )
    model = transformers.Idefics3ForConditionalGeneration(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.08)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def draw(pictures: list[Path]) -> None:
    """Save pictures of noise, each another one."""
    from PIL import Image

    for seed, picture in enumerate(pictures):
        pixels = random.Random(seed).randbytes(3 * SIZE * SIZE)
        Image.frombytes("RGB", (SIZE, SIZE), pixels).save(picture)


def first_token(folder: Path, messages: list[dict[str, Any]], picture: Path) -> dict[str, float]:
    """The logarithms of the probabilities of what the model writes first, by token."""
    import torch
    import transformers
    from PIL import Image

    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    text = processor.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    given = processor(text=text, images=[Image.open(picture)], add_special_tokens=False, return_tensors="pt")
    with torch.no_grad():
        logarithms = model(**given).logits[0, -1].log_softmax(-1).tolist()
    return {processor.tokenizer.decode([token]): value for token, value in enumerate(logarithms)}


def main(command: str, folder: str, *files: str) -> None:
    """Do what the command line says."""
    if command == "make":
        make(Path(folder))
        draw([Path(file) for file in files])
        return
    question, picture, answer = map(Path, files)
    answer.write_text(json.dumps(first_token(Path(folder), json.loads(question.read_text()), picture)))


if __name__ == "__main__":
    main(*sys.argv[1:])
