"""Every hyperparameter of the method, with its default. No module holds a literal of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from coral_pipeline.errors import BadInput

Direction = Literal["maximize", "minimize"]
"""Which scores are better. An *oriented* score is the score for ``maximize``, its negative for ``minimize``."""

Stage = Literal["early", "middle", "late"]
STAGES: tuple[Stage, ...] = ("early", "middle", "late")


def orient(score: float, direction: Direction) -> float:
    """The score turned so that higher is better."""
    return score if direction == "maximize" else -score


class Settings(BaseModel):
    """Frozen, closed to unknown names; each field's docstring is its description."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class StageWeights(Settings):
    """One number per stage of the Student run."""

    early: int = Field(ge=0)
    middle: int = Field(ge=0)
    late: int = Field(ge=0)


class SelectionSettings(Settings):
    """Stages of a Student run and the choice of roots (seed section 2, method S7–S11)."""

    num_roots: int = Field(default=30, ge=1)
    """Roots to choose per Student run."""
    quota_weights: StageWeights = StageWeights(early=1, middle=3, late=2)
    """Shares of ``num_roots`` per stage (S9)."""
    backfill_order: tuple[Stage, ...] = ("middle", "late", "early")
    """Stages that fill a shortage, in this order (S11)."""
    smooth_window: int = Field(default=5, ge=1)
    """Snapshots in the centred moving average; odd (S7)."""
    start_fraction: float = Field(default=0.05, gt=0, le=1)
    """First share of the run whose mean smooth score is S0 (S8)."""
    final_fraction: float = Field(default=0.20, gt=0, le=1)
    """Last share of the run whose mean smooth score is S_inf (S8)."""
    trend_tolerance: float = Field(default=1e-12, ge=0)
    """Relative gain at or under which the run counts as having no upward trend (S8)."""
    middle_gain: float = Field(default=0.5, ge=0, le=1)
    """Share of the total gain at which middle begins (S8)."""
    late_gain: float = Field(default=0.9, ge=0, le=1)
    """Share of the total gain at which late begins (S8)."""
    middle_position: float = Field(default=0.10, ge=0, le=1)
    """Without a trend: share of the snapshots before middle begins (S8)."""
    late_position: float = Field(default=0.50, ge=0, le=1)
    """Without a trend: share of the snapshots before late begins (S8)."""

    @model_validator(mode="after")
    def _consistent(self) -> SelectionSettings:
        if self.smooth_window % 2 == 0:
            raise ValueError("smooth_window must be odd: the moving average is centred")
        if self.quota_weights.early + self.quota_weights.middle + self.quota_weights.late == 0:
            raise ValueError("quota_weights must not all be 0")
        if self.middle_gain > self.late_gain or self.middle_position > self.late_position:
            raise ValueError("middle must not begin after late")
        if sorted(self.backfill_order) != sorted(STAGES):
            raise ValueError("backfill_order must name early, middle and late once each")
        return self


class SoftWeights(Settings):
    """Weights of the soft verifier score (seed 1.7, method T9)."""

    outcome: float = 0.30
    cleanliness: float = 0.20
    knowledge: float = 0.20
    regression_stability: float = 0.30


class KnowledgeScores(Settings):
    """The knowledge part of the soft score (seed 1.7)."""

    improved_with_knowledge: float = 1.0
    improved: float = 0.8
    knowledge: float = 0.6
    neither: float = 0.4


Width = Annotated[int, Field(ge=1)] | Literal["auto"]
"""Expansions of one round; ``auto``: a number that is still to be found."""


class SearchSettings(Settings):
    """The tree of one root (seed section 1, method T1–T14)."""

    root_children: int = Field(default=3, ge=1)
    """Directions taken from the root, all in round 1."""
    max_children_per_non_root_node: int = Field(default=2, ge=1)
    max_depth: int = Field(default=4, ge=1, le=50)
    """Logical edges on the longest path; each is two Rollout Turns. Edges are named, in files too, by their paths."""
    hard_token_limit: int = Field(default=100_000, ge=1)
    """Context tokens at or over which a node is a normal leaf."""
    target_good_leaf_count: int = Field(default=12, ge=1)
    max_logical_edges: int = Field(default=40, ge=1)
    """Hard cap on valid edges (T13)."""
    max_failed_expansions: int = Field(default=2, ge=1)
    """Failed edges that close a node other than the root."""
    parallel_width: Width = 8
    """Expansions of one round. Part of the method: it decides which nodes are chosen together (T12).

    ``auto``: as many as model server and machine can take when the tree is begun; the number stands in ``tree.json``.
    """
    max_tool_error_rate: float = Field(default=0.30, gt=0, le=1)
    """Tool error rate over which an edge fails (T3); also the scale of cleanliness."""
    direction_tries: int = Field(default=2, ge=1)
    """Tries of each direction from the root; the last one always gives a child (T4)."""
    exempt_depth: int = Field(default=2, ge=0)
    """Depth of the edges that are never pruned (T4)."""
    score_rank_weight: float = 0.40
    best_rank_weight: float = 0.30
    process_weight: float = 0.30
    root_process: float = 0.5
    """``process`` of the root, which has no edges (T10)."""
    token_bonus: float = 0.50
    """alpha: weight of the short-context bonus T(n)."""
    soft_weights: SoftWeights = SoftWeights()
    outcome_improved: float = 1.0
    outcome_otherwise: float = 0.7
    cleanliness_base: float = 0.8
    """Cleanliness just above a tool error rate of 0."""
    cleanliness_slope: float = 0.5
    """Cleanliness lost from there to ``max_tool_error_rate``."""
    cleanliness_floor: float = 0.3
    knowledge_scores: KnowledgeScores = KnowledgeScores()
    tie_decimals: int = Field(default=12, ge=0)
    """Select scores equal after rounding to so many decimals tie (T12)."""

    @model_validator(mode="after")
    def _consistent(self) -> SearchSettings:
        if self.max_logical_edges < self.root_children:
            raise ValueError("max_logical_edges must be at least root_children: round 1 takes every direction")
        return self

    @property
    def width(self) -> int:
        """``parallel_width`` as a number. Raises ``BadInput`` where it is ``auto``."""
        if self.parallel_width == "auto":
            raise BadInput("search.parallel_width", "is auto, which is no number yet", "give a number")
        return self.parallel_width

    def at_width(self, width: Width) -> SearchSettings:
        """The same with another ``parallel_width``."""
        return self.model_copy(update={"parallel_width": width})


class RetrySettings(Settings):
    """Patience with infrastructure faults (method T5). It decides when a tree is made, never which tree."""

    attempts: int = Field(default=6, ge=1, le=100)
    """Tries of one turn, the first included, before the root is given up for now."""
    first_delay_seconds: float = Field(default=5.0, ge=0)
    """Pause before the second try."""
    factor: float = Field(default=2.0, ge=1, le=10)
    """Growth of the pause from one try to the next."""
    max_delay_seconds: float = Field(default=300.0, ge=0)
    """Longest pause."""

    def delay_seconds(self, faults: int) -> float:
        """Pause after so many faults in a row (1 or more)."""
        return min(self.first_delay_seconds * self.factor ** (faults - 1), self.max_delay_seconds)


class PathSettings(Settings):
    """Ranking of root-to-leaf paths (seed section 3, method P1–P3)."""

    max_score_rank_weight: float = 0.35
    avg_score_rank_weight: float = 0.25
    cleanliness_weight: float = 0.20
    knowledge_weight: float = 0.20
    top_k: int = Field(default=6, ge=1)
    """Paths selected per root."""
    tie_decimals: int = Field(default=12, ge=0)
    """PathScores equal after rounding to so many decimals tie (P3)."""


class RewardConfig(Settings):
    """Rewards of searched edges and the values made of them (seed estimation, method C1, C2)."""

    value_prior_strength: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """kappa: how many direct branches the critic's prediction weighs as much as."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount per step turn."""
    gain_weight: float = Field(default=1.0, allow_inf_nan=False)
    """w_gain: weight of the gain in percentile rank from parent to child."""
    soft_weight: float = Field(default=0.0, allow_inf_nan=False)
    """w_soft: weight of the soft verifier score."""


class GrpoSettings(Settings):
    """Normalisation of group-relative advantages (method C4)."""

    std_offset: float = Field(default=1e-6, gt=0, allow_inf_nan=False)
    """Added to the standard deviation of the returns before dividing by it."""
    tie_tolerance: float = Field(default=1e-15, ge=0, allow_inf_nan=False)
    """Returns whose range, relative to max(1, their size), is at most this are all equal: advantages are exactly 0.

    As large as the rounding of sums along paths, so that returns that do differ are never taken to be equal.
    """


class HttpCriticSettings(Settings):
    """The ``http`` value model: an endpoint that predicts values of checkpoints (method C6)."""

    url: str = ""
    """Where to POST the batches; must be given when the model is used."""
    batch_size: int = Field(default=16, ge=1)
    """Checkpoints per request."""
    timeout_seconds: float = Field(default=60.0, gt=0)
    """Per request, for each of connecting, sending, and waiting for the next bytes."""
    retries: int = Field(default=5, ge=0)
    """Further tries after a connection error, a time-out, or HTTP 429 or 5xx."""
    backoff_seconds: float = Field(default=1.0, ge=0)
    """Pause before the first retry; doubled before each further one."""


class CreditSettings(Settings):
    """Advantages and critic targets of a tree (method C1–C6)."""

    estimator: str = "direct_branch_td"
    """Name of an estimator, or ``module:attribute``."""
    value_model: str = "constant"
    """Name of a value model, or ``module:attribute``."""
    prior: float = Field(default=0.0, allow_inf_nan=False)
    """What the ``constant`` value model predicts."""
    rewards: RewardConfig = RewardConfig()
    grpo: GrpoSettings = GrpoSettings()
    http: HttpCriticSettings = HttpCriticSettings()
    tokenizer: str = "byte"
    """``byte``, or a Hugging Face tokenizer's folder or name: whose ids the token tables hold."""


class EmbeddedSettings(Settings):
    """The embedded teacher: a local-search agent without a language model."""

    UNDECIDING: ClassVar[frozenset[str]] = frozenset(
        ("min_free_bytes", "max_tree_bytes", "code_diff_bytes", "grader_python")
    )
    """Settings that have no part in what the teacher answers: with others the same tree goes on."""

    bytes_per_token: int = Field(default=4, ge=1)
    """Context tokens are estimated as the UTF-8 bytes of the session divided by this."""
    load_seconds: float = Field(default=10.0, gt=0)
    """Time limit of one shell command, the agent's local test among them."""
    grading_seconds: int = Field(default=300, ge=1)
    """Time limit of an eval where the task gives none."""
    grading_grace_seconds: float = Field(default=5.0, ge=0)
    """How long past its limit an eval may take to say so itself before it is killed."""
    grader_python: Path | None = None
    """Python that has the package of the task's ``grader.entrypoint`` installed; None: the one that runs this."""
    min_free_bytes: int = Field(default=16 << 20, ge=0)
    """Free disk space without which a turn is not begun, nor believed when it ends."""
    max_tree_bytes: int = Field(default=16 << 30, ge=1 << 20)
    """Disk space of a tree's states beyond which no turn is begun: the tree stops, and can be resumed."""
    output_characters: int = Field(default=6_000, ge=1)
    """A tool's output beyond this is cut."""
    code_diff_bytes: int = Field(default=100_000, ge=0)
    """A turn's code diff beyond this is cut; it decides nothing, so a tree goes on when it is changed."""
    program_bytes: int = Field(default=200_000, ge=1)
    """Larger source files are not looked into."""
    max_programs: int = Field(default=20, ge=1)
    """Source files the agent looks into, those the task names first."""
    max_notes: int = Field(default=3, ge=0)
    """Notes of others read at the start of a session."""
    move_tries: int = Field(default=3, ge=1)
    """Changes tried per turn until the program loads."""
    draws: int = Field(default=20, ge=1)
    """Draws of a change until it is one that was not tried in the session."""
    number_step: float = Field(default=0.03, gt=0)
    """Standard deviation of a number's first change, as a share of the spread of the numbers it stands among."""
    bold_number_step: float = Field(default=0.05, gt=0)
    """The same far from the best known score."""
    step_growth: float = Field(default=1.2, ge=1)
    """Factor of the step after a change of numbers helped."""
    step_shrink: float = Field(default=0.5, gt=0, le=1)
    """Factor of the step after a change failed in both directions."""
    reach: int = Field(default=5, ge=2)
    """Elements of an order that one change spans at most, unless it is a bold one."""
    longer_chance: float = Field(default=0.5, ge=0, le=1)
    """Chance, beginning with two elements, that it may span one element more."""
    bold_chance: float = Field(default=0.05, ge=0, le=1)
    """Share of changes of orders that span any distance."""
    bold_chance_far: float = Field(default=0.5, ge=0, le=1)
    """The same far from the best known score."""
    far_gap: float = Field(default=0.4, ge=0, le=1)
    """Far: this share or more of the range of known scores lies between the agent's best and the best known."""
    extend_chance: float = Field(default=0.6, ge=0, le=1)
    """Chance to go on in the direction of a change of numbers that helped."""
    reread_chance: float = Field(default=0.5, ge=0, le=1)
    """Later turns of a session: chance to read the shared notes again."""
    note_chance: float = Field(default=0.5, ge=0, le=1)
    """Chance to note down a change that did not help; what helped or crashed is always noted."""


Chance = Annotated[float, Field(ge=0, le=1)]


class SimulationSettings(Settings):
    """The simulated teacher: how Rollout Turns turn out, each drawn on its own. Defaults are guesses: put in your own.

    Medians and sigmas are those of lognormal distributions (sigma: standard deviation of the logarithm).
    """

    no_score_chance: Chance = 0.06
    """A turn ends without a numeric score."""
    improve_chance: Chance = 0.35
    """A scored turn beats the best score its session had reached."""
    mean_gain: float = Field(default=0.02, ge=0)
    """By how much, on the average (exponential), as a share of the root's score (of 1 where that is 0)."""
    mean_loss: float = Field(default=0.03, ge=0)
    """By how much a scored turn that does not improve falls short, likewise."""
    median_tool_calls: float = Field(default=14.0, gt=0)
    """Tool calls of a turn; each is a model call of its own, and one more ends the turn."""
    sigma_tool_calls: float = Field(default=0.4, ge=0)
    """Spread of the tool calls."""
    tool_error_chance: Chance = 0.04
    """A tool call fails, in a clean turn."""
    messy_chance: Chance = 0.06
    """A turn is messy."""
    messy_tool_error_chance: Chance = 0.5
    """A tool call fails, in a messy turn."""
    knowledge_read_chance: Chance = 0.7
    """A turn reads shared knowledge."""
    knowledge_write_chance: Chance = 0.5
    """A turn writes shared knowledge."""
    first_context_tokens: int = Field(default=9_000, ge=0)
    """Context of a fresh session before its first turn: system prompt, tools, task."""
    median_turn_tokens: float = Field(default=8_000.0, gt=0)
    """Tokens a turn adds to its session's context."""
    sigma_turn_tokens: float = Field(default=0.5, ge=0)
    """Spread of the tokens a turn adds."""
    sampled_share: Chance = 0.4
    """Share of the added tokens that the model samples; the others are prompts and tool results."""
    median_seconds: float = Field(default=240.0, gt=0)
    """Wall-clock seconds of a turn, its eval included."""
    sigma_seconds: float = Field(default=0.5, ge=0)
    """Spread of the seconds."""
    infrastructure_fault_chance: float = Field(default=0.0, ge=0, lt=1)
    """A try of a turn ends in an infrastructure fault (method T5)."""
    fault_seconds: float = Field(default=120.0, ge=0)
    """Wall-clock seconds lost to each of them, added to those of the turn."""


class SandboxSettings(Settings):
    """What the agents of the real Teacher can see and use of the machine."""

    isolation: Literal["bubblewrap", "none"] = "bubblewrap"
    """``none``: agents run unisolated, and can read and change whatever the user who runs the search can."""
    read_only: tuple[Path, ...] = ()
    """Further files and folders that agents and graders may read, at their own paths (compilers, data sets …)."""
    search_path: tuple[Path, ...] = ()
    """Folders put in front of the agents' ``PATH``."""
    devices: tuple[Path, ...] = ()
    """Devices that agents and graders may use (``/dev/nvidia0`` …)."""
    keep_environment: tuple[str, ...] = ()
    """Environment variables passed on to agents and graders. Never name one that holds a key."""
    tmp_bytes: int = Field(default=1 << 30, ge=1 << 20)
    """Size of ``/tmp`` and of the home folder: both are memory, and anew in every turn."""


class EndpointSettings(Settings):
    """The recording model endpoint between an agent and the model server."""

    extra_body: dict[str, Any] = {}
    """Fields put into every request: sampling parameters and the like."""
    token_fields: dict[str, Any] = {"logprobs": True, "return_token_ids": True}
    """Fields that ask for token ids and log-probabilities; left out once the server refuses them. {}: never ask."""
    routing_headers: tuple[str, ...] = ("x-smg-routing-key",)
    """Headers that carry the tree's key, so that a router keeps a tree's forks on one server's prefix cache."""
    connect_seconds: float = Field(default=10.0, gt=0)
    """Wait for a connection to the model server."""
    first_byte_seconds: float = Field(default=600.0, gt=0)
    """Wait for the first byte of an answer: queueing and the prompt's computation."""
    stall_seconds: float = Field(default=120.0, gt=0)
    """Longest silence in mid-answer."""
    patience_seconds: float = Field(default=600.0, ge=0)
    """How long to go on asking a server that cannot be reached or says it is overloaded, within a turn."""
    retry_seconds: float = Field(default=2.0, gt=0)
    """Pause between two such tries."""


class OpenCodeSettings(Settings):
    """The real Teacher: OpenCode agents in forks, graded by CORAL."""

    UNDECIDING: ClassVar[frozenset[str]] = frozenset(
        (
            *("endpoint", "api_key_variable", "opencode_command", "coral_command", "grader_python"),
            *("max_layers", "code_diff_bytes", "min_free_bytes", "max_tree_bytes"),
            *("settle_seconds", "start_seconds", "agent_bytes", "agents_per_cpu"),
        )
    )
    """Settings of where and with what room agents work: with others the same tree goes on."""

    endpoint: str = ""
    """Base address of the OpenAI-compatible API, such as ``http://gpu1:30000/v1``."""
    model: str = ""
    """Name of the model, as the endpoint lists it."""
    api_key_variable: str = "CORAL_PIPELINE_API_KEY"
    """Environment variable that holds the endpoint's key, where it wants one. The key itself is never written down."""
    opencode_command: str = "opencode"
    """OpenCode's program: a name on the PATH or a path."""
    coral: Literal["auto", "installed", "built-in"] = "auto"
    """Whose ``coral`` command the agents get; ``auto``: the installed one where there is one."""
    coral_command: str = "coral"
    """The installed CORAL's program: a name on the PATH or a path."""
    fork_method: Literal["auto", "overlay", "reflink", "copy"] = "auto"
    """How states are forked; ``auto``: the first that works."""
    max_layers: int = Field(default=32, ge=1, le=100)
    """Overlay layers stacked before they are copied into one."""
    sandbox: SandboxSettings = SandboxSettings()
    recording: EndpointSettings = EndpointSettings()
    context_limit: int = Field(default=131_072, ge=1)
    """Context length of the model, as OpenCode is told."""
    output_limit: int = Field(default=8_192, ge=1)
    """Tokens of one answer at most."""
    instructions: Path | None = None
    """Template of the agents' AGENTS.md; None: the one that comes along."""
    first_prompt: Path | None = None
    """Template of the prompt of an edge's first turn; None likewise."""
    second_prompt: Path | None = None
    """Template of the prompt of an edge's second turn; None likewise."""
    turn_seconds: float = Field(default=7_200.0, gt=0)
    """Wall-clock limit of a turn; what it has not scored by then it has not scored."""
    idle_seconds: float = Field(default=3_600.0, gt=0)
    """Longest time in which the agent neither asks the model nor is being graded."""
    settle_seconds: float = Field(default=30.0, ge=0)
    """How long an agent may take to take in its eval's result before the turn is ended for it."""
    start_seconds: float = Field(default=120.0, gt=0)
    """Wait for OpenCode to start."""
    shell_seconds: float = Field(default=1_800.0, gt=0)
    """Default limit of one of the agent's shell commands, a waiting ``coral eval`` among them."""
    grading_seconds: int = Field(default=300, ge=1)
    """Time limit of an eval where the task gives none."""
    grading_grace_seconds: float = Field(default=30.0, ge=0)
    """How long past its limit an eval may take to say so itself before it is killed."""
    grader_python: Path | None = None
    """Python that has the package of the task's ``grader.entrypoint`` installed; None: the one that runs this."""
    code_diff_bytes: int = Field(default=100_000, ge=0)
    """A turn's code diff beyond this is cut; it decides nothing, so a tree goes on when it is changed."""
    max_state_bytes: int = Field(default=4 << 30, ge=1 << 20)
    """Disk space a turn may add; one that adds more is ended."""
    min_free_bytes: int = Field(default=2 << 30, ge=0)
    """Free disk space without which no turn is begun, nor believed when it ends."""
    max_tree_bytes: int = Field(default=64 << 30, ge=1 << 20)
    """Disk space of a tree's states and records beyond which no turn is begun: the tree stops, and can be resumed."""
    agent_bytes: int = Field(default=620_000_000, ge=1)
    """Memory an agent takes, for ``parallel_width: auto``."""
    agents_per_cpu: int = Field(default=4, ge=1)
    """Agents that one CPU keeps up with, for ``parallel_width: auto``: they mostly wait for the model."""


class TeacherSettings(Settings):
    """Who explores."""

    name: str = "embedded"
    """A Teacher of ``teacher.registry``."""
    seed: int = 0
    """Seed of the teachers that work without a model."""
    script: Path | None = None
    """Answers of the ``scripted`` teacher, JSON Lines."""


class StudentRunBudget(Settings):
    """What one Student run may have of a night; what is not given is as for all."""

    paused: bool = False
    """Explore nothing of it."""
    roots_per_night: int | None = Field(default=None, ge=1)
    """In place of ``AutomationSettings.roots_per_night``."""
    hours_per_night: float | None = Field(default=None, gt=0)
    """In place of ``AutomationSettings.hours_per_night``."""


class AutomationSettings(Settings):
    """What a deployment does by itself. It decides when something is made, never what."""

    on_from_the_start: bool = False
    """Sensors and the schedule run until someone stops them in the UI; otherwise they wait to be turned on there."""
    seconds_between_looks: int = Field(default=30, ge=1)
    """Between two looks of a sensor."""
    quiet_seconds: float = Field(default=60.0, ge=0)
    """A Student run's folder in which nothing changed for so long has been copied."""
    cron: str = "0 20 * * *"
    """When a night of exploring begins."""
    timezone: str = "UTC"
    """Of the cron expressions, such as ``Europe/Berlin``."""
    roots_per_night: int | None = Field(default=10, ge=1)
    """Roots of each Student run that a night begins or goes on with; None: all that are not done."""
    hours_per_night: float | None = Field(default=None, gt=0)
    """What is not done so many hours after the night began is stopped, to be gone on with; None: it may end."""
    student_runs: dict[str, StudentRunBudget] = {}
    """Budgets of Student runs, by name, where they are not as for all."""
    dataset_cron: str = "0 * * * *"
    """Datasets are made when no root of their Student run is under way, and at these times all the same."""
    seconds_before_retry: tuple[float, ...] = (60.0, 600.0, 3_600.0)
    """Pause with which a root begins that is tried again after an infrastructure fault: the first time, the second …

    The last one holds for all further times. How often there is a retry is set in dagster.yaml (``run_retries``).
    """


class PipelineSettings(Settings):
    """Everything that can be set, by stage: what a settings file holds."""

    selection: SelectionSettings = SelectionSettings()
    search: SearchSettings = SearchSettings()
    retry: RetrySettings = RetrySettings()
    teacher: TeacherSettings = TeacherSettings()
    simulation: SimulationSettings = SimulationSettings()
    embedded: EmbeddedSettings = EmbeddedSettings()
    opencode: OpenCodeSettings = OpenCodeSettings()
    paths: PathSettings = PathSettings()
    credit: CreditSettings = CreditSettings()
    trees_at_once: int = Field(default=2, ge=1)
    """Trees that grow side by side; each keeps up to ``search.parallel_width`` agents busy."""
    automation: AutomationSettings = AutomationSettings()


class ReportSettings(Settings):
    """How much goes into the page that ``coral-pipeline report`` writes; the tables hold all of it."""

    text_characters: int = Field(default=20_000, ge=100)
    """One message's text or one diff beyond this is shown without its middle."""
    min_text_characters: int = Field(default=200, ge=100)
    """Down to so many characters texts are cut, all of a root alike, to keep to ``transcript_bytes``."""
    transcript_bytes: int = Field(default=24_000_000, ge=10_000)
    """Size in the page of all transcripts and diffs together, shared evenly by the trees."""


UNDECIDING = {"embedded": set(EmbeddedSettings.UNDECIDING), "opencode": set(OpenCodeSettings.UNDECIDING)}
"""Settings, by section, that change nothing in what is made."""
OF_TEACHER = {"embedded": "embedded", "simulated": "simulation", "opencode": "opencode"}
"""Section of each Teacher that has one, by its name."""


def with_defaults(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Sections of settings as they were recorded; what a later version of the code has added stands at its default.

    So they are those of now where that version would do the same. Just as they are where it cannot read them.
    """
    try:
        return PipelineSettings.model_validate(recorded).model_dump(mode="json", include=set(recorded))
    except ValidationError:
        return dict(recorded)
