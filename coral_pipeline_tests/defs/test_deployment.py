"""What of a deployment runs by itself, before anyone turned it on or off."""

from __future__ import annotations

from pathlib import Path

import dagster as dg
import yaml

from coral_pipeline.defs.build import build_definitions, definitions_from
from coral_pipeline_tests.defs.test_exploring import TONIGHT
from coral_pipeline_tests.defs.world import settings


def statuses(definitions: dg.Definitions) -> dict[str, str]:
    repository = definitions.get_repository_def()
    automations = [*repository.sensor_defs, *repository.schedule_defs]
    return {automation.name: automation.default_status.value for automation in automations}


def test_nothing_begins_by_itself_unless_the_settings_say_so() -> None:
    waiting = build_definitions(Path("out"), Path("runs"), settings())
    running = build_definitions(Path("out"), Path("runs"), settings(automation={"on_from_the_start": True}))
    names = ("arrivals", "carry_on", "nights")
    assert statuses(waiting) == dict.fromkeys(names, "STOPPED") | {"caretaker": "RUNNING"}
    assert statuses(running) == dict.fromkeys((*names, "caretaker"), "RUNNING")


def test_budgets_and_pauses_are_read_anew_when_a_night_begins(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    key = "a|eval-000001-agent-1-0123456789ab"

    def write(paused: bool) -> None:
        file.write_text(yaml.safe_dump({"automation": {"student_runs": {"a": {"paused": paused}}}}))

    write(paused=True)
    definitions = definitions_from({"CORAL_PIPELINE_OUTPUT": str(tmp_path), "CORAL_PIPELINE_SETTINGS": str(file)})
    repository = definitions.get_repository_def()
    (schedule,) = repository.schedule_defs
    with dg.instance_for_test() as instance:
        instance.add_dynamic_partitions("student_runs", ["a"])
        instance.add_dynamic_partitions("roots", [key])

        def asked() -> list[str | None]:
            with dg.build_schedule_context(instance, TONIGHT, repository_def=repository) as context:
                return [request.partition_key for request in schedule.evaluate_tick(context).run_requests or ()]

        assert asked() == []
        write(paused=False)
        assert asked() == [key]
