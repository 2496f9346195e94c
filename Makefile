SHELL := /bin/sh
tools := python3 tests/tools
.PHONY: venv
venv: ## make the Python environment with the pinned tools under .cache
	@$(tools) venv
