// holds: console-oidc

import { expect, test } from "vitest";
import { newestControl } from "../testing/newest-control.ts";

const [ONE, OTHER] = ["a".repeat(64), "b".repeat(64)];

function ended(names: readonly string[], changes: object = {}) {
  const control = newestControl();
  const end = (more: object) => {
    const times = { atMs: 10, beganUntilMs: 10, forgetAtMs: 1_000 };
    const command = { type: "session.end" as const, names, ...times, ...more };
    return control.apply({ type: "control", command }, control.index + 1);
  };
  return { control, end, reply: end(changes) };
}

test("sessions: one that was ended stays so until it is forgotten", () => {
  const { control, end, reply } = ended([ONE]);
  expect(reply.ok).toBe(true);
  end({ beganUntilMs: 5 });
  expect(control.state.endedSessions.get(ONE)).toEqual({ beganUntilMs: 10, forgetAtMs: 1_000 });
  end({ names: [OTHER], atMs: 1_000, beganUntilMs: 1_000, forgetAtMs: 2_000 });
  expect([...control.state.endedSessions.keys()]).toEqual([OTHER]);
});

const kept = (control: ReturnType<typeof newestControl>, changes: object) => {
  const tokens = { atMs: 10, name: ONE, sealed: "c2VhbGVk", version: 0, forgetAtMs: 1_000 };
  const command = { type: "session.keep" as const, ...tokens, ...changes };
  return control.apply({ type: "control", command }, control.index + 1);
};

test("sessions: tokens are claimed by one master, and end with the session", () => {
  const control = newestControl();
  const claim = (changes: object) => {
    const claimed = { atMs: 20, name: ONE, version: 1, untilMs: 50 };
    const command = { type: "session.claim" as const, ...claimed, ...changes };
    return control.apply({ type: "control", command }, control.index + 1);
  };
  expect(claim({})).toMatchObject({ ok: false, code: "conflict" });
  expect(kept(control, {}).ok).toBe(true);
  expect(kept(control, {})).toMatchObject({ ok: false, code: "conflict" });
  expect(claim({ untilMs: 70_000 })).toMatchObject({ ok: false, code: "invalid_value" });
  expect(claim({}).ok).toBe(true);
  expect(claim({ atMs: 49 })).toMatchObject({ ok: false, code: "conflict" });
  expect(claim({ atMs: 50, untilMs: 60 }).ok).toBe(true);
  expect(kept(control, { version: 1 }).ok).toBe(true);
  expect(control.state.sessionTokens.get(ONE)).toEqual({
    sealed: "c2VhbGVk",
    version: 2,
    forgetAtMs: 1_000,
  });
  const times = { atMs: 60, beganUntilMs: 60, forgetAtMs: 1_000 };
  const command = { type: "session.end" as const, names: [ONE], ...times };
  control.apply({ type: "control", command }, control.index + 1);
  expect(control.state.sessionTokens.size).toBe(0);
});

test("sessions: tokens are forgotten at their end, and have bounds", () => {
  const control = newestControl();
  kept(control, {});
  kept(control, { atMs: 1_000, name: OTHER, forgetAtMs: 2_000 });
  expect([...control.state.sessionTokens.keys()]).toEqual([OTHER]);
  for (const wrong of [
    { name: "alice" },
    { sealed: "x".repeat(24_577) },
    { forgetAtMs: 10 },
    { forgetAtMs: 700_000_000 },
  ]) {
    expect(kept(control, wrong), JSON.stringify(wrong).slice(0, 50)).toMatchObject({
      code: "invalid_value",
    });
  }
});

test.each([
  ["no name", [], {}],
  ["a name in clear", ["alice"], {}],
  ["five names", Array(5).fill(ONE), {}],
  ["no end", [ONE], { forgetAtMs: 10 }],
  ["an end in a week", [ONE], { forgetAtMs: 700_000_000 }],
])("sessions: %s is refused", (_, names, changes) => {
  const { control, reply } = ended(names, changes);
  expect(reply).toMatchObject({ ok: false, code: "invalid_value" });
  expect(control.state.endedSessions.size).toBe(0);
});
