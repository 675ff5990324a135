"""verl finds the plugin in every process, and what does not work is said at the start."""

from __future__ import annotations

import configparser
import subprocess
import sys
import textwrap

import pytest

from verl_pods_cero.errors import PluginError
from verl_pods_cero.supported_verl import check_verl_version

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def python(clean_environment, tmp_path):
    """Run code in a fresh interpreter, from a folder that is not the repository."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            env={**clean_environment, **environment},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return run


def test_importing_verl_loads_the_plugin_and_nothing_heavy_with_it(python):
    done = python(
        """
        import sys, verl
        ours = sorted(name for name in sys.modules if name.startswith("verl_pods_cero"))
        print(*ours)
        """
    )
    names = ("", ".cpu", ".errors", ".hooks", ".hooks.patches", ".plugin", ".supported_verl")
    light = [f"verl_pods_cero{name}" for name in names]
    assert done.stdout.split() == light, done.stderr


def test_the_trainer_is_registered_when_verl_asks_for_its_trainers(python):
    done = python(
        """
        from verl.trainer.ppo.v1 import get_trainer_cls
        cls = get_trainer_cls("pods_cero_sync")
        print(cls.__module__, *(base.__name__ for base in cls.__mro__[1:3]))
        """
    )
    assert done.stdout.strip() == "verl_pods_cero.hooks.trainer PodsCeroMixin PPOTrainerSync", done.stderr


@pytest.mark.e2e  # alone: Ray gives a node 30 seconds to start
def test_a_ray_actor_finds_the_plugin_too(python):
    done = python(
        """
        import ray, verl
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)

        @ray.remote
        def trainer():
            from verl.trainer.ppo.v1 import get_trainer_cls
            return get_trainer_cls("pods_cero_sync").__name__

        print(ray.get(trainer.remote()))
        """
    )
    assert done.stdout.strip().endswith("PodsCeroTrainerSync"), done.stderr


def test_stock_main_composes_our_recipe_and_schema_from_any_folder(python):
    done = python(
        """
        import sys
        from verl.trainer import main_ppo
        sys.argv = ["main_ppo", "--config-name=quickstart_cpu", "--cfg", "job", "--package", "pods_cero"]
        main_ppo.main()
        """
    )
    assert "enable: true" in done.stdout, done.stderr
    assert "rule: max_variance" in done.stdout


@pytest.mark.parametrize("all_of_it", [False, True])
def test_a_broken_option_stops_stock_main_in_one_line_before_ray_starts(python, all_of_it):
    done = python(
        """
        import sys
        from verl.trainer import main_ppo
        sys.argv = ["main_ppo", "algorithm.adv_estimator=grpo", "+pods_cero=pods", "pods_cero.filter.kepe=4"]
        main_ppo.main()
        """,
        **({"HYDRA_FULL_ERROR": "1"} if all_of_it else {}),
    )
    assert done.returncode == 1
    [said] = [line for line in done.stderr.splitlines() if "pods_cero.filter.kepe is no option of the plugin" in line][
        -1:
    ]
    assert "did you mean 'keep'" in said
    assert "ray init kwargs" not in done.stdout
    assert ("Traceback" in done.stderr) == all_of_it, done.stderr


def test_a_recipe_fails_at_the_start_where_the_plugin_is_switched_off(python):
    done = python(
        """
        import sys
        from verl.trainer import main_ppo
        sys.argv = ["main_ppo", "--config-name=quickstart_cpu"]
        main_ppo.main()
        """,
        VERL_USE_EXTERNAL_PLUGINS="none",
    )
    assert done.returncode != 0
    assert "quickstart_cpu" in done.stderr
    assert "ray init kwargs" not in done.stdout


def test_the_doctor_names_a_switched_off_plugin_and_the_fix(python):
    code = "import sys; from verl_pods_cero.tools.cli import main; sys.exit(main(['doctor']))"
    healthy = python(code)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr
    assert "No problem found." in healthy.stdout
    ill = python(code, VERL_USE_EXTERNAL_PLUGINS="none")
    assert ill.returncode == 1
    assert "Fix: unset it, or add pods_cero to it" in ill.stdout


@pytest.mark.parametrize("version", ["0.8.0", "0.8.9", "0.1"])
def test_a_verl_that_is_too_old_is_refused_with_the_command_that_mends_it(version):
    with pytest.raises(PluginError, match=rf"verl {version} is installed.*pip install 'verl>=0\.9'"):
        check_verl_version(version)


@pytest.mark.parametrize("version", ["0.9.0", "0.9.1", "0.10.0.dev0", "0.10.0", "1.0"])
def test_a_later_verl_is_judged_by_its_names(version):
    check_verl_version(version)


def test_no_bound_on_verl_can_replace_the_verl_of_a_user(repository):
    config = configparser.ConfigParser()
    config.read(repository / "setup.cfg")
    assert "verl" in config["options"]["install_requires"].split()


def test_a_verl_that_is_too_old_is_reported_where_verl_would_be_silent(python):
    done = python(
        """
        import sys, verl
        sys.modules.pop("verl_pods_cero.plugin")
        sys.modules["verl"].__version__ = "0.8.0"
        try:
            import verl_pods_cero.plugin
        except Exception as error:
            print(type(error).__name__)
        """
    )
    assert done.stdout.strip() == "PluginError"
    assert "verl-pods-cero is not active" in done.stderr
    assert "pip install 'verl>=0.9'" in done.stderr


def test_a_verl_that_lacks_a_name_fails_our_trainer_and_leaves_stock_trainers_alone(python):
    done = python(
        """
        from verl.trainer.ppo.v1 import trainer_base
        del trainer_base.PPOTrainer._balance_batch
        trainer_base.TRAINER_REGISTRY.pop("pods_cero_sync")
        from verl_pods_cero.hooks import register
        register()
        from verl.trainer.ppo.v1 import get_trainer_cls
        print(get_trainer_cls("sync").__name__)
        try:
            get_trainer_cls("pods_cero_sync")(None)
        except Exception as error:
            print(error)
        """
    )
    assert "PPOTrainerSync" in done.stdout, done.stderr
    assert "PPOTrainer._balance_batch" in done.stdout
    assert "Fix: pip install" in done.stdout


def test_the_core_needs_numpy_alone(python):
    done = python(
        """
        import importlib, pkgutil, sys
        import verl_pods_cero.core as core
        for module in pkgutil.iter_modules(core.__path__):
            importlib.import_module(f"verl_pods_cero.core.{module.name}")
        print(*sorted({"torch", "ray", "verl", "hydra", "omegaconf", "pandas"} & set(sys.modules)))
        """
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
