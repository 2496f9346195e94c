# Copyright: (c) 2026, egress.kvm2 contributors
# GNU General Public License v3.0+ (see LICENSES/GPL-3.0-or-later.txt or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a JSON Schema validator found wrong with a fleet definition, said for the person who wrote it."""

from __future__ import annotations

# The variable that holds the definition; paths of problems begin with it.
VARIABLE = "kvm2_fleet"

_SECRETS = ("password", "user", "authorized_keys", "proxy")

_YAML_NAMES = {
    "object": "a mapping", "array": "a list", "string": "text", "integer": "a whole number", "number": "a number",
    "boolean": "true or false", "null": "empty"}


def problems(errors):
    """The problems as texts, by their place, from the errors of a jsonschema validator that ran over {VARIABLE: definition}."""
    ordered = sorted(errors, key=lambda error: [str(part) for part in error.absolute_path])
    # What is no mapping at all also counts as having several of the keys that exclude each other; its type is what is wrong.
    real = [error for error in ordered if error.validator != "oneOf" or isinstance(error.instance, dict)]
    return list(dict.fromkeys(f"{path_of(error.absolute_path)}: {_EXPLAIN.get(error.validator, _explain_other)(error)}" for error in real))


def path_of(parts):
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text or VARIABLE


def _explain_unknown(error):
    allowed = error.schema.get("properties", {})
    unknown = sorted(str(key) for key in error.instance if key not in allowed)
    return f"unknown {'keys' if len(unknown) > 1 else 'key'} {', '.join(unknown)}; allowed are {', '.join(sorted(allowed))}"


def _explain_missing(error):
    missing = [key for key in error.validator_value if key not in error.instance]
    return f"{', '.join(missing)} {'are' if len(missing) > 1 else 'is'} missing"


def _explain_type(error):
    wanted = error.validator_value if isinstance(error.validator_value, list) else [error.validator_value]
    found = "it is empty" if error.instance is None else f"{_shown_of(error)} is {_yaml_name(error.instance)}"
    described = f": {error.schema['description']}" if "description" in error.schema else ""
    return f"{found}; it has to be {' or '.join(_YAML_NAMES[one] for one in wanted if one != 'null')}{described}"


def _explain_enum(error):
    return f"{_shown_of(error)} is not allowed; allowed are {', '.join(str(value) for value in error.validator_value)}"


def _explain_limit(error):
    bound = "more than the largest" if error.validator == "maximum" else "less than the smallest"
    return f"{error.instance} is {bound} that is allowed, {error.validator_value}"


def _explain_one_of(error):
    choices = [key for branch in error.validator_value for key in branch["required"]]
    given = [key for key in choices if key in error.instance]
    return f"exactly one of {' and '.join(choices)} is needed, {'both are' if len(given) > 1 else 'none is'} there"


def _explain_empty(error):
    return "it is empty; at least one entry is needed"


def _explain_length(error):
    if "pattern" in error.schema:
        return _explain_other(error)
    return f"it has more than the {error.validator_value} characters that are allowed" if error.validator == "maxLength" else "it is empty"


def _explain_other(error):
    described = error.schema.get("description")
    return f"{_shown_of(error)} is not {described}" if described else error.message


_EXPLAIN = {
    "additionalProperties": _explain_unknown, "required": _explain_missing, "type": _explain_type, "enum": _explain_enum,
    "minimum": _explain_limit, "maximum": _explain_limit, "oneOf": _explain_one_of, "minItems": _explain_empty,
    "minProperties": _explain_empty, "minLength": _explain_length, "maxLength": _explain_length}


def _shown_of(error):
    """The value, unless it is or may hold a secret: passwords and keys, and what stands in the place of a mapping that should hold them."""
    keys = [part for part in error.absolute_path if isinstance(part, str)]
    return "the value" if len(keys) < 2 or keys[-1] in _SECRETS else shown(error.instance)


def shown(value):
    text = repr(_redacted(value))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _redacted(value):
    if isinstance(value, dict):
        return {key: "..." if key in _SECRETS else _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value


def _yaml_name(value):
    kinds = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (dict, "object"), (list, "array"))
    return next((_YAML_NAMES[name] for kind, name in kinds if isinstance(value, kind)), type(value).__name__)
