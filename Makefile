# The one door: `make` lists the targets. Each sets up what it needs in .venv*, once; later runs need no network.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:

# The newest patch of every Spark that is supported; the last one is what everything but the smoke run uses.
SPARK_40 := 4.0.5
SPARK_41 := 4.1.4
SPARK_42 := 4.2.1
SPARK_43 := 4.3.0

MAIN_PYTHONS := 3.11 3.12 3.13 3.14
# The oldest in `make test`, with the oldest dependencies that are admitted; others in `make long`.
OTHER_PYTHONS := 3.10
NEWER_PYTHONS := 3.12 3.13

# Tests start hundreds of Pythons: each would compile all of ftfile where that is forbidden to write down what it made.
unexport PYTHONDONTWRITEBYTECODE

python := .venv/bin/python
# Of JUnit; `make test` has a folder in it for each target. With AGAIN, what failed there before runs once more.
REPORTS := .reports
AGAIN :=
# $(call pytest,environment,name): the name is that of the report, which the end of `make test` adds up.
pytest = $(if $(AGAIN),.ci/passed $(dir $(REPORTS))$(2).xml || )$(1)/bin/python -m pytest --junitxml=$(REPORTS)/$(2).xml \
	-o cache_dir=.reports/cache/$(2) $(if $(AGAIN),--last-failed) --hypothesis-profile=$(PROFILE) $(SEED:%=--seed=%)
# $(call both,command,other): both at once; what the other prints follows. Workers of xdist would each collect all tests.
both = mkdir -p $(REPORTS); set -x; { $(2); } >$(REPORTS)/$@.other.log 2>&1 & other=$$!; trap "kill $$other" EXIT; \
	$(1); first=$$?; wait $$other; second=$$?; trap - EXIT; cat $(REPORTS)/$@.other.log; exit $$((first | second))
# `ci` repeats the same examples in every run; PROFILE=default looks for new ones.
PROFILE := ci
# Likewise, what tests draw by the seed; `SEED=` draws another one, as `make long` does.
SEED := 1
# For runs that repeat tests in other surroundings: fewer examples of each property.
FEW := --hypothesis-profile=few

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# `make demo FS=hdfs` streams to a real HDFS, and kills its servers, too.
FS := local

.PHONY: demo
demo: java environment $(if $(filter hdfs,$(FS)),hdfs-jars) ## stream real data, kill the stream again and again, count every row (under 4 minutes; FS=hdfs: on HDFS, whose servers die, too)
	@$(python) -m tests.demos.files --fs $(FS)

.PHONY: demo-logs
demo-logs: java environment ## tail two logs that are rotated all the time, kill the stream again and again, count every line (two minutes)
	@$(python) -m tests.demos.logs

.PHONY: demo-kv
demo-kv: java environment ## count words into a keyed store, kill the stream and a program without Spark again and again, count every word (three minutes)
	@$(python) -m tests.demos.store

# `make demo-kafka SECONDS=300 ROWS=100000 FORMAT=json FS=local`; each may be left out.
kafka_options = $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROWS),--rows $(ROWS)) $(if $(FORMAT),--format $(FORMAT))

.PHONY: demo-kafka
demo-kafka: FS := hdfs
demo-kafka: java environment kafka-jars hdfs-jars ## Kafka to files on a real HDFS while driver, workers and broker are killed; every offset counted (under 10 minutes; SECONDS, ROWS, FORMAT, FS=local)
	@$(python) -m tests.kafka --fs $(FS) $(kafka_options)

.PHONY: hdfs
hdfs: java hdfs-jars environment ## start a real HDFS, print its URLs, wait for Ctrl-C
	@$(python) -m tests.hdfs

# What `make test` makes: what waits for servers and JVMs beside what needs a processor all the time.
WAITING := server-tests smoke-spark spark object-store-tests
WORKING := lint unit crash histories without unit-pythons trials

.PHONY: test
test: clean-reports java hdfs-jars kafka-jars store-jars s3-server gcs-server azure-server prometheus browser table-jars parquet-jar environment ## everything that must pass
	@exec $(python) .ci/stages.py "$(WAITING)" "$(WORKING)"

.PHONY: unit
unit: environment ## the quick tests without a JVM (a minute)
	@$(call both,$(call pytest,.venv,unit-half) -m "not slow" $(HALF),$(call pytest,.venv,unit) -m "not slow" $(OTHERS))

# The unit tests in two parts that take about as long.
HALF := $(addprefix tests/unit/,filters operate read tools/migrate write kv/feed kv/operator kv/upkeep)
OTHERS = tests/unit $(HALF:%=--ignore=%)

# Files with slow tests: each worker would collect all others, too.
SLOW = $(sort $(shell grep -rl --include='test_*.py' 'mark\.slow' tests/unit))

.PHONY: crash
crash: prometheus browser environment ## every crash and every fault, enumerated; and the slow unit tests
	$(call pytest,.venv,crash) -n 2 -m slow tests/crash $(SLOW)

.PHONY: histories
histories: environment ## random histories of a directory, 125 of 200 steps
	export FTFILE_HISTORIES=125; $(call pytest,.venv,histories) -n 2 tests/histories

# The tests that read the log. `make long` also runs those of them that are slow, or about the contents of parts.
# A log of plans has neither hints nor ranges. Of a store, tests of runs, folds and plans in memory read no log.
KV_TESTS := $(addprefix kv/,feed operator upkeep $(addprefix test_,batches.py encrypted_store.py exactly_once.py \
	extremes.py limits.py merged_values.py reading.py reading_beside_writers.py side_by_side.py \
	store_histories.py verify.py widened_stores.py))
LOG_TESTS := $(addprefix tests/unit/,log operate read tools/export tools/migrate write $(KV_TESTS)) \
	$(addprefix --ignore=tests/unit/,log/format read/foreign)

.PHONY: without
without: environment ## the tests of the log and of the sink, hints or ranges deleted before every step
	$(call pytest,.venv,without) $(FEW) --without=either -m "not slow and not contents" $(LOG_TESTS)

.PHONY: server-tests
server-tests: java hdfs-jars kafka-jars s3-server environment kerberos class-archives ## the next two at once, since servers are often waited for
	$(call pytest,.venv,servers) -n 3 --dist loadscope --no-loadscope-reorder tests/cluster tests/hdfs tests/kafka

.PHONY: hdfs-tests
hdfs-tests: java hdfs-jars environment kerberos class-archives ## the tests on a real HDFS, with two NameNodes and with Kerberos, too
	$(call pytest,.venv,hdfs) -n 4 --dist loadscope tests/hdfs

.PHONY: cluster-tests
cluster-tests: java hdfs-jars kafka-jars s3-server environment kerberos class-archives ## a standalone cluster whose processes are killed, Kafka, ftfile sent to it, Spark Connect
	$(call pytest,.venv,cluster) tests/cluster tests/kafka

.PHONY: object-store-tests
object-store-tests: s3-server gcs-server azure-server environment ## the tests on servers of S3, and on emulators of Azure and Google
	$(call pytest,.venv,object-stores) -n 2 --dist loadscope tests/object_stores

.PHONY: long kills
long kills: SEED :=
long: java hdfs-jars store-jars s3-server gcs-server azure-server environment kerberos ## 100,000 batches into one directory; 500 examples of each property; every crash, every two steps of two that race, every two options together
	FTFILE_BATCHES=100000 $(call pytest,.venv,long) tests/unit/log/test_flat.py
	FTFILE_THOROUGH=1 $(call pytest,.venv,thorough-unit) --hypothesis-profile=thorough -n 2 tests/unit
	FTFILE_THOROUGH=1 $(call pytest,.venv,thorough) -n 2 tests/crash
	FTFILE_THOROUGH=1 FTFILE_HISTORIES=5000 $(call pytest,.venv,thorough-histories) -n 2 tests/histories
	$(call pytest,.venv,thorough-without-hints) --without=hints -n 2 $(LOG_TESTS) tests/crash
	$(call pytest,.venv,thorough-without-ranges) --without=ranges -n 2 $(LOG_TESTS) tests/crash
	FTFILE_THOROUGH=1 $(call pytest,.venv,thorough-hdfs) -n 2 --dist loadfile tests/hdfs tests/spark/test_on_hdfs.py
	FTFILE_THOROUGH=1 $(call pytest,.venv,thorough-object-stores) -n 2 --dist loadscope tests/object_stores
	FTFILE_THOROUGH=1 $(call pytest,.venv,thorough-spark) tests/spark/test_pairs.py tests/spark/test_benchmarks_smoke.py tests/spark/test_chain.py tests/spark/test_demo_short.py tests/spark/test_demo_logs.py tests/spark/test_on_s3.py tests/spark/test_on_azure.py
	$(MAKE) FULLY="$(OLDER_SPARKS)" SEED= smoke-spark
	$(MAKE) ALIKE= SEED= $(patsubst %,unit-%,$(OTHER_PYTHONS) $(NEWER_PYTHONS))
	$(MAKE) mutants
	$(MAKE) mutation MODULES=$(DRAWN)

.PHONY: kills
kills: java environment ## two streams into one directory in an application that is killed 24 times (10 minutes)
	FTFILE_KILLS=24 $(call pytest,.venv,kills) -o faulthandler_timeout=9000 tests/spark/test_kills.py

.PHONY: spark
spark: java hdfs-jars parquet-jar store-jars s3-server azure-server environment ## the tests in the newest Spark
	$(call pytest,.venv,spark) -n 2 --dist loadfile tests/spark --ignore=$(SMOKE)

SMOKE := tests/spark/test_smoke.py
# `make spark` runs them in the newest Spark, `make smoke-spark` in the oldest, which asks a source for its offsets in
# another order, `make long` in each.
EVERY_SPARK := $(addprefix tests/spark/test_,follow_scenarios.py files_scenarios.py files_source.py)
OLDER_SPARKS := 40 41 42
FULLY := 40

.PHONY: smoke-spark
smoke-spark: java table-jars ## the main path in each older Spark, all at once; in the oldest what may befall a query that follows or reads files
	@mkdir -p $(REPORTS); runs=(); \
	for spark in $(OLDER_SPARKS); do $(MAKE) --no-print-directory smoke-$$spark >$(REPORTS)/smoke-$$spark.log 2>&1 & runs+=($$!); done; \
	for run in "$${runs[@]}"; do wait "$$run" || failed=1; done; cat $(REPORTS)/smoke-4*.log; exit "$${failed:-0}"

smoke-%: FORCE
	@.ci/venv .venv-spark$* "$(MAIN_PYTHONS)" --editable '.[unit]' pyspark==$(SPARK_$*)
	@.venv-spark$*/bin/python -m tests.quick_spark
	$(call pytest,.venv-spark$*,smoke-$*) $(SMOKE) $(if $(filter $*,$(FULLY)),$(EVERY_SPARK))

.PHONY: unit-pythons
unit-pythons: $(OTHER_PYTHONS:%=unit-%) ## on the oldest Python, with the oldest dependencies, the unit tests that need these

# What neither a Python nor a dependency changes, beginnings of files. It is imported all the same; `make long` runs it.
ALIKE := log/test_ operate read testing tools/migrate write/test_workers kv/feed kv/operator kv/upkeep \
	$(addprefix write/files/test_,closing direct durability hooks limits live_names names offsets openings replacing rolling \
	sealed_log store_limits tasks transactions)

# tests/unit/spark needs pyspark.
unit-%: venv = .venv-py$(subst .,,$*)
unit-%: HALF := $(addprefix tests/unit/,filters formats rows write)
unit-%: FORCE
	@if ! .ci/python $* >/dev/null 2>&1; then echo "No Python $* here: its unit tests are left out"; else \
	.ci/venv $(venv) $* $(if $(filter 3.10,$*),--floor) --editable '.[unit]' || exit; \
	$(call both,$(call pytest,$(venv),unit-$*-half) $(IN_OLD) $(HALF),$(call pytest,$(venv),unit-$*) $(IN_OLD) $(OTHERS)); fi

IN_OLD := $(FEW) -m "packages or not slow" --ignore=tests/unit/spark $(ALIKE:%=--deselect=tests/unit/%)

.PHONY: trials
trials: environment ## every known mistake in the protocol can be made, and what tries them works
	$(call pytest,.venv,trials) -n 2 tests/mutants

.PHONY: mutants
mutants: environment ## make every known mistake in the protocol, and see each one caught (ten minutes)
	$(python) -m tests.mutants

# What `make mutation` changes, modules below src/ftfile.
MODULES = log/policy
# One that is drawn for each run of `make long`.
DRAWN = $(shell $(python) -c 'import pathlib, random; \
	print(random.choice([path for names in ("formats/parts", "log/**/[a-z]*", "write/files/[aj]*er*", "write/files/rolling_*") \
	for path in pathlib.Path("src/ftfile").glob(f"{names}.py")]).relative_to("src/ftfile").with_suffix(""))')

.PHONY: mutation
mutation: ## change one operator, number or argument of MODULES after the other, and list what no quick test notices (half an hour each)
	@.ci/venv .venv-mutation "$(MAIN_PYTHONS)" --editable '.[mutation]'
	.venv-mutation/bin/mutmut run --max-children 2 $(foreach module,$(MODULES),'ftfile.$(subst /,.,$(module)).*')
	.venv-mutation/bin/mutmut results

.PHONY: lint
lint: environment ## ruff, mypy --strict, import contracts, links of the docs, tests of words and shape
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	.venv/bin/lint-imports --no-cache
	$(site)
	$(call pytest,.venv,lint) tests/architecture

.PHONY: format
format: environment ## let ruff rewrite code, and wrap the prose of the docs
	$(python) -m ruff check --fix
	$(python) -m ruff format
	$(python) .ci/prose.py $(shell find *.md docs -name "*.md")

.PHONY: bench
bench: java hdfs-jars s3-server azure-server delta environment ## measure against Spark's own file sink
	@$(python) -m benchmarks

.PHONY: docs
docs: environment ## put the facts of the option table into docs/options.md, and write the site to build/site (start at its index.html)
	@$(python) .ci/options.py >docs/options.md.new
	@mv docs/options.md.new docs/options.md
	@$(site)

site := $(python) -m sphinx -q -W --keep-going -j 2 -d build/doctrees -c docs/site . build/site

.PHONY: release
release: java environment ## build wheel and source distribution into dist, and run the quick start on each Spark in a clean environment
	@$(python) .ci/release.py dist $(SPARK_40) $(SPARK_41) $(SPARK_42) $(SPARK_43)

.PHONY: clean
clean: ## remove environments, caches and reports
	rm -rf .venv* .jars .servers .reports .hypothesis .mypy_cache .pytest_cache .ruff_cache mutants build dist

.PHONY: environment
environment:
	@.ci/venv .venv "$(MAIN_PYTHONS)" --editable '.[test,cluster,lint,docs,demo,bench]' pyspark==$(SPARK_43)
	@$(python) -m tests.quick_spark

.PHONY: kerberos
kerberos: environment
	@.ci/kerberos $(python)

.PHONY: java
java:
	@.ci/java

.PHONY: hdfs-jars
hdfs-jars:
	@.ci/jars hdfs

# JVMs start from it with half the work.
.PHONY: class-archives
class-archives: java hdfs-jars environment
	@$(python) -m tests.archives

.PHONY: kafka-jars
kafka-jars:
	@.ci/jars kafka
	@.ci/jars kafka-connector

.PHONY: parquet-jar
parquet-jar:
	@.ci/parquet-jar

# Delta is built for this Spark.
.PHONY: delta
delta: java
	@.ci/jars delta
	@.ci/venv .venv-spark42 "$(MAIN_PYTHONS)" --editable '.[unit]' pyspark==$(SPARK_42)

# Each is for one of the older Sparks.
.PHONY: table-jars
table-jars:
	@.ci/jars delta
	@.ci/jars iceberg

.PHONY: store-jars
store-jars:
	@.ci/jars stores

.PHONY: s3-server
s3-server:
	@.ci/s3-server

.PHONY: gcs-server
gcs-server:
	@.ci/gcs-server

.PHONY: azure-server
azure-server:
	@.ci/azure-server

.PHONY: prometheus
prometheus:
	@.ci/prometheus

.PHONY: browser
browser:
	@.ci/browser

.PHONY: clean-reports
clean-reports:
	@rm -rf .reports

FORCE:
