"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

MONEY = sa.Numeric(28, 12).with_variant(sa.Text(), "sqlite")  # SQLite's NUMERIC is a float


def upgrade() -> None:
    """Make every table."""
    exchanges()
    attempts()
    _rollups()
    _key_rollups()
    _keys()
    _shipped()
    _reservations()
    _meta()


def downgrade() -> None:
    """Drop every table."""
    for name in (
        "meta",
        "reservations",
        "shipped",
        "keys",
        "key_rollups",
        "rollups",
        "attempts",
        "exchanges",
    ):
        op.drop_table(name)


def exchanges() -> None:
    """Make `exchanges`; step 0003 goes back to it."""
    op.create_table(
        "exchanges",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("model_asked", sa.Text(), nullable=False),
        sa.Column("policy", sa.Text(), nullable=False),
        sa.Column("plan", sa.Text(), nullable=False),
        sa.Column("winner", sa.Text()),
        sa.Column("attempts", sa.Integer()),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("streamed", sa.Boolean()),
        sa.Column("wall_time", sa.Text(), nullable=False),
        sa.Column("accepted_ns", sa.BigInteger()),
        sa.Column("first_byte_ns", sa.BigInteger()),
        sa.Column("received_ns", sa.BigInteger()),
        sa.Column("routed_ns", sa.BigInteger()),
        sa.Column("sent_ns", sa.BigInteger()),
        sa.Column("first_in_ns", sa.BigInteger()),
        sa.Column("first_out_ns", sa.BigInteger()),
        sa.Column("last_in_ns", sa.BigInteger()),
        sa.Column("last_out_ns", sa.BigInteger()),
        sa.Column("closed_ns", sa.BigInteger()),
        sa.Column("overhead_ms", sa.Double()),
        sa.Column("ttft_ms", sa.Double()),
        sa.Column("e2e_ms", sa.Double()),
        sa.Column("tokens_in", sa.BigInteger()),
        sa.Column("tokens_out", sa.BigInteger()),
        sa.Column("cost_usd", MONEY),
        sa.Column("cost_source", sa.Text()),
        sa.Column("loser_cost_usd", MONEY),
        sa.Column("tags", sa.Text()),
        sa.Column("worker", sa.Integer()),
    )
    op.create_index("exchanges_by_request", "exchanges", ["request_id"])
    op.create_index("exchanges_by_time", "exchanges", ["wall_time"])


def attempts() -> None:
    """Make `attempts`; step 0003 goes back to it."""
    op.create_table(
        "attempts",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("exchange_id", sa.Text(), nullable=False),
        sa.Column("run_id", sa.Text()),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("target", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("dialect", sa.Text(), nullable=False),
        sa.Column("seq", sa.Integer()),
        sa.Column("concurrency", sa.Integer()),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("won", sa.Boolean()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("error", sa.Text()),
        sa.Column("streamed", sa.Boolean()),
        sa.Column("wall_time", sa.Text(), nullable=False),
        sa.Column("t_plan_ns", sa.BigInteger()),
        sa.Column("t_send_ns", sa.BigInteger()),
        sa.Column("t_headers_ns", sa.BigInteger()),
        sa.Column("t_event_ns", sa.BigInteger()),
        sa.Column("t_first_ns", sa.BigInteger()),
        sa.Column("t_answer_ns", sa.BigInteger()),
        sa.Column("t_last_ns", sa.BigInteger()),
        sa.Column("t_end_ns", sa.BigInteger()),
        sa.Column("pool_wait_ms", sa.Double()),
        sa.Column("dns_ms", sa.Double()),
        sa.Column("tcp_ms", sa.Double()),
        sa.Column("tls_ms", sa.Double()),
        sa.Column("ttft_ms", sa.Double()),
        sa.Column("ttft_plan_ms", sa.Double()),
        sa.Column("ttfa_ms", sa.Double()),
        sa.Column("tte_ms", sa.Double()),
        sa.Column("tth_ms", sa.Double()),
        sa.Column("e2e_ms", sa.Double()),
        sa.Column("speed_tps", sa.Double()),
        sa.Column("speed_total_tps", sa.Double()),
        sa.Column("stall_ms", sa.Double()),
        sa.Column("bursts", sa.Integer()),
        sa.Column("tokens_in", sa.BigInteger()),
        sa.Column("tokens_out", sa.BigInteger()),
        sa.Column("tokens_streamed", sa.BigInteger()),
        sa.Column("tokens_reasoning", sa.BigInteger()),
        sa.Column("tokens_cached", sa.BigInteger()),
        sa.Column("tokens_source", sa.Text()),
        sa.Column("cost_usd", MONEY),
        sa.Column("cost_source", sa.Text()),
        sa.Column("price_as_of", sa.Text()),
        sa.Column("finish_reason", sa.Text()),
        sa.Column("stamp_source", sa.Text()),
        sa.Column("late", sa.Boolean()),
        sa.Column("bytes_in", sa.BigInteger()),
        sa.Column("bytes_out", sa.BigInteger()),
        sa.Column("stamp_bound_ms", sa.Double()),
        sa.Column("hidden_reasoning", sa.Boolean()),
        sa.Column("void", sa.Boolean()),
        sa.Column("replayed", sa.Boolean()),
    )
    op.create_index("attempts_by_exchange", "attempts", ["exchange_id"])
    op.create_index("attempts_by_time", "attempts", ["wall_time"])


def _rollups() -> None:
    op.create_table(
        "rollups",
        sa.Column("width_s", sa.Integer(), primary_key=True),
        sa.Column("bucket_s", sa.BigInteger(), primary_key=True),
        sa.Column("target", sa.Text(), primary_key=True),
        sa.Column("provider", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("attempts", sa.BigInteger(), nullable=False),
        sa.Column("ok", sa.BigInteger(), nullable=False),
        sa.Column("empty", sa.BigInteger(), nullable=False),
        sa.Column("http_error", sa.BigInteger(), nullable=False),
        sa.Column("rate_limited", sa.BigInteger(), nullable=False),
        sa.Column("stream_error", sa.BigInteger(), nullable=False),
        sa.Column("truncated", sa.BigInteger(), nullable=False),
        sa.Column("reset", sa.BigInteger(), nullable=False),
        sa.Column("timeout", sa.BigInteger(), nullable=False),
        sa.Column("cancelled", sa.BigInteger(), nullable=False),
        sa.Column("cut", sa.BigInteger(), nullable=False),
        sa.Column("measured", sa.BigInteger(), nullable=False),
        sa.Column("late", sa.BigInteger(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", MONEY, nullable=False),
        sa.Column("ttft_ms_sketch", sa.LargeBinary()),
        sa.Column("ttfa_ms_sketch", sa.LargeBinary()),
        sa.Column("speed_tps_sketch", sa.LargeBinary()),
        sa.Column("speed_total_tps_sketch", sa.LargeBinary()),
        sa.Column("e2e_ms_sketch", sa.LargeBinary()),
        sa.Column("overhead_ms_sketch", sa.LargeBinary()),
    )


def _key_rollups() -> None:
    op.create_table(
        "key_rollups",
        sa.Column("width_s", sa.Integer(), primary_key=True),
        sa.Column("bucket_s", sa.BigInteger(), primary_key=True),
        sa.Column("key_id", sa.Text(), primary_key=True),
        sa.Column("model_asked", sa.Text(), primary_key=True),
        sa.Column("exchanges", sa.BigInteger(), nullable=False),
        sa.Column("ok", sa.BigInteger(), nullable=False),
        sa.Column("cached", sa.BigInteger(), nullable=False),
        sa.Column("tokens_in", sa.BigInteger(), nullable=False),
        sa.Column("tokens_out", sa.BigInteger(), nullable=False),
        sa.Column("cost_usd", MONEY, nullable=False),
        sa.Column("loser_cost_usd", MONEY, nullable=False),
    )


def _keys() -> None:
    op.create_table(
        "keys",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("hash", sa.Text(), nullable=False, unique=True),
        sa.Column("prefix", sa.Text(), nullable=False),
        sa.Column("created", sa.Text(), nullable=False),
        sa.Column("expires", sa.Text()),
        sa.Column("revoked", sa.Text()),
        sa.Column("models", sa.JSON(), nullable=False),
        sa.Column("budget_usd", MONEY),
        sa.Column("budget_period", sa.Text(), nullable=False),
        sa.Column("rpm", sa.Integer()),
        sa.Column("tpm", sa.Integer()),
        sa.Column("max_tokens", sa.Integer()),
        sa.Column("may_race", sa.Boolean(), nullable=False),
        sa.Column("max_fanout", sa.Integer(), nullable=False),
        sa.Column("tags", sa.Text()),
    )


def _shipped() -> None:
    op.create_table(
        "shipped",
        sa.Column("journal", sa.Text(), primary_key=True),
        sa.Column("offset", sa.BigInteger(), nullable=False),
        sa.Column("finished", sa.Boolean(), nullable=False),
    )


def _reservations() -> None:
    op.create_table(
        "reservations",
        sa.Column("exchange_id", sa.Text(), primary_key=True),
        sa.Column("life", sa.Text(), nullable=False),
        sa.Column("worker", sa.Integer(), nullable=False),
        sa.Column("key_id", sa.Text()),
        sa.Column("wall_ns", sa.BigInteger(), nullable=False),
        sa.Column("nano_usd", sa.BigInteger()),
        sa.Column("targets", sa.Text(), nullable=False),
        sa.Column("request_id", sa.Text(), nullable=False),
        sa.Column("model_asked", sa.Text(), nullable=False),
        sa.Column("dialect", sa.Text(), nullable=False),
    )
    op.create_index("reservations_by_life", "reservations", ["life"])


def _meta() -> None:
    op.create_table(
        "meta",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("value", sa.Text(), nullable=False),
    )
