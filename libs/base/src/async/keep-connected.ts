import { Backoff, type BackoffOptions } from "../backoff.ts";
import { abortableDelay } from "./abortable-delay.ts";

export interface KeepConnectedOptions<End> {
  /** Holds one connection: calls `onOpen` once it is healthy, and resolves when it has ended. */
  readonly connect: (onOpen: () => void) => Promise<End>;
  readonly backoff: BackoffOptions;
  /** Ends the pauses at once, and all further connections. */
  readonly signal: AbortSignal;
  /**
   * Called when a connection has ended, with the number of ends since one was healthy. Its result
   * replaces the pause before the next one.
   */
  readonly onEnd?:
    | ((end: End, failures: number, pauseMs: number) => number | undefined)
    | undefined;
  /** Awaited after each pause. */
  readonly beforeNext?: ((signal: AbortSignal) => Promise<void> | undefined) | undefined;
}

/** Reconnects whenever the connection has ended; resolves once the signal has aborted. */
export async function keepConnected<End>(options: KeepConnectedOptions<End>): Promise<void> {
  const { connect, signal, onEnd, beforeNext } = options;
  const backoff = new Backoff(options.backoff);
  let failures = 0;
  while (!signal.aborted) {
    const end = await connect(() => {
      backoff.reset();
      failures = 0;
    });
    if (signal.aborted) return;
    const pauseMs = backoff.nextMs();
    await abortableDelay(onEnd?.(end, ++failures, pauseMs) ?? pauseMs, signal);
    if (!signal.aborted) await beforeNext?.(signal);
  }
}
