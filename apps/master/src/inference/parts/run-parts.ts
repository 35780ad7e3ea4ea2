import { forEachLimit } from "@heddle/base/async/for-each-limit";
import { type AppError, toAppError } from "@heddle/base/errors";
import type { EngineEvent } from "@heddle/contracts/engine";
import type { CallerRequest } from "../../http/access.ts";
import type { CallPart } from "../call.ts";
import { cutShort, type InferenceCalls, type PermittedCall } from "../inference-calls.ts";
import { repeatLost } from "../repeat-lost.ts";
import type { ChoicePart } from "./choice-parts.ts";

/** Parts with a replica at once: some are computed while others wait beside them. */
const PARTS_PER_REPLICA = 4;
const MAX_PARTS_AT_ONCE = 32;

/** A call whose key permits it, and what it is divided into. */
export interface DividedCall extends PermittedCall {
  readonly parts: readonly ChoicePart[];
  /** Of the engine, which orders requests of one priority by it. */
  readonly later: number;
}

/** What makes the answer of a call from its parts. */
export interface PartSink {
  /** A part begins; again, where its worker was lost and nothing of it was sent. */
  begin(part: ChoicePart): void;
  /**
   * Takes an event, whose choices are numbered in the part. Returns whether any of it was sent: a
   * part of which something was sent is not repeated.
   */
  take(event: EngineEvent, part: ChoicePart, tally: CallPart): boolean | Promise<boolean>;
  /** A failure as the caller is to read it. */
  failure?(failure: AppError, part: ChoicePart): AppError;
}

/**
 * Runs the parts of a call, several at once, apart on its replicas. A part is repeated on another
 * replica where its worker is lost; a call of one part is its client's to repeat. The first failure
 * ends the others.
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
  let isSent = false;
  const work = async () => {
    tally.restart();
    sink.begin(part);
    try {
      const own = { request, later: divided.later, place };
      const { events, node } = await calls.start(http, divided, own, signal);
      for await (const event of events) {
        tally.observe(event);
        if (event.type === "done") return;
        const taken = sink.take(event, part, tally);
        if (typeof taken === "boolean" ? taken : await taken) isSent = true;
      }
      throw cutShort(node);
    } finally {
      place.holder = undefined;
    }
  };
  try {
    await repeatLost(signal, work, () => divided.parts.length > 1 && !isSent);
  } catch (thrown) {
    const failure = toAppError(thrown);
    throw sink.failure?.(failure, part) ?? failure;
  }
}
