# The package `granularity`, which knows the rules: installed, or from the checkout that this file lies in, or, with
# `--sdm conda`, from the repository that this file comes from (as `snakedeploy` has it), in an environment of its own.
import importlib.util
import os
import sys
from pathlib import Path

import yaml
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod

here = workflow.current_basedir.join("..")
checkout = os.path.abspath(here.get_path_or_uri(secret_free=True))
package = f"{checkout}[cpu]"
if os.path.isdir(checkout):
    sys.path.append(os.path.join(checkout, "workflow"))
elif hasattr(here, "repo_path"):
    package = f"granularity[cpu] @ git+file://localhost{os.path.abspath(here.repo_path)}@{here.ref}"
elif hasattr(here, "repo"):
    package = f"granularity[cpu] @ git+https://{here.host}/{here.repo}@{here.ref}"
missing = importlib.util.find_spec("granularity") is None
by_conda = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
if missing and by_conda and "git+" in package:
    pins = yaml.safe_load(workflow.sourcecache.open(here.join("envs/cpu.yaml")))
    pins["dependencies"] = ["pip", {"pip": [*pins["dependencies"][-1]["pip"], package]}]
    environment = Path(".snakemake/granularity.yaml").resolve()
    environment.write_text(yaml.safe_dump(pins))
    workflow.global_conda(str(environment))
try:
    import granularity.config.files
except ImportError as error:
    raise WorkflowError(
        f"{error}, needed to read this workflow: pip install '{package}'"
    ) from None
