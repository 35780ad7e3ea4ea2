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
