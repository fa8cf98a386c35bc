"""A language model of a GGUF file: accuracy, speed and size against float64, memory and
onnxruntime. Writes results/MACHINE/language_model.*

Accuracy is that of logits behind each token of a text of random tokens, and of the text that
follows when the likeliest token is taken each time.
"""

import os
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

import numpy as np
import onnx
import onnxruntime
import tvm_ext
from tests.oracles.language import Decoder
from tvm_ext.core.machine import Machine
from tvm_ext.frontend.zoo.language.gguf_file import Fields, open_gguf
from tvm_ext.rates.loops import call_of_read, round_minimum

from benchmarks.common import arguments
from benchmarks.common.results import RESULTS, say, write_results
from benchmarks.common.rows import Row, prose

#: What caches hold: at 1,024 tokens those of float32 are half as many bytes as the weights.
_CACHE = "float16"
#: Steps of a round, after which as many bytes are read.
_ROUND = 10
_NOTES = prose("""
    Caches hold float16. Decode: the median over rounds of the least time of ten steps, in which the
    bytes of the file are read, against the least time of a plain read of as many bytes by as many
    threads in the same round; tokens a second are of the median step. First token:
    with everything that comes before it but the import of this library.""")


def main() -> int:
    """Measure; 1 if a bar was missed."""
    parser = arguments.parser(
        __doc__, "models/language_model.py MODEL.gguf", threads=2, output=RESULTS,
        small=(False, "few tokens"),
    )  # fmt: skip
    parser.add_argument("model", metavar="MODEL.gguf", help="a model of the Llama family")
    args = parser.parse_args()
    say("compiling ...")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TVM_EXT_CACHE"] = str(pathlib.Path(folder) / "cache")
        rows = [*_rows(pathlib.Path(args.model), args.threads, args.small, pathlib.Path(folder))]
    return write_results(pathlib.Path(args.output), "language_model", rows, {}, _NOTES)


def _rows(path: pathlib.Path, threads: int, small: bool, folder: pathlib.Path) -> Iterator[Row]:
    capacity, prompt, steps = (256, 64, 20) if small else (2048, 512, 100)
    compiled: Any = None

    def first_token() -> None:
        nonlocal compiled
        compiled = tvm_ext.compile(
            tvm_ext.zoo.GGUFModel(path, capacity, cache=_CACHE), dims={"S": (1, prompt)},
            specialize={"S": (1,)}, state="auto", threads=threads,
        )  # fmt: skip
        next(tvm_ext.generate(compiled, [1, 2, 3]))

    yield _least("from file to first token, cold, s", 15.0, _seconds(first_token))
    yield _least("from the cache, s", 1.5, _seconds(first_token))
    compiled.export(folder / "model.tvmx")
    sizes = [p.stat().st_size for p in (folder / "model.tvmx", path)]
    yield _least("artifact / GGUF file", 1.1, sizes[0] / sizes[1])
    yield from _accuracy(path, compiled, steps)
    yield from _decode(compiled, sizes[1], threads, steps)
    yield _prefill(path, compiled, folder, capacity, prompt, threads)
    yield from _several(path, threads, prompt, steps)


def _accuracy(path: pathlib.Path, compiled: Any, steps: int) -> Iterator[Row]:
    oracle, vocabulary = oracle_of(path)
    tokens = [int(t) for t in np.random.default_rng(0).integers(0, vocabulary, 64)]
    wanted = oracle.logits(tokens)
    with compiled.session() as session:
        got = [session.step(fed([token], place))["logits"] for place, token in enumerate(tokens)]
    cosines = [_cosine(row, other[0, -1]) for row, other in zip(wanted, got, strict=True)]
    yield _most("least cosine of logits to float64, 64 tokens", 0.9999, min(cosines))
    said = list(tvm_ext.generate(compiled, tokens[:8], max_new=steps))
    logits = oracle.logits([*tokens[:8], *said])[7:-1]
    ties = [float(row.max() - row[token]) for row, token in zip(logits, said, strict=True)]
    what = f"greedy text of {steps} tokens: largest lead of another token, in logits"
    yield _least(what, 1e-3, max(ties))


def _decode(compiled: Any, nbytes: int, threads: int, steps: int) -> Iterator[Row]:
    read, count = call_of_read(Machine.detect(threads=threads).measured(), nbytes // 4)
    for place, bar in ((1, 0.9), (compiled_capacity(compiled) // 2, 0.85)):
        times, shares, rates = list[float](), list[float](), list[float]()
        with compiled.session() as session:
            for start in range(place, place + steps, _ROUND):
                round_minimum(read, 0.02)  # what ran before has left other data in the caches
                plain = count / round_minimum(read, 0.05)
                own = [
                    _seconds(lambda at=at: session.step(fed([5], at)))
                    for at in range(start, start + _ROUND)
                ]
                shares.append(nbytes / min(own) / plain)
                rates.append(plain / 1e9)
                times += own
        each = statistics.median(times)
        row = _most(f"decode from position {place}: weights read / a plain read", bar,
                    statistics.median(shares))  # fmt: skip
        rate = statistics.median(rates)
        details = {
            "tokens a second": 1 / each, "p99 / median": np.quantile(times, 0.99) / each,
            "GB/s of a plain read": rate,
        }  # fmt: skip
        what = f"{row.what} at {rate:.0f} GB/s ({1 / each:.0f} tokens/s)"
        yield Row(what, row.bar, row.measured, row.met, details)


def _prefill(
    path: pathlib.Path, compiled: Any, folder: pathlib.Path, capacity: int, prompt: int,
    threads: int,
) -> Row:  # fmt: skip
    model = tvm_ext.zoo.gguf(path, capacity, cache=_CACHE)
    onnx.save(model, folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    other = onnxruntime.InferenceSession(folder / "model.onnx", options)
    feeds = fed([5] * prompt, 0)
    caches = {
        i.name: np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim], _CACHE)
        for i in model.graph.input
        if i.name not in feeds
    }
    own, theirs = [], []
    for _ in range(5):
        with compiled.session() as session:
            own.append(_seconds(lambda: session.step(feeds)))
        theirs.append(_seconds(lambda: other.run(None, {**feeds, **caches})))
    return _least(f"prefill of {prompt} tokens / onnxruntime", 0.9, min(own) / min(theirs))


def _several(path: pathlib.Path, threads: int, prompt: int, steps: int) -> Iterator[Row]:
    """Eight texts at once, against one; and a newcomer while seven run."""
    count = 8
    compiled = tvm_ext.compile(
        tvm_ext.zoo.gguf(path, 2 * prompt, cache=_CACHE, sequences=count), state="auto",
        dims={"T": (1, prompt // 2), "R": (1, count)}, threads=threads,
        specialize={"T": (1, count), "R": (1, count)},
    )  # fmt: skip
    times: dict[int, list[float]] = {1: [], count: []}
    schedulers = {texts: tvm_ext.Scheduler(compiled) for texts in times}
    for texts, scheduler in schedulers.items():
        for text in range(texts):
            scheduler.submit([5, text, 7], max_new=2 * steps)
        for _ in range(texts + 2):
            scheduler.step()
    for _ in range(steps):
        for texts, scheduler in schedulers.items():
            times[texts].append(_seconds(lambda scheduler=scheduler: scheduler.step()))
    each = {texts: statistics.median(own) / texts for texts, own in times.items()}
    what = f"{count} texts at once / one, tokens a second ({1 / each[count]:.0f} tokens/s)"
    yield _most(what, 4.0, each[1] / each[count])
    busy = schedulers[count]
    busy.cancel(busy.requests[0])
    newcomer, taken = busy.submit([9] * prompt, max_new=1), 0
    while not newcomer.tokens:
        others = {id(request) for request, _ in busy.step()} - {id(newcomer)}
        taken += len(others) == count - 1
    what = f"a newcomer of {prompt} tokens while {count - 1} run: steps to its first token"
    yield _least(what, 3, taken)


def oracle_of(path: pathlib.Path) -> tuple[Decoder, int]:
    """The model of a file in float64, and how many tokens there are."""
    import gguf

    reader = open_gguf(path)
    read = Fields(reader, path)
    weights = {
        str(t.name): gguf.dequantize(t.data, t.tensor_type).astype(np.float64)
        for t in reader.tensors
    }
    heads = [read.whole(f"attention.{name}") for name in ("head_count", "head_count_kv")]
    base = read.number("rope.freq_base", 10000.0)
    epsilon = read.number("attention.layer_norm_rms_epsilon", 1e-5)
    return Decoder(weights, read.whole("block_count"), *heads, base, epsilon), read.vocabulary()


def fed(tokens: Sequence[int], start: int) -> Mapping[str, np.ndarray]:
    """What a step takes for tokens behind the first `start`."""
    count = start + len(tokens)
    lengths = {"seqlens_k": np.int32([count - 1]), "total_sequence_length": np.int32(count)}
    return {"input_ids": np.int64([tokens]), **{n: np.asarray(a) for n, a in lengths.items()}}


def compiled_capacity(compiled: Any) -> int:
    """Rows of the caches."""
    return min(spec.shape[2] for spec in compiled.inputs if spec.name.startswith("past"))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _cosine(a: np.ndarray, other: np.ndarray) -> float:
    return float(a @ other / np.linalg.norm(a) / np.linalg.norm(other.astype(np.float64)))


def _most(what: str, bar: float, value: float) -> Row:
    return Row(what, f">= {bar:g}", f"{value:.6g}", value >= bar)


def _least(what: str, bar: float, value: float) -> Row:
    return Row(what, f"<= {bar:g}", f"{value:.4g}", value <= bar)


if __name__ == "__main__":
    sys.exit(main())
