/** Two deliveries of one Ctrl-C (from the terminal and from a parent) come closer than this. */
const SAME_PRESS_MS = 500;

interface Interrupts {
  /** Aborts at the first SIGINT, SIGTERM or SIGHUP; on demand where nobody is left to run for, too. */
  readonly signal: AbortSignal;
  /** Called at every later one. */
  onNext(listener: () => void): void;
  /** Gives the signals back to the system. */
  release(): void;
}

/**
 * Turns the process's signals into an abort, so that a command can end what it started. With
 * `untilLeft` it also aborts once nobody reads standard output or standard error any more.
 */
export function watchInterrupts(options: { readonly untilLeft?: boolean } = {}): Interrupts {
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
  const onPipeError = (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    controller.abort();
  };
  const pipes = options.untilLeft ? [process.stdout, process.stderr] : [];
  for (const pipe of pipes) pipe.on("error", onPipeError);
  return {
    signal: controller.signal,
    onNext: (listener) => {
      next = listener;
    },
    release: () => {
      for (const signal of signals) process.off(signal, onSignal);
      // The pipes keep theirs: a line written last may break one after this.
    },
  };
}
