"""A finished run as a Workflow Run RO-Crate: its results, and how and when each was made (docs/exports.md)."""

import io
import os
import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from granularity.base.errors import GranularityError
from granularity.base.shipped import HERE
from granularity.look.exports import whole
from granularity.stages import STAGES
from granularity.store.artifact import PARTS, Artifact
from granularity.store.place import MANIFEST, find

PROFILES = {"Process Run Crate": "https://w3id.org/ro/wfrun/process/0.5"}
PROFILES |= {"Workflow Run Crate": "https://w3id.org/ro/wfrun/workflow/0.5"}
PROFILES |= {"Provenance Run Crate": "https://w3id.org/ro/wfrun/provenance/0.5"}
PROFILES |= {"Workflow RO-Crate": "https://w3id.org/workflowhub/workflow-ro-crate/1.0"}
CONTEXT = "https://w3id.org/ro/terms/workflow-run/context"
SNAKEMAKE = "text/x-python"
MIT = "https://spdx.org/licenses/MIT"
WORKFLOW, CONFIGURATION = ("workflow/Snakefile", "rules"), "configuration.yaml"
HEAVY, IMAGES = (".npy", ".safetensors", ".jpegs"), "images.parquet"  # files that only --arrays includes
FORMATS = {".json": "application/json", ".csv": "text/csv", ".html": "text/html", ".svg": "image/svg+xml"}
FORMATS |= {".parquet": "application/vnd.apache.parquet", ".yaml": "application/yaml"}


def export(results: Path, to: Path, arrays: bool = False, licence: str = "not stated") -> None:
    """Write the results of one configuration, or of a study, as an RO-Crate: a new folder, or a file `NAME.zip`.

    Each artifact is a Dataset with its manifest and its files (arrays, weights and images only with `arrays`), and a
    CreateAction that names its command, inputs and times. Raises GranularityError: there is no report; there are
    results of other runs; one is corrupt; or the package rocrate, or the workflow's own files, are not here.
    """
    try:
        from rocrate.rocrate import ROCrate
    except ImportError:
        raise GranularityError("export crate: needs the package rocrate: pip install 'granularity[crate]'") from None
    if not all((HERE / name).exists() for name in WORKFLOW):
        raise GranularityError(f"export crate: {HERE} has no {WORKFLOW[0]}; run it from a checkout of the repository")
    artifacts = [Artifact.open(path) for path in find(results)]
    artifacts = [one for one in artifacts if one.kind in STAGES]  # not a user's link to a single run
    crate = _Crate(ROCrate(version="1.1"), _last(results, artifacts))
    crate.describe(results.resolve().name, licence)
    for result in artifacts:
        crate.add_result(
            result, Path(results.resolve().name, os.path.relpath(result.place, results.absolute())), arrays
        )
    for result in {result.folder: result for result in artifacts}.values():
        crate.add_job(result)
    with whole(to) as target:
        (crate.crate.write_zip if to.suffix == ".zip" else crate.crate.write)(target)


def _last(results: Path, artifacts: Sequence[Artifact]) -> Artifact:
    """Return the result that ends a run: the `gather` of a study, otherwise the report."""
    for kind in ("gather", "report"):
        found = [one for one in artifacts if one.kind == kind]
        if len(found) > 1:
            raise GranularityError(f"{results}: has runs {', '.join(str(one.path.parent) for one in found)}; name one")
        if found:
            run = found[0].path.parent
            if any(run not in one.path.parents for one in artifacts):
                raise GranularityError(f"{results}: has results of other runs than {run}; name one")
            return found[0]
    raise GranularityError(f"{results}: contains no report, so the run is not finished; finish it with: snakemake")


class _Crate:
    """A crate that is being filled."""

    def __init__(self, crate: Any, last: Artifact):
        self.crate, self.last = crate, last
        self.datasets: dict[Path, Any] = {}  # by the artifact's folder
        self.tools: dict[str, Any] = {}

    def describe(self, name: str, licence: str) -> None:
        """Describe the crate, and add the workflow, the configuration and the run."""
        crate, configuration = self.crate, self.last.params["configuration"]
        title = (configuration.get("report") or {}).get("title") or "Does finer-grained pretraining help here?"
        crate.name, crate.description = (
            f"granularity: run {name}",
            f"{title} Results of one run, and how each was made.",
        )
        crate.license = self._entity(licence, "CreativeWork", name=licence) if ":" in licence else licence
        crate.metadata.extra_contexts.append(CONTEXT)
        for profile, url in PROFILES.items():
            conforms = self._entity(url, "CreativeWork", name=profile, version=url.rpartition("/")[2])
            crate.root_dataset.append_to("conformsTo", conforms)
        versions = self.last.manifest["all_packages"]
        self.workflow = crate.add_workflow(
            HERE / WORKFLOW[0],
            WORKFLOW[0],
            main=True,
            lang="snakemake",
            lang_version=versions.get("snakemake"),
            properties={
                "name": "granularity",
                "encodingFormat": SNAKEMAKE,
                "version": versions.get("granularity", "unknown"),
                "license": {"@id": MIT},
            },
        )
        self._entity(MIT, "CreativeWork", name="MIT License")
        for file in sorted((HERE / WORKFLOW[1]).glob("*.smk")):
            about = {"name": f"Rules: {file.stem}", "encodingFormat": SNAKEMAKE}
            crate.add_file(file, f"{WORKFLOW[1]}/{file.name}", properties=about)
        named = configuration | {"name": configuration["name"].replace("/", "-")}  # of a study's cell: NAME/CELL
        text = yaml.safe_dump(named, sort_keys=False, allow_unicode=True)
        about = {"name": "Configuration of the run", "encodingFormat": FORMATS[".yaml"]}
        entity = crate.add_file(io.StringIO(text), CONFIGURATION, properties=about)
        self.run = self._action("#run", f"Run {name}", f"snakemake --configfile {CONFIGURATION}", self.workflow)
        self.run["object"] = entity

    def add_result(self, artifact: Artifact, place: Path, arrays: bool) -> None:
        """Add an artifact as a Dataset, with the files to include."""
        if artifact.folder in self.datasets:  # shared by cells of a study
            self.datasets[artifact.folder].append_to("alternateName", f"{place}/", compact=True)
            return
        files = artifact.manifest["files"]
        left = {name for name in files if not arrays and (name.endswith(HEAVY) or name == IMAGES)}
        about = {"name": f"{artifact.kind} {place}", "identifier": artifact.digest}
        about["description"] = STAGES[artifact.kind].does + (f" Left out: {', '.join(sorted(left))}." if left else "")
        dataset = self.datasets[artifact.folder] = self.crate.add_dataset(dest_path=f"{place}/", properties=about)
        for name in (MANIFEST, *(name for name in files if name not in left)):
            about = {"name": f"{artifact.kind}: {name}", "encodingFormat": FORMATS.get(Path(name).suffix, "text/plain")}
            if name in files:
                about |= {"sha256": files[name]["sha256"], "contentSize": str(files[name]["bytes"])}
            file = self.crate.add_file(artifact.folder / name, f"{place}/{name}", properties=about)
            dataset.append_to("hasPart", file, compact=True)

    def add_job(self, artifact: Artifact) -> None:
        """Add the job that made an artifact: command, times and inputs; inputs elsewhere are named by their digest."""
        manifest, dataset = artifact.manifest, self.datasets[artifact.folder]
        version = manifest["all_packages"].get("granularity", "unknown")
        if (tool := f"#granularity-{artifact.kind}-{version}") not in self.tools:
            about = {"name": f"granularity {artifact.kind}", "description": STAGES[artifact.kind].does}
            self.tools[tool] = self._entity(tool, "SoftwareApplication", **about, softwareVersion=version)
            self.workflow.append_to("hasPart", self.tools[tool])
        command = shlex.join(manifest["command"])
        action = self._action(f"#job-{manifest['key']}", dataset["name"], command, self.tools[tool])
        start = datetime.fromisoformat(manifest["cost"]["started"])
        end = start + timedelta(seconds=round(manifest["cost"]["wall_seconds"]))
        for entity in (action, self.run):
            entity["startTime"] = min(start.isoformat(), entity.get("startTime", start.isoformat()))
            entity["endTime"] = max(end.isoformat(), entity.get("endTime", end.isoformat()))
            entity.append_to("result", dataset, compact=True)
        for entry in manifest["inputs"].values():
            source = Path(os.path.realpath(artifact.folder / entry["path"]))
            if source in self.datasets:
                action.append_to("object", self.datasets[source], compact=True)
            elif entry["kind"] not in PARTS:
                about = {"name": f"{entry['kind']} {entry['name']}", "identifier": entry["digest"]}
                action.append_to("object", self._entity(f"#{entry['digest']}", "CreativeWork", **about), compact=True)

    def _action(self, identifier: str, name: str, command: str, instrument: Any) -> Any:
        action = self._entity(identifier, "CreateAction", name=name, description=command)
        action["instrument"] = instrument
        self.crate.root_dataset.append_to("mentions", action)
        return action

    def _entity(self, identifier: str, kind: str, **about: str) -> Any:
        return self.crate.get(identifier) or self.crate.add_jsonld({"@id": identifier, "@type": kind, **about})
