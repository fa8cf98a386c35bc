"""Several texts of one compiled language model at once: each step streams the weights once, for tokens of all of them.

    step:   of each text that is under way the next token, and a draft of more
            of those that begin a piece of the prompt

Texts join and leave at every step. G.-I. Yu et al., "Orca: A Distributed Serving System for Transformer-Based
Generative Models" (2022); A. Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve"
(2024).
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...core.errors import OptionError, RunError, check_whole
from .interface import LOGITS, PAST, ROWS, STARTS, TABLE, TOKENS, Several
from .lookup import draft_of
from .pages import PagePool
from .sampling import Sampling, prompt_of

if TYPE_CHECKING:
    from ..model import CompiledModel


class Request:
    """A text that a :class:`Scheduler` makes; iterated, its tokens as they come, while steps run for all texts.

    An iterator that is closed early cancels it.

    Attributes:
        prompt: tokens.
        tokens: those made so far.
        text: both.
        finished: "" as long as there may be more; then "stop", "length" (`max_new`, or a full cache), "cancelled", or
            "error".
        error: why no token could be drawn, or None; an iterator raises it.
        shared: tokens of the prompt whose rows were there already.
    """

    def __init__(self, scheduler: Scheduler, prompt: list[int], sampling: Sampling, most: int) -> None:
        self.prompt, self.tokens, self.finished, self.shared = prompt, list[int](), "", 0
        self.text = [*prompt]
        self.error: RunError | None = None
        self._scheduler, self.sampling, self.most = scheduler, sampling, most
        self.rng = sampling.rng()
        #: Rows that are computed, and the pages that they are in.
        self.rows, self.pages = 0, list[int]()

    def cancel(self) -> None:
        """Make no more of it; others go on. Nothing, if it is finished."""
        self._scheduler.cancel(self)

    def __iter__(self) -> Iterator[int]:
        place = 0
        try:
            while not self.finished or place < len(self.tokens):  # in this order: another thread may add the last token
                if place == len(self.tokens):
                    self._scheduler.step()
                for token in self.tokens[place:]:
                    place += 1
                    yield token
        except GeneratorExit:
            self.cancel()
            raise
        if self.error is not None:
            raise self.error

    def __repr__(self) -> str:
        return f"Request({len(self.prompt)} + {len(self.tokens)} tokens: {self.finished or 'under way'})"


class Scheduler:
    """Texts of one model, as many at once as it has sequences, over a cache in pages; more of them wait.

    Prompts with a common beginning share its full pages, also with texts that are finished, as long as no other text
    needs the memory. Threads may use one scheduler; its steps run one after the other.

    Args:
        compiled: a model of `zoo.gguf(..., sequences=8)`: `compile(model, dims={"T": (1, 256), "R": (1, 8)},
            specialize={"T": (1, 8), "R": (1, 8)}, state="auto")`; T are tokens of a step, R those with logits.
        speculate: how many tokens a text are looked up, where its last ones stood before, and checked in the same step,
            as long as R allows; the text is the same as without, but for ties within rounding.
        piece: tokens of prompts that a step takes at most, 0 for all that T allows: shorter ones keep others waiting
            less.

    Raises:
        OptionError: the model has another interface or no states, or an option does not fit.
    """

    def __init__(self, compiled: CompiledModel, *, speculate: int = 0, piece: int = 0) -> None:
        self.sizes = Several.of(compiled)
        self._speculate, self._piece = check_whole("speculate", speculate), check_whole("piece", piece)
        if self.sizes.pages < self.sizes.each + 1:
            raise OptionError(f"{self.sizes.pages} pages, where one sequence and padding need {self.sizes.each + 1}")
        self._session, self._lock = compiled.session(), threading.RLock()
        self._pool, self._waiting = PagePool(self.sizes.pages, self.sizes.page), deque[Request]()
        self._running: list[Request] = []
        self._padding = (self._pool.take((), 1) or [0])[0]
        self._closed = False

    def submit(
        self, tokens: Sequence[int], *, max_new: int = 128, top_k: int = 0, temperature: float = 0.0,
        seed: int | None = None, stop: Sequence[int] = (),
    ) -> Request:  # fmt: skip
        """A text that begins with tokens; it joins at the next step with room for it.

        Args:
            tokens, max_new, top_k, temperature, seed, stop: as of :func:`.generation.generate`.

        Raises:
            OptionError: an option does not fit.
            InputError: no prompt, no whole numbers, tokens that are not of the vocabulary, or more than a sequence may
                have.
            RunError: the scheduler is closed.
        """
        sampling = Sampling(
            max_new=max_new, top_k=top_k, temperature=temperature, seed=seed, stop=stop,  # type: ignore[arg-type]
        )  # fmt: skip
        prompt = [int(token) for token in prompt_of(tokens, self.sizes.capacity, self.sizes.vocabulary)]
        request = Request(self, prompt, sampling, min(sampling.max_new, self.sizes.capacity - len(prompt) + 1))
        with self._lock:
            self._check()
            if request.most:
                self._waiting.append(request)
            else:
                request.finished = "length"
        return request

    def cancel(self, request: Request) -> None:
        """Make no more of a text; others go on. Nothing, if it is finished.

        Args:
            request: the text.

        Raises:
            OptionError: it is a text of another scheduler.
        """
        with self._lock:
            if not isinstance(request, Request) or (not request.finished and request not in self.requests):
                raise OptionError(f"{request!r:.100} is no request of this scheduler", fix="request.cancel()")
            if not request.finished:
                self._finish(request, "cancelled")

    @property
    def requests(self) -> list[Request]:
        """Texts that are not finished: those under way, then those that wait."""
        with self._lock:
            return [*self._running, *self._waiting]

    def step(self) -> list[tuple[Request, int]]:
        """Run once, for all texts under way.

        Returns:
            Each token that was made, with its text; none where only pieces of prompts were taken, or nothing is left. A
            text whose logits are NaN or infinite is finished by an "error", and others go on.

        Raises:
            RunError: the program stopped: texts under way are computed anew from the next step on, and lose nothing; or
                the scheduler is closed.
        """
        with self._lock:
            self._check()
            self._admit()
            if not (parts := self._parts()):
                return []
            try:
                logits = self._session.step(self._fed(parts))[LOGITS]
            except BaseException:
                self._start_anew()
                raise
            tokens, place = list[tuple[Request, int]](), 0
            for part in parts:
                behind = logits[place : (place := place + part.behind)]
                tokens += ((part.request, token) for token in self._taken(part, behind))
            return tokens

    def __iter__(self) -> Iterator[tuple[Request, int]]:
        """Steps, as long as there are texts: each token with its text."""
        while self.requests:
            yield from self.step()

    def close(self) -> None:
        """Cancel all texts, and give the memory of the cache back."""
        with self._lock:
            for request in self.requests:
                self._finish(request, "cancelled")
            self._session.close()
            self._closed = True

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ who runs
    def _check(self) -> None:
        if self._closed:
            raise RunError("the scheduler is closed")

    def _admit(self) -> None:
        """Have texts join, the first that came first, as long as there are sequences and pages."""
        sizes = self.sizes
        while self._waiting and len(self._running) < sizes.sequences:
            request = self._waiting[0]
            text = request.text
            shared = self._pool.shared(text)
            if any(self._computes(other, text, len(shared) + 1) for other in self._running):
                return
            needed = -(-(len(request.prompt) + request.most - 1) // sizes.page)
            pages = self._pool.take(shared, needed - len(shared))
            if pages is None:
                return
            request.pages, request.rows = pages, len(shared) * sizes.page
            request.shared = min(request.rows, len(request.prompt))
            self._running.append(self._waiting.popleft())

    def _computes(self, other: Request, text: Sequence[int], pages: int) -> bool:
        """Whether another text is about to fill so many pages of a text's beginning, which is worth to wait for."""
        tokens, known = pages * self.sizes.page, other.text
        return other.rows < tokens <= min(len(known) - 1, len(text) - 1) and known[:tokens] == text[:tokens]

    def _finish(self, request: Request, why: str) -> None:
        request.finished = why
        if request in self._running:
            self._running.remove(request)
        else:
            self._waiting.remove(request)
        self._pool.give_back(request.pages)
        request.pages = []

    def _start_anew(self) -> None:
        """After a step that stopped no row is trusted: texts under way wait, to be read from their beginning."""
        self._pool.forget()
        for request in self._running:
            self._pool.give_back(request.pages)
            request.pages, request.rows = [], 0
        self._waiting.extendleft(reversed(self._running))
        self._running = []
        self._session.reset()

    # ------------------------------------------------------------ a step
    def _parts(self) -> list[_Part]:
        """What the step takes of each text under way, in order; nothing of some where T or the piece is too short."""
        sizes, parts = self.sizes, []
        decoding = sum(len(request.text) - request.rows == 1 for request in self._running)
        tokens, rows = sizes.tokens - decoding, sizes.rows - len(self._running)
        piece = min(self._piece or tokens, tokens)
        for request in self._running:
            new, draft = request.text[request.rows :], list[int]()
            if len(new) > 1:
                taken = new[:piece]
                piece, tokens = piece - len(taken), tokens - len(taken)
                parts.append(_Part(request, taken, 1 if len(taken) == len(new) else 0))
                continue
            if self._speculate:
                most = min(self._speculate, request.most - len(request.tokens) - 1, rows, tokens)
                draft = draft_of(request.text, most)
            rows, tokens, piece = rows - len(draft), tokens - len(draft), min(piece, tokens - len(draft))
            parts.append(_Part(request, new + draft, 1 + len(draft)))
        return parts if any(part.new for part in parts) else []

    def _fed(self, parts: Sequence[_Part]) -> Mapping[str, np.ndarray]:
        """What the model takes for a step.

        Where a program for not many more tokens and rows is of fixed numbers, the rest of them are of no text.
        """
        sizes = self.sizes
        starts = [*itertools.accumulate((len(part.new) for part in parts), initial=0)]
        tokens = [token for part in parts for token in part.new]
        chosen = [row for part, end in zip(parts, starts[1:], strict=True) for row in range(end - part.behind, end)]
        room = len(parts) < sizes.sequences
        spare = min(max(len(tokens), sizes.sequences), sizes.capacity)  # they are one sequence, of a page for all of it
        fixed = (pair for pair in sizes.programs if 0 <= pair[0] - len(tokens) <= spare)
        padded = (pair for pair in fixed if len(chosen) <= pair[1])
        fitting = (pair for pair in padded if room or pair[0] == len(tokens))
        total, behind = next(fitting, (len(tokens), max(len(chosen), 1)))
        table = np.full((sizes.sequences, sizes.each), self._padding, np.int32)
        past = np.zeros(sizes.sequences, np.int32)
        for number, part in enumerate(parts):
            table[number, : len(part.request.pages)] = part.request.pages
            past[number] = part.request.rows
        ends = np.full(sizes.sequences + 1, total, np.int32)
        ends[: len(starts)] = starts
        tokens += [0] * (total - len(tokens))
        chosen += [0] * (behind - len(chosen))
        fed = {TOKENS: np.array(tokens, np.int64), ROWS: np.array(chosen, np.int64)}
        return {**fed, STARTS: ends, PAST: past, TABLE: table}

    def _taken(self, part: _Part, logits: np.ndarray) -> list[int]:
        """The tokens of a text that a step made, of the logits of its part; none, and an error, of no finite ones."""
        request, tokens, before = part.request, list[int](), part.request.rows
        if not part.behind:
            request.rows += len(part.new)
        else:
            try:
                tokens = request.sampling.accepted(logits, part.new[len(part.new) - part.behind + 1 :], request.rng)
            except RunError as error:
                request.error = error
                self._finish(request, "error")
                return []
            request.tokens += tokens
            request.text += tokens
            request.rows = len(request.text) - 1
        if request.rows // self.sizes.page > before // self.sizes.page:
            self._pool.publish(request.text[: request.rows], request.pages)
        if tokens and (tokens[-1] in request.sampling.stop or len(request.tokens) == request.most):
            self._finish(request, "stop" if tokens[-1] in request.sampling.stop else "length")
        return tokens


@dataclass(frozen=True)
class _Part:
    """What a step takes of a text.

    Attributes:
        new: tokens, the last ones of them a draft.
        behind: how many of them have logits; 0 of a piece that is not the last one.
    """

    request: Request
    new: list[int]
    behind: int
