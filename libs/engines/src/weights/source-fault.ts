/** Why one source did not give the weights, in words that follow its name. */
export class SourceFault extends Error {}

/** Asking the same source again would not help: refused, absent, or not as promised. */
export class PermanentFault extends SourceFault {}

/** The source could not be reached at all; the next one is tried at once. */
export class UnreachableFault extends SourceFault {}

/**
 * The reason an error gives, with the system's code where the message lacks it. Node ends a file's
 * fault with its path, which is left out: the reason may go to API clients.
 */
export function reasonOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const { code, path } = error as NodeJS.ErrnoException;
  const message = error.message || error.name;
  const text = path === undefined ? message : message.replace(/, \w+ '.*$/s, "");
  return code && !text.includes(code) ? `${text} (${code})` : text;
}
