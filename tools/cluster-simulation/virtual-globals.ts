import { here, VirtualTimer } from "./simulated-process.ts";

/** The memory that a simulated process uses. */
const RESIDENT_BYTES = 2 ** 27;

/**
 * Replaces the clocks, timers, random numbers and memory of the code that runs in simulated
 * processes.
 */
export function installVirtualGlobals(): void {
  replaceTimers();
  replaceClocks();
  const random = Math.random;
  Math.random = () => here()?.dice.random() ?? random();
  const rss = process.memoryUsage.rss;
  // Masters share out what parameter servers leave of a machine.
  process.memoryUsage.rss = () => (here() ? RESIDENT_BYTES : rss());
  const timeout = AbortSignal.timeout;
  AbortSignal.timeout = (ms) => {
    if (!here()) return timeout.call(AbortSignal, ms);
    const aborting = new AbortController();
    setTimeout(() => aborting.abort(new DOMException("timed out", "TimeoutError")), ms);
    return aborting.signal;
  };
}

type Work = (...args: unknown[]) => void;

function replaceTimers(): void {
  const real = { setTimeout, setInterval, setImmediate };
  const clear = { clearTimeout, clearInterval, clearImmediate };
  const replace = (name: keyof typeof real, start: (ms: number, work: () => void) => unknown) => {
    const original = real[name] as (...args: unknown[]) => unknown;
    const hasDelay = name !== "setImmediate";
    Object.assign(globalThis, {
      [name]: (work: Work, ...rest: unknown[]) => {
        if (!here()) return original(work, ...rest);
        const [ms, args] = hasDelay ? [Number(rest[0] ?? 0), rest.slice(1)] : [0, rest];
        return start(ms, () => work(...args));
      },
    });
  };
  const inProcess = (ms: number, work: () => void, repeats: boolean) => {
    const process = here();
    return process && new VirtualTimer(process, work, ms, repeats);
  };
  replace("setTimeout", (ms, work) => inProcess(ms, work, false));
  replace("setInterval", (ms, work) => inProcess(ms, work, true));
  replace("setImmediate", (_, work) => {
    const process = here();
    let isCancelled = false;
    process?.after(1, () => !isCancelled && work());
    return { [CANCEL]: () => (isCancelled = true), ref: () => {}, unref: () => {} };
  });
  for (const [name, original] of Object.entries(clear)) {
    Object.assign(globalThis, {
      [name]: (timer: unknown) => {
        if (timer instanceof VirtualTimer) timer.cancel();
        else if (isCancellable(timer)) timer[CANCEL]();
        else (original as (timer: unknown) => void)(timer);
      },
    });
  }
}

const CANCEL = Symbol("cancel");

function isCancellable(timer: unknown): timer is { readonly [CANCEL]: () => void } {
  return typeof timer === "object" && timer !== null && CANCEL in timer;
}

function replaceClocks(): void {
  const RealDate = Date;
  class VirtualDate extends RealDate {
    constructor(...args: unknown[]) {
      if (args.length === 0) super(VirtualDate.now());
      else super(...(args as [number]));
    }

    static override now(): number {
      return Math.floor(here()?.wallMs() ?? RealDate.now());
    }
  }
  globalThis.Date = VirtualDate as DateConstructor;
  const now = performance.now.bind(performance);
  performance.now = () => here()?.monotonicMs() ?? now();
  const hrtime = process.hrtime.bigint;
  process.hrtime.bigint = () => {
    const simulated = here();
    return simulated ? BigInt(Math.round(simulated.monotonicMs() * 1e6)) : hrtime();
  };
}
