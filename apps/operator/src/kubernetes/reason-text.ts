interface ShownReason {
  readonly phase: string;
  readonly reason: string | null;
  readonly message: string | null;
}

/** Says a reason once: messages of blockers begin with it. */
export function reasonText({ phase, reason, message }: ShownReason): string {
  if (reason && message?.startsWith(`${reason}:`)) return message;
  return [reason, message].filter(Boolean).join(": ") || `it is ${phase}`;
}
