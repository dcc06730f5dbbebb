"""Raw records of the passage sets, written by hand."""


def musique_record(number: int, **changes) -> dict:
    """A two-passage MuSiQue record; every record has a passage of its own and one that all share."""
    record = {
        "id": f"2hop__{number}_9",
        "question": f"Which river flows through the birthplace of person {number}?",
        "paragraphs": [
            {"idx": 0, "title": f"Person {number}", "paragraph_text": f"Person {number} was born in Graz.",
             "is_supporting": True},
            {"idx": 1, "title": "Graz", "paragraph_text": "Graz lies on the Mur.", "is_supporting": True},
        ],
        "question_decomposition": [{"id": 1, "question": "x", "answer": "Graz", "paragraph_support_idx": 0}],
        "answer": "Mur",
        "answer_aliases": ["the Mur", "Mur"],
        "answerable": True,
    }  # fmt: skip
    return {k: v for k, v in (record | changes).items() if v is not ...}


def hotpot_record(**changes) -> dict:
    """A HotpotQA record whose second sentences carry their leading space."""
    record = {
        "_id": "h1",
        "question": "Who founded the maker of the Arc lamp?",
        "answer": "Ada",
        "type": "bridge",
        "level": "hard",
        "context": [
            ["Arc lamp", ["The Arc lamp is made by Volt.", " It is bright."]],
            ["Volt", ["Volt is a firm.", " It was founded by Ada."]],
        ],
        "supporting_facts": [["Volt", 1], ["Arc lamp", 0]],
    }
    return record | changes
