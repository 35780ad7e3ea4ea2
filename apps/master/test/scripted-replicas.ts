import type { EngineEvent, EngineRequest } from "@heddle/contracts/engine";
import { vi } from "vitest";
import { ReplicaDispatch } from "../src/inference/dispatch/inference-dispatch.ts";
import type { CallWait, InferenceAnswer } from "../src/inference/dispatch/inference-port.ts";
import type { InferenceCall, Outlook, ReadyReplica } from "../src/nodes/replicas/ready-replica.ts";

// A dispatch over replicas with scripted answers, under a fake clock.

/** Call it before each test, and `vi.useRealTimers` after it. */
export function useTimesByHand(): void {
  vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
}

export const DONE: EngineEvent = {
  type: "done",
  id: 1,
  usage: { promptTokens: 1, completionTokens: 1, cachedTokens: 0 },
} as EngineEvent;
export const STARTED: EngineEvent = {
  type: "started",
  id: 1,
  promptTokens: 1,
  cachedTokens: 0,
  queuedMs: 0,
};
export const failed = (code: string): EngineEvent =>
  ({ type: "failed", id: 1, error: { code, message: `it is ${code}`, param: "p" } }) as EngineEvent;

/** One replica; each call gets the next of its answers, and then the last one repeatedly. */
export class ScriptedReplica implements ReadyReplica {
  readonly node: string;
  readonly holder: string;
  readonly nodeName: string;
  features: readonly string[] = [];
  isDivided = false;
  reports = 1;
  used = 0;
  calls = 0;
  maxSequences = 1;
  maxQueued = 0;
  answers: readonly (readonly EngineEvent[] | Promise<readonly EngineEvent[]> | "hangs")[] = [
    [STARTED, DONE],
  ];
  readonly deadlines: number[] = [];
  readonly asked: EngineRequest[] = [];
  left = 0;

  constructor(name: string) {
    this.node = name;
    this.nodeName = name;
    this.holder = `${name}/1`;
  }

  /** All of them belong to the key "a". */
  usedBy(fairKey: string): number {
    return fairKey === "a" ? this.used : 0;
  }

  yielding: (priority: number) => number = () => 0;

  start({ request }: InferenceCall, deadlineMs: number): AsyncIterable<EngineEvent> {
    this.asked.push(request);
    const at = Math.min(this.deadlines.push(deadlineMs), this.answers.length) - 1;
    const events = this.answers[at] ?? [];
    const leave = () => this.left++;
    return (async function* () {
      try {
        if (events === "hangs") await new Promise(() => undefined);
        else yield* await events;
      } finally {
        leave();
      }
    })();
  }
}

const LOADING: Outlook = { known: true, loading: true, message: "it loads" };

export function dispatchOver(
  replicas: ScriptedReplica[],
  options: { maxQueued?: number; maxWaitMs?: number } = {},
) {
  const source = { replicas, outlook: LOADING };
  const limits = { maxQueued: 2, maxWaitMs: 1_000, maxLoadingWaitMs: 5_000, ...options };
  const listeners = new Set<() => void>();
  const dispatch = new ReplicaDispatch(
    Object.assign(limits, {
      replicas: {
        ready: () => source.replicas,
        outlook: () => source.outlook,
        onChange: (listener: () => void) => {
          listeners.add(listener);
          return () => listeners.delete(listener);
        },
      },
      clock: { monotonicMs: () => Date.now(), wallMs: () => Date.now() },
      random: () => 1,
    }),
  );
  /** The state of a call as one word. */
  const start = (
    change: Partial<InferenceCall> = {},
    signal: AbortSignal = new AbortController().signal,
    wait?: CallWait,
  ) => {
    const outcome = {} as { answer?: InferenceAnswer; error?: Record<string, unknown> };
    const request = { choices: 1, input: { kind: "tokens", tokens: [1] } };
    const call = {
      requestId: "r",
      deployment: "m",
      request,
      fairKey: "a",
      cacheSalt: "",
      deadlineMs: 0,
      priority: 0,
    };
    dispatch.start({ ...call, ...change } as InferenceCall, signal, wait).then(
      (answer) => {
        outcome.answer = answer;
      },
      (error) => {
        outcome.error = error;
      },
    );
    return outcome;
  };
  const change = () => {
    for (const listener of listeners) listener();
    return soon();
  };
  return { dispatch, source, limits, listeners, start, change };
}

/** Some turns of the event loop, enough for everything that needs no timer. */
export async function soon(): Promise<void> {
  for (let turn = 0; turn < 8; turn++) await new Promise((resolve) => setImmediate(resolve));
}

export async function pass(ms: number): Promise<void> {
  await vi.advanceTimersByTimeAsync(ms);
  await soon();
}

export async function read({ answer }: { answer?: InferenceAnswer }): Promise<string[]> {
  const types: string[] = [];
  if (!answer) throw new Error("the call has no answer");
  for await (const { type } of answer.events) types.push(type);
  return types;
}

export const full = (name: string) =>
  Object.assign(new ScriptedReplica(name), { used: 1, calls: 1 });
