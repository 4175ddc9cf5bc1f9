"""Validates answers against their schemas. Usage: validate_schemas.py FILE, a line per answer: {"schema": ..., "text": ...}"""

import json
import sys

from jsonschema import Draft202012Validator

wrong = []
count = 0
for number, line in enumerate(open(sys.argv[1], encoding="utf-8")):
    case = json.loads(line)
    Draft202012Validator.check_schema(case["schema"])
    validator = Draft202012Validator(case["schema"], format_checker=Draft202012Validator.FORMAT_CHECKER)
    count += 1
    try:
        instance = json.loads(case["text"])
    except ValueError as error:
        wrong.append(f"{number}: {error}: {case['text']!r}")
        continue
    wrong.extend(f"{number}: {e.message} at {list(e.absolute_path)}: {case['text']!r}" for e in validator.iter_errors(instance))
print("\n".join(wrong))
assert not wrong, f"{len(wrong)} errors in {count} answers"
assert count >= 150, f"only {count} answers"
