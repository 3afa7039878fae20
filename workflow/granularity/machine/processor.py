"""What of the processor decides last bits."""


def instruction_set() -> str:
    return "todo"
