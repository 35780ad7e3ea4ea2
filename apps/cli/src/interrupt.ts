/** Two deliveries of one Ctrl-C (by the terminal and by a parent) are closer than this. */
const SAME_PRESS_MS = 500;

interface Interrupts {
  /** Aborts at the first SIGINT, SIGTERM or SIGHUP; optionally also when the output is closed. */
  readonly signal: AbortSignal;
  /** Called at every later signal. */
  onNext(listener: () => void): void;
  /** Restores the default handling of the signals. */
  release(): void;
}

/**
 * Turns signals into an abort, so that a command can clean up. With `untilLeft` it also aborts when
 * the reader of standard output or standard error has closed it.
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
      // The pipes keep their listeners: the last written line may fail after this.
    },
  };
}
