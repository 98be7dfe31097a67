"""The fields of a spec, as pydantic models: one place for types, bounds, defaults and their description.

The models accept the forms YAML may use (a hook or a target as one string) and hold one form only:
`HookSpec`, and a target parsed into the mapping TVM takes. All are frozen and refuse unknown keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    Tag,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError

from layoutlab.device.rpc.address import RpcAddress
from layoutlab.hooks import Rule
from layoutlab.spec import rules
from layoutlab.spec.target import TARGET_SCHEMA, TargetDict, parse_target
from layoutlab.spec.words import did_you_mean, listed, quoted

HOOKS = ("keep", "nhwc", "nchw", "nchwc")
DEVICES = ("auto", "host", "kryo")
ENGINES = ("relax", "relay")
DEVICE_FORMS = "auto, host, kryo, rpc://host:port/key, agent://host:port or {rpc: host:port, key: …}"
DEFAULT_BLOCK = 8
# Schedules of TVM take seeds from 1 to this; the others keep to the same bound.
LARGEST_SEED = 2**31 - 1

_ADDRESS = r"[A-Za-z0-9_.-]+:[0-9]{1,5}"
_KEY = r"[A-Za-z0-9_.-]{1,64}"
_RPC_URL = f"rpc://(?P<tracker>{_ADDRESS})/(?P<key>{_KEY})"
_AGENT_URL = f"agent://(?P<agents>{_ADDRESS}(,{_ADDRESS})*)(/(?P<agents_key>{_KEY}))?"
_IDENT = "[A-Za-z_][A-Za-z0-9_]*"

HostTarget = Literal["host"]
BuildName = Literal[
    "mobilenet_v1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "mobilenet_v3_large",
    "mobilenet_v3_small_minimalistic",
    "mobilenet_v3_large_minimalistic",
    "resnet50",
    "inception_v3",
]


class Expected(NamedTuple):
    """What a field expects, where type and bounds do not say it well; `known` words feed did-you-mean."""

    text: str
    known: tuple[str, ...] = ()


def _read_target(value: Any) -> TargetDict | str:
    if not isinstance(value, str | dict):
        raise ValueError("expected a target string, a mapping, or host")
    return value if value == "host" else parse_target(value)


def _not_reserved(name: str) -> str:
    if name == "tflite":
        raise ValueError('"tflite" is reserved for the row of the baseline')
    return name


def _not_the_folder_of_runs(name: str) -> str:
    if name == "runs":
        raise ValueError('"runs" is the folder of all runs in the results')
    return name


_TARGET_TEXT_SCHEMA = {
    "type": "string",
    "pattern": "^(host$|llvm)",
    "examples": ["host", "llvm -device=arm_cpu -mtriple=aarch64-linux-gnu -mattr=+neon -num-cores=1"],
}

Name = Annotated[
    str,
    Field(pattern=r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?$", max_length=64),
    Expected("1 to 64 of A-Z a-z 0-9 . _ - (no . in front, no ..)"),
]
Address = Annotated[str, Field(pattern=f"^{_ADDRESS}$"), Expected("host:port")]
FilePath = Annotated[
    str, Field(pattern=r"^[^\x00-\x1f\x7f]+$"), Expected("the path of a .tflite file, relative to this file")
]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$"), AfterValidator(str.lower), Expected("64 hex digits")]
Target = Annotated[
    TargetDict | HostTarget,
    PlainValidator(_read_target),
    Expected('a target such as "llvm -mcpu=cortex-a72", a mapping, or host'),
    WithJsonSchema({"anyOf": [_TARGET_TEXT_SCHEMA, TARGET_SCHEMA]}),
]
InputRange = Annotated[
    tuple[float, float],
    Expected("two numbers, [low, high]"),
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}),
]
Seed = Annotated[int, Field(ge=0, le=LARGEST_SEED)]
TuningSeed = Annotated[
    int,
    Field(ge=1, le=LARGEST_SEED),
    Expected(f"a whole number from 1 to {LARGEST_SEED} (TVM refuses the seed 0)"),
]

CoreNames = Literal["big", "little", "all"]
CoreNumber = Annotated[
    int, Expected("a core number, from 0"), WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 9999})
]


def _possible_cores(cores: str | tuple[int, ...]) -> str | tuple[int, ...]:
    if isinstance(cores, str):
        return cores
    for core in cores:
        if core < 0:
            raise ValueError(f"core {core}: cores are numbered from 0")
        if cores.count(core) > 1:
            raise ValueError(f"core {core} is named twice")
    return cores


Cores = Annotated[
    # Told apart by their form, so that a mistake is reported once and not for each of the two.
    Annotated[CoreNames, Tag("name")] | Annotated[tuple[CoreNumber, ...], Field(min_length=1), Tag("list")],
    Discriminator(lambda cores: "name" if isinstance(cores, str) else "list"),
    AfterValidator(_possible_cores),
    Expected("big, little, all or a list of core numbers such as [4, 5]", ("big", "little", "all")),
]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _raise_first(problems: list[rules.BrokenRule]) -> None:
    # The loader reports these itself, for they must also be found while other fields are wrong.
    if problems:
        raise PydanticCustomError("cross_field", "{text}", {"text": problems[0].message})


class ModelSpec(_Part):
    """The TFLite model: a file, or one of the networks layoutlab can build."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["file"]}, {"required": ["build"]}]})

    file: FilePath | None = Field(
        default=None, description="A .tflite file; the path is relative to the spec file's folder."
    )
    build: BuildName | None = Field(default=None, description="A network layoutlab builds, instead of a file.")
    sha256: Sha256 | None = Field(default=None, description="SHA-256 of the .tflite file, in 64 hex digits.")
    batch: int | None = Field(
        default=None, ge=1, le=4096, description="Batch to bind, for a model whose batch is dynamic."
    )
    input_range: InputRange = Field(
        default=(-1.0, 1.0),
        description="Range [low, high] the seeded random inputs are drawn from; low < high.",
    )

    @model_validator(mode="after")
    def _rules(self) -> ModelSpec:
        _raise_first(rules.model_problems(self.model_dump()))
        return self


class DeviceSpec(_Part):
    """Where to run: a word, an address as one text, or a mapping that names an address."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": [name]} for name in ("on", "rpc", "agent")]})

    on: Literal["auto", "host", "kryo"] | None = Field(
        default=None,
        description="auto: what the environment variable LAYOUTLAB_DEVICE names, else the simulated Kryo core where "
        "the target suits it, else here; host: here; kryo: the simulated core.",
    )
    rpc: Address | None = Field(default=None, description="A TVM RPC tracker, host:port, which knows devices by key.")
    agent: Annotated[str | None, Expected("host:port of one or several agents, with commas between")] = Field(
        default=None,
        pattern=rf"^{_ADDRESS}(,{_ADDRESS})*$",
        description="Agents of devices, host:port with commas between, that are connected to without a tracker.",
    )
    key: Annotated[str | None, Expected("a device's key: letters, digits and . _ - (no spaces)")] = Field(
        default=None, pattern=rf"^{_KEY}$", description="The devices' key; needed with a tracker."
    )
    timeout_s: int = Field(
        default=60,
        ge=5,
        le=86_400,
        description="Seconds that one candidate, or one round beyond its own duration, may take over RPC.",
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return parse_device(value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _rules(self) -> DeviceSpec:
        _raise_first(rules.device_problems(self.model_dump()))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(handler(core))
        text = {
            "type": "string",
            "anyOf": [{"enum": list(DEVICES)}, {"pattern": _plain(f"^{_RPC_URL}$|^{_AGENT_URL}$")}],
        }
        return {"anyOf": [text, dict(mapping)]}

    @property
    def address(self) -> RpcAddress | None:
        """Where devices over RPC are found; None for the other kinds."""
        if self.on is not None:
            return None
        agents = tuple(self.agent.split(",")) if self.agent else ()
        return RpcAddress(tracker=self.rpc, agents=agents, key=self.key or "", timeout_s=self.timeout_s)

    def __str__(self) -> str:
        return str(self.on or self.address)


def _plain(pattern: str) -> str:
    """Without names of groups, which the expressions of JSON Schema do not have."""
    return re.sub(r"\?P<\w+>", "", pattern)


def parse_device(text: str) -> dict[str, Any]:
    """The mapping that a device's text stands for: a word, rpc://host:port/key or agent://host:port[,...][/key].

    Raises ValueError when it is none of these.
    """
    if text in DEVICES:
        return {"on": text}
    if found := re.fullmatch(_RPC_URL, text):
        return {"rpc": found["tracker"], "key": found["key"]}
    if found := re.fullmatch(_AGENT_URL, text):
        return {"agent": found["agents"], **({"key": found["agents_key"]} if found["agents_key"] else {})}
    raise ValueError(f"expected {DEVICE_FORMS}, found {quoted(text)}{did_you_mean(text, DEVICES)}")


class BaselineSpec(_Part):
    """What the variants are compared with."""

    runtime: Literal["tflite", "benchmark_model"] = Field(
        default="tflite",
        description="What runs the baseline: LiteRT on the device, or TFLite's program benchmark_model, which needs "
        "exactly one of tool and results.",
    )
    threads: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="CPU threads, of the variants too; must equal the target's num-cores if that is given. "
        "Left out: the target's num-cores, else 1.",
    )
    results: Annotated[
        tuple[Annotated[str, Field(min_length=1), Expected("the path of a file")], ...] | None,
        Expected("a list of files, one for each round"),
    ] = Field(
        default=None,
        min_length=1,
        description="What benchmark_model printed, or its result protos, one file a round; relative to the spec's "
        "folder.",
    )
    tool: Annotated[str | None, Expected("the path of benchmark_model on the device; its name contains that word")] = (
        Field(
            default=None,
            pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$",
            description="The benchmark_model to run in each round; relative to the spec's folder if it runs here. It "
            "has to be allowed, see --allow-hooks.",
        )
    )
    through: Annotated[str | None, Expected("local, adb, adb:SERIAL or ssh:HOST", ("local", "adb"))] = Field(
        default=None,
        pattern=r"^(local|adb|adb:[A-Za-z0-9][A-Za-z0-9._:-]*|ssh:[A-Za-z0-9][A-Za-z0-9._@-]*)$",
        description="Where the tool runs: local is here, adb the phone, adb:SERIAL one of several, ssh:HOST a board. "
        "Left out: local.",
    )
    flags: Annotated[
        dict[str, str],
        Expected("a mapping of the tool's flags"),
        WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}),
    ] = Field(default={}, description="Further flags of the tool, such as {use_xnnpack: false}.")

    @model_validator(mode="after")
    def _rules(self) -> BaselineSpec:
        _raise_first(rules.baseline_problems(self.model_dump()))
        return self


class MatchSpec(_Part):
    """Conditions a convolution has to meet; what is left out matches every one."""

    kernel: Annotated[str | None, Expected('height and width of the kernel, such as 1x1 or "3x3"')] = Field(
        default=None, pattern=r"^[1-9][0-9]*x[1-9][0-9]*$", description="Kernel size, such as 1x1."
    )
    depthwise: bool | None = Field(default=None, description="Whether it is depthwise.")
    stride: int | None = Field(default=None, ge=1, le=64, description="Stride, the same in both directions.")
    index: Annotated[str | None, Expected("numbers of convolutions, such as 3 or 0-2,7")] = Field(
        default=None,
        pattern=r"^[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*$",
        description="Numbers of convolutions in execution order, from 0, such as 0-2,7.",
    )
    min_in_channels: int = Field(default=0, ge=0, le=1_000_000, description="Fewest input channels.")
    min_out_channels: int = Field(default=0, ge=0, le=1_000_000, description="Fewest output channels.")


class RuleSpec(_Part):
    """A layout for the convolutions that match."""

    match: MatchSpec = Field(default=MatchSpec(), description="Which convolutions; left out: all.")
    layout: Annotated[str, Expected("NHWC, NCHW, NCHW<block>c such as NCHW8c, or keep", ("NHWC", "NCHW", "keep"))] = (
        Field(pattern=r"^(keep|NHWC|NCHW|NCHW([2-9]|[1-5][0-9]|6[0-4])c)$", description="The layout they get.")
    )

    def to_rule(self) -> Rule:
        """The rule as the hook reads it."""
        match = self.match
        return Rule(
            layout=self.layout,
            kernel=None if match.kernel is None else _two_numbers(match.kernel),
            depthwise=match.depthwise,
            stride=match.stride,
            indices=None if match.index is None else tuple(_numbers(match.index)),
            min_in_channels=match.min_in_channels,
            min_out_channels=match.min_out_channels,
        )


def _two_numbers(text: str) -> tuple[int, int]:
    height, width = text.split("x")
    return int(height), int(width)


def _numbers(text: str) -> Iterator[int]:
    """`0-2,7` as 0, 1, 2, 7."""
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), min(int(last or first), _LARGEST_INDEX) + 1)


# No network has more convolutions; a range typed without end should not fill the memory.
_LARGEST_INDEX = 100_000


class HookSpec(_Part):
    """The layout each convolution gets, as TVM's alter_op_layout pass decides it: a hook by name, or a table."""

    hook: Annotated[str | None, Expected(f"{', '.join(HOOKS)} or package.module:function", HOOKS)] = Field(
        default=None,
        pattern=rf"^({'|'.join(HOOKS)}|{_IDENT}(\.{_IDENT})*:{_IDENT})$",
        description=f"{listed(HOOKS)}, or a function of your own as package.module:function.",
    )
    block: Annotated[int | Literal["auto"] | None, Expected("a whole number from 2 to 64, or auto", ("auto",))] = Field(
        default=None,
        description="Channels per block of NCHWc, 2 to 64, or auto: the floats in one vector of the target. "
        "Needed by nchwc, refused by the others.",
        json_schema_extra={"anyOf": [{"type": "integer", "minimum": 2, "maximum": 64}, {"const": "auto"}]},
    )
    channels: Literal["keep", "pad"] | None = Field(
        default=None,
        description="What nchwc does with channels that a block does not divide: keep the convolution (the default), "
        "or pad the channels with zeros.",
    )
    rules: tuple[RuleSpec, ...] | None = Field(
        default=None, min_length=1, description="A table instead of a hook: the first rule that matches decides."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        return {"hook": value, "block": DEFAULT_BLOCK if value == "nchwc" else None}

    @field_validator("block")
    @classmethod
    def _block_is_in_range(cls, block: Any) -> Any:
        if isinstance(block, int) and not 2 <= block <= 64:
            raise PydanticCustomError("block", "out of range")
        return block

    @model_validator(mode="after")
    def _rules(self) -> HookSpec:
        _raise_first(rules.hook_problems(self.model_dump()))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(handler(core))
        text = {"type": "string", "anyOf": [{"enum": list(HOOKS)}, {"pattern": "^[^:]+:[^:]+$"}]}
        return {"anyOf": [text, dict(mapping)]}

    def label(self) -> str:
        """How tables name the hook: `keep`, `nchwc(block=8)`, `package.module:function`, `2 rules`."""
        if self.rules is not None:
            return f"{len(self.rules)} rule{'s' if len(self.rules) > 1 else ''}"
        if self.block is None:
            return str(self.hook)
        return f"{self.hook}(block={self.block}{', channels=pad' if self.channels == 'pad' else ''})"


class PassesSpec(_Part):
    """TVM's passes, where a variant departs from its defaults."""

    disabled: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.]*$"), Expected("a pass of TVM")], ...] = (
        Field(
            default=(),
            description="Passes that are left out, by TVM's names, such as FoldConstant or tirx.CommonSubexprElim.",
        )
    )
    opt_level: int | None = Field(
        default=None,
        ge=0,
        le=4,
        description="Passes of a higher level than this are left out; left out: TVM's default, 2, with which all run.",
    )

    @property
    def is_default(self) -> bool:
        """Whether nothing departs from TVM's defaults."""
        return self == PassesSpec()


class EngineSpec(_Part):
    """What compiles: Relax, or Relay, in a TVM of its time and an interpreter of its own."""

    kind: Literal["relax", "relay"] = Field(
        description="relax: the TVM that layoutlab is installed with, tuned by MetaSchedule; relay: a TVM from before "
        "Relax, tuned by AutoTVM."
    )
    python: Annotated[str | None, Expected("the path of a Python that can import a TVM with Relay")] = Field(
        default=None,
        pattern=r"^[^\x00-\x1f\x7f-][^\x00-\x1f\x7f]*$",
        description="The interpreter of that TVM. Left out: what LAYOUTLAB_RELAY_PYTHON names, else what `make relay` "
        "made.",
    )
    tophub: bool = Field(
        default=False, description="Let that TVM download the records it was once shipped with (TopHub), and use them."
    )

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _rules(self) -> EngineSpec:
        _raise_first(rules.engine_problems(self.model_dump()))
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        mapping = handler.resolve_ref_schema(handler(core))
        return {"anyOf": [{"type": "string", "enum": list(ENGINES)}, dict(mapping)]}


_ENGINE = Expected(f"{', '.join(ENGINES)} or {{kind: relay, python: …}}", ENGINES)


class VariantSpec(_Part):
    """One way to lay out the model's data, and whether it is tuned."""

    name: Annotated[Name, AfterValidator(_not_reserved)] = Field(
        description="Name of the variant's row and folder; unique, and not tflite."
    )
    convert_layout: Literal["NHWC", "NCHW"] | None = Field(
        default=None,
        description="Convert the whole graph to this layout first; left out, the model's own is kept.",
    )
    alter_op_layout: Annotated[
        HookSpec | None,
        Expected(f"{', '.join(HOOKS)}, package.module:function or {{hook: …, block: …}}", HOOKS),
    ] = Field(
        default=None,
        description=f"Hook that chooses each convolution's layout; plain nchwc has block {DEFAULT_BLOCK}.",
    )
    tune: bool = Field(default=True, description="Tune this variant; false compiles it with TVM's default schedules.")
    fuse: bool = Field(
        default=True, description="Fuse operators into shared functions; false makes each a function of its own."
    )
    passes: PassesSpec = Field(default=PassesSpec(), description="Passes of TVM that this variant is compiled without.")
    engine: Annotated[EngineSpec | None, _ENGINE] = Field(
        default=None, description="What compiles this variant; left out: the spec's engine."
    )


class TuningSpec(_Part):
    """How variants are tuned."""

    trials: int = Field(default=1000, ge=1, le=1_000_000, description="Measured candidates per variant.")
    time_limit_s: int | None = Field(
        default=None,
        ge=1,
        description="Seconds of tuning per variant and run, besides the limit of trials; looked at between batches. "
        "A variant that it ended is finished until trials or the limit change.",
    )
    early_stop: int | None = Field(
        default=None, ge=1, description="A task whose best did not improve in so many trials gets no more."
    )
    skip: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        default=(),
        description="Tasks that are not tuned: indices or ranges such as 3 or 7-9, kinds such as pool2d, names, or "
        "parts of names, as `layoutlab tasks` shows them. Indices differ from variant to variant.",
    )
    search: Literal["evolutionary", "replay-trace", "random", "grid"] = Field(
        default="evolutionary",
        description="Where candidates come from. evolutionary: mutations of the best, ranked by the cost model. "
        "replay-trace: random, as TVM draws them; one may come twice. random: each decision drawn uniformly, no "
        "candidate twice. grid: all candidates in order, until there are none left. The last three ask no cost model.",
    )
    cost_model: Literal["xgb", "random", "none"] = Field(
        default="xgb",
        description="Model that ranks the candidates of the evolutionary search, which needs one; none measures them "
        "as they come.",
    )
    pack_weights: bool = Field(default=True, description="Let weights be stored in the layout the tuned code reads.")
    batch: int = Field(default=16, ge=1, le=64, description="Candidates per batch.")
    population: int = Field(default=128, ge=8, le=4096, description="Candidates alive in the evolutionary search.")
    seed: TuningSeed = Field(default=1, description="Seed of the search; TVM refuses 0.")
    workers: str | None = Field(
        default=None,
        pattern=r"^dask://[^\s/:]+:[0-9]+$",
        description="A dask scheduler, dask://host:port, whose workers build the candidates (needs the extra dask); "
        "left out: this machine.",
    )
    cold_cache: bool = Field(
        default=False,
        description="Empty the caches of all but a candidate's first input before each timed call; the simulated core "
        "always counts with cold caches.",
    )
    repeats: int = Field(
        default=3,
        ge=1,
        le=100,
        description="Timed repeats of a candidate; their median counts. The simulated core counts one call.",
    )
    min_repeat_ms: int = Field(
        default=15,
        ge=0,
        le=10_000,
        description="Shortest duration of one repeat, in ms. With cold_cache single calls are timed for as long.",
    )
    tuner: Literal["xgb", "ga", "random", "gridsearch"] | None = Field(
        default=None,
        description="AutoTVM's tuner, for variants of the Relay engine. Left out: what is nearest to search, which is "
        "xgb for evolutionary.",
    )
    graph_tuner: bool = Field(
        default=False,
        description="Let AutoTVM's graph tuner choose among the records of each convolution, counting the layout "
        "transforms between them; for variants of the Relay engine on x86, where a convolution has one template.",
    )
    logs: tuple[Annotated[str, Field(min_length=1), Expected("the path of an AutoTVM log")], ...] = Field(
        default=(),
        description="AutoTVM logs of elsewhere, relative to the spec's folder. Variants of the Relay engine use them "
        "for what has no record of its own.",
    )


class CheckSpec(_Part):
    """How a variant's outputs are compared with TFLite's."""

    inputs: int = Field(default=5, ge=1, le=1000, description="Random inputs to compare on.")
    seed: Seed = Field(default=1, description="Seed of the inputs.")
    rtol: float = Field(default=1e-3, ge=0, description="Allowed relative difference.")
    atol: float = Field(default=1e-4, ge=0, description="Allowed absolute difference.")


class MeasureSpec(_Part):
    """How run times are measured."""

    rounds: int = Field(
        default=18, ge=1, le=1000, description="Rounds; in each, every variant runs once, in a new order."
    )
    repeats: int = Field(default=10, ge=1, le=1000, description="Timed repeats within a round.")
    min_repeat_ms: int = Field(default=100, ge=1, le=600_000, description="Shortest duration of one repeat, in ms.")
    warmup_ms: int = Field(default=500, ge=0, le=600_000, description="Untimed running before each round, in ms.")
    retries: int = Field(
        default=2,
        ge=0,
        le=100,
        description="How often a row's round is repeated when something disturbed it: heat, or a busy machine.",
    )
    cores: Cores = Field(
        default="big",
        description="Cores that the model runs on: big (the fastest cluster; where all cores are alike, all), little "
        "(the slowest cluster), all, or a list of core numbers. The simulated core ignores it.",
    )
    cooldown_ms: int = Field(default=0, ge=0, le=600_000, description="Pause before each row's round, in ms.")
    cooldown_until_c: float | None = Field(
        default=None,
        ge=0,
        le=120,
        description="Wait before each row's round until the hottest CPU zone is at or below this, in °C; left out, or "
        "where no CPU temperature can be read, there is no such wait.",
    )
    cooldown_limit_s: int = Field(
        default=300, ge=1, le=3600, description="Longest wait for cooldown_until_c, in seconds; then it goes on hot."
    )
    seed: Seed = Field(default=1, description="Seed of the order within rounds and of the inputs.")


class Spec(_Part):
    """A comparison of data layouts of one model under Apache TVM, next to TFLite."""

    name: Annotated[Name, AfterValidator(_not_the_folder_of_runs)] = Field(
        description="Name of the comparison, and of its results folder; not runs."
    )
    description: str | None = Field(default=None, description="Free text.")
    model: ModelSpec = Field(description="The model: exactly one of file and build.")
    target: Target = Field(
        default="host", description="What to compile for: a target string, the same as a mapping, or host."
    )
    device: Annotated[DeviceSpec, Expected(DEVICE_FORMS, DEVICES)] = Field(
        default=DeviceSpec(on="auto"),
        description="Where to run: auto, host (here), kryo (the simulated Kryo core), or phones and boards over RPC.",
    )
    engine: Annotated[EngineSpec, _ENGINE] = Field(
        default=EngineSpec(kind="relax"), description="What compiles the variants that name no engine of their own."
    )
    baseline: BaselineSpec = Field(default=BaselineSpec(), description="The baseline: its runtime and threads.")
    variants: Annotated[tuple[VariantSpec, ...], Expected("a list of at least one variant")] = Field(
        min_length=1, description="The variants to compare."
    )
    tuning: TuningSpec = Field(default=TuningSpec(), description="Tuning of the variants with tune: true.")
    check: CheckSpec = Field(default=CheckSpec(), description="Comparison of the outputs with TFLite's.")
    measure: MeasureSpec = Field(default=MeasureSpec(), description="Measurement of the run times.")

    @model_validator(mode="after")
    def _rules(self) -> Spec:
        _raise_first(rules.spec_problems(self.model_dump()))
        return self

    def engine_of(self, variant: VariantSpec) -> EngineSpec:
        """What compiles a variant."""
        return variant.engine or self.engine

    @property
    def threads(self) -> int:
        """CPU threads that the baseline and every variant run with."""
        cores = None if self.target == "host" else self.target.get("num-cores")
        return self.baseline.threads or cores or 1
