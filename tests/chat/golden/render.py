"""Renders a template with transformers' own environment, as its apply_chat_template does."""
import datetime

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2024, 7, 26, 10, 20, 30)


class Clock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = Clock


def render(name, template, variables):
    """A case for test_jinja.c. Marks count bytes."""
    case = {"name": name, "template": template, "variables": variables}
    rest = {key: value for key, value in variables.items() if key not in ("messages", "tools", "documents", "add_generation_prompt")}
    try:
        compiled = chat_template_utils._compile_jinja_template(template)
        text, marks = chat_template_utils._render_with_assistant_indices(
            compiled, variables.get("messages"), variables.get("tools"), variables.get("documents"),
            variables.get("add_generation_prompt", False), **rest)
        text.encode()
        case["text"] = text
        if marks:
            case["marks"] = [[len(text[:start].encode()), len(text[:end].encode())] for start, end in marks]
    except RecursionError:
        raise
    except Exception as error:  # whatever the template raises is the expected refusal
        case["error"] = f"{type(error).__name__}: {error}"
    return case
