import type { AppError } from "@heddle/base/errors";
import type { ControlCommand, ControlReply } from "@heddle/control/command";
import type { DocumentIndex } from "@heddle/control/documents/document-index";
import type { IdempotencyRecord, IdempotentRequest } from "@heddle/control/idempotency";
import type { JobIndex } from "@heddle/control/jobs/index/job-index";
import type { ControlState } from "@heddle/control/state";
import type { ControlGroup } from "./control-group.ts";
import type { RecordedEvents } from "./recorded-events.ts";

/** The replicated state as this master sees it, and the only way to change it. */
export interface ControlPlane {
  /** Read-only for everyone but the log's apply. */
  readonly state: ControlState;
  /** What follows from the state's jobs; read-only, and another object after a restore. */
  readonly jobs: JobIndex;
  /** What follows from the state's documents; read-only, and another object after a restore. */
  readonly documents: DocumentIndex;
  /** The log index that the state has reached. */
  readonly appliedIndex: number;
  /** The time of the log, which never decreases; absent where there is no log. */
  readonly logTimeMs?: number | undefined;
  /**
   * Resolves when the command is durable and applied; rejects with an AppError. Code `outcome_unknown`
   * means that the command may have been applied, any other code that it was not.
   */
  propose(command: ControlCommand, once?: Once): Promise<ControlReply>;
  /** What is remembered of an idempotent request, as far as this master knows. */
  keptAnswer(id: string): IdempotencyRecord | undefined;
  /**
   * Called after each applied command, and with undefined after the state was replaced as a whole.
   * Returns the unsubscribe function.
   */
  onApplied(listener: (command: ControlCommand | undefined) => void): () => void;
  /** The group of masters that agree on the state, where there is one. */
  readonly group?: ControlGroup | undefined;
  /** A secret that all masters share; undefined before it is stored. */
  secret?(name: string): string | undefined;
  /** False while secrets are to be encrypted and cannot be yet. */
  readonly takesSecrets?: boolean;
  /** Stores a secret unless there is one of that name. */
  keepSecret?(name: string, value: string): Promise<ControlReply>;
  /** This master's log of events, where it keeps one. */
  readonly events?: RecordedEvents | undefined;
  /** Why no command is taken any more, where that is so: then this master is not ready. */
  readonly fault?: AppError | undefined;
  close(): Promise<void>;
}

/** Identifies a change that is sent again, so that it is made once. */
export interface Once {
  readonly idempotency?: IdempotentRequest | undefined;
}

/** The port's injection token: as an interface it has no value at run time. */
export const CONTROL_PLANE = Symbol("ControlPlane");
