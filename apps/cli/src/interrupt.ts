/** Two deliveries of one Ctrl-C (from the terminal and from a parent) come closer than this. */
const SAME_PRESS_MS = 500;

interface Interrupts {
  /** Aborts at the first SIGINT, SIGTERM or SIGHUP. */
  readonly signal: AbortSignal;
  /** Called at every later one. */
  onNext(listener: () => void): void;
  /** Gives the signals back to the system. */
  release(): void;
}

/** Turns the process's signals into an abort, so that a command can end what it started. */
export function watchInterrupts(): Interrupts {
  const controller = new AbortController();
  let firstAtMs = 0;
  let next: (() => void) | undefined;
  const onSignal = () => {
    if (!controller.signal.aborted) {
      firstAtMs = performance.now();
      controller.abort();
    } else if (performance.now() - firstAtMs > SAME_PRESS_MS) {
      next?.();
    }
  };
  const signals = ["SIGINT", "SIGTERM", "SIGHUP"] as const;
  for (const signal of signals) process.on(signal, onSignal);
  return {
    signal: controller.signal,
    onNext: (listener) => {
      next = listener;
    },
    release: () => {
      for (const signal of signals) process.off(signal, onSignal);
    },
  };
}
