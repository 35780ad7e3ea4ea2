/** A call of the API, as far as it is kept with what it changed. */
export interface AuditContext {
  /** `key:ID` or `user:ID`; absent where the call showed neither. */
  readonly user?: string | undefined;
  /** The project that the call counts for; absent where none is known. */
  readonly project?: string | undefined;
  readonly session?: string | undefined;
  readonly request: string;
  /** The address that the call came from. */
  readonly address?: string | undefined;
  /** The route, as `POST /api/v1/jobs/{id}/cancel`. */
  readonly route: string;
}

/** A call that changed nothing in the replicated state: an inference, a refusal, an action. */
export interface AuditRecord extends AuditContext {
  /** When it ended, by the clock of the master that answered it. */
  readonly atMs: number;
  readonly kind: "access" | "denied" | "call";
  /** What it was about, as `models/demo`. */
  readonly subject: string;
  /** The HTTP status; absent where it was recorded before the answer. */
  readonly status?: number | undefined;
}

/** Changes of the event log alone. */
export type AuditCommand =
  /** Calls of one master, gathered. */
  | {
      readonly type: "audit.record";
      readonly atMs: number;
      readonly master: string;
      /** Which command of which process of the master: it is applied once. */
      readonly batch: { readonly process: string; readonly number: number };
      readonly records: readonly AuditRecord[];
      /** Calls since the last command that were not kept, as the queue was full. */
      readonly dropped?: number | undefined;
    }
  /** The leader has signed the tree of the first `size` events. */
  | {
      readonly type: "events.checkpoint";
      readonly atMs: number;
      readonly size: number;
      readonly note: string;
    };
