"""The settings of the language model that orders lists."""

from dataclasses import dataclass

from rank_core.settings.checks import added, choice, require

PROTOCOLS = ("openai", "anthropic")


@dataclass(frozen=True)
class Chat:
    """The language model that `rankgpt` asks, and how much it is shown. Keys are never settings:
    `key_variable` names the environment variable that holds one."""

    protocol: str = added("openai")  # openai (any server that speaks it) or anthropic
    base_url: str = added("https://api.openai.com/v1")
    model: str = added("gpt-4o-mini")
    key_variable: str = added("OPENAI_API_KEY")  # empty: the server asks for none
    max_words: int = added(300)  # of a document: FirstP's; 900 words show about three windows
    window: int = added(20)  # documents of one question
    step: int = added(10)  # documents between questions
    requests_per_minute: float = added(0.0)  # 0: no limit
    input_price: float = added(0.0)  # of a million tokens, for the ledger
    output_price: float = added(0.0)

    def __post_init__(self) -> None:
        choice("chat.protocol", self.protocol, PROTOCOLS)
        require(
            0 < self.step < self.window,
            "0 < chat.step < chat.window must hold, "
            f"got chat.step={self.step}, chat.window={self.window}",
        )
        require(
            self.max_words > 0, f"chat.max_words > 0 must hold, got chat.max_words={self.max_words}"
        )
