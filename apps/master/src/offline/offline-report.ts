/** The outcome of a command on a stopped master's files. */
export interface OfflineReport {
  /** For programs, with names as on the wire. */
  readonly record: Readonly<Record<string, unknown>>;
  /** For people. */
  readonly text: string;
}
