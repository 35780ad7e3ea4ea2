import type { ClusterEvent } from "@heddle/contracts/api/events";
import { isEndedState } from "../data/queries.ts";

/** A time that a job spent in one state. */
export interface StateSpan {
  readonly state: string;
  readonly fromMs: number;
  readonly untilMs: number;
}

/** What a job did in one attempt; 0 is before the first one. */
export interface JobAttempt {
  readonly attempt: number;
  readonly spans: readonly StateSpan[];
}

/** The attempts of a job by its events, the oldest first. The last state lasts until now, unless it is an end. */
export function attemptsOf(events: readonly ClusterEvent[], nowMs: number): readonly JobAttempt[] {
  const attempts = new Map<number, StateSpan[]>();
  const ofJob = events.filter((event) => event.type === "job");
  for (const [at, { state, attempt, at: time }] of ofJob.entries()) {
    const fromMs = Date.parse(time);
    const next = ofJob[at + 1];
    const lastMs = isEndedState(state) ? fromMs : Math.max(fromMs, nowMs);
    const untilMs = next ? Date.parse(next.at) : lastMs;
    const spans = attempts.get(attempt) ?? [];
    spans.push({ state, fromMs, untilMs });
    attempts.set(attempt, spans);
  }
  return [...attempts].map(([attempt, spans]) => ({ attempt, spans }));
}
