// holds: usage-ledger

import { EmbeddedLimits } from "@heddle/auth/limits/embedded-limits";
import { OwnSpend } from "@heddle/auth/limits/own-spend";
import { RateLimiter } from "@heddle/auth/rate-limiter";
import { AppError } from "@heddle/base/errors";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { ModelRecord } from "@heddle/control/state";
import { InferenceMetrics } from "@heddle/observability/inference-metrics";
import { Registry } from "prom-client";
import { expect, it } from "vitest";
import { CallReservation } from "../../http/limits/call-reservation.ts";
import type { UsageRow } from "../../usage/usage-row.ts";
import { Accounting } from "../accounting.ts";
import { AdmittedCall } from "../call.ts";
import { estimatePromptTokens } from "./chat-request.ts";

const LIMIT = 1000;
const RESERVED_OUTPUT = 500;
const ESTIMATED_PROMPT = 16;

/** Admits a call, passes it the events, closes it, and returns its key's charge. */
function chargedFor(events: readonly EngineEvent[], failure: AppError | undefined) {
  const limits = { tokensPerMinute: LIMIT };
  // Nothing refills while the clock is fixed.
  const limiter = new RateLimiter({ now: () => 1, maxKeys: 1 });
  const spend = new OwnSpend({ history: () => 0, wallNow: () => 1, maxSubjects: 1 });
  const store = new EmbeddedLimits({ limiter, spend, share: (subject) => subject.limits });
  const hold = store.admit([{ kind: "key", name: "k", limits }]);
  if (!hold.ok) throw new Error("the call was refused");
  hold.reserve({ tokens: ESTIMATED_PROMPT + RESERVED_OUTPUT, spend: 0 });
  const reservation = new CallReservation(hold, "k");
  const rows: UsageRow[] = [];
  const metrics = new InferenceMetrics(new Registry(), {
    load: async () => ({ replicas: [], kvUsage: new Map() }),
    isRegistered: () => true,
  });
  const call = new AdmittedCall({
    engineRequests: 1,
    requestId: "r",
    key: { id: "k", project: "default" },
    model: { id: "m" } as ModelRecord,
    reservation,
    accounting: new Accounting(metrics, (row) => rows.push(row)),
    endUser: undefined,
    metadata: undefined,
    reservedPromptTokens: ESTIMATED_PROMPT,
    reservedOutputTokens: RESERVED_OUTPUT,
  });
  for (const event of events) {
    try {
      call.observe(event);
    } catch (error) {
      expect(error).toMatchObject({ code: failure?.code });
    }
  }
  call.close(failure);
  const charged = LIMIT - limiter.view("key:k", limits).tokens.remaining;
  const [row] = rows;
  expect(charged).toBe((row?.promptTokens ?? 0) + (row?.completionTokens ?? 0));
  return charged;
}

const started: EngineEvent = {
  type: "started",
  id: 1,
  promptTokens: 30,
  cachedTokens: 10,
  queuedMs: 1,
};
const delta: EngineEvent = { type: "delta", id: 1, choice: 0, text: "x", tokens: 7 };
const usage = { promptTokens: 30, cachedTokens: 10, completionTokens: 9, reasoningTokens: 0 };

it("finished call: charged what the engine counted", () => {
  expect(chargedFor([started, delta, { type: "done", id: 1, usage }], undefined)).toBe(39);
});

it("failed call: charged what the engine counted, or what was seen", () => {
  const error = { code: "engine_failed", message: "planned" } as const;
  const failure = new AppError(error.code, error.message);
  const reported: EngineEvent = { type: "failed", id: 1, error: { ...error, usage } };
  expect(chargedFor([started, delta, reported], failure)).toBe(39);
  const silent: EngineEvent = { type: "failed", id: 1, error };
  expect(chargedFor([started, delta, delta, silent], failure)).toBe(44);
});

it("disconnected client: charged what was seen until then", () => {
  const hungUp = new AppError("cancelled", "The client closed the connection.");
  expect(chargedFor([started, delta, delta, delta], hungUp)).toBe(51);
  expect(chargedFor([started], hungUp)).toBe(30);
  expect(chargedFor([], hungUp)).toBe(0);
});

it("prompt that an upstream counts last: its count, or the estimate without one", () => {
  const begun: EngineEvent = { ...started, promptTokens: 0, cachedTokens: 0 };
  expect(chargedFor([begun, delta, { type: "done", id: 1, usage }], undefined)).toBe(39);
  const hungUp = new AppError("cancelled", "The client closed the connection.");
  expect(chargedFor([begun, delta], hungUp)).toBe(ESTIMATED_PROMPT + 7);
});

it("estimate: arguments of earlier calls count like other text", () => {
  const estimateOf = (text: string) => {
    const call = { id: "a", type: "function" as const, function: { name: "f", arguments: text } };
    const messages = [{ role: "assistant" as const, content: null, tool_calls: [call] }];
    return estimatePromptTokens({ model: "m", messages });
  };
  expect(estimateOf("x".repeat(3_000)) - estimateOf("")).toBe(1_000);
});
