"""The metrics of `GET /metrics`: the rows of the reference page, in its order."""

from __future__ import annotations

from typing import Final, NamedTuple

TARGET: Final = ("gen_ai_provider_name", "gen_ai_request_model")
OPERATION: Final = ("gen_ai_operation_name", *TARGET)


class Meter(NamedTuple):
    """A metric's name, kind, labels and meaning."""

    name: str
    kind: str
    labels: tuple[str, ...]
    means: str


METERS: Final = (
    Meter("gen_ai_client_operation_duration_seconds", "histogram", OPERATION,
          "Whole answers of providers, from sending to the last token; complete answers only."),
    Meter("gen_ai_client_token_usage", "histogram", (*OPERATION, "gen_ai_token_type"),
          "Tokens of one complete answer, as the provider counts them: input or output."),
    Meter("gen_ai_server_time_to_first_token_seconds", "histogram", OPERATION,
          "Time to first token of providers; complete streamed answers only."),
    Meter("gen_ai_server_time_per_output_token_seconds", "histogram", OPERATION,
          "Mean time of a token after the first burst; complete streamed answers only."),
    Meter("lightgate_speed_tokens_per_second", "histogram", TARGET,
          "Tokens per second after the first burst; complete streamed answers only."),
    Meter("lightgate_overhead_seconds", "histogram", TARGET,
          "What the gateway itself added to a request that ended well."),
    Meter("lightgate_attempts_total", "counter", (*TARGET, "outcome"),
          "Attempts at providers, by how they ended."),
    Meter("lightgate_tokens_total", "counter", (*TARGET, "gen_ai_token_type"),
          "Tokens of all attempts, as providers count them: input or output."),
    Meter("lightgate_hedges_total", "counter", (*TARGET, "won"),
          "Attempts that were started because another was slow, by whether the client got theirs."),
    Meter("lightgate_racers_total", "counter", (*TARGET, "won"),
          "Attempts that were started together with others, by whether the client got theirs."),
    Meter("lightgate_fallbacks_total", "counter", (*TARGET, "won"),
          "Attempts that were started because another failed, by whether the client got theirs."),
    Meter("lightgate_cost_usd_total", "counter", TARGET,
          "Dollars of attempts whose price is known."),
    Meter("lightgate_loser_cost_usd_total", "counter", TARGET,
          "Dollars, among those, of attempts whose answer no client got."),
    Meter("lightgate_exchanges_total", "counter", ("model", "result"),
          "Requests of clients, by alias or known target, ok or failed."),
    Meter("lightgate_cache_total", "counter", ("model", "use"),
          "Requests for models with a cache: hit, miss, or join (along with an equal request)."),
    Meter("lightgate_key_cost_usd_total", "counter", ("key",),
          "Dollars of a key's requests, losers included, by the key's public id."),
    Meter("lightgate_shed_total", "counter", ("limit",),
          "Requests and connections that were turned away because a worker had too much to do."),
    Meter("lightgate_refused_total", "counter", ("reason",),
          "Requests that were refused before any provider was asked, by the error's code."),
    Meter("lightgate_loop_long_turns_total", "counter", ("stage",),
          "Turns of a worker's event loop that took more than 50 ms, by what held it up."),
    Meter("lightgate_loop_lag_seconds", "histogram", ("worker",),
          "How late a worker's event loop was, looked at 20 times a second."),
    Meter("lightgate_exchanges_under_way", "gauge", ("worker",),
          "Requests that a worker is answering now."),
    Meter("lightgate_connections", "gauge", ("worker",),
          "Connections of clients that are open now."),
    Meter("lightgate_provider_connections", "gauge", ("worker",),
          "Connections to providers that are open now, idle ones too."),
    Meter("lightgate_body_bytes", "gauge", ("worker",),
          "Bytes of request bodies that a worker holds now."),
    Meter("lightgate_journal_waiting_notes", "gauge", ("worker",),
          "Notes in a worker's memory that the disk has not taken."),
    Meter("lightgate_cache_answers", "gauge", ("worker",),
          "Answers in a worker's cache."),
    Meter("lightgate_cache_bytes", "gauge", ("worker",),
          "Memory of a worker's cache, estimated."),
    Meter("lightgate_in_flight", "gauge", (*TARGET, "worker"),
          "Attempts at a target that are under way now."),
    Meter("lightgate_breaker_workers", "gauge", (*TARGET, "state"),
          "Workers in which the target's breaker is in this state."),
    Meter("lightgate_shipped_notes_total", "counter", (),
          "Notes of journals that were carried into the ledger."),
    Meter("lightgate_orphans_total", "counter", (),
          "Requests that a dead worker left open and that were settled as estimated."),
    Meter("lightgate_journal_damaged_total", "counter", (),
          "Journals with a frame that is not what was written."),
    Meter("lightgate_ship_failures_total", "counter", (),
          "Passes over the journals that failed and are tried again."),
    Meter("lightgate_ledger_lost_total", "counter", (),
          "How often the ledger's file was deleted or replaced under the running gateway."),
    Meter("lightgate_ship_lag_seconds", "gauge", (),
          "Time since the last whole pass over the journals."),
    Meter("lightgate_journal_waiting_bytes", "gauge", (),
          "Bytes in the journals that are not in the ledger yet."),
    Meter("lightgate_spans_total", "counter", ("result",),
          "Spans of traces: sent, failed (the collector did not take them) or dropped (too many)."),
    Meter("lightgate_child_up", "gauge", ("child",),
          "Whether a child process of `lightgate up` serves."),
    Meter("lightgate_child_restarts_total", "counter", ("child",),
          "How often a child process was started again."),
    Meter("lightgate_process_open_fds", "gauge", ("child",),
          "Files and sockets that a child process has open; on Linux."),
    Meter("lightgate_process_max_fds", "gauge", ("child",),
          "How many it may have open; 0 is no limit."),
    Meter("lightgate_process_resident_memory_bytes", "gauge", ("child",),
          "Memory of a child process."),
    Meter("lightgate_process_cpu_seconds_total", "counter", ("child",),
          "CPU time of a child process."),
    Meter("lightgate_info", "gauge", ("version",),
          "The version of Lightgate."),
)  # fmt: skip
