"""Validates answers against their schemas. Usage: validate_schemas.py FILE, a line per answer: {"schema": ..., "text": ...}"""

import datetime
import json
import re
import sys

from jsonschema import Draft202012Validator, FormatChecker

formats = FormatChecker(Draft202012Validator.FORMAT_CHECKER.checkers)


@formats.checks("date", ValueError)
def is_date(text):
    """As RFC 3339 has it, whose years begin with 0000, a leap year as 2000 is; Python's begin with 1."""
    if not isinstance(text, str):
        return True
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return False
    datetime.date.fromisoformat(re.sub("^0000", "2000", text))
    return True


wrong = []
count = 0
for number, line in enumerate(open(sys.argv[1], encoding="utf-8")):
    case = json.loads(line)
    Draft202012Validator.check_schema(case["schema"])
    validator = Draft202012Validator(case["schema"], format_checker=formats)
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
