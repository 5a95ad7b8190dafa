# `make` lists the targets. Each target sets up its environments in .venv*, once; later runs need no network.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Except for the Sparks of `make smoke-spark`.
ifndef AT_ONCE
.NOTPARALLEL:
endif

# The newest patch of every supported Spark. All targets use the last one, except for the smoke tests. In every part that
# ftfile uses, Spark 4.1 has the interface of 4.0 or of 4.2: only `make long` runs it.
SPARK_40 := 4.0.5
SPARK_41 := 4.1.4
SPARK_42 := 4.2.1
SPARK_43 := 4.3.0
OLDER_SPARKS := 40 42

MAIN_PYTHONS := 3.11 3.12 3.13 3.14
# `make test-all` runs the oldest Python, with the oldest supported dependencies; `make long` also runs the others.
OLDEST_PYTHON := 3.10
NEWER_PYTHONS := 3.12 3.13

# Tests start hundreds of Pythons. With this variable, each of them would compile all of ftfile.
unexport PYTHONDONTWRITEBYTECODE
# With these, Python would import another ftfile or pyspark, and git would look at another repository, as in its hooks.
unexport PYTHONPATH PYTHONHOME GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE

python := .venv/bin/python
# JUnit reports; `make test` has a folder in it for each target. With AGAIN, the tests that failed there run once more.
REPORTS := .reports
AGAIN :=
# The profile `ci` repeats the same examples in every run; PROFILE=default draws new examples.
PROFILE := ci
# Each run also repeats the values that tests draw by the seed. `SEED=` draws another seed, as `make long` does.
SEED := 1
options = $(AGAIN:%=--again) --reports=$(REPORTS) --profile=$(PROFILE) $(SEED:%=--seed=%)
# Its table contains the tests of each suite.
suite = .ci/suites.py $(options)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# ------------------------------------------------------------------------------------------------- while you change code
.PHONY: try contexts unit lint format docs tables

# `make try FILE="src/ftfile/log/publish.py tests/unit/log/test_wal.py"`
FILE :=
try: environment ## run the tests that cover FILE, one or several of src, for a minute at most; a module of tests runs itself
	@$(python) .ci/try.py --hypothesis-profile=$(PROFILE) $(SEED:%=--seed=%) $(FILE)

# Tests that count calls, or seconds, may fail beside coverage.
contexts: environment ## find out which of the quick tests run which file, for `make try` (three minutes)
	@rm -rf build/contexts
	-@$(python) $(suite) contexts
	@$(python) .ci/contexts.py

unit: environment ## the quick tests without a JVM (a minute)
	@$(python) $(suite) unit

lint: environment ## ruff, mypy --strict, import contracts, links of the docs, tests of the structure
	$(python) -m ruff check
	$(python) -m ruff format --check
	$(python) -m mypy
	.venv/bin/lint-imports --no-cache
	$(site)
	$(python) $(suite) architecture

format: environment ## let ruff rewrite code, and wrap the prose of the docs
	$(python) -m ruff check --fix
	$(python) -m ruff format
	$(python) .ci/prose.py $(shell find *.md docs -name "*.md")

docs: tables ## make the generated tables, play the accidents of docs/internals/accidents.md, and write the site to build/site (start at its index.html)
	@$(python) -m tests.unit.operate.accidents >docs/internals/accidents.md.new
	@mv docs/internals/accidents.md.new docs/internals/accidents.md
	@$(site)

arguments := src/ftfile/operate/writers/sink_arguments.py

tables: environment ## make the fields of SinkArguments, the tables of docs/options.md, docs/internals/format.md (harmed files), docs/reading-files.md (casts) and docs/internals/architecture.md (modules)
	@$(python) .ci/options.py page >docs/options.md.new
	@mv docs/options.md.new docs/options.md
	@$(python) .ci/options.py arguments >$(arguments).new
	@mv $(arguments).new $(arguments)
	@$(python) .ci/harms.py >docs/internals/format.md.new
	@mv docs/internals/format.md.new docs/internals/format.md
	@$(python) .ci/casts.py >docs/reading-files.md.new
	@mv docs/reading-files.md.new docs/reading-files.md
	@$(python) .ci/modules.py >docs/internals/architecture.md.new
	@mv docs/internals/architecture.md.new docs/internals/architecture.md

# Sphinx's own extensions raise warnings of Python.
site := PYTHONWARNINGS= LC_ALL=C.UTF-8 $(python) -m sphinx -q -W --keep-going -j 2 -d build/doctrees -c docs/site . build/site

# ---------------------------------------------------------------------------------------------------------------- tests
.PHONY: test test-all crash histories pairs without trials server-tests object-store-tests spark smoke-spark unit-pythons
.PHONY: crash-core crash-rest histories-core spark-core spark-rest hdfs-core servers-rest s3-core object-store-rest

# Tests with servers and JVMs, which wait a lot, run at the same time as tests that use a processor all the time.
test: clean-reports java hdfs-jars parquet-jar s3-server environment ## before each push: a cross-section of all tests (under 10 minutes)
	@exec $(python) .ci/stages.py "spark-core hdfs-core s3-core" "lint unit crash-core histories-core"

test-all: test kafka-jars object-store-jars gcs-server azure-server prometheus browser table-jars ## before each merge: `make test`, then all other tests
	@exec $(python) .ci/stages.py "servers-rest smoke-spark spark-rest object-store-rest" "crash-rest histories without power-cuts unit-pythons trials"

crash: crash-core crash-rest ## every crash and every fault, enumerated; and the slow unit tests

spark: spark-core spark-rest ## the tests in the newest Spark

server-tests: hdfs-core servers-rest ## the tests on a real HDFS, a cluster, YARN and Kafka

object-store-tests: s3-core object-store-rest ## the tests on servers of S3, and on emulators of Azure and Google

crash-core histories-core: environment
	$(python) $(suite) $@

spark-core: java hdfs-jars parquet-jar environment
	$(python) $(suite) $@

hdfs-core: java hdfs-jars environment
	$(python) $(suite) $@

s3-core: s3-server environment
	$(python) $(suite) $@

crash-rest: prometheus browser environment
	$(python) $(suite) $@

spark-rest: java hdfs-jars parquet-jar object-store-jars s3-server azure-server environment
	$(python) $(suite) $@

servers-rest: java hdfs-jars kafka-jars s3-server environment kerberos class-archives
	$(python) $(suite) $@

object-store-rest: s3-server gcs-server azure-server environment
	$(python) $(suite) $@

histories: environment ## random histories of a directory, 40 of 200 steps, and of logs and plans
	$(python) $(suite) histories

without: environment ## the tests of the log and of the sink, with hints or compacted logs deleted before every step
	$(python) $(suite) without

# From seed 0; FIRST=2000 plays others.
FIRST := 0
HISTORIES := 2000
pairs: environment ## play 2,000 histories of 80 steps, and list the pairs of abilities, and of abilities and events, that they never meet (an hour; HISTORIES, FIRST)
	$(python) -m tests.histories.pairs $(FIRST) $(HISTORIES) 80

trials: environment ## check that every mutant can be made, and that the tests it names exist
	$(python) $(suite) trials

smoke-spark: java table-jars ## the main path in Spark 4.0 and 4.2, at the same time; in 4.0 also scenarios of queries that follow or read files
	@$(MAKE) --jobs=3 --output-sync=target AT_ONCE=yes $(OLDER_SPARKS:%=smoke-%)

# FULLY=fully: these scenarios in each Spark.
FULLY := smoke
smoke-%: FORCE
	@.ci/venv .venv-spark$* "$(MAIN_PYTHONS)" --editable '.[unit]' pyspark==$(SPARK_$*)
	@.venv-spark$*/bin/python -m tests.quick_spark
	.venv-spark$*/bin/python $(suite) $(FULLY)-$*

unit-pythons: unit-$(OLDEST_PYTHON) ## the unit tests whose result depends on Python or packages, on the oldest Python with the oldest dependencies

# UNIT=all-unit: all unit tests.
UNIT := unit
unit-%: venv = .venv-py$(subst .,,$*)
unit-%: FORCE
	@if ! .ci/python $* >/dev/null 2>&1; then echo "Python $* is not installed: its unit tests are skipped"; else \
	.ci/venv $(venv) $* $(if $(filter $(OLDEST_PYTHON),$*),--floor) --editable '.[unit]' && \
	$(venv)/bin/python $(suite) $(UNIT)-$*; fi

# ---------------------------------------------------------------------------------------------------- longer, and shorter
.PHONY: hdfs-tests cluster-tests long kills soak power power-cuts mutants mutation fuzz bench surroundings

hdfs-tests: java hdfs-jars environment kerberos class-archives ## the tests on a real HDFS, with two NameNodes and with Kerberos, too
	$(python) $(suite) hdfs

cluster-tests: java hdfs-jars kafka-jars s3-server environment kerberos class-archives ## a standalone cluster and a YARN whose processes are killed, Kafka, ftfile sent to it, Spark Connect
	$(python) $(suite) cluster

long kills: SEED :=
long: java hdfs-jars kafka-jars object-store-jars s3-server gcs-server azure-server environment kerberos ## 100,000 batches into one directory; 500 examples of each property; every crash, every two steps of two that race, every two options together
	$(python) $(suite) batches thorough-unit thorough-crash thorough-histories thorough-hostile without-hints without-ranges
	$(python) $(suite) thorough-hdfs thorough-object-stores thorough-spark
	$(MAKE) FULLY=fully SEED= OLDER_SPARKS="40 41 42" smoke-spark
	$(MAKE) UNIT=all-unit SEED= $(patsubst %,unit-%,$(OLDEST_PYTHON) $(NEWER_PYTHONS))
	$(MAKE) pairs FIRST=$$RANDOM
	$(MAKE) surroundings
	$(MAKE) mutants
	$(MAKE) mutation MODULES=$(DRAWN)

surroundings: java environment ## the quick tests and a stream in the environments in which users start them: background, locales, users, limits
	@$(python) .ci/surroundings.py

kills: java environment ## two streams into one directory in an application that is killed 24 times (10 minutes)
	$(python) $(suite) kills

# `make soak KILLS=100 ROWS=1000000 SEED=7 PLACES=local,hdfs MINUTES=30`; each may be left out.
soak_options = $(if $(KILLS),--kills $(KILLS)) $(if $(ROWS),--rows $(ROWS)) $(SEED:%=--seed %) \
	$(if $(PLACES),--places $(PLACES)) $(if $(MINUTES),--minutes $(MINUTES))
soak: SEED :=
soak: java hdfs-jars kafka-jars s3-server environment class-archives ## three queries in an application that is killed 1,000 times with its servers, 10,000,000 rows; then 10,000 batches in one life (hours; an interrupted run continues; KILLS, ROWS, SEED, PLACES, MINUTES)
	@$(python) -m tests.soak $(soak_options)

# `make power STATES=1000 PLANTED=part-not-synced`: the mistakes are in tests/power/mistakes.py.
STATES := 10000
PLANTED :=
power: file-systems environment ## cut the power of real file systems at 10,000 moments, block by block, as root (an hour; an interrupted run continues; STATES, PLANTED)
	@$(python) -m tests.power --states=$(STATES) $(PLANTED:%=--planted=%)

power-cuts: environment ## 64 of these power cuts on ext4, and each planted mistake
	$(python) $(suite) power

mutants: environment ## make every known mistake in the protocol, and plant a fault against each rule of the structure; each one must be caught
	$(python) -m tests.mutants
	$(python) -m tests.architecture

# The modules below src/ftfile that `make mutation` changes.
MODULES = log/policy
# A module that is drawn for each run of `make long`.
DRAWN = $(shell $(python) -c 'import pathlib, random; \
	print(random.choice([path for names in ("formats/parts", "log/**/[a-z]*", "writing/files/[aj]*er*", "writing/files/rolling_*") \
	for path in pathlib.Path("src/ftfile").glob(f"{names}.py")]).relative_to("src/ftfile").with_suffix(""))')

mutation: ## change one operator, number or argument of MODULES after the other, and list the changes that no quick test notices (half an hour each)
	@.ci/venv .venv-mutation "$(MAIN_PYTHONS)" --editable '.[mutation]'
	.venv-mutation/bin/mutmut run --max-children 2 $(foreach module,$(MODULES),'ftfile.$(subst /,.,$(module)).*')
	.venv-mutation/bin/mutmut results

# `make fuzz SECONDS=60 TARGETS="records avro_headers"`; by default, all targets for an hour each.
TARGETS :=
fuzz: ## search inputs with which a parser fails in another way than by its documented errors, guided by coverage (an hour for each of 50 parsers, two at a time)
	@if .ci/venv .venv-fuzz "$(MAIN_PYTHONS)" --only-binary atheris --editable '.[fuzz]'; then \
	.venv-fuzz/bin/python -m tests.fuzz --seconds $(or $(SECONDS),3600) $(TARGETS); \
	else echo "atheris has no package for this Python and machine (see above): nothing is fuzzed"; fi

bench: java hdfs-jars s3-server azure-server delta environment ## measure against Spark's own file sink
	@$(python) -m benchmarks

# -------------------------------------------------------------------------------------------------------- demonstrations
.PHONY: demo demo-logs demo-kv demo-kafka demo-yarn hdfs

# `make demo FS=hdfs` streams to a real HDFS, and also kills its servers. `make demo SHORT=1` kills twice, on a local disk.
FS := local
SHORT :=
ifneq ($(and $(SHORT),$(filter hdfs,$(FS))),)
$(error SHORT=1 is for a local disk: leave out SHORT or FS=hdfs)
endif
demo: java demo-environment $(if $(filter hdfs,$(FS)),hdfs-jars) ## stream real data, kill the stream again and again, count every row (under 4 minutes; SHORT=1: two kills, a minute; FS=hdfs: on HDFS, whose servers are also killed)
	@$(demo_python) -m tests.demos.files --fs $(FS) $(if $(SHORT),--quick)

demo-logs: java demo-environment ## tail two logs that are rotated all the time, kill the stream again and again, count every line (two minutes)
	@$(demo_python) -m tests.demos.logs

demo-kv: java demo-environment ## count words into a keyed store, kill the stream and a program without Spark again and again, count every word (three minutes)
	@$(demo_python) -m tests.demos.store

# `make demo-kafka SECONDS=300 ROWS=100000 FORMAT=json FS=local`; each may be left out.
kafka_options = $(if $(SECONDS),--seconds $(SECONDS)) $(if $(ROWS),--rows $(ROWS)) $(if $(FORMAT),--format $(FORMAT))
demo-kafka: FS := hdfs
demo-kafka: java demo-environment kafka-jars hdfs-jars ## Kafka to files on a real HDFS while driver, workers and broker are killed; every offset counted (under 10 minutes; SECONDS, ROWS, FORMAT, FS=local)
	@$(demo_python) -m tests.kafka --fs $(FS) $(kafka_options)

demo-yarn: java demo-environment hdfs-jars ## lines and words of a text on a YARN and an HDFS of this machine, while executors, masters and servers of YARN are killed; each one counted (two to four minutes; SHORT=1: two kills)
	@$(demo_python) -m tests.demos.yarn $(if $(SHORT),--quick)

hdfs: java hdfs-jars environment ## start a real HDFS, print its URLs, wait for Ctrl-C
	@$(python) -m tests.hdfs

# ------------------------------------------------------------------------------------------------ releases, and tidying up
.PHONY: release clean clean-reports

release: java environment ## build wheel and source distribution into dist, and run the quick start on each Spark in a clean environment
	@$(python) .ci/changes.py
	@$(python) .ci/release.py dist $(SPARK_40) $(SPARK_41) $(SPARK_42) $(SPARK_43)

clean: ## remove environments, caches and reports
	rm -rf .venv* .jars .servers .reports .power .soak .hypothesis .mypy_cache .pytest_cache .ruff_cache mutants build dist

clean-reports:
	@rm -rf .reports

# --------------------------------------------------------------------------------------------------- set-up, done once
.PHONY: environment demo-environment kerberos java hdfs-jars class-archives kafka-jars delta table-jars object-store-jars
.PHONY: parquet-jar s3-server gcs-server azure-server prometheus browser

for_all = .venv "$(MAIN_PYTHONS)" --editable '.[test,cluster,lint,docs,demo,bench]' pyspark==$(SPARK_43)
environment:
	@.ci/venv $(for_all)
	@$(python) -m tests.quick_spark

# Demonstrations run in the environment of the tests if it is current, and otherwise in one that is a third as large.
# Demonstrations with Kafka read every format back, and Avro needs a package. pyspark 4.3 warns about pandas 3.
for_demos = .venv-demo "$(MAIN_PYTHONS)" --editable '.[demo,avro]' 'pandas<3' pyspark==$(SPARK_43)
demo_python = $(shell .ci/venv --check $(for_all) && echo .venv || echo .venv-demo)/bin/python
# The short demonstration starts Spark three times: `tests.quick_spark` would take longer than it saves.
demo-environment:
	@.ci/venv --check $(for_all) || .ci/venv $(for_demos)
	@$(if $(SHORT),,$(demo_python) -m tests.quick_spark)

java parquet-jar s3-server gcs-server azure-server prometheus browser file-systems:
	@.ci/$@

kerberos: environment
	@.ci/kerberos $(python)

hdfs-jars:
	@.ci/jars hdfs

# A JVM starts from it with half the work.
class-archives: java hdfs-jars environment
	@$(python) -m tests.archives

kafka-jars:
	@.ci/jars kafka
	@.ci/jars kafka-connector

object-store-jars:
	@.ci/jars object-stores

# Each of them is for one of the older Sparks.
table-jars:
	@.ci/jars delta
	@.ci/jars iceberg

# Delta is built for this Spark.
delta: java
	@.ci/jars delta
	@.ci/venv .venv-spark42 "$(MAIN_PYTHONS)" --editable '.[unit]' pyspark==$(SPARK_42)

FORCE:
