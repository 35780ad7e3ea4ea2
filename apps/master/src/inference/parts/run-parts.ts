import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { CallerRequest } from "../../http/access.ts";
import type { CallPart } from "../call.ts";
import { cutShort, type InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import type { ChoicePart } from "./choice-parts.ts";

/** Parts with a replica at once: some are computed while others wait beside them. */
const PARTS_PER_REPLICA = 4;
const MAX_PARTS_AT_ONCE = 32;

/** A call whose key permits it, and what it is divided into. */
export interface DividedCall extends PermittedCall {
  readonly parts: readonly ChoicePart[];
  /** The request's `priority`: the engine runs requests with a larger one later. */
  readonly later: number;
  readonly mayHold: boolean;
}

/** What makes the answer of a call from its parts. */
export interface PartSink {
  /** Takes an event, whose choices are numbered in the part. */
  take(event: EngineEvent, part: ChoicePart, tally: CallPart): void | Promise<void>;
  /** A failure as the caller is to read it. */
  failure?(failure: AppError, part: ChoicePart): AppError;
}

/**
 * Runs the parts of a call, several at once, apart on its replicas. The first failure ends the
 * others.
 */
export async function runParts(
  calls: InferenceCalls,
  http: CallerRequest,
  divided: DividedCall,
  sink: PartSink,
  signal: AbortSignal,
): Promise<void> {
  const { parts, model } = divided;
  const [only] = parts;
  const run = (part: ChoicePart, either: AbortSignal) =>
    runPart(calls, http, divided, { part, sink }, either);
  if (only && parts.length === 1) return await run(only, signal);
  const replicas = Math.max(1, calls.parts.models.readyReplicas(model));
  const limit = Math.min(parts.length, MAX_PARTS_AT_ONCE, replicas * PARTS_PER_REPLICA);
  await forEachLimit(parts, limit, run, signal);
}

async function runPart(
  calls: InferenceCalls,
  http: CallerRequest,
  divided: DividedCall,
  { part, sink }: { readonly part: ChoicePart; readonly sink: PartSink },
  signal: AbortSignal,
): Promise<void> {
  const { request, place, sharesPrompt } = part;
  const tally = divided.call.part(sharesPrompt);
  try {
    const { later, mayHold } = divided;
    const own = { request, later, place, mayHold };
    const answer = await calls.start(http, divided, own, signal);
    for await (const event of answer.events) {
      tally.observe(event);
      if (event.type === "done") return;
      const taken = sink.take(event, part, tally);
      if (taken) await taken;
    }
    throw cutShort(answer.node);
  } catch (thrown) {
    const failure = toAppError(thrown);
    throw sink.failure?.(failure, part) ?? failure;
  } finally {
    place.holder = undefined;
  }
}
