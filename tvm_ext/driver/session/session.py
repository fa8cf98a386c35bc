"""InferenceSession: a drop-in for onnxruntime's, over compiled programs."""

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...core.errors import InputError, OptionError, check_choice, check_switch, check_whole
from ...runtime.model import CompiledModel
from .binding import IOBinding
from .models import opened
from .node_args import ModelMeta, NodeArg
from .ort_values import ort_value_of
from .programs import ON_MISS
from .report import SessionReport

PROVIDER = "TvmExtExecutionProvider"
#: Keywords of onnxruntime's session that say how onnxruntime falls back and optimizes.
_IGNORED = ("enable_fallback", "disabled_optimizers", "read_config_from_model")
#: Methods of onnxruntime's session that are not here -> what to do instead.
ABSENT = {
    "run_async": "call run in a thread of your own: any number may",
    "run_with_ortvaluevector": "call run_with_ort_values",
    "create_ortvalue_from_shape_and_type": "call onnxruntime.OrtValue.ortvalue_from_shape_and_type",
    "get_tuning_results": "tvm_ext.tune tunes kernels, and compile uses its records",
    "set_tuning_results": "tvm_ext.tune tunes kernels, and compile uses its records",
    "get_profiling_start_time_ns": "tvm_ext.profile times kernels",
    "get_input_memory_infos": "all memory is the CPU's",
    "get_output_memory_infos": "all memory is the CPU's",
    "get_input_epdevices": "there is one device, the CPU",
    "get_provider_graph_assignment_info": "compiled.offload_report() says which node runs where",
    "release_captured_graph": "there are no captured graphs",
    "set_ep_dynamic_options": "the provider has no options",
}


class InferenceSession:
    """Runs a model with the calls of `onnxruntime.InferenceSession`.

    A model of fixed shapes is compiled at once. One with free dimensions gets one program of any size within bounds
    (`dims`), compiled at the first call; each set of input shapes beyond them gets a program of its own, as all do of a
    model that cannot be one program. Until a program is there, onnxruntime answers. Any number of threads may use a
    session.

    Args:
        path_or_bytes: an ONNX model (path, bytes or `onnx.ModelProto`), or the path of an exported model.
        sess_options: onnxruntime's `SessionOptions`, or None. `intra_op_num_threads` is used (0: the default);
            `graph_optimization_level` ORT_DISABLE_ALL means `accuracy="exact"`; sizes for free dimensions hold. The
            rest says how onnxruntime works, where it does.
        providers, provider_options: accepted and ignored: there is one provider, this CPU. Names that neither
            onnxruntime nor this library has are refused.
        on_miss: what becomes of a call with input shapes that no program is there for. "onnxruntime" answers it, and
            compiles in the background: the program of any size at once, one for these shapes once they come again;
            "wait" compiles in the call; "error" raises, and :meth:`compile_for` compiles: the program of any size is
            compiled when the session is made.
        max_programs: programs that are kept, that of any size among them; the least recently used goes first.
        compile_after: times that shapes are asked for before they are compiled; None is 2, and 1 with "wait".
        any_size: whether there is a program of any size. Bounds that `dims` does not state are those of
            :func:`tvm_ext.compile`, or the next power of two where the first call is beyond them.
        **compile_options: as for :func:`tvm_ext.compile`, but `fallback` is "onnxruntime" unless it is given: what runs
            there runs here; for an exported model `threads_wait` alone. onnxruntime's own
            `enable_fallback`, `disabled_optimizers` and `read_config_from_model` are accepted and ignored.

    Raises:
        OptionError: options for an exported model, two different numbers of threads, or a bad value.
        ModelError, UnsupportedError: as :func:`tvm_ext.compile`.
        ArtifactError: as :func:`tvm_ext.load`.
    """

    def __init__(
        self, path_or_bytes: Any, sess_options: Any = None, providers: Sequence[Any] | None = None,
        provider_options: Sequence[Any] | None = None, *, on_miss: str = "onnxruntime", max_programs: int = 8,
        compile_after: int | None = None, any_size: bool = True, **compile_options: Any
    ) -> None:  # fmt: skip
        check_choice("on_miss", on_miss, ON_MISS)
        after = (1 if on_miss == "wait" else 2) if compile_after is None else compile_after
        max_programs, after = check_whole("max_programs", max_programs, 1), check_whole("compile_after", after, 1)
        check_switch("any_size", any_size)
        self.set_providers(providers)
        self._sess_options = sess_options
        own = {name: value for name, value in compile_options.items() if name not in _IGNORED}
        self._model = opened(path_or_bytes, sess_options, (on_miss, max_programs, after, any_size), own)
        self._output_names = [arg.name for arg in self._model.outputs]
        weakref.finalize(self, self._model.close)

    def __getstate__(self) -> dict[str, Any]:
        """Without the options of a session, which cannot be pickled."""
        return {**self.__dict__, "_sess_options": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        weakref.finalize(self, self._model.close)

    @property
    def compiled(self) -> CompiledModel:
        """The compiled model behind the session.

        Raises:
            InputError: there are several; :meth:`compile_for` gives that of a set of input shapes.
        """
        return self._model.program

    # --------------------------------------------------------------------------------------------- running
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Run once.

        Args:
            output_names: which outputs, in which order; None or an empty list is all of them.
            input_feed: input name -> array, list of numbers, or `onnxruntime.OrtValue`; of a sequence a list of arrays,
                of an optional that is absent None, or nothing.
            run_options: onnxruntime's `RunOptions`, for calls that it answers.

        Returns:
            The outputs, in the order of `output_names`.

        Raises:
            InputError: an unknown output, inputs that do not fit, or shapes without a program and `on_miss="error"`.
            RunError: the program, or onnxruntime, stopped.
        """
        if run_options is not None and type(run_options).__name__ != "RunOptions":
            wrong = f"run_options is {type(run_options).__name__}"
            raise InputError(wrong, fix="give onnxruntime.RunOptions(), or None")
        return self._model.run(self._checked_names(output_names), input_feed, run_options)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """:meth:`run`, of `onnxruntime.OrtValue` to `onnxruntime.OrtValue`.

        Args:
            output_names, run_options: as of :meth:`run`.
            input_dict_ort_values: input name -> value.
        """
        return [ort_value_of(array) for array in self.run(output_names, input_dict_ort_values, run_options)]

    def io_binding(self) -> IOBinding:
        """Inputs and outputs to bind for :meth:`run_with_iobinding`."""
        return IOBinding([arg.name for arg in (*self._model.inputs, *self._model.overridable)], self._output_names)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: Any = None) -> None:
        """Run on the bound inputs, and write the bound outputs.

        Args:
            iobinding: what :meth:`io_binding` made.
            run_options: as of :meth:`run`.

        Raises:
            InputError: it is no binding of such a session, or as :meth:`run`.
        """
        if not isinstance(iobinding, IOBinding):
            raise InputError(f"iobinding is {type(iobinding).__name__}", fix="make it by session.io_binding()")
        names, feed = iobinding.feed()
        iobinding.store(self.run(names, feed, run_options))

    def _checked_names(self, output_names: Any) -> list[str]:
        names = self._output_names if output_names is None else output_names
        if not isinstance(names, Iterable) or isinstance(names, str | bytes):
            what = "one name" if isinstance(names, str) else "no list"
            raise InputError(f"output_names={names!r} is {what}; give a list", fix=f"choose of {self._output_names}")
        names = list(names) or self._output_names
        if unknown := [name for name in names if name not in self._output_names]:
            raise InputError(f"no output {unknown}; give a list", fix=f"choose of {self._output_names}")
        return list(names)

    # -------------------------------------------------------------------------------------------- programs
    def compile_for(self, shapes: Mapping[str, Sequence[int]]) -> CompiledModel:
        """The program for these input shapes alone, compiled now if it is not there; it runs them from then on.

        Args:
            shapes: input name -> shape, for each input with free dimensions; of a sequence a list of them, None
                of an optional that is absent.

        Raises:
            InputError: a name or shape does not fit the model.
            UnsupportedError, OptionError, BuildError: as :func:`tvm_ext.compile`.
        """
        return self._model.compile_for(shapes)

    def wait_compiled(self, timeout: float | None = None) -> bool:
        """Wait until no compile is pending in the background.

        Args:
            timeout: seconds; None waits without end.

        Returns:
            Whether none is pending.
        """
        return self._model.wait_compiled(timeout)

    def report(self) -> SessionReport:
        """Calls by onnxruntime and by programs, that of any size and one for each set of input shapes, and why."""
        return self._model.report()

    def close(self) -> None:
        """End what compiles in the background, and begin nothing more there; calls go on with what is there."""
        self._model.close()
        self._model.wait_compiled(None)

    # ---------------------------------------------------------------------------------------- descriptions
    def get_inputs(self) -> list[NodeArg]:
        """The inputs, in the model's order."""
        return list(self._model.inputs)

    def get_outputs(self) -> list[NodeArg]:
        """The outputs, in the model's order."""
        return list(self._model.outputs)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Initializers that a call may replace: none of a compiled model; with free dimensions those that onnxruntime
        has, and it answers such a call."""
        return list(self._model.overridable)

    def get_modelmeta(self) -> ModelMeta:
        """Names, versions and properties of the model, its SHA-256 among them."""
        return self._model.meta()

    def get_session_options(self) -> Any:
        """The `onnxruntime.SessionOptions` that the session was made with, or new ones."""
        if self._sess_options is None:
            import onnxruntime

            self._sess_options = onnxruntime.SessionOptions()
        return self._sess_options

    def get_providers(self) -> list[str]:
        """Always this library's one provider."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The provider has no options."""
        return {PROVIDER: {}}

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Any = None) -> None:
        """Accepted and ignored: there is one provider, this CPU.

        Args:
            providers: names, or pairs of a name and options; None is none.
            provider_options: of each.

        Raises:
            OptionError: no list, or names that neither onnxruntime nor this library has.
        """
        if not isinstance(providers, list | tuple | None):
            raise OptionError(f"providers={providers!r:.200}: a list is needed", fix="['CPUExecutionProvider']")
        names = [provider[0] if isinstance(provider, tuple) and provider else provider for provider in providers or ()]
        known = [PROVIDER, "CPUExecutionProvider"]
        if any(isinstance(name, str) and name not in known for name in names):
            import onnxruntime  # which an exported model does without

            known += onnxruntime.get_all_providers()
        for name in names:
            check_choice("provider", name, dict.fromkeys(known))

    def disable_fallback(self) -> None:
        """Nothing falls back to another provider."""

    def enable_fallback(self) -> None:
        """Nothing falls back to another provider."""

    def end_profiling(self) -> str:
        """ "", as onnxruntime says where no profile was asked for; :func:`tvm_ext.profile` makes one."""
        return ""

    def __getattr__(self, name: str) -> Any:
        if name in ABSENT:
            raise AttributeError(f"{type(self).__name__} has no {name!r}, as onnxruntime's has; {ABSENT[name]}")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
