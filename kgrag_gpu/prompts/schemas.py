"""The form of each structured reply. Compact: short field names, numbers instead of texts wherever there is a choice.

Numbers of options are 1-based, as the prompt prints them. A list of numbers is put right here rather than refused:
repeats and numbers that no option has are dropped, since small models write them; a list with nothing left but wrong
numbers is refused. JSON schema's `uniqueItems` is not used: grammar libraries do not enforce it.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo


class ReplySchema(BaseModel):
    """Base of reply forms: frozen, further keys ignored, white space at the ends of texts removed."""

    model_config = ConfigDict(frozen=True, extra="ignore", str_strip_whitespace=True)


def _known_numbers(numbers: list[int], info: ValidationInfo) -> list[int]:
    num_options = (info.context or {}).get("num_options", 0)
    kept = [number for number in dict.fromkeys(numbers) if number >= 1 and (not num_options or number <= num_options)]
    if numbers and not kept:
        raise ValueError(f"no number of an option in {numbers[:5]} (options are 1 to {num_options})")
    return kept


def _distinct_texts(texts: list[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, int | str) else value


OptionNumbers = Annotated[list[int], BeforeValidator(_as_list), AfterValidator(_known_numbers)]
DistinctTexts = Annotated[list[str], BeforeValidator(_as_list), AfterValidator(_distinct_texts)]
ShortText = Annotated[str, Field(min_length=1, max_length=200)]
