"""Model containers: what conversions write, to the byte, against the format in numpy and the safetensors package; round
trips; what is refused. Tiny models of random weights; tests/process/test_formats.py has the real ones."""

import json
import resource
import shutil
import signal
import subprocess

import numpy as np
import pytest
import safetensors

from model_files import ENGINE, LOCKSTEP, T, bf16, half_split, model, planes, tiles, widen

import gguf
import tiny_models

KINDS = [T.Q8_0, T.Q4_1, T.Q4_0, T.Q5_0]
HEADS, KV_HEADS = 4, 2
BIASES = ("attn_q", "attn_k", "attn_v")


def tiny(path, arch="llama", kinds=KINDS, tied=True, **more):
    """hidden 96 (a third of a tile), ffn 384, 3 layers; 320 tokens."""
    m = tiny_models.Model(path, arch, 11, block_count=3, embedding_length=96, feed_forward_length=384, context_length=512,
                          attention__head_count=HEADS, attention__head_count_kv=KV_HEADS, attention__key_length=32,
                          attention__value_length=32, attention__layer_norm_rms_epsilon=1e-5, rope__freq_base=10000.0)
    vocab, tiny_models.VOCAB = tiny_models.VOCAB, 320
    try:
        tiny_models.body(m, kinds, HEADS, KV_HEADS, 32, tied=tied, **more)
    finally:
        tiny_models.VOCAB = vocab
    m.writer.add_token_list([f"t{i}" for i in range(320)])
    m.writer.add_token_types([1] * 320)
    m.writer.add_tokenizer_model("gpt2")
    m.writer.add_eos_token_id(7)
    m.writer.add_eot_token_id(9)
    m.close()
    return path


def tensors(path):
    return {t.name: t for t in gguf.GGUFReader(path).tensors}


def read(path):
    """{name: (dtype, shape, bytes)} in file order, by the format's description."""
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    data = raw[8 + length:]
    header = json.loads(raw[8:8 + length])
    return {name: (e["dtype"], e["shape"], data[slice(*e["data_offsets"])]) for name, e in header.items()}


def answers(path, ctx=64):
    """Hashes of every position's logits, and 8 tokens."""
    job = json.dumps({"tokens": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7], "logits": "all", "generate": 8})
    done = subprocess.run([ENGINE, "--model", path, "--ctx", str(ctx)], input=job, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    return result["xxh3"], result["tokens"]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return tiny(tmp_path_factory.mktemp("tiny") / "source.gguf")


@pytest.fixture(scope="module")
def folder(source):
    model("convert", source, source.parent / "q4nx")
    return source.parent / "q4nx"


# ---- what is written


def test_the_file_is_the_reference_writers(folder):
    """Order, header, padding: the safetensors package makes the same file of the same tensors, to the byte."""
    names = {"BF16": "bfloat16", "I8": "int8", "F32": "float32"}
    entries = {name: {"dtype": names[dtype], "shape": shape, "data": data}
               for name, (dtype, shape, data) in read(folder / "model.q4nx").items()}
    assert {e["dtype"] for e in entries.values()} == set(names.values())
    assert safetensors.serialize(entries) == (folder / "model.q4nx").read_bytes()


def expected_tiles(tensor, heads):
    rows = tensor.data
    if tensor.tensor_type == T.Q5_0:  # codes -16..15 in 8 bits
        blocks = rows.reshape(rows.shape[0], -1, 22)
        low = np.concatenate([blocks[:, :, 6:] & 15, blocks[:, :, 6:] >> 4], axis=2)
        high = np.unpackbits(blocks[:, :, 2:6].copy(), axis=2, bitorder="little")
        d = blocks[:, :, :2].copy().view(np.float16)[:, :, 0].astype(np.float32)
        m, q = np.zeros_like(d), ((low | high << 4).astype(np.int16) - 16).astype(np.uint8).reshape(rows.shape[0], -1)
    else:
        d, m, q = planes(rows, tensor.tensor_type)
        q = q ^ 8 if tensor.tensor_type == T.Q4_0 else q
    if heads:
        d, m, q = (half_split(plane, heads) for plane in (d, m, q))
    return tiles(bf16(d), bf16(m), q, tensor.tensor_type in (T.Q8_0, T.Q5_0))


def test_tiles_are_the_formats(source, folder):
    names = {"attn_q": ("self_attn.q_proj", HEADS), "attn_k": ("self_attn.k_proj", KV_HEADS), "attn_v": ("self_attn.v_proj", 0),
             "attn_output": ("self_attn.o_proj", 0), "ffn_gate": ("mlp.gate_proj", 0), "ffn_up": ("mlp.up_proj", 0),
             "ffn_down": ("mlp.down_proj", 0)}
    written, seen = read(folder / "model.q4nx"), set()
    for name, tensor in tensors(source).items():
        _, layer, *rest = name.split(".")
        if rest and rest[0] in names:
            stem, heads = names[rest[0]]
            dtype, shape, data = written[f"model.layers.{layer}.{stem}.weight"]
            want = expected_tiles(tensor, heads)
            assert dtype == "I8" and shape == list(want.shape) and data == want.tobytes(), name
            seen.add(tensor.tensor_type)
    assert seen == set(KINDS)


def test_embedding_head_and_norms(source, folder):
    written, before = read(folder / "model.q4nx"), tensors(source)
    embedding = before["token_embd.weight"]
    values = gguf.quants.dequantize(embedding.data, embedding.tensor_type)
    assert written["model.embed_tokens.weight"] == ("BF16", [320, 96], bf16(values).tobytes())
    assert written["lm_head.weight"][2] == expected_tiles(embedding, 0).tobytes()
    # These norms are no bf16 numbers: they stay what they are.
    assert written["model.norm.weight"] == ("F32", [96], before["output_norm.weight"].data.tobytes())


def test_configuration(folder):
    config = json.loads((folder / "config.json").read_text())
    assert (config["model_type"], config["hidden_size"], config["tie_word_embeddings"]) == ("llama", 96, True)
    assert config["eos_token_id"] == [7, 9] == json.loads((folder / "generation_config.json").read_text())["eos_token_id"]


# ---- round trips


@pytest.mark.parametrize("arch, more", [("llama", {}), ("qwen2", {"bias": BIASES}), ("qwen3", {"head_norms": True}),
                                        ("gemma3", {"head_norms": True, "post_norms": True})])
def test_there_and_back(tmp_path, arch, more):
    """Codes are kept, scales are f16(bf16(x)); the second trip changes nothing; and all of them compute the same."""
    first = tiny(tmp_path / "first.gguf", arch, tied=arch != "qwen3", **more)
    model("convert", first, tmp_path / "a")
    model("convert", tmp_path / "a", tmp_path / "second.gguf")
    model("convert", tmp_path / "second.gguf", tmp_path / "b")
    model("convert", tmp_path / "b", tmp_path / "third.gguf")
    assert (tmp_path / "a/model.q4nx").read_bytes() == (tmp_path / "b/model.q4nx").read_bytes()
    assert (tmp_path / "second.gguf").read_bytes() == (tmp_path / "third.gguf").read_bytes()
    before, after = tensors(first), tensors(tmp_path / "second.gguf")
    for name, tensor in before.items():
        kind = tensor.tensor_type
        if kind in (T.Q4_0, T.Q4_1, T.Q8_0) and name != "token_embd.weight":
            assert after[name].tensor_type == kind
            (d, m, q), (d2, m2, q2) = (planes(t.data, kind) for t in (tensor, after[name]))
            assert (q == q2).all()
            assert (widen(bf16(d)) == d2).all() and (widen(bf16(m)) == m2).all()
    keys = [{k: f.contents() for k, f in gguf.GGUFReader(p).fields.items() if not k.startswith("GGUF.")} for p in (first, tmp_path / "second.gguf")]
    assert keys[0] == keys[1]
    assert answers(tmp_path / "a") == answers(tmp_path / "second.gguf")


def test_against_each_other(source, folder):
    said = model("verify", folder, source)
    assert "all finite" in said and float(said.split("relative L2 ")[-1].split(";")[0]) < 0.004
    assert "max 0, relative L2 0;" in model("verify", source, source)


def test_four_bits_are_ggmls_own(tmp_path):
    """--quantise q4: what has no 4-bit codes is rounded as the published converter does, through bf16, by ggml's rule."""
    source = tiny(tmp_path / "s.gguf", kinds=[T.F16, T.Q8_0])
    model("convert", source, tmp_path / "q", "--quantise", "q4")
    written = read(tmp_path / "q/model.q4nx")
    tensor = tensors(source)["blk.0.ffn_down.weight"]
    values = widen(bf16(gguf.quants.dequantize(tensor.data, tensor.tensor_type))).astype(np.float32)
    d, m, q = planes(gguf.quants.quantize(values, T.Q4_1), T.Q4_1)
    assert written["model.layers.0.mlp.down_proj.weight"][2] == tiles(bf16(d), bf16(m), q).tobytes()


# ---- safetensors folders


def checkpoint(source, folder, dtype):
    """The GGUF file's numbers as a checkpoint; returns the GGUF file that holds the same ones."""
    folder.mkdir()
    plain, reader, shards = gguf.GGUFWriter(folder.parent / "plain.gguf", "llama"), gguf.GGUFReader(source), [{}, {}]
    model("convert", source, folder.parent / "for-config")
    config = json.loads((folder.parent / "for-config/config.json").read_text())
    del config["lockstep_q4nx"]
    (folder / "config.json").write_text(json.dumps(config))
    for key, field in reader.fields.items():
        if key.startswith("llama."):
            plain.add_key_value(key, field.contents(), field.types[0])
    stems = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
             "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for name, tensor in {t.name: t for t in reader.tensors}.items():
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        _, layer, *rest = name.split(".")
        hf = f"model.layers.{layer}.{stems[rest[0]]}.weight" if rest else {
            "token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}[name]
        stored = {"F32": values, "F16": values.astype(np.float16), "BF16": bf16(values)}[dtype]
        kind = T[dtype] if values.ndim > 1 else T.F32
        exact = widen(stored) if dtype == "BF16" else stored.astype(np.float32)
        plain.add_tensor(name, exact if kind == T.F32 else stored.view(np.uint8) if dtype == "BF16" else stored, raw_dtype=kind)
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(rest[0] if rest else "")
        stored = half_split(stored, heads) if heads else stored
        shards[len(name) % 2][hf] = {"dtype": {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}[dtype],
                                     "shape": list(values.shape), "data": stored.tobytes()}
    for write in (plain.write_header_to_file, plain.write_kv_data_to_file, plain.write_tensors_to_file, plain.close):
        write()
    files = [f"model-{i:05d}-of-00002.safetensors" for i in (1, 2)]
    for file, shard in zip(files, shards):
        (folder / file).write_bytes(safetensors.serialize(shard))
    (folder / "model.safetensors.index.json").write_text(json.dumps(
        {"weight_map": {name: file for file, shard in zip(files, shards) for name in shard}}))
    return folder.parent / "plain.gguf"


@pytest.mark.parametrize("dtype", ["F32", "F16", "BF16"])
def test_a_checkpoint_is_served_as_its_numbers(tmp_path, source, dtype):
    plain = checkpoint(source, tmp_path / "hf", dtype)
    model("convert", tmp_path / "hf", tmp_path / "back.gguf")
    assert answers(tmp_path / "hf") == answers(plain) == answers(tmp_path / "back.gguf")
    model("convert", tmp_path / "hf", tmp_path / "q4nx")
    assert "Q8-a" in model("inspect", tmp_path / "q4nx")


def test_rope_scaling_reaches_the_tables(tmp_path, source):
    checkpoint(source, tmp_path / "hf", "F32")
    plain = answers(tmp_path / "hf")
    config = json.loads((tmp_path / "hf/config.json").read_text())
    config["rope_scaling"] = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                              "original_max_position_embeddings": 16}
    (tmp_path / "hf/config.json").write_text(json.dumps(config))
    assert answers(tmp_path / "hf") != plain


def test_a_literal_table_of_frequencies(tmp_path, source):
    """A checkpoint's own inverse frequencies: taken, and carried to GGUF, to Q4NX and back in every bit."""
    checkpoint(source, tmp_path / "hf", "F32")
    plain = answers(tmp_path / "hf")
    pairs = json.loads((tmp_path / "hf/config.json").read_text())["head_dim"] // 2
    table = (0.3 ** np.arange(pairs, dtype=np.float32)).astype(np.float32)

    def put(values):
        (tmp_path / "hf/model-00003-of-00003.safetensors").write_bytes(safetensors.serialize(
            {"model.rotary_emb.inv_freq": {"dtype": "float32", "shape": [len(values)], "data": values.tobytes()}}))
    put(table)
    index = json.loads((tmp_path / "hf/model.safetensors.index.json").read_text())
    index["weight_map"]["model.rotary_emb.inv_freq"] = "model-00003-of-00003.safetensors"
    (tmp_path / "hf/model.safetensors.index.json").write_text(json.dumps(index))
    of_table = answers(tmp_path / "hf")
    assert of_table != plain
    for at, (source_path, target) in enumerate([("hf", "a.gguf"), ("a.gguf", "q4nx"), ("q4nx", "b.gguf")]):
        model("convert", tmp_path / source_path, tmp_path / target)
        if target.endswith(".gguf"):
            kept = {t.name: t for t in gguf.GGUFReader(tmp_path / target).tensors}["rope_inv_freq.weight"]
            assert kept.data.astype(np.float32).tobytes() == table.tobytes(), target
    assert answers(tmp_path / "a.gguf") == of_table

    def refused():
        done = subprocess.run([ENGINE, "--model", tmp_path / "hf", "--ctx", "64"], input='{"tokens": [3]}', capture_output=True, text=True)
        return done.stderr if done.returncode else "taken"
    put(np.concatenate([table[:-1], np.zeros(1, np.float32)]))
    assert f"tensor rope_inv_freq.weight holds 0 at {pairs - 1}" in refused()
    put(table)
    config = json.loads((tmp_path / "hf/config.json").read_text())
    (tmp_path / "hf/config.json").write_text(json.dumps(config | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}))
    assert "rope_inv_freq.weight together with dynamic isn't supported" in refused()


def test_a_missing_shard_is_named(tmp_path, source):
    checkpoint(source, tmp_path / "hf", "BF16")
    (tmp_path / "hf/model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors" in model("inspect", tmp_path / "hf", status=74)


# ---- other makers' Q4NX files


def write(folder, entries, **changes):
    """entries as read() gives them. The header is made here: no library knows the dtype Q4NX."""
    header, data = {}, b""
    for name, (dtype, shape, raw) in entries.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    (folder / "model.q4nx").write_bytes(len(text).to_bytes(8, "little") + text + data)
    config = json.loads((folder / "config.json").read_text()) | changes
    config.pop("lockstep_q4nx", None)
    (folder / "config.json").write_text(json.dumps(config))


@pytest.fixture
def foreign(folder, tmp_path):
    """A copy of the folder without this project's mark, and its tensors."""
    shutil.copytree(folder, tmp_path / "foreign")
    entries = read(folder / "model.q4nx")
    write(tmp_path / "foreign", entries)
    return tmp_path / "foreign", entries


UP = "model.layers.0.mlp.up_proj.weight"  # Q8_0 in the source


def test_8_bit_tiles_are_asked_of_the_tied_embedding(foreign, folder):
    """The head's bytes in either layout are recognised; all other 8-bit tiles of the file follow it."""
    path, entries = foreign
    assert answers(path) == answers(folder)
    for name, (dtype, shape, raw) in entries.items():
        if shape[-1] == 8704:
            rows = np.frombuffer(raw, np.uint8).reshape(-1, 8704)
            codes = rows[:, 512:].reshape(-1, 2, 256, 16).transpose(0, 2, 1, 3).reshape(-1, 8192)
            entries[name] = (dtype, shape, np.concatenate([rows[:, :512], codes], axis=1).tobytes())
    write(path, entries)
    assert answers(path) == answers(folder) and "Q8-b" in model("inspect", path)


def test_8_bit_tiles_without_an_answer_are_refused(foreign):
    path, entries = foreign
    write(path, entries, tie_word_embeddings=False)
    assert "--q8 a or --q8 b" in model("inspect", path, status=78)
    model("convert", path, path.parent / "said.gguf", "--q8", "a")


def test_zero_points_are_lossless(foreign):
    """Convention C: d * (q - z), the shape the logical one; as GGUF the values are the same to the last bit."""
    path, entries = foreign
    name = next(n for n, (_, shape, _) in entries.items() if shape[-1] == 5120)
    dtype, shape, raw = entries[name]
    rows = {"up": 384, "gate": 384, "down": 96, "q": 128, "k": 64, "v": 64, "o": 96}[name.split(".")[-2].split("_")[0]]
    z = np.random.default_rng(5).integers(0, 16, (shape[0], 8, 32))
    tile = np.frombuffer(raw, np.uint8).reshape(-1, 5120).copy()
    tile[:, 512:1024] = bf16(z.astype(np.float32)).view(np.uint8).reshape(-1, 512)
    d = widen(tile[:, :512].copy().view(np.uint16)).reshape(shape[0], 8, 32)
    z = np.where(d == 0, 0, z)  # groups that fill up stay empty
    tile[:, 512:1024] = bf16(z.astype(np.float32)).view(np.uint8).reshape(-1, 512)
    entries[name] = ("Q4NX", [rows, shape[0] * 32 // rows * 256], tile.tobytes())
    write(path, entries)
    model("convert", path, path.parent / "c.gguf")
    layer, part = name.split(".")[2], name.split(".")[-2]
    key = {"up_proj": "ffn_up", "gate_proj": "ffn_gate", "down_proj": "ffn_down", "q_proj": "attn_q", "k_proj": "attn_k",
           "v_proj": "attn_v", "o_proj": "attn_output"}[part]
    back = tensors(path.parent / "c.gguf")[f"blk.{layer}.{key}.weight"]
    got = gguf.quants.dequantize(back.data, back.tensor_type)
    heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(key)
    got = half_split(got, heads) if heads else got
    nibbles = tile[:, 1024:].reshape(-1, 2, 256, 8)
    q = np.stack([nibbles & 15, nibbles >> 4], axis=-1).reshape(-1, 2, 256, 16).transpose(0, 1, 3, 2).reshape(-1, 32, 256)
    w = (q - np.repeat(z.transpose(0, 2, 1), 32, axis=2)) * np.repeat(d.transpose(0, 2, 1), 32, axis=2)
    w = w.reshape(rows // 32, -1, 32, 256).transpose(0, 2, 1, 3).reshape(rows, -1)[:, :got.shape[1]]
    assert np.abs(got - w.astype(np.float32)).max() == 0.0 and back.tensor_type == T.Q5_0


def by_row(entry):
    """The scales of signed 4-bit tiles, row by row."""
    dtype, shape, raw = entry
    tile = np.frombuffer(raw, np.uint8).reshape(-1, 5120).copy()
    tile[:, :512] = tile[:, :512].copy().view(np.uint16).reshape(-1, 8, 32).transpose(0, 2, 1).copy().view(np.uint8).reshape(-1, 512)
    return dtype, shape, tile.tobytes()


def test_scales_by_row_are_an_option(foreign, folder):
    """Without it they would be taken for group by group: here the filled-up columns betray it."""
    path, entries = foreign
    signed = [n for n, (_, shape, raw) in entries.items()
              if shape[-1] == 5120 and not np.frombuffer(raw, np.uint8).reshape(-1, 5120)[:, 512:1024].any()]
    assert signed
    write(path, entries | {name: by_row(entries[name]) for name in signed})
    assert "fill up its last tile" in model("convert", path, path.parent / "b.gguf", status=78)
    model("convert", path, path.parent / "d.gguf", "--scales", "row")
    assert answers(path.parent / "d.gguf") == answers(folder)


def test_signed_codes_with_an_offset_mean_the_same(foreign):
    """What another tool makes of Q4_0: unsigned codes and m = bf16(-8 d). The weights differ by the rounding of m alone, which is
    none here: 8 d has d's own digits."""
    path, entries = foreign
    name = next(n for n, (_, shape, raw) in entries.items() if "up_proj" in n or "down_proj" in n if shape[-1] == 5120
                and not np.frombuffer(raw, np.uint8).reshape(-1, 5120)[:, 512:1024].any())
    model("convert", path, path.parent / "b.gguf")
    dtype, shape, raw = entries[name]
    tile = np.frombuffer(raw, np.uint8).reshape(-1, 5120).copy()
    d = widen(tile[:, :512].copy().view(np.uint16))
    tile[:, 512:1024] = bf16(-8 * d).view(np.uint8).reshape(-1, 512)
    tile[:, 1024:] ^= 0x88
    write(path, entries | {name: (dtype, shape, tile.tobytes())})
    model("convert", path, path.parent / "a.gguf")
    key = f"blk.{name.split('.')[2]}.ffn_{'up' if 'up_proj' in name else 'down'}.weight"
    b, a = (tensors(path.parent / f"{x}.gguf")[key] for x in "ba")
    assert (b.tensor_type, a.tensor_type) == (T.Q4_0, T.Q4_1)
    assert (gguf.quants.dequantize(b.data, T.Q4_0) == gguf.quants.dequantize(a.data, T.Q4_1)).all()


def test_a_grid_of_tiles_is_the_same_bytes(foreign):
    path, entries = foreign
    before = answers(path)
    dtype, shape, raw = entries[UP]
    write(path, entries | {UP: (dtype, [12, 1, shape[1]], raw)})
    assert answers(path) == before


@pytest.mark.parametrize("name, shape, said", [
    ("down", [9, 5120], "Q8-c"), ("up", [12, 9216], "Q8-d"), ("up", [12, 2560], "gpt-oss"),
    ("up", [12, 1280], "1280-byte chunks"), ("up", [11, 8704], "11 tiles"), ("up", [12, 777], "777 bytes")])
def test_foreign_tiles_are_refused_by_name(foreign, name, shape, said):
    path, entries = foreign
    write(path, entries | {UP.replace("up", name): ("I8", shape, bytes(shape[0] * shape[1]))})
    assert said in model("inspect", path, status=78)


def test_scales_beyond_float16_are_an_error(foreign):
    """Never clamped: a bf16 scale that a float16 can't hold is named."""
    path, entries = foreign
    dtype, shape, raw = entries[UP]
    tile = np.frombuffer(raw, np.uint8).copy()
    tile[:2] = bf16(np.array([1e6])).view(np.uint8)
    write(path, entries | {UP: (dtype, shape, tile.tobytes())})
    said = model("convert", path, path.parent / "x.gguf", status=78)
    assert "blk.0.ffn_up.weight" in said and "999424" in said and not (path.parent / "x.gguf").exists()


def test_padding_that_is_not_zero_is_an_error(foreign):
    path, entries = foreign
    dtype, shape, raw = entries[UP]
    tile = np.frombuffer(raw, np.uint8).copy()
    tile[7 * 64:7 * 64 + 2] = bf16(np.array([1.0])).view(np.uint8)  # group 7: columns 224..255 of 96
    write(path, entries | {UP: (dtype, shape, tile.tobytes())})
    assert "fill up its last tile" in model("verify", path, status=78)


def test_two_configurations_that_differ_are_an_error(foreign):
    path, entries = foreign
    write(path, entries, rope_theta=12345.0)
    assert "rope_theta" in model("inspect", path, status=78)


# ---- interrupted


@pytest.mark.parametrize("to", ["q4nx", "gguf"])
def test_interrupted_and_resumed(tmp_path, source, folder, to):
    """The process is killed at several sizes of its file; the last run ends with the bytes of an undisturbed one."""
    words = ["convert", source, tmp_path / "out"] if to == "q4nx" else ["convert", folder, tmp_path / "out.gguf"]
    model(*words[:-1], tmp_path / ("whole" if to == "q4nx" else "whole.gguf"))
    whole = tmp_path / "whole/model.q4nx" if to == "q4nx" else tmp_path / "whole.gguf"
    kept = []
    for part in (0.2, 0.5, 0.51, 0.9):
        limit = int(whole.stat().st_size * part)
        died = subprocess.run([LOCKSTEP, "model", *map(str, words)], capture_output=True, text=True,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        assert died.returncode == -signal.SIGXFSZ, died
        assert not words[-1].exists()
    said = model(*words)
    kept = int(said.split(" tensors kept")[0].split("(")[-1])
    assert kept > 10
    result = words[-1] / "model.q4nx" if to == "q4nx" else words[-1]
    assert result.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("**/*.partial*")) and not list(tmp_path.glob("**/*.journal"))


def test_a_damaged_partial_file_is_made_again(tmp_path, source, folder):
    whole, target = tmp_path / "whole.gguf", tmp_path / "out.gguf"
    model("convert", folder, whole)
    limit = whole.stat().st_size // 2
    subprocess.run([LOCKSTEP, "model", "convert", folder, target], capture_output=True,
                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    partial = tmp_path / "out.gguf.partial"
    with open(partial, "r+b") as file:
        file.seek(limit // 2)
        byte = file.read(1)
        file.seek(limit // 2)
        file.write(bytes([byte[0] ^ 1]))
    model("convert", folder, target)
    assert target.read_bytes() == whole.read_bytes()


def test_an_existing_target_is_never_touched(source, folder, tmp_path):
    (tmp_path / "there").mkdir()
    assert "there already" in model("convert", source, tmp_path / "there", status=78)
    (tmp_path / "there.gguf").write_text("mine")
    assert "there already" in model("convert", folder, tmp_path / "there.gguf", status=78)
    assert (tmp_path / "there.gguf").read_text() == "mine"
