import { setTimeout as sleep } from "node:timers/promises";
import { Backoff } from "@heddle/base/backoff";
import { idleSignal, itemsUntil } from "../deadline.ts";
import type { PullLimits } from "../guarded-request.ts";
import { PermanentFault, reasonOf, SourceFault, UnreachableFault } from "../source-fault.ts";

/** Something that gives ranges of one file of weights. */
export interface RangeSource {
  /** The form that API clients may read. */
  readonly name: string;
  /**
   * The bytes of a range, in pieces. A source that has only its beginning gives that and throws
   * AbsentRange; one that cannot give ranges of this file throws NoRanges.
   */
  read(offset: number, bytes: number, signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** The source lacks this range, and may have others. */
export class AbsentRange extends PermanentFault {}

/** The source gives whole files only. */
export class NoRanges extends PermanentFault {}

export interface RangeReading {
  readonly limits: PullLimits;
  readonly signal: AbortSignal;
}

/**
 * Exactly the bytes of a range, asked for again from where it broke off. It retries as often as
 * bytes come, and at most `maxAttempts` times in a row without any; throws a SourceFault, or the
 * signal's reason.
 */
export async function* steadyRange(
  source: RangeSource,
  { offset, bytes }: { readonly offset: number; readonly bytes: number },
  { limits, signal }: RangeReading,
): AsyncGenerator<Uint8Array, void> {
  const backoff = new Backoff({ baseMs: limits.retryBaseMs, maxMs: limits.retryMaxMs });
  let done = 0;
  for (let attempt = 1; done < bytes; attempt++) {
    const before = done;
    const idle = idleSignal(signal, limits.idleTimeoutMs, source.name);
    try {
      const chunks = source.read(offset + done, bytes - done, idle.signal);
      for await (const chunk of itemsUntil(chunks, idle.signal)) {
        idle.touch();
        if (done + chunk.length > bytes) {
          throw new PermanentFault(`it gave more than the ${bytes} bytes at ${offset}`);
        }
        done += chunk.length;
        yield chunk;
      }
      if (done < bytes) throw new SourceFault(`it ended at byte ${offset + done}`);
    } catch (error) {
      signal.throwIfAborted();
      if (done > before) {
        attempt = 0;
        backoff.reset();
      }
      // One that never gave anything is left at once for the next source.
      const isAway = error instanceof UnreachableFault && done === 0;
      const isFinal = error instanceof PermanentFault || isAway;
      if (isFinal || attempt >= limits.maxAttempts) throw asFault(error);
    } finally {
      idle.stop();
    }
    if (done < bytes) await sleep(backoff.nextMs(), undefined, { signal });
  }
}

function asFault(error: unknown): SourceFault {
  if (error instanceof SourceFault) return error;
  return new SourceFault(reasonOf(error), { cause: error });
}
