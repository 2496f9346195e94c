# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# The one front door. Everything it makes stays in .cache (or $KVM2_CACHE); the work is done by tests/tools and tests/nested.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
MAKEFLAGS += --no-print-directory

# A version manager's python3 may be a stub that only prints an error, or too old: take the first that works.
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for python in python3 /usr/bin/python3 python3.13 python3.12 python3.11; do \
	"$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo "$$python" && break; done)
endif
ifeq ($(strip $(PYTHON)),)
$(error Failed to find Python 3.11 or newer. Install one, for example: apt-get install python3)
endif

tools := $(PYTHON) tests/tools
nested := $(PYTHON) tests/nested
GUEST ?= debian
HOSTS ?= hv1
RELEASE ?= trixie
ARGS ?=

.PHONY: help demo test test-all lint sanity unit integration molecule bench up down clean venv build

help: ## list the targets
	@echo 'egress.kvm2: make TARGET, as root or as a user with sudo. Targets:'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' Makefile
	@echo 'Options: make demo GUEST=micro; make up HOSTS=hv1,hv2 RELEASE=bookworm; make unit ARGS="-k mark"; KVM2_PYTHON=3.11 make unit'

demo: ## build what is missing, provision two proxies on a nested hypervisor, send a request through each
	@$(tools) demo --guest '$(GUEST)' -- $(ARGS)

test: ## lint, sanity, unit and integration tests, the demo among them
	@$(tools) test

test-all: ## everything: make test, the tests marked extended, and the oldest ansible-core
	@$(tools) test-all

lint: ## ruff, yamllint, ansible-lint, antsibull-changelog, antsibull-docs, shellcheck
	@$(tools) lint

sanity: ## ansible-test sanity over a copy of the checkout
	@$(tools) sanity -- $(ARGS)

unit: ## unit tests
	@$(tools) unit -- $(ARGS)

integration: ## integration tests against nested hypervisors
	@$(tools) integration -- $(ARGS)

molecule: ## the Molecule scenario on two nested hypervisors
	@$(tools) molecule -- $(ARGS)

bench: ## how fast an import (against curl and virsh), a sweep of the collector and 100 instances are on a nested hypervisor; ARGS="--rounds 3 --size 256"
	@$(nested) packages
	@$(PYTHON) tests/bench $(ARGS)

up: ## start the nested hypervisors and write their inventory
	@echo 'Starting the nested hypervisors $(HOSTS) ($(RELEASE))'
	@$(nested) packages
	@$(nested) up --hosts '$(HOSTS)' --release '$(RELEASE)'

down: ## stop the nested hypervisors and what belongs to them
	@echo 'Stopping the nested hypervisors'
	@$(nested) down

clean: ## stop everything and remove all that was built
	@echo 'Removing the nested hypervisors, their images, and the state folder'
	@$(nested) clean
	@$(tools) clean

venv: ## make the Python environment with the pinned tools
	@$(tools) venv

build: ## build the collection's archive into .cache/dist
	@$(tools) build
