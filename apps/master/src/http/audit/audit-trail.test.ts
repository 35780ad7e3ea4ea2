// holds: events-drops-counted

import { AppError } from "@heddle/base/errors";
import { eventually } from "@heddle/base/testing/eventually";
import type { AuditCommand, AuditRecord } from "@heddle/control/audit/records";
import type { ControlCommand } from "@heddle/control/command";
import { createLogger } from "@heddle/observability/logger";
import { expect, test } from "vitest";
import { VolatileControl } from "../../../test/test-master.ts";
import type { RecordedEvents } from "../../control-plane/recorded-events.ts";
import { AuditTrail } from "./audit-trail.ts";

type Recorded = Extract<AuditCommand, { type: "audit.record" }>;

/** A control plane that keeps events, whose proposals may fail before or after they are applied. */
class UnsureControl extends VolatileControl {
  readonly events = {} as RecordedEvents;
  readonly proposed: Recorded[] = [];
  readonly faults: ("before" | "after")[] = [];
  readonly eventsBefore = Number(this.state.cluster.get("events") ?? 0);

  override async propose(command: ControlCommand) {
    const fault = this.faults.shift();
    if (fault === "before") throw new AppError("unavailable", "no leader");
    this.proposed.push(command as Recorded);
    const reply = await super.propose(command);
    if (fault === "after") throw new AppError("outcome_unknown", "the leader is lost");
    return reply;
  }
}

const record = (kind: AuditRecord["kind"], atMs = 5): AuditRecord => ({
  request: "r",
  route: "POST /api/v1/chat/completions",
  atMs,
  kind,
  subject: "models/demo",
  status: 200,
});

function trailOn(control: UnsureControl): AuditTrail {
  const log = createLogger({ service: "audit-test", level: "silent" });
  return new AuditTrail({ control, master: "m1", log });
}

test("recorded calls: 64 make a command at once, fewer wait", async () => {
  const control = new UnsureControl();
  const trail = trailOn(control);
  for (let i = 0; i < 63; i++) trail.record(record("access"));
  await Promise.resolve();
  expect(control.proposed).toEqual([]);
  trail.record(record("access"));
  await eventually(() => trail.counts.recorded === 64);
  expect(control.proposed.length).toBe(1);
  expect(control.proposed[0]?.records.length).toBe(64);
  expect(trail.counts.dropped).toBe(0);
});

test("recorded calls: those that come while a command is sent gather too", async () => {
  const control = new UnsureControl();
  const trail = trailOn(control);
  for (let i = 0; i < 660; i++) {
    trail.record(record("access"));
    if (i % 10 === 0) await new Promise(setImmediate);
  }
  await eventually(() => trail.counts.recorded === 660);
  expect(control.proposed.length).toBeLessThanOrEqual(11);
});

test("recorded calls: a command of unknown outcome is sent again and applied once", async () => {
  const control = new UnsureControl();
  control.faults.push("before", "after");
  const trail = trailOn(control);
  for (let i = 0; i < 64; i++) trail.record(record("access"));
  await eventually(() => trail.counts.recorded === 64);
  expect(control.proposed.length).toBe(2);
  expect(control.state.cluster.get("events")).toBeGreaterThanOrEqual(64);
  expect(control.proposed[1]).toEqual(control.proposed[0]);
  expect(control.state.cluster.get("batch:m1")).toMatch(/ 1$/);
});

test("recorded calls: those before the group takes up its version wait for it", async () => {
  const control = new UnsureControl();
  const { cluster } = control.state;
  const version = cluster.get("version");
  cluster.delete("version");
  const trail = trailOn(control);
  for (let i = 0; i < 64; i++) trail.record(record("denied"));
  await new Promise(setImmediate);
  expect(control.proposed).toEqual([]);
  cluster.set("version", version!);
  await eventually(() => trail.counts.recorded === 64);
});

test("recorded calls: what a full queue does not take is counted in the log", async () => {
  const control = new UnsureControl();
  const trail = trailOn(control);
  for (let i = 0; i < 20_000; i++) trail.record(record("access"));
  expect(trail.counts.dropped).toBeGreaterThan(0);
  await eventually(
    () => trail.waiting === 0 && trail.counts.recorded + trail.counts.dropped === 20_000,
  );
  const counted = control.proposed.reduce((sum, { dropped = 0 }) => sum + dropped, 0);
  expect(counted).toBe(trail.counts.dropped);
});

test("recorded calls: all denied ones are recorded, some are counted only", async () => {
  const control = new UnsureControl();
  const trail = trailOn(control);
  for (let i = 0; i < 50; i++) trail.record(record("denied", 7_000 + i));
  for (let i = 0; i < 50; i++) trail.count();
  expect([trail.waiting, trail.counts.dropped]).toEqual([50, 50]);
  await trail.onApplicationShutdown();
  expect(control.proposed).toMatchObject([{ dropped: 50 }]);
});

test("recorded calls: one that must be recorded now does not displace gathered ones", async () => {
  const control = new UnsureControl();
  control.faults.push("before");
  const trail = trailOn(control);
  for (let i = 0; i < 64; i++) trail.record(record("access"));
  await trail.recordNow(record("access")).catch(() => trail.recordNow(record("access")));
  await eventually(() => trail.waiting === 0 && trail.counts.recorded === 65);
  const events = control.proposed.map(({ records }) => records.length).sort((a, b) => a - b);
  expect(events).toEqual([1, 64]);
  expect(control.state.cluster.get("events")).toBe(control.eventsBefore + 65);
});
