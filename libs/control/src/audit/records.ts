/** What a caller says of a call. */
export interface Classification {
  readonly compliance?: string | undefined;
  readonly tags?: readonly string[] | undefined;
}

/** A call of the API, as far as it is kept with what it changed. */
export interface AuditContext {
  /** `key:ID`, `user:ID` or `service:NAME`; absent where the call showed none. */
  readonly user?: string | undefined;
  /** The id of the service account's key. */
  readonly key?: string | undefined;
  /** The project that the call counts for; absent where none is known. */
  readonly project?: string | undefined;
  readonly session?: string | undefined;
  /** From CLASSIFIES_CALLS on. */
  readonly classified?: Classification | undefined;
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

/** An event that a client logs. */
export interface ClientEvent {
  readonly type: string;
  readonly source: string;
  readonly id: string;
  readonly subject: string;
  readonly project: string;
  readonly stream?: string | undefined;
  readonly data: Readonly<Record<string, unknown>>;
  readonly tags: readonly string[];
  /** Whom it is about, as the client says. */
  readonly actor?: string | undefined;
  readonly session?: string | undefined;
  readonly correlation?: string | undefined;
  readonly compliance?: string | undefined;
}

/** What is kept of a client's event, so that it is logged once. */
export interface EventName {
  readonly fingerprint: string;
  readonly revision?: number | undefined;
}

/** Changes of the event log alone. */
export type AuditCommand =
  | RecordCommand
  | ShredCommand
  | RemoveEventsCommand
  | EventsSentCommand
  | CosignCommand;

type RecordCommand =
  /** Calls of one master, gathered. */
  | {
      readonly type: "audit.record";
      readonly atMs: number;
      readonly master: string;
      /** Which gathered command of which process: it is applied once. Absent: it is never sent again. */
      readonly batch?: { readonly process: string; readonly number: number } | undefined;
      readonly records: readonly AuditRecord[];
      /** Calls since the last command that were not kept, as the queue was full. */
      readonly dropped?: number | undefined;
    }
  /** A client logs an event. */
  | {
      readonly type: "events.log";
      readonly atMs: number;
      readonly event: ClientEvent;
      /** Names `source` and `id` in the project: 64 hexadecimal digits. */
      readonly name: string;
      /** The fingerprint of what the client sent; another event of that name is refused. */
      readonly fingerprint: string;
      /** The stream's revision must be that; -1 for one without events. */
      readonly expected: "any" | "none" | "exists" | number;
    }
  /** The leader has signed the tree of the first `size` events. */
  | {
      readonly type: "events.checkpoint";
      readonly atMs: number;
      readonly size: number;
      readonly note: string;
    };

/** Removes the key of a subject, by its id, which the event of this names. */
export interface ShredCommand {
  readonly type: "events.shred";
  readonly atMs: number;
  readonly subject: string;
  readonly id: string;
}

/** Removes the events from the first one that is kept to before `end`. */
export interface RemoveEventsCommand {
  readonly type: "events.remove";
  readonly atMs: number;
  readonly first: number;
  readonly end: number;
}

/** A sink has the events before that one. */
export interface EventsSentCommand {
  readonly type: "events.sent";
  readonly atMs: number;
  /** A digest of its name: 16 hexadecimal digits. */
  readonly sink: string;
  readonly next: number;
}

/** Witnesses have signed the checkpoint of the first `size` events. */
export interface CosignCommand {
  readonly type: "events.cosign";
  readonly atMs: number;
  readonly size: number;
  readonly note: string;
}
