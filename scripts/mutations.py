"""For each guard of the road, one line is changed so that the check is gone; a named test must turn red.

    python scripts/mutations.py [--from N] [NAME ...]      all, or those whose name contains a word; from the Nth on

The tree is copied; the project itself is never touched. A mutant that survives is a check that nothing holds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEST_S = 300.0
"""For one mutant's test: many times what the slowest takes."""


@dataclass(frozen=True)
class Mutation:
    """In `file`, `line` becomes `mutant`; `test` must fail then."""

    name: str
    file: str
    line: str
    mutant: str
    test: str


GATE = "src/toolgate/gate"
ROAD_TESTS = "tests/gate/test_road.py"
BOUNDS = "tests/gate/authority/test_key_bounds.py"
ONCE = "tests/gate/test_idempotency.py"
SHARED = "tests/gate/shared/test_shared.py"
ENGINE = "tests/powers/limits/test_redis.py"
HOSTILE = "tests/servers/test_hostile_http.py"
FRAMING = "src/toolgate/servers/framing.py"
CONNECTION = "tests/servers/test_connection.py"
CONNECTION_CODE = "src/toolgate/servers/connection.py"
LIFECYCLE = "tests/servers/test_lifecycle.py"
STDIO = "tests/servers/test_stdio.py"
SHARES = "tests/powers/files/test_shares.py"
APP_POWERS = "tests/test_app_powers.py"
READING = "src/toolgate/packs/governance/repository/reading.py"
GOVERNANCE_BOUNDS = "tests/packs/governance/test_bounds.py"
DEVSITE = "tests/packs/lra/devsite/test_devsite.py"
OUTBOX = "tests/servers/test_outbox.py"
GATHER = "tests/ledger/test_gather.py"
FLOOD = "tests/ledger/test_flood.py"
WIRE = "src/toolgate/powers/wire.py"
EGRESS = "tests/powers/net/test_hostile.py"
TAMPER = "tests/ledger/test_tamper.py"
FLOODS = "tests/packs/consensus/gossip/test_floods.py"
CLIENT = "src/toolgate/powers/mcp"
LANES = "tests/upstreams/relay/test_lanes.py"
QUESTIONS = "tests/upstreams/relay/test_questions.py"
DRIFT = "tests/upstreams/test_drift.py"
PINS = "src/toolgate/kit/pins.py"
PIN_TESTS = "tests/kit/test_pins.py"
STOPS = "tests/gate/authority/test_stops.py"
CONDITIONS = "src/toolgate/kit/conditions/rules.py"
CHECKS = "src/toolgate/kit/conditions/checks.py"
DECLARED = "src/toolgate/kit/conditions/declared.py"
CONDITION_TESTS = "tests/kit/conditions/test_rules.py"
RULES = "tests/gate/authority/test_rules.py"
APPROVALS = "tests/gate/authority/test_approvals.py"
APPROVALS_OVER_HTTP = "tests/faces/test_approvals.py"
WEBHOOK = "tests/powers/approvals/test_webhook.py"
TABLES = "src/toolgate/powers/approvals/tables.py"
TABLE_TESTS = "tests/powers/approvals/test_tables.py"
VIEWS = "tests/kit/test_sql.py"
MARKS = "tests/powers/sql/test_marks.py"
KEPT_STATISTICS = "tests/packs/governance/tools/test_views.py"
KEPT_ROUNDS = "tests/packs/consensus/test_views.py"
REFUSAL = f"{ROAD_TESTS}::test_a_refusal_comes_before_the_handler"
MUTATIONS = (
    Mutation(
        "1 authenticate: any key is good",
        f"{GATE}/keys.py",
        "if known is None or not (right or self._is_older(known.key, digest)):",
        "if known is None:",
        "tests/gate/test_keys.py",
    ),
    Mutation(
        "1 authenticate: revoked keys live",
        f"{GATE}/keys.py",
        'if (state := key.state(self._clock.wall())) != "live":\n            raise _unusable',
        'if (state := key.state(self._clock.wall())) == "expired":\n            raise _unusable',
        f"{ROAD_TESTS}::test_a_revoked_key_is_dead_at_once",
    ),
    Mutation(
        "1 authenticate: expired keys live",
        f"{GATE}/keys.py",
        'if (state := key.state(self._clock.wall())) != "live":\n            raise _unusable',
        'if (state := key.state(self._clock.wall())) == "revoked":\n            raise _unusable',
        f"{HOSTILE}::test_revoked_and_expired_keys_are_refused",
    ),
    Mutation(
        "1 authenticate: a replaced secret lives for ever",
        f"{GATE}/keys.py",
        "if found and self._clock.wall() >= found[0].until:",
        "if False:",
        f"{BOUNDS}::test_both_secrets_are_good_until_the_overlap_has_ended",
    ),
    Mutation(
        "1 authenticate: a key is good from any address",
        f"{GATE}/keys.py",
        "if key.bounds is not None and not key.bounds.admits(address):\n            why",
        "if False:\n            why",
        f"{BOUNDS}::test_a_key_for_some_addresses_is_refused_from_others_and_from_none",
    ),
    Mutation(
        "1 authenticate: no address is any address",
        "src/toolgate/model/call.py",
        "return found is not None and any(",
        "return found is None or any(",
        "tests/model/test_call_bounds.py",
    ),
    Mutation(
        "1 authenticate: the road does not say where a call comes from",
        f"{GATE}/road.py",
        "self.authenticate(arrival.credential, arrival.origin.address)",
        "self.authenticate(arrival.credential, '192.0.2.1')",
        "tests/faces/test_one_verdict.py::test_a_key_for_some_addresses_goes_by_what_trusted_proxies_say",
    ),
    Mutation(
        "2 permit: scopes bound nothing",
        f"{GATE}/admit.py",
        "if caller.bounds is not None and not caller.bounds.covers(grant.row):",
        "if False:",
        f"{BOUNDS}::test_a_scope_refuses_what_it_does_not_cover_and_names_itself",
    ),
    Mutation(
        "2 permit: lists show what a scope does not cover",
        f"{GATE}/admit.py",
        "return held if caller.bounds is None else [grant for grant in held if grant.is_held_by(caller)]",
        "return held",
        f"{BOUNDS}::test_lists_show_what_the_scope_covers",
    ),
    Mutation(
        "3 admit: a key's own limit may be above that of all",
        f"{GATE}/admit.py",
        "return own if may_exceed or not common else min(own, common)",
        "return own",
        "tests/gate/test_admit.py",
    ),
    Mutation(
        "3 admit: a key's own slots bound nothing",
        f"{GATE}/admit.py",
        "return own_limit(caller.bounds.concurrency, self.per_caller, may_exceed=self.may_exceed)",
        "return self.per_caller",
        "tests/gate/test_admit.py",
    ),
    Mutation(
        "3 admit: a key's own rate bounds nothing",
        f"{GATE}/admit.py",
        "interval = self._interval if caller.bounds is None else self.interval_of(caller.bounds)",
        "interval = self._interval",
        "tests/gate/test_admit.py",
    ),
    Mutation(
        "3 admit: workers do not know a key's own rate",
        f"{GATE}/counted.py",
        "if caller.bounds is not None and caller.bounds.per_minute is not None:",
        "if False:",
        "tests/gate/test_counted.py",
    ),
    Mutation(
        "3 admit: the engine is not told a key's own limits",
        f"{GATE}/shared.py",
        "if first is None or first.ticket.caller.bounds is None:",
        "if True:",
        "tests/gate/shared/test_shared.py::test_two_servers_go_by_a_keys_own_limits",
    ),
    Mutation(
        "keys: one that is held to some tools administers",
        "src/toolgate/model/call.py",
        'return self.role == "admin" and not self.is_scoped',
        'return self.role == "admin"',
        f"{BOUNDS}::test_a_key_that_is_held_to_tools_administers_nothing",
    ),
    Mutation(
        "keys: what a replaced secret opened stays open",
        f"{GATE}/keys.py",
        " or any(since < each.until <= now for each in key.older):",
        ":",
        f"{BOUNDS}::test_what_was_opened_with_a_secret_ends_with_it",
    ),
    Mutation(
        "1 authenticate: two keys",
        "src/toolgate/servers/request_head.py",
        "if key is not None and bearer is not None and key != bearer:",
        "if False:",
        f"{HOSTILE}::test_two_different_keys_are_refused",
    ),
    Mutation(
        "1 authenticate: two headers",
        "src/toolgate/servers/request_head.py",
        'if b"x-mcp-api-key" in twice or b"authorization" in twice:',
        "if False:",
        f"{HOSTILE}::test_two_key_headers_are_refused_even_if_both_are_good",
    ),
    Mutation(
        "2 permit: any role",
        f"{GATE}/admit.py",
        "if caller.role not in grant.roles:",
        "if False:",
        f"{ROAD_TESTS}::test_a_tool_of_another_role_is_refused_and_names_the_role",
    ),
    Mutation(
        "2 permit: lists show all",
        f"{GATE}/admit.py",
        "held = [grant for grant in self._by_name.values() if grant.tool.kind == kind and caller.role in grant.roles]",
        "held = [grant for grant in self._by_name.values() if grant.tool.kind == kind]",
        f"{ROAD_TESTS}::test_list_and_call_are_decided_by_the_same_table",
    ),
    Mutation(
        "2 permit: nothing is ever stopped",
        f"{GATE}/admit.py",
        "if started >= self.stops.due:",
        "if False:",
        f"{STOPS}::test_what_is_stopped_is_refused_before_the_handler_and_recorded",
    ),
    Mutation(
        "2 permit: a stop of another process goes unseen",
        f"{GATE}/authority/stops.py",
        "if now >= self._look_at:",
        "if self._stamp is None and now >= self._look_at:",
        f"{STOPS}::test_a_stop_of_another_process_is_in_force_after_one_look",
    ),
    Mutation(
        "2 permit: a damaged file of stops stops nothing",
        f"{GATE}/authority/stops.py",
        "if self._fault is not None:\n            raise Refusal",
        "if False:\n            raise Refusal",
        f"{STOPS}::test_a_file_that_cannot_be_read_stops_every_call",
    ),
    Mutation(
        "2 permit: a file of stops that others can write is trusted",
        f"{GATE}/authority/stops.py",
        "if info.st_mode & 0o022 or info.st_uid not in (os.geteuid(), 0):",
        "if False:",
        f"{STOPS}::test_a_file_that_others_can_write_stops_every_call",
    ),
    Mutation(
        "2 permit: a stop of one caller stops nobody",
        f"{GATE}/authority/stops.py",
        "if self.caller is not None and self.caller != caller.key_id:",
        "if self.caller is not None:",
        f"{STOPS}::test_a_stop_holds_for_calls_that_fit_all_it_names",
    ),
    Mutation(
        "2 permit: what is stopped is still looked at for subscribers",
        f"{GATE}/sessions/watch.py",
        "if self._is_stopped(stream.caller, grant):",
        "if False:",
        f"{STOPS}::test_a_subscription_is_not_looked_at_while_it_is_stopped",
    ),
    Mutation(
        "4 rules: none is judged",
        f"{GATE}/road.py",
        "if grant.rules is not None:",
        "if False:",
        f"{RULES}::test_a_rule_refuses_before_the_intent_and_is_named",
    ),
    Mutation(
        "4 rules: one that cannot be judged lets through",
        f"{GATE}/authority/rules.py",
        'raise _refusal(unjudged.rule, f"The rule {unjudged.rule.source.name} {_UNJUDGED}.", unjudged.reason) from None',
        "return",
        f"{RULES}::test_an_error_in_a_rule_refuses",
    ),
    Mutation(
        "4 rules: anything but false is a yes",
        CONDITIONS,
        "if found is True or found is False:",
        "if True:",
        f"{CONDITION_TESTS}::test_what_cannot_be_judged_is_an_error_and_not_a_no",
    ),
    Mutation(
        "4 rules: a loop over arguments of any length",
        CONDITIONS,
        "if self.loops and subject.size > LOOP_BYTES:",
        "if False:",
        f"{CONDITION_TESTS}::test_a_rule_that_loops_is_not_judged_on_long_arguments_and_one_that_does_not_is",
    ),
    Mutation(
        "4 rules: constants that can never be",
        CHECKS,
        "not jsonschema_rs.is_valid(dict(schema), constant.value):",
        "False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: a condition that is not boolean",
        CONDITIONS,
        'if checked.return_type().name() != "BOOL":',
        "if False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: has() of an argument, which says its value",
        CHECKS,
        "if node.is_test and _is_known(node, places, loops):",
        "if False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: objects within arguments have no types",
        DECLARED,
        'if kind == "object" and len(path) <= MAX_DEPTH and _is_closed(part):',
        "if False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: items of arrays have no types",
        DECLARED,
        'if kind == "array" and len(path) < MAX_DEPTH:',
        "if False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: a field of an item that is absent is no null",
        DECLARED,
        "return {**value, **{name: each.convert(value.get(name)) for name, each in self.fields.items()}}",
        "return value",
        f"{CONDITION_TESTS}::test_a_condition_decides_about_the_arguments",
    ),
    Mutation(
        "4 rules: a field of an object is tested where only its type says that it is one",
        CHECKS,
        'self.types.get(node.id, "")',
        '""',
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "4 rules: a caller's own pattern",
        CHECKS,
        'if node.name in ("matches", "contains") and not _is_ours(node.parts[-1], ours):',
        "if False:",
        f"{CONDITION_TESTS}::test_a_condition_that_cannot_be_right_is_refused_with_its_place",
    ),
    Mutation(
        "policy: a custom role holds more than its base",
        "src/toolgate/policy/manifest.py",
        "if own.base_of(role) not in base.roles)",
        "if role not in own.roles and own.base_of(role) not in base.roles)",
        "tests/policy/test_roles.py::test_a_custom_role_is_refused_where_the_packaged_row_does_not_have_its_base",
    ),
    Mutation(
        "policy: a rule about roles does not see a custom one",
        "src/toolgate/policy/manifest.py",
        "if custom and by_role:",
        "if False:",
        "tests/policy/test_roles.py::test_a_packaged_rule_about_the_role_admits_no_role_that_it_does_not_know",
    ),
    Mutation(
        "policy: a row names a role that is nowhere declared",
        "src/toolgate/policy/manifest.py",
        "        _check_known(row, roles, source)\n",
        "",
        "tests/policy/test_roles.py::test_what_is_wrong_with_a_role_is_told_with_file_and_line",
    ),
    Mutation(
        "policy: a deployment drops a packaged rule",
        "src/toolgate/policy/manifest.py",
        "missing = [rule.name for rule in base.rules if there.get(rule.name) != rule.as_json()]",
        "missing: list[str] = []",
        "tests/policy/test_conditions.py::test_a_deployment_may_add_rules_and_drop_or_change_none",
    ),
    Mutation(
        "4 approvals: nobody is asked",
        f"{GATE}/road.py",
        "await self.approvals.require(ticket, asking)",
        "pass",
        f"{APPROVALS}::test_a_call_waits_for_a_yes_runs_once_and_asks_again",
    ),
    Mutation(
        "4 approvals: a grant is for any arguments, caller, pin and policy",
        f"{GATE}/authority/approvals.py",
        "[caller.key_id, grant.tool.name, pin, policy, arguments]",
        "[grant.tool.name]",
        f"{APPROVALS}::test_one_thing_that_differs_is_another_call",
    ),
    Mutation(
        "4 approvals: a grant is for any pin and policy",
        f"{GATE}/authority/approvals.py",
        "[caller.key_id, grant.tool.name, pin, policy, arguments]",
        "[caller.key_id, grant.tool.name, arguments]",
        f"{APPROVALS}::test_one_thing_that_differs_is_another_call",
    ),
    Mutation(
        "4 approvals: secrets are shown",
        f"{GATE}/authority/approvals.py",
        "strictjson.dumps_sorted(redacted(grant.io.secrets, arguments)).decode()",
        "strictjson.dumps_sorted(arguments).decode()",
        f"{APPROVALS}::test_an_approver_sees_the_arguments_and_no_secret",
    ),
    Mutation(
        "4 approvals: a silent store lets through",
        f"{GATE}/authority/approvals.py",
        "except StoreUnavailable:\n            raise Refusal(",
        "except StoreUnavailable:\n            return\n            raise Refusal(",
        f"{APPROVALS}::test_without_the_store_the_call_is_refused",
    ),
    Mutation(
        "approvals: a grant can be spent again",
        TABLES,
        "UPDATE approvals SET state = 'spent'",
        "UPDATE approvals SET state = 'approved'",
        f"{TABLE_TESTS}::test_a_request_waits_is_granted_and_is_spent_once",
    ),
    Mutation(
        "approvals: who asks may answer",
        TABLES,
        "if is_same_person((row.caller, row.label), approver):",
        "if False:",
        f"{TABLE_TESTS}::test_who_asks_does_not_answer_with_any_key",
    ),
    Mutation(
        "approvals: one person is as many as needed",
        TABLES,
        "if any(is_same_person((vote.approver, vote.label), approver) for vote in votes):",
        "if False:",
        f"{TABLE_TESTS}::test_as_many_people_must_approve_as_the_rule_says",
    ),
    Mutation(
        "approvals: one yes is enough",
        TABLES,
        "len(votes) + 1 >= row.needed",
        "True",
        f"{TABLE_TESTS}::test_as_many_people_must_approve_as_the_rule_says",
    ),
    Mutation(
        "approvals: a grant lives for ever",
        TABLES,
        "state IN ('pending', 'approved') AND expires <= :now RETURNING id",
        "state IN ('pending', 'approved') AND expires <= 0 * :now RETURNING id",
        f"{TABLE_TESTS}::test_neither_a_request_nor_a_grant_outlives_its_time",
    ),
    Mutation(
        "approvals: any key answers over HTTP",
        f"{GATE}/authority/answers.py",
        "if caller.is_scoped or caller.role not in (ANSWERERS",
        "if caller.is_scoped and caller.role not in (ANSWERERS",
        f"{APPROVALS_OVER_HTTP}::test_who_has_no_key_or_a_role_that_may_not_is_refused_and_recorded",
    ),
    Mutation(
        "approvals: a key that is held to some tools answers",
        f"{GATE}/authority/answers.py",
        "if caller.is_scoped or caller.role not in (ANSWERERS",
        "if caller.role not in (ANSWERERS",
        f"{APPROVALS_OVER_HTTP}::test_a_key_that_is_held_to_some_tools_answers_nothing",
    ),
    Mutation(
        "approvals: answers over HTTP have no limit",
        f"{GATE}/authority/answers.py",
        "admission.rate.take(caller, admission.clock.monotonic())",
        "pass",
        f"{APPROVALS_OVER_HTTP}::test_answers_count_for_the_limits_of_their_key",
    ),
    Mutation(
        "approvals: a webhook may be at a private address",
        "src/toolgate/powers/approvals/webhook.py",
        "Hosts(private=pair) if wanted.webhook_private else Hosts(named=pair)",
        "Hosts(private=pair)",
        f"{WEBHOOK}::test_a_private_address_is_refused_unless_it_is_allowed",
    ),
    Mutation(
        "approvals: a webhook is signed without its moment",
        "src/toolgate/powers/approvals/webhook.py",
        'f"{approval}.{moment}.".encode() + body',
        "body",
        f"{WEBHOOK}::test_a_request_is_told_once_signed_and_without_secrets",
    ),
    Mutation(
        "approvals: nobody looks for what the webhook's service has not taken",
        "src/toolgate/powers/approvals/webhook.py",
        "if each.id not in self._tried",
        "if False",
        f"{WEBHOOK}::test_what_the_service_did_not_take_is_told_by_the_next_server",
    ),
    Mutation(
        "approvals: what the webhook's service has taken is told again",
        "src/toolgate/powers/approvals/tables.py",
        "SET told = 1 WHERE",
        "SET told = 0 WHERE",
        f"{WEBHOOK}::test_what_the_service_took_or_a_person_answered_is_not_told_again",
    ),
    Mutation(
        "3 admit: answers over HTTP are not counted by all processes",
        f"{GATE}/authority/answers.py",
        "if admission.shared is not None:",
        "if False:",
        "tests/gate/shared/test_processes.py::test_answers_to_requests_for_approval_take_slots_and_turns_of_all_servers",
    ),
    Mutation(
        "4 rules: who may not read a resource hears of its changes",
        "src/toolgate/ruleset.py",
        'policy.rules.get(tool.row if tool.kind == "subscription" else tool.name)',
        "policy.rules.get(tool.name)",
        "tests/offers/test_rules.py::test_a_resource_is_refused_by_its_rule_and_so_is_a_subscription_to_it",
    ),
    Mutation(
        "console: a renewed cookie forgets that it is secure",
        "src/toolgate/console/session.py",
        "return ConsoleSession(caller, token, began, renewed, address, is_secure)",
        "return ConsoleSession(caller, token, began, renewed, address)",
        "tests/console/test_session.py::test_a_session_that_began_over_tls_is_renewed_with_a_secure_cookie",
    ),
    Mutation(
        "console: what a page shows in part is approved on it",
        "src/toolgate/cli/upstream/desk.py",
        "return rows, _blocked(pin, inspected) or too_long",
        "return rows, _blocked(pin, inspected)",
        "tests/console/pages/test_changes.py::test_a_change_that_no_page_holds_is_not_approved_on_one",
    ),
    Mutation(
        "console: a form of an earlier session is believed",
        "src/toolgate/console/site.py",
        "if not session.is_of(visit.form):",
        "if False:",
        "tests/console/test_replays.py::test_a_page_of_a_session_before_this_one_does_nothing",
    ),
    Mutation(
        "console: a session outlives its key",
        "src/toolgate/console/session.py",
        "if caller is None or caller.role != role or now >= renewed + IDLE_S or now >= began + LONGEST_S:",
        "from toolgate.model.call import Caller\n\n        caller = caller or Caller(key_id, role)\n        if False:",
        "tests/console/test_replays.py::test_a_page_of_a_key_that_was_revoked_meanwhile_does_nothing",
    ),
    Mutation(
        "console: another site's form signs somebody in",
        "src/toolgate/console/site.py",
        'if b"origin" not in headers or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":',
        "if False:",
        "tests/console/test_attacks.py::test_a_form_that_another_site_sent_changes_nothing",
    ),
    Mutation(
        "console: long arguments are cut before an approver",
        "src/toolgate/console/rendering.py",
        "value if isinstance(value, WholeText) else _cut(value, MAX_LINES)",
        "_cut(value, MAX_LINES)",
        "tests/console/test_approvals.py::test_an_approver_sees_the_end_of_long_arguments_too",
    ),
    Mutation(
        "console: a refusal is not of what the page showed",
        "src/toolgate/console/site.py",
        "elif not digest or (await changes.look(name)).digest != digest:",
        "elif not digest:",
        "tests/console/test_upstreams.py::test_only_what_a_page_showed_is_refused",
    ),
    Mutation(
        "9 outcome: a tool puts as many numbers into the log as it likes",
        f"{GATE}/road.py",
        "dict(islice(said.counts.items(), MAX_COUNTS))",
        "dict(said.counts)",
        f"{ROAD_TESTS}::test_a_record_has_the_first_numbers_that_a_tool_gave_and_what_else_it_keeps",
    ),
    Mutation(
        "console: numbers count more than the lists they lead to",
        "src/toolgate/console/pages/overview.py",
        "since = first_of_bucket(desk.now_ms - SPANS[span])",
        "since = desk.now_ms - SPANS[span]",
        "tests/console/test_links.py::test_the_overview_counts_what_its_lists_hold",
    ),
    Mutation(
        "console: calls that reached no tool are all calls",
        "src/toolgate/console/index/reading.py",
        "NO_ONE if text == NONE else self._word(text)",
        "self._word(text)",
        "tests/console/test_links.py::test_a_list_of_calls_that_reached_no_tool_has_those_alone",
    ),
    Mutation(
        "console: the live list says nothing of what it leaves out",
        "src/toolgate/console/feed.py",
        "self.left_out.add(found[: len(found) - len(shown)])",
        "pass",
        "tests/console/test_feed.py::test_of_many_calls_at_once_the_newest_are_shown_and_the_others_counted",
    ),
    Mutation(
        "console: the live list counts others' calls to anybody",
        "src/toolgate/console/feed.py",
        "is_known=self.session.owner is None and not self.wanted.is_set",
        "is_known=True",
        "tests/console/test_feed.py::test_calls_that_were_not_even_read_are_counted_for_whoever_sees_all_calls",
    ),
    Mutation(
        "console: a new file of the log is found later",
        "src/toolgate/console/feed.py",
        "self._newest() if self._has_changed() or self._looks % SCAN_LOOKS == 0",
        "self._newest() if self._looks % SCAN_LOOKS == 0",
        "tests/console/test_feed.py::test_the_first_call_of_a_new_file_is_found_at_the_next_look",
    ),
    Mutation(
        "console: each worker counts attempts to sign in by itself",
        "src/toolgate/console/wiring.py",
        "counts=None if app.share is None else app.share.table",
        "counts=None",
        "tests/console/test_attempts.py::test_an_address_has_no_more_attempts_at_two_workers_than_at_one",
    ),
    Mutation(
        "console: attempts to sign in are not counted",
        "src/toolgate/console/site.py",
        "self._attempts.begin(visit.address)",
        "pass",
        "tests/console/test_session.py::test_wrong_keys_are_limited_by_address_and_recorded",
    ),
    Mutation(
        "2 permit: argument roles",
        f"{GATE}/road.py",
        "permit_arguments(ticket.caller, tool, call.arguments)",
        "pass",
        f"{ROAD_TESTS}::test_a_role_may_hold_a_tool_but_not_each_of_its_arguments",
    ),
    Mutation(
        "3 admit: no limit",
        f"{GATE}/admit.py",
        "if self._held.get(caller.key_id, 0) >= most:",
        "if False:",
        f"{ROAD_TESTS}::test_the_eleventh_call_at_once_is_refused_even_with_bad_arguments",
    ),
    Mutation(
        "3 admit: no total", f"{GATE}/admit.py", "if self._all >= self.total:", "if False:", "tests/gate/test_admit.py"
    ),
    Mutation("3 admit: no rate", f"{GATE}/admit.py", "if wait > 1e-9:", "if False:", "tests/gate/test_admit.py"),
    Mutation(
        "3 admit: an inline call needs no free slot",
        f"{GATE}/admit.py",
        "            self.slots.check(caller)",
        "            pass",
        f"{ROAD_TESTS}::test_the_eleventh_call_at_once_is_refused_even_with_bad_arguments",
    ),
    Mutation(
        "3 admit: a slot never comes back", f"{GATE}/admit.py", "self.slots.give_back(self.caller)", "pass", REFUSAL
    ),
    Mutation(
        "3 admit: a slot comes back too early",
        f"{GATE}/execute.py",
        "future.add_done_callback(self._handler_ended)",
        "self._on_end()",
        f"{ROAD_TESTS}::test_a_slot_is_held_until_the_handler_has_really_ended",
    ),
    Mutation(
        "3 admit: an engine that is gone lets everyone in",
        f"{GATE}/shared.py",
        "if not bounds.may_share(per_minute) or not slots or now < self._refuse_until:",
        "if False:",
        f"{SHARED}::test_a_server_that_starts_without_its_engine_says_so_and_refuses",
    ),
    Mutation(
        "3 admit: an engine that is gone means no limit",
        f"{GATE}/shared.py",
        "if self._running.get(caller, 0) >= slots:",
        "if False:",
        f"{SHARED}::test_a_share_is_the_limit_divided_among_those_who_were_there",
    ),
    Mutation(
        "3 admit: what the engine says is not heard",
        f"{GATE}/shared.py",
        "elif place < ruling.held:",
        "elif True:",
        f"{SHARED}::test_two_servers_run_no_more_calls_of_a_key_than_one",
    ),
    Mutation(
        "3 admit: a lock that another process holds lets in",
        f"{GATE}/process_lock.py",
        "                if time.monotonic() >= due:\n                    raise uncounted()\n",
        "                if time.monotonic() >= due:\n                    return\n",
        "tests/gate/test_process_lock.py",
    ),
    Mutation(
        "3 admit: a worker sees its own slots only",
        f"{GATE}/counted.py",
        "        return sum(self._row_counts(self._memory, (place + _COUNTS) * _WORD))",
        "        return self._counts[2 * (place + _COUNTS) + self.own]",
        "tests/gate/test_counted.py",
    ),
    Mutation(
        "3 admit: a fast rate is taken beforehand by each worker for itself",
        f"{GATE}/counted.py",
        "                begun += taken * self._interval",
        "                begun += self._interval",
        "tests/gate/test_counted.py",
    ),
    Mutation(
        "3 admit: a shared slot never comes back",
        f"{GATE}/shared.py",
        "        self._changed.add(caller.key_id)\n        self._wake()",
        "        pass",
        f"{SHARED}::test_two_servers_run_no_more_calls_of_a_key_than_one",
    ),
    Mutation(
        "3 admit: an emptied engine is believed at once",
        "src/toolgate/powers/limits/limits.lua",
        "if epoch ~= state.epoch then since = now end",
        "if epoch ~= state.epoch then since = 0 end",
        f"{ENGINE}::test_an_emptied_engine_lets_nobody_in_before_each_has_said_what_it_runs",
    ),
    Mutation(
        "3 admit: old connections still count",
        "src/toolgate/powers/limits/limits.lua",
        "if not alive[me] then return {UNKNOWN, count, 0} end",
        "",
        f"{ENGINE}::test_of_two_connections_of_a_process_only_the_newer_is_heard",
    ),
    Mutation(
        "3 admit: who was away goes on at once",
        "src/toolgate/powers/limits/limits.lua",
        "and not known and wait == 0 then wait = lease end",
        "and not known and wait == 0 then wait = 0 end",
        f"{ENGINE}::test_a_process_that_was_away_for_longer_than_its_lease_is_refused_for_one",
    ),
    Mutation(
        "4 validate in: not at all",
        f"{GATE}/road.py",
        "if not grant.io.input.is_valid(call.arguments):",
        "if False:",
        REFUSAL,
    ),
    Mutation(
        "4 validate in: 1.0 is an integer",
        f"{GATE}/validate.py",
        'if copy.get("type") == "integer":',
        "if False:",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "4 validate in: remote references",
        f"{GATE}/validate.py",
        'raise ValueError(f"remote $ref refused: {uri}")',
        "return {}",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "5 intent: not written",
        f"{GATE}/road.py",
        "await self._intend(ticket)  # 5",
        "pass",
        f"{ROAD_TESTS}::test_intent_is_on_disk_before_an_effect_and_outcome_before_the_answer",
    ),
    Mutation(
        "5 intent: not synced",
        f"{GATE}/road.py",
        "await self.ledger.durable(place)\n        except LedgerUnavailable:\n            raise",
        "pass\n        except LedgerUnavailable:\n            raise",
        f"{ROAD_TESTS}::test_intent_is_on_disk_before_an_effect_and_outcome_before_the_answer",
    ),
    Mutation(
        "5 intent: a failed one is ignored",
        f"{GATE}/road.py",
        "raise Refusal(Ending.UNAVAILABLE, _NOT_WRITTEN) from None",
        "return",
        f"{ROAD_TESTS}::test_without_a_written_intent_nothing_runs",
    ),
    Mutation(
        "6 run: no deadline",
        f"{GATE}/execute.py",
        "timeout=self._tool.deadline_s",
        "timeout=None",
        f"{ROAD_TESTS}::test_a_handler_past_its_deadline_is_answered_for_while_others_are_served",
    ),
    Mutation(
        "6 run: the words of an exception",
        f"{GATE}/execute.py",
        'return _failed("crashed", "The tool failed.")',
        'return _failed("crashed", repr(fault))',
        f"{ROAD_TESTS}::test_whatever_a_handler_raises_is_one_typed_outcome_without_its_words",
    ),
    Mutation(
        "6 run: any answer is a result",
        f"{GATE}/execute.py",
        "if isinstance(result, Result):",
        "if True:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: no schema",
        f"{GATE}/execute.py",
        "if not grant.io.output.is_valid(data):",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: no size",
        f"{GATE}/execute.py",
        "if max(len(outcome.data_json), len(outcome.details_json)) > max_bytes:",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: any decision",
        f"{GATE}/execute.py",
        "if decision is not None and decision not in DECISIONS:",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: any code",
        f"{GATE}/execute.py",
        "if code is not None and (type(code) is not str or code not in grant.codes):",
        "if False:",
        f"{ROAD_TESTS}::test_f15_a_code_in_another_spelling_never_leaves",
    ),
    Mutation(
        "7 validate out: any field",
        f"{GATE}/execute.py",
        "if (odd := _odd_field(outcome)) is not None:",
        "if False:",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "7 validate out: not strict",
        f"{GATE}/execute.py",
        "raw if raw is not None else strictjson.encode_checked(data)",
        "raw if raw is not None else strictjson.dumps(data)",
        f"{ROAD_TESTS}::test_nonsense_from_a_tool_never_leaves",
    ),
    Mutation(
        "8 floor: experimental blocks",
        f"{GATE}/floor.py",
        'if decision == "block":\n            clamps += (Clamp("experimental',
        'if False:\n            clamps += (Clamp("experimental',
        "tests/gate/test_floor.py",
    ),
    Mutation(
        "8 floor: L0 codes", f"{GATE}/floor.py", "if code in L0_ONLY_CODES:", "if False:", "tests/gate/test_floor.py"
    ),
    Mutation(
        "8 floor: codes of any spelling",
        f"{GATE}/floor.py",
        "if code is not None and not CODE_FORM.fullmatch(code):",
        "if False:",
        "tests/gate/test_floor.py::test_f15_a_code_in_another_spelling_is_no_code",
    ),
    Mutation(
        "8 floor: local binds",
        f"{GATE}/floor.py",
        'elif environment == "local":',
        "elif False:",
        "tests/gate/test_floor.py",
    ),
    Mutation(
        "9 outcome: not written",
        f"{GATE}/road.py",
        "place = append(entry, is_held=ticket.is_held)  # 9",
        "place = None",
        f"{ROAD_TESTS}::test_a_read_leaves_one_record_and_waits_for_no_sync",
    ),
    Mutation(
        "9 outcome: the answer leaves anyway",
        f"{GATE}/road.py",
        'unknown = {"effect": "unknown"} if entry.durable else None',
        "unknown = None",
        f"{ROAD_TESTS}::test_an_answer_that_cannot_be_recorded_is_withheld_and_says_so",
    ),
    Mutation(
        "start: others write the settings",
        "src/toolgate/ownership.py",
        "if mode & stat.S_IWOTH:",
        "if False:",
        "tests/test_ownership.py",
    ),
    Mutation(
        "start: others own the settings",
        "src/toolgate/ownership.py",
        "if info.st_uid not in users:",
        "if False:",
        "tests/test_ownership.py",
    ),
    Mutation(
        "keys: any use",
        "src/toolgate/powers/keys.py",
        'if stated != use:\n            raise ToolError(\n                "WRONG_KEY_USE",\n                f"the key',
        'if False:\n            raise ToolError(\n                "WRONG_KEY_USE",\n                f"the key',
        "tests/powers/keys/test_uses.py",
    ),
    Mutation(
        "wire: any number of values",
        "src/toolgate/model/strictjson.py",
        "elif max_values is not None and _has_more_values(data, max_values):",
        "elif False:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "wire: ids of any length",
        "src/toolgate/faces/mcp.py",
        "if len(request_id) > MAX_ID:",
        "if False:",
        "tests/wire/test_refusals.py::test_f24_an_id_is_bounded_and_a_longer_one_is_not_sent_back",
    ),
    Mutation(
        "wire: any host",
        "src/toolgate/servers/http.py",
        "if not head.served:",
        "if False:",
        f"{HOSTILE}::test_a_wrong_host_is_refused_on_loopback_too",
    ),
    Mutation(
        "wire: any origin",
        "src/toolgate/servers/request_head.py",
        "return origin is None or origin.lower() in self.origins",
        "return True",
        f"{HOSTILE}::test_a_wrong_origin_is_refused",
    ),
    Mutation(
        "wire: any size",
        FRAMING,
        "        if length > self._limits.body_bytes:\n            raise TooLarge",
        "        if False:\n            raise TooLarge",
        f"{HOSTILE}::test_a_declared_length_is_refused_before_the_body_comes",
    ),
    Mutation(
        "wire: any media type",
        "src/toolgate/servers/request_head.py",
        'if content_type is None or content_type.partition(b";")[0].strip().lower() != b"application/json":',
        "if False:",
        f"{HOSTILE}::test_a_wrong_content_type_is_refused",
    ),
    Mutation(
        "wire: a tab behind chunked",
        FRAMING,
        " or _TABBED.search(block):",
        ":",
        "tests/servers/test_smuggling.py",
    ),
    Mutation(
        "wire: any transfer encoding",
        FRAMING,
        'if encoding.lower() != b"chunked" or not is_11 or _TABBED.search(block):',
        "if False:",
        f"{HOSTILE}::test_other_transfer_encodings_are_refused",
    ),
    Mutation(
        "wire: a length beside a transfer encoding",
        FRAMING,
        "        if length is not None:\n            raise",
        "        if False:\n            raise",
        f"{HOSTILE}::test_a_length_beside_a_transfer_encoding_is_refused",
    ),
    Mutation(
        "wire: two hosts",
        FRAMING,
        "if names.count(name) > 1:",
        "if False:",
        f"{HOSTILE}::test_two_hosts_are_refused",
    ),
    Mutation(
        "wire: any number of headers",
        FRAMING,
        "> limits.max_headers + 2:",
        "> 10_000:",
        f"{HOSTILE}::test_three_hundred_headers_are_refused",
    ),
    Mutation(
        "wire: a head without end",
        FRAMING,
        "        self._check_size(arrived)\n",
        "",
        f"{CONNECTION}::test_f2_whatever_frames_a_message_is_counted_from_its_first_byte",
    ),
    Mutation(
        "wire: chunks without end",
        FRAMING,
        "if self._frame_bytes + size > self._limits.header_bytes:",
        "if False:",
        f"{CONNECTION}::test_f2_whatever_frames_a_message_is_counted_from_its_first_byte",
    ),
    Mutation(
        "wire: slow headers",
        "src/toolgate/servers/connection.py",
        "self._timer, self._timer_at = self._loop.call_later(seconds, self._check_deadline), due",
        "pass",
        f"{HOSTILE}::test_a_client_that_never_ends_its_headers_is_closed",
    ),
    Mutation(
        "connection: a known head takes any body",
        "src/toolgate/servers/connection.py",
        "found[0].length != len(data) - end or ",
        "",
        CONNECTION,
    ),
    Mutation(
        "connection: an answer under way is overtaken",
        "src/toolgate/servers/connection.py",
        'if self._phase != "idle" or self._reader.arrived or not self._answers_known(data):',
        "if not self._answers_known(data):",
        f"{CONNECTION}::test_a_known_head_does_not_overtake_an_answer_that_waits",
    ),
    Mutation(
        "connection: a client that does not read is answered",
        "src/toolgate/servers/connection.py",
        " or self._unread is not None:\n            self._read_less()",
        ":\n            self._read_less()",
        f"{CONNECTION}::test_f3_a_client_that_does_not_read_is_neither_answered_nor_read_on_and_on",
    ),
    Mutation(
        "connection: a stranger's body is waited for",
        "src/toolgate/servers/connection.py",
        "        return False\n\n    def _await_body",
        "        return True\n\n    def _await_body",
        f"{CONNECTION}::test_f3_nothing_of_a_strangers_body_is_waited_for",
    ),
    Mutation(
        "connection: waiting bytes without a bound",
        "src/toolgate/servers/door.py",
        "if waiting > self.limits.waiting_bytes_per_caller:",
        "if False:",
        f"{CONNECTION}::test_f3_bodies_that_never_end_are_bounded_for_each_caller",
    ),
    Mutation(
        "door: strangers without a bound",
        "src/toolgate/servers/door.py",
        "            self._make_room()",
        "            pass",
        f"{CONNECTION}::test_f4_when_the_house_is_full_the_oldest_idle_stranger_goes_and_callers_stay",
    ),
    Mutation(
        "door: one caller takes every turn",
        "src/toolgate/servers/door.py",
        "return self._used.get(turn_id, 0.0) < (STRANGERS_TURN_S if turn_id is STRANGERS else TURN_S)",
        "return True",
        f"{CONNECTION}::test_f1_strangers_together_get_no_more_of_a_turn_than_one_caller",
    ),
    Mutation(
        "door: every large body in one turn",
        "src/toolgate/servers/connection.py",
        "elif len(body) > LARGE_BODY_BYTES:",
        "elif False:",
        f"{CONNECTION}::test_f1_one_large_body_is_answered_in_a_turn_and_callers_take_turns_at_it",
    ),
    Mutation(
        "door: reading takes nobody's time",
        "src/toolgate/servers/connection.py",
        "        self._spend(turn_id, self._turn_began)",
        "        pass",
        f"{CONNECTION}::test_f1_reading_is_part_of_a_callers_turn",
    ),
    Mutation(
        "4 validate in: what nobody can explain is let through",
        f"{GATE}/explain.py",
        " or [_SOMETHING]",
        "",
        "tests/gate/test_validate.py",
    ),
    Mutation(
        "threads: an interrupted one is used again",
        "src/toolgate/model/threads.py",
        "again = not self._interrupted and ",
        "again = ",
        "tests/gate/test_threads.py::test_a_thread_that_was_interrupted_is_never_used_again",
    ),
    Mutation(
        "threads: an interrupt hits whatever runs now",
        "src/toolgate/model/threads.py",
        "if self._now is not None and self._now() is piece and ",
        "if ",
        "tests/gate/test_threads.py::test_an_interrupt_of_work_that_has_ended_reaches_nobody",
    ),
    Mutation(
        "threads: the context of one piece of work is the next one's",
        "src/toolgate/model/threads.py",
        "return Context().run(work), None",
        "return work(), None",
        "tests/gate/test_threads.py::test_what_one_piece_of_work_sets_for_its_context_the_next_does_not_see",
    ),
    Mutation(
        "outbox: answers leave before their records",
        "src/toolgate/servers/http.py",
        "held, self._held = self._held, []\n        try:\n            self._road.ledger.flush()",
        "held, self._held = self._held, []\n        try:\n            pass",
        OUTBOX,
    ),
    Mutation(
        "outbox: an answer without a record is sent",
        "src/toolgate/servers/http.py",
        "client.send_held(reply if client.arrival is None else self._road.unrecorded(client.arrival))",
        "client.send_held(reply)",
        f"{OUTBOX}::test_when_the_log_fails_every_held_answer_says_so_and_none_is_lost",
    ),
    Mutation(
        "outbox: a held answer is overtaken",
        "src/toolgate/servers/connection.py",
        'if self._queued or self._phase == "answer" or ',
        "if self._queued or ",
        f"{OUTBOX}::test_a_client_that_does_not_wait_for_its_answers_gets_them_in_order",
    ),
    Mutation(
        "outbox: stopping loses a held answer",
        "src/toolgate/servers/connection.py",
        '        self._closing = True\n        if self._phase == "idle" and not self._queued:',
        "        self._closing = True\n        if True:",
        f"{OUTBOX}::test_an_answer_held_while_the_server_stops_is_sent",
    ),
    Mutation(
        "outbox: idle while an answer is held",
        "src/toolgate/servers/connection.py",
        '        self._phase, self._due = "answer", inf\n        if self._reserved:',
        '        self._phase = "answer"\n        if self._reserved:',
        f"{OUTBOX}::test_a_connection_is_not_idle_while_its_answer_is_held",
    ),
    Mutation(
        "stdio: answers leave before their records",
        "src/toolgate/servers/stdio.py",
        "            self._road.ledger.flush()",
        "            pass",
        "tests/servers/test_stdio.py::test_a_burst_is_answered_after_all_its_records",
    ),
    Mutation(
        "ledger: an effect waits with the reads",
        "src/toolgate/ledger/local.py",
        " and entry.caller is not None and not entry.durable and",
        " and",
        GATHER,
    ),
    Mutation(
        "ledger: refusals are written without end",
        "src/toolgate/ledger/local.py",
        "if self._is_writable() and self._flood.is_one_too_many(_key_id(entry), self._clock.monotonic()):",
        "if False:",
        FLOOD,
    ),
    Mutation(
        "ledger: one key's flood hides another's refusals",
        "src/toolgate/ledger/local.py",
        "return entry.caller.key_id if entry.caller else None",
        "return None",
        FLOOD,
    ),
    Mutation(
        "ledger: refusals are counted while nothing can be written",
        "src/toolgate/ledger/local.py",
        "if self._is_writable() and self._flood",
        "if self._flood",
        "tests/ledger/test_trouble.py",
    ),
    Mutation(
        "ledger: a stranger is told where the log stands",
        f"{GATE}/road.py",
        "if place and caller else None",
        "if place else None",
        FLOOD,
    ),
    Mutation(
        "verify: a lock file is believed",
        "src/toolgate/ledger/reading/verify.py",
        'if is_held(directory / f"{name}.lock")',
        'if (directory / f"{name}.lock").exists()',
        TAMPER,
    ),
    Mutation(
        "verify: a checkpoint's own fields are not compared",
        "src/toolgate/ledger/reading/verify.py",
        "good = sha256(stated).hexdigest() == signed",
        "good = True",
        TAMPER,
    ),
    Mutation(
        "verify: something may stand behind the note",
        "src/toolgate/ledger/reading/verify.py",
        "or not _CHAIN.fullmatch(line, len(head))",
        "",
        TAMPER,
    ),
    Mutation(
        "verify: a run without a signature is a run",
        "src/toolgate/ledger/reading/verify.py",
        "if not seq and not self._report.checkpoints:  # 3",
        "if False:",
        TAMPER,
    ),
    Mutation(
        "verify: anyone may say that a run was found dead",
        "src/toolgate/ledger/reading/verify.py",
        "if seq < self.covered or not self.whole",
        "",
        TAMPER,
    ),
    Mutation(
        "verify: a dead run may change after it was found",
        "src/toolgate/ledger/reading/verify.py",
        " and self.last in (None, now.last)",
        "",
        TAMPER,
    ),
    Mutation(
        "verify: an anchor's checkpoint may be gone",
        "src/toolgate/ledger/reading/verify.py",
        "if self._report.checkpoints.get(size) != root:",
        "if False:",
        "tests/ledger/test_verify.py",
    ),
    Mutation(
        "ledger: the next start forgets what was signed",
        "src/toolgate/ledger/opening.py",
        "        if known:\n",
        "        if False:\n",
        TAMPER,
    ),
    Mutation(
        "ledger: what is not on disk is kept beside the key",
        "src/toolgate/ledger/sync_thread.py",
        " or seq > synced",
        "",
        TAMPER,
    ),
    Mutation(
        "ledger: what waits is said to be on disk",
        "src/toolgate/ledger/local.py",
        "self._size - len(self._gathered) - 1",
        "self._size - 1",
        GATHER,
    ),
    Mutation(
        "ledger: a checkpoint signs what is not written",
        "src/toolgate/ledger/local.py",
        "        self._write_gathered()\n        self._tree",
        "        self._tree",
        GATHER,
    ),
    Mutation(
        "ledger: what is lost stays in the chain",
        "src/toolgate/ledger/local.py",
        "                self._forget()",
        "                self._gathered = []",
        GATHER,
    ),
    Mutation(
        "json: duplicate keys",
        "src/toolgate/model/strictjson.py",
        "catch_duplicate_keys=True",
        "catch_duplicate_keys=False",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: anything reads like our own writing",
        "src/toolgate/model/strictjson.py",
        "orjson.dumps(value, option=_PLAIN) == data and ",
        "",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: NUL in our own writing",
        "src/toolgate/model/strictjson.py",
        'if data.find(b"\\\\") >= 0 and data.find(rb"\\u0000") >= 0:',
        "if False:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: depth of our own writing",
        "src/toolgate/model/strictjson.py",
        'return data.count(b"[") + data.count(b"{") <= MAX_DEPTH',
        "return True",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: big integers",
        "src/toolgate/model/strictjson.py",
        "if not -MAX_SAFE_INTEGER <= item <= MAX_SAFE_INTEGER:",
        "if False:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: infinities",
        "src/toolgate/model/strictjson.py",
        "if not isfinite(item):",
        "if False:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: NUL",
        "src/toolgate/model/strictjson.py",
        'if "\\0" in item:',
        "if False:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "json: depth",
        "src/toolgate/model/strictjson.py",
        "for _ in range(MAX_DEPTH + 1):",
        "while True:",
        "tests/model/test_strictjson.py",
    ),
    Mutation(
        "egress: framing is free",
        WIRE,
        "self._allowance -= len(data)",
        "self._allowance -= 0",
        f"{EGRESS}::test_f11_tls_records_of_one_byte_are_framing_too",
    ),
    Mutation(
        "egress: all pieces that are there are handled at once",
        WIRE,
        "await self._turns.take()",
        "pass",
        f"{EGRESS}::test_f11_twenty_hostile_answers_are_handled_one_piece_in_a_turn_of_the_loop",
    ),
    Mutation(
        "egress: every drip is looked at",
        WIRE,
        "if self._short_reads > FREE_SHORT_READS:",
        "if False:",
        f"{EGRESS}::test_f11_a_drip_is_looked_at_no_oftener_than_the_pause_allows",
    ),
    Mutation(
        "gossip: anybody may claim to be an arbiter",
        "src/toolgate/packs/consensus/gossip/signed_requests.py",
        "if not self._network.keys[sender].verify(_signed(head, self._network, self._own, body), signature):",
        "if False:",
        f"{FLOODS}::test_request_that_no_arbiter_signed_for_us_is_refused_unread",
    ),
    Mutation(
        "gossip: calls side by side are given the same quota",
        "src/toolgate/packs/consensus/gossip/exchange.py",
        "        self._change(caller, now, taken, taken)",
        "        self._change(caller, now, 0, 0)",
        f"{FLOODS}::test_calls_side_by_side_share_one_quota",
    ),
    Mutation(
        "workers: one caller may hold them all",
        "src/toolgate/powers/compute.py",
        "self._share = max(1, total - 1)",
        "self._share = total",
        "tests/powers/compute/test_compute.py::test_f10_no_caller_holds_the_last_worker",
    ),
    Mutation(
        "workers: served by who came, not in turn",
        "src/toolgate/powers/compute.py",
        "key=lambda name: (self._held.get(name, 0), self._served.get(name, 0))",
        "key=lambda name: self._held.get(name, 0)",
        "tests/powers/compute/test_compute.py::test_f10_whoever_waits_longest_for_a_first_worker_is_served_before_those_who_had_one",
    ),
    Mutation(
        "workers: started in the directory",
        "src/toolgate/powers/compute.py",
        '[sys.executable, "-I", "-c"',
        '[sys.executable, "-c"',
        "tests/powers/compute/test_compute.py::test_f13_a_worker_has_nothing_of_the_directory_the_variables_or_the_secrets",
    ),
    Mutation(
        "workers: answers of any length",
        "src/toolgate/powers/compute.py",
        "self._pipe.recv_bytes(MAX_ANSWER_BYTES)",
        "self._pipe.recv_bytes()",
        "tests/powers/compute/test_compute.py::test_an_answer_beyond_the_limit_is_not_read",
    ),
    Mutation(
        "workers: no limit of memory",
        "src/toolgate/powers/worker.py",
        "    _limit(resource.RLIMIT_AS, MEMORY_BYTES)\n",
        "    pass\n",
        "tests/powers/compute/test_compute.py::test_a_worker_has_a_limit_of_memory_and_the_others_go_on",
    ),
    Mutation(
        "threads: the slot comes back before they end",
        "src/toolgate/gate/execute.py",
        "        if self._threads:\n",
        "        if not self:\n",
        "tests/gate/test_threads.py::test_a_call_s_slot_waits_for_the_threads_that_its_handler_left_behind",
    ),
    Mutation(
        "threads: no slot back when none can start",
        "src/toolgate/gate/execute.py",
        "            self._ended()  # there is no handler that could end\n",
        "            pass\n",
        "tests/gate/test_threads.py::test_f14_a_thread_that_cannot_start_gives_the_slot_back_and_is_an_outcome",
    ),
    Mutation(
        "directory: its settings run programs",
        "src/toolgate/config.py",
        "    if not chosen:\n",
        "    if not settings:\n",
        "tests/cli/test_directory.py::test_f13_a_home_that_nobody_chose_reaches_nothing_beyond_it",
    ),
    Mutation(
        "directory: its modules are imported",
        "src/toolgate/cli/origin.py",
        " and place not in here]",
        "]",
        "tests/cli/test_directory.py::test_f13_what_a_relative_entry_added_leaves_the_path",
    ),
    Mutation(
        "files: a dead attempt is not swept",
        "src/toolgate/powers/files.py",
        "            _sweep(parent, name)\n",
        "            pass\n",
        "tests/powers/files/test_workspace.py::test_f27_a_kill_at_any_step_leaves_no_part_of_a_tree",
    ),
    Mutation(
        "jobs: everybody sees and stops everybody's",
        "src/toolgate/app.py",
        "sees_all=caller.administers)",
        "sees_all=True)",
        "tests/packs/lra/tools/test_review.py::test_a7_admin_sees_and_stops_the_dev_server_of_any_caller",
    ),
    Mutation(
        "lra_init: a name may hold two dots",
        "src/toolgate/packs/lra/build/scaffold.py",
        r'(?: *\.? *{_PLAIN})*$"',
        r'(?:[ .]*{_PLAIN})*$"',
        "tests/packs/lra/build/test_scaffold.py::test_bad_names_are_refused",
    ),
    Mutation(
        "consensus: a split round looks open",
        "src/toolgate/packs/consensus/domain/rounds.py",
        "return most + len(self.silent()) >= self.network.quorum",
        "return True",
        "tests/packs/consensus/test_tools.py::test_d17_round_that_no_vote_still_out_can_decide_is_split_and_a_new_one_is_open",
    ),
    Mutation(
        "notice: what nobody announced may go",
        "scripts/notice.py",
        "return 1 if early or broken else 0",
        "return 1 if broken else 0",
        "tests/project/test_notice.py",
    ),
    Mutation(
        "door: a pack for another door is loaded and hoped for",
        "src/toolgate/packs/discovery.py",
        "if pack.door != DOOR:",
        "if False:",
        "tests/packs/test_door.py::test_a_pack_for_another_door_is_refused_with_both_versions",
    ),
    Mutation(
        "door: a tool gets any pack's store",
        "src/toolgate/app.py",
        "if name not in self._names:",
        "if False:",
        "tests/test_app_powers.py::test_a_tool_gets_the_stores_of_its_own_pack_and_no_other",
    ),
    Mutation(
        "door: a tool reads any secret",
        "src/toolgate/powers/secrets.py",
        "if source not in self._declared:",
        "if False:",
        "tests/test_app_powers.py::test_a_tool_reads_the_secrets_that_its_pack_declares_and_no_other",
    ),
    Mutation(
        "door: a tool signs for any use",
        "src/toolgate/powers/keys.py",
        "if use not in self._uses:",
        "if False:",
        "tests/test_app_powers.py::test_a_tool_signs_for_the_uses_of_its_pack_and_no_other",
    ),
    Mutation(
        "egress: a tool reaches what its pack does not declare",
        "src/toolgate/powers/net.py",
        "            refuse_undeclared(target, self._reach)\n",
        "",
        "tests/powers/net/test_rules.py",
    ),
    Mutation(
        "egress: the proxy resolves what a caller chose",
        "src/toolgate/powers/net.py",
        "if (host, port) in self._reach.named:",
        "if True:",
        "tests/powers/test_proxy.py",
    ),
    Mutation(
        "local: a person's command takes settings unchecked",
        "src/toolgate/enabled.py",
        "    if faults:\n",
        "    if False:\n",
        "tests/cli/test_local.py",
    ),
    Mutation(
        "upstream: order of sets in a schema is an alarm",
        PINS,
        "return sorted(value, key=strictjson.dumps_sorted) if isinstance(value, list) else value",
        "return value",
        PIN_TESTS,
    ),
    Mutation(
        "upstream: fields that nobody knows are not pinned",
        PINS,
        "for name, value in lasting.items()",
        'for name, value in lasting.items() if name in ("name", "description", "inputSchema")',
        PIN_TESTS,
    ),
    Mutation(
        "upstream: a tool that is gone goes unnoticed",
        PINS,
        "tuple(sorted(was.keys() - now.keys())),",
        "(),",
        PIN_TESTS,
    ),
    Mutation(
        "upstream: a new tool goes unnoticed",
        PINS,
        "tuple(sorted(now.keys() - was.keys() - set(pin.declined))),",
        "(),",
        PIN_TESTS,
    ),
    Mutation(
        "upstream: another program goes unnoticed",
        PINS,
        "peer is not None and digest_of(peer) != digest_of(pin.peer),",
        "False,",
        PIN_TESTS,
    ),
    Mutation(
        "upstream: a pin that was edited is believed",
        PINS,
        'if pin.digest != content.get("digest"):',
        "if False:",
        PIN_TESTS,
    ),
    Mutation(
        "upstream: a tool that changed is called",
        f"{CLIENT}/upstream.py",
        "if place in self._mismatch:",
        "if False:",
        "tests/upstreams/test_hostile_stdio.py::test_a_tool_that_changes_between_list_and_call_is_refused_after_one_list",
    ),
    Mutation(
        "upstream: only the first page is compared",
        f"{CLIENT}/session.py",
        "if following is None:",
        "if True:",
        f"{DRIFT}::test_a_tool_that_changed_on_the_second_page_is_refused",
    ),
    Mutation(
        "upstream: a child that came back is believed",
        f"{CLIENT}/upstream.py",
        "await self._check(session)",
        "await (self._check(session) if self._checked_at < 0 else asyncio.sleep(0))",
        f"{DRIFT}::test_a_child_that_died_and_came_back_otherwise_is_refused",
    ),
    Mutation(
        "upstream: what is new is told to nobody",
        "src/toolgate/upstreams.py",
        "if found.added or found.about:",
        "if False:",
        f"{DRIFT}::test_what_is_new_and_not_approved_is_told_to_the_log_and_not_served",
    ),
    Mutation(
        "upstream: a list that changed is told to no client",
        f"{CLIENT}/upstream.py",
        "self._on_change(CHANGES[note.method])",
        "pass",
        f"{DRIFT}::test_a_client_hears_of_a_list_that_changed_and_again_when_it_was_approved",
    ),
    Mutation(
        "upstream: an effect is sent again",
        f"{CLIENT}/upstream.py",
        "if call.reads and again:",
        "if again:",
        "tests/upstreams/test_http.py::test_a_call_with_an_effect_that_met_a_forgotten_session_is_in_doubt_and_not_sent_again",
    ),
    Mutation(
        "upstream: all callers at once try out one that failed",
        f"{CLIENT}/health.py",
        "self._probing |= is_probe",
        "pass",
        "tests/upstreams/test_health.py::test_an_upstream_that_failed_several_times_is_tried_out_by_one_call_at_a_time",
    ),
    Mutation(
        "upstream: a list is believed for ever",
        f"{CLIENT}/upstream.py",
        "return self._stale or self._clock() >= self._fresh_until",
        "return self._stale",
        "tests/upstreams/test_health.py::test_what_changed_without_a_word_is_refused_when_the_lists_time_is_up",
    ),
    Mutation(
        "upstream: one caller reads what is logged about another",
        f"{CLIENT}/relay/logs.py",
        "if self._reading and not self._is_shared:",
        "if self._reading:",
        "tests/upstreams/relay/test_restarts.py::"
        "test_what_a_program_of_several_callers_logs_is_relayed_to_none_and_each_is_told_once",
    ),
    Mutation(
        "upstream: a program's last words tell its secret",
        f"{CLIENT}/children.py",
        "self.stderr.text(self._secrets)",
        "self.stderr.text()",
        "tests/upstreams/test_operating.py::test_a_secret_of_an_upstream_is_shown_nowhere",
    ),
    Mutation(
        "upstream: a name that two want is served",
        "src/toolgate/upstreams.py",
        "contested=wanted,",
        "contested=frozenset(),",
        "tests/upstreams/test_operating.py::"
        "test_a_name_that_two_upstreams_want_is_served_by_neither_and_the_rest_goes_on",
    ),
    Mutation(
        "upstream: a handle is worth something to others",
        f"{CLIENT}/relay/lanes.py",
        "lane = self._held.get((call.caller, handle))",
        "lane = next((each for (_, held), each in self._held.items() if held == handle), None)",
        f"{LANES}::test_a_handle_is_worth_nothing_to_another_caller_or_tool",
    ),
    Mutation(
        "upstream: one caller's lane serves another",
        f"{CLIENT}/relay/lanes.py",
        "return self.held is None and self.caller == call.caller and self.capabilities == call.capabilities",
        "return self.held is None and self.capabilities == call.capabilities",
        f"{LANES}::test_a_lane_is_used_again_by_its_caller_alone",
    ),
    Mutation(
        "upstream: a question waits for ever",
        f"{CLIENT}/relay/lanes.py",
        "lane.held.timer = loop.call_later(HELD_S, self._expire, place)",
        "lane.held.timer = loop.call_later(1e6, self._expire, place)",
        f"{LANES}::test_nobody_answers_after_the_time_is_over",
    ),
    Mutation(
        "upstream: one caller holds every lane",
        f"{CLIENT}/relay/lanes.py",
        "if own >= MAX_LANES_OF_CALLER:",
        "if False:",
        f"{QUESTIONS}::test_so_many_calls_of_one_caller_are_held_and_others_are_not_kept_waiting",
    ),
    Mutation(
        "upstream: it asks what its row does not allow",
        "src/toolgate/packs/upstream/asking.py",
        "if capability not in ctx.allowed:",
        "if False:",
        f"{QUESTIONS}::test_a_row_that_does_not_allow_it_is_named",
    ),
    Mutation(
        "upstream: it asks what the client does not declare",
        "src/toolgate/packs/upstream/asking.py",
        "if capability not in ctx.capabilities:",
        "if False:",
        f"{QUESTIONS}::test_an_upstream_that_asks_for_more_is_told_that_the_client_lacks_it",
    ),
    Mutation(
        "idempotency: a call that is held frees its key",
        f"{GATE}/idempotency.py",
        "if ask is not None and ask.holds:",
        "if False:",
        f"{QUESTIONS}::test_a_call_under_an_idempotency_key_keeps_it_while_it_is_held",
    ),
    Mutation(
        "upstream: an address may turn private",
        f"{CLIENT}/http.py",
        "refuse_address(address, explicitly_allowed=self._private)",
        "refuse_address(address, explicitly_allowed=True)",
        "tests/upstreams/test_hostile_http.py::test_an_address_that_turned_private_is_refused",
    ),
    Mutation(
        "upstream: redirects lead anywhere",
        f"{CLIENT}/http.py",
        "if following.origin != self._target.origin:",
        "if False:",
        "tests/upstreams/test_hostile_http.py::test_a_redirect_to_another_origin_is_not_followed",
    ),
    Mutation(
        "upstream: the environment is handed down",
        f"{CLIENT}/children.py",
        "return {name: ours[name] for name in KEPT_VARIABLES if name in ours} | dict(declared)",
        "return {**ours, **declared}",
        "tests/upstreams/test_stdio.py::test_the_environment_of_a_child_starts_from_zero",
    ),
    Mutation(
        "upstream: what a child started stays",
        f"{CLIENT}/supervisor.py",
        "    _sweep(child)\n",
        "    pass\n",
        "tests/upstreams/test_children.py::test_nothing_of_a_child_outlives_its_connection",
    ),
    Mutation(
        "upstream: a settings file from anywhere starts programs",
        "src/toolgate/config.py",
        'reaching += [f"upstreams.{name}" for name in settings.upstreams]',
        "reaching += []",
        "tests/upstreams/test_tables.py::test_upstreams_of_a_home_that_nobody_chose_are_refused",
    ),
    Mutation(
        "idempotency: a claimed key runs all the same",
        f"{GATE}/idempotency.py",
        "if connection.execute(sql(_CLAIM), row).rowcount == 1:",
        "if connection.execute(sql(_CLAIM), row).rowcount in (0, 1):",
        f"{ONCE}::test_the_second_call_gets_the_first_ones_answer_and_does_not_run",
    ),
    Mutation(
        "idempotency: other arguments get the answer",
        f"{GATE}/idempotency.py",
        'if not hmac.compare_digest(first["digest"], claim.digest):',
        'if first["digest"] is None:',
        f"{ONCE}::test_other_arguments_under_the_same_key_are_refused_secret_ones_included",
    ),
    Mutation(
        "idempotency: an interrupted call frees its key",
        f"{GATE}/idempotency.py",
        "_NOTHING_RAN: Final = frozenset({Ending.UPSTREAM_DOWN, Ending.UPSTREAM_DRIFT})",
        "_NOTHING_RAN: Final = frozenset({Ending.UPSTREAM_DOWN, Ending.UPSTREAM_DRIFT, Ending.TOOL_FAILED})",
        f"{ONCE}::test_a_call_that_was_cancelled_is_in_doubt",
    ),
    Mutation(
        "idempotency: a caller keeps as many keys as it likes",
        f"{GATE}/idempotency.py",
        "            self._check_room(ticket, connection)\n",
        "",
        f"{ONCE}::test_a_caller_holds_so_many_keys_and_none_is_dropped_for_another",
    ),
    Mutation(
        "ledger: a run does not say which policy it decides by",
        "src/toolgate/ledger/opening.py",
        'first["serves"] = self.serves',
        "pass",
        "tests/ledger/test_investigator.py::test_p8_the_first_record_of_a_run_names_the_policy_and_the_contract_that_it_decides_by",
    ),
    Mutation(
        "ledger: a call is explained by rules that came after it",
        "src/toolgate/ledger/reading/query.py",
        "if _began(act) <= began + TICK_S",
        "if True",
        "tests/servers/processes/test_reload.py::test_p8_a_reload_names_what_is_served_from_then_on_and_each_call_what_it_was_decided_by",
    ),
    Mutation(
        "policy: who may call is not in its digest",
        "src/toolgate/policy/manifest.py",
        '            "roles": sorted(self.roles),\n',
        "",
        "tests/policy/test_manifest.py::test_p8_whatever_decides_is_in_the_digest_of_the_policy",
    ),
    Mutation(
        "connection: empty lines stop the clock (F4)",
        CONNECTION_CODE,
        "(self._reader.arrived or self._reader.blank)",
        "self._reader.arrived",
        f"{CONNECTION}::test_f4_empty_lines_do_not_keep_a_connection",
    ),
    Mutation(
        "door: a house full of strangers stays full (F4)",
        "src/toolgate/servers/door.py",
        "            self._make_room()\n        if len",
        "            pass\n        if len",
        f"{CONNECTION}::test_f4_when_the_house_is_full_the_oldest_idle_stranger_goes_and_callers_stay",
    ),
    Mutation(
        "wire: an upgrade has no body (F5)",
        FRAMING,
        "        _length(fields, block, is_11=is_11),",
        '        0 if b"upgrade" in fields else _length(fields, block, is_11=is_11),',
        f"{CONNECTION}::test_f5_an_upgrade_is_ignored_and_the_body_is_the_requests_own",
    ),
    Mutation(
        "connection: HEAD has a body (F18)",
        CONNECTION_CODE,
        'if self._request.method == b"HEAD":',
        "if False:",
        f"{CONNECTION}::test_f18_head_is_answered_without_a_body_and_the_next_answer_is_its_own",
    ),
    Mutation(
        "wire: a target of another host (F28)",
        FRAMING,
        "if absolute[1].lower() != host.lower():",
        "if False:",
        f"{CONNECTION}::test_f28_a_target_has_one_meaning",
    ),
    Mutation(
        "library: any number of words (F7)",
        "src/toolgate/packs/library/tools.py",
        "if len(keys) > MAX_WORDS:",
        "if False:",
        "tests/packs/library/test_bounds.py::test_f7_a_query_has_few_words",
    ),
    Mutation(
        "stores: a statement without end goes on (F7)",
        "src/toolgate/powers/sql.py",
        "lambda: time.monotonic() > due",
        "lambda: False",
        "tests/powers/sql/test_sql.py::test_f7_a_statement_without_end_is_interrupted_and_the_store_goes_on[sqlite]",
    ),
    Mutation(
        "governance: each spelling of a path is a file (F8)",
        READING,
        "{plain(path) for path in named}",
        "set(named)",
        f"{GOVERNANCE_BOUNDS}::test_f8_spellings_of_one_path_count_once",
    ),
    Mutation(
        "governance: files of a call without a total (F8)",
        READING,
        "max_bytes=min(self._left, self._max_bytes)",
        "max_bytes=self._max_bytes",
        f"{GOVERNANCE_BOUNDS}::test_f8_all_files_of_a_call_together_are_bounded",
    ),
    Mutation(
        "receipts: a log of any size is read (F9)",
        "src/toolgate/packs/lra/receipts/sign.py",
        " or total > receipt_log.MAX_BYTES:",
        ":",
        "tests/packs/lra/test_bounds.py::test_f9_entries_are_counted_by_name_and_a_log_that_is_too_large_is_not_read",
    ),
    Mutation(
        "terminal: a stranger's text is obeyed (F19)",
        "src/toolgate/cli/output.py",
        "[printable_lines(piece) for piece in pieces[::2]]",
        "pieces[::2]",
        "tests/cli/test_terminal.py::test_f19_a_guarded_terminal_is_told_text_and_colours_only",
    ),
    Mutation(
        "dev site: pages of other sites are served (F20)",
        "src/toolgate/packs/lra/devsite/site.py",
        'if fields.get(b"sec-fetch-site") == b"cross-site":',
        "if False:",
        f"{DEVSITE}::test_f20_pages_of_other_sites_are_not_served",
    ),
    Mutation(
        "dev site: findings of every directory are kept (F20)",
        "src/toolgate/packs/lra/devsite/pages.py",
        "if len(self._reports) >= MAX_REPORTS:",
        "if False:",
        f"{DEVSITE}::test_f20_findings_are_kept_for_a_few_papers_only",
    ),
    Mutation(
        "governance: what nobody stated is a pass (F16)",
        "src/toolgate/packs/governance/invariants/permissions.py",
        "    elif default is None:\n",
        "    elif False:\n",
        "tests/packs/governance/test_fail_open.py::test_f16_a_caller_is_warned_and_not_told_that_it_passed",
    ),
    Mutation(
        "stdio: whoever closes its end gets no answers (F23)",
        "src/toolgate/servers/lifecycle.py",
        "await server.drain(settings.server.drain_seconds)",
        "server.give_up()",
        f"{STDIO}::test_f23_d5_what_was_read_before_the_pipe_closed_is_answered",
    ),
    Mutation(
        "drain: HTTP does not know its time",
        "src/toolgate/servers/http_lifecycle.py",
        "drain_s=settings.server.drain_seconds,",
        "drain_s=10.0,",
        f"{LIFECYCLE}::test_a_call_that_never_ends_has_the_drain_time_and_no_other[0.1-cancelled]",
    ),
    Mutation(
        "drain: HTTP waits a moment only",
        "src/toolgate/servers/http_lifecycle.py",
        "drain_s=settings.server.drain_seconds,",
        "drain_s=1.0,",
        f"{LIFECYCLE}::test_a_call_that_never_ends_has_the_drain_time_and_no_other[60-deadline_exceeded]",
    ),
    Mutation(
        "drain: a pipe does not know its time",
        "src/toolgate/servers/lifecycle.py",
        "await server.drain(settings.server.drain_seconds)",
        "await server.drain(10.0)",
        f"{STDIO}::test_a_call_that_never_ends_has_the_drain_time_and_no_other_over_a_pipe[0.1-cancelled]",
    ),
    Mutation(
        "drain: a pipe waits a moment only",
        "src/toolgate/servers/lifecycle.py",
        "await server.drain(settings.server.drain_seconds)",
        "await server.drain(1.0)",
        f"{STDIO}::test_a_call_that_never_ends_has_the_drain_time_and_no_other_over_a_pipe[60-deadline_exceeded]",
    ),
    Mutation(
        "drain: a blocked loop is waited for",
        "src/toolgate/servers/lifecycle.py",
        "_end_within(drain_s + LAST_RESORT_S, ExitCode.FAILED)",
        "pass",
        f"{LIFECYCLE}::test_a_signal_ends_even_a_server_whose_loop_is_blocked",
    ),
    Mutation(
        "disk: a worker writes files",
        "src/toolgate/powers/worker.py",
        "    _limit(resource.RLIMIT_FSIZE, FILE_BYTES)\n",
        "",
        "tests/powers/compute/test_compute.py::test_a_worker_writes_nothing_to_a_disk",
    ),
    Mutation(
        "disk: one call writes what it likes",
        "src/toolgate/powers/files.py",
        "if self._written + size > self._shares.most:",
        "if False:",
        f"{SHARES}::test_one_call_writes_so_much_and_no_byte_more",
    ),
    Mutation(
        "disk: one key writes what it likes",
        "src/toolgate/powers/files.py",
        "if used >= self.most:",
        "if False:",
        f"{SHARES}::test_a_key_s_share_is_used_up_by_all_its_calls_and_by_nobody_else_s",
    ),
    Mutation(
        "disk: tools take the last of it",
        "src/toolgate/powers/files.py",
        "if free_bytes < self._reserve:",
        "if False:",
        f"{SHARES}::test_the_last_of_the_disk_is_not_for_tools",
    ),
    Mutation(
        "disk: a tool gets the workspace itself",
        "src/toolgate/app.py",
        "CallWriter(self._workspace, self._shares, caller.key_id)",
        "self._workspace",
        f"{APP_POWERS}::test_no_shipped_tool_writes_what_is_not_counted",
    ),
    Mutation(
        "disk: a store grows without end",
        "src/toolgate/powers/sql.py",
        '        connection.execute(f"PRAGMA max_page_count={max_bytes // page_bytes}")\n',
        "",
        "tests/powers/sql/test_sql.py::test_a_sqlite_store_grows_no_larger_than_it_may_and_is_still_read",
    ),
    Mutation(
        "views: what was read is believed for ever",
        "src/toolgate/kit/sql.py",
        "            if not is_unchanged():",
        "            if False and not is_unchanged():",
        f"{KEPT_STATISTICS}::test_consent_that_another_process_takes_back_is_gone_at_once",
    ),
    Mutation(
        "views: kept without a mark",
        "src/toolgate/kit/sql.py",
        "        if len(taken) < max(1, len(marks)):",
        "        if False:",
        f"{VIEWS}::test_nothing_is_kept_without_all_of_its_marks",
    ),
    Mutation(
        "views: without a bound",
        "src/toolgate/kit/sql.py",
        "        while len(self._kept) >= self._most:",
        "        while False:",
        f"{KEPT_ROUNDS}::test_what_is_remembered_is_bounded",
    ),
    Mutation(
        "marks: a commit ends none",
        "src/toolgate/powers/sql.py",
        "        return self._version() == then",
        "        return self._version() is not None",
        f"{MARKS}::test_a_mark_ends_with_a_commit_of_another_process",
    ),
    Mutation(
        "marks: a key may change",
        "src/toolgate/powers/keys.py",
        "        return lambda: [_stamp(path) for path in paths] == then",
        "        return _always",
        f"{KEPT_ROUNDS}::test_gossip_is_refused_at_once_when_the_key_is_gone_or_votes_elsewhere",
    ),
    Mutation(
        "keys: a public half is believed for ever",
        "src/toolgate/powers/keys.py",
        "        if known is not None and known[0] == stamp:",
        "        if known is not None:",
        "tests/powers/keys/test_keys.py::test_a_key_that_was_looked_at_before_counts_as_it_is_now",
    ),
    Mutation(
        "statistics: a window never moves",
        "src/toolgate/packs/governance/tools/query_fp_store.py",
        "if rate.first <= until <= rate.last else None",
        "",
        f"{KEPT_STATISTICS}::test_a_rate_is_remembered_until_the_first_event_leaves_its_window",
    ),
    Mutation(
        "gossip: messages are not looked at",
        "src/toolgate/packs/consensus/tools/rounds.py",
        "data = None if request.events else known.pages",
        "data = known.pages",
        f"{KEPT_ROUNDS}::test_gossip_that_brings_messages_is_never_answered_from_memory",
    ),
    Mutation(
        "vote: our own key passes for a stranger's",
        "src/toolgate/packs/consensus/tools/rounds.py",
        "    return signer.sender not in seen.network.keys and signer.sender != seen.own",
        "    return True",
        f"{KEPT_ROUNDS}::test_our_own_key_is_never_taken_for_a_strangers",
    ),
)


def survives(mutation: Mutation, tree: Path) -> bool:
    """Does the named test still pass without the check?"""
    path = tree / mutation.file
    good = path.read_text()
    if good.count(mutation.line) != 1:
        raise SystemExit(f"{mutation.name}: its line stands {good.count(mutation.line)} times in {mutation.file}")
    path.write_text(good.replace(mutation.line, mutation.mutant))
    try:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "--timeout",
            "20",
            "-p",
            "no:cacheprovider",
            mutation.test,
        ]
        env = os.environ | {
            "PYTHONPATH": str(tree / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_DATABASE": "none",
        }
        done = subprocess.run(command, cwd=tree, env=env, capture_output=True, timeout=TEST_S, check=False)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{mutation.name}: the test did not run\n{done.stdout.decode()}{done.stderr.decode()}")
        return done.returncode == 0
    finally:
        path.write_text(good)


def main() -> int:
    options = argparse.ArgumentParser(description="Remove each guard once; a named test must turn red.")
    options.add_argument("words", nargs="*", metavar="NAME", help="only those whose name contains it")
    options.add_argument("--from", dest="first", type=int, default=1, metavar="N", help="take up a run that stopped")
    given = options.parse_args()
    numbered = [each for each in enumerate(MUTATIONS, 1) if each[0] >= given.first]
    chosen = [each for each in numbered if not given.words or any(word in each[1].name for word in given.words)]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(
            ROOT,
            tree,
            ignore=shutil.ignore_patterns(".git", ".venv*", ".cache", "__pycache__", "artifacts", "node_modules"),
        )
        alive = []
        for number, mutation in chosen:
            try:
                verdict = "SURVIVED" if survives(mutation, tree) else "killed  "
            except subprocess.TimeoutExpired:
                verdict = "NO END  "  # its test tells nothing about the check
            print(f"{verdict}  {number:>3}  {mutation.name}", flush=True)
            if verdict != "killed  ":
                alive.append(mutation.name)
    print(f"{len(chosen) - len(alive)} killed, {len(alive)} survived")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main())
