import type { Duplex } from "node:stream";

/** A decode of the largest batch is done in seconds; one that hangs would keep its requests for ever. */
const SILENCE_MS = 60_000;

/**
 * Joins the stages to a ring: frames go from the last one through the others, in their order, and
 * back. Where one stream ends, or none moves while a frame is under way, all are closed: the last
 * stage then fails, and its engine starts again.
 */
export function joinStages(last: Duplex, others: readonly Duplex[], silenceMs = SILENCE_MS): void {
  const ring = [last, ...others];
  let timer: NodeJS.Timeout | undefined;
  const close = () => {
    clearTimeout(timer);
    for (const each of ring) each.destroy();
  };
  for (const [at, from] of ring.entries()) {
    const to = ring[(at + 1) % ring.length] as Duplex;
    from.pipe(to);
    from.once("close", close);
    from.on("error", close);
    from.on("data", () => {
      clearTimeout(timer);
      // The last stage may take its time: it waits for requests.
      if (to !== last) timer = setTimeout(close, silenceMs).unref();
    });
  }
}
