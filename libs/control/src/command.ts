import type { ErrorCode } from "@heddle/base/errors";
import type { JobsCommand } from "./jobs/records/commands.ts";
import type { ApiKeyRecord, DeploymentRecord, JoinRecord, ModelRecord } from "./state.ts";

/**
 * Everything that changes the replicated state. `atMs` is stamped by the proposer and is the only
 * time that `apply` knows.
 */
export type ControlCommand = CatalogCommand | JobsCommand;

/** Changes of keys and models. */
export type CatalogCommand =
  | { readonly type: "key.create"; readonly atMs: number; readonly key: ApiKeyRecord }
  | { readonly type: "key.revoke"; readonly atMs: number; readonly id: string }
  /**
   * Makes `key` in place of the key `id`, which ends at `expiresAtMs` or at its own time before.
   * Refused where another key in use was made so; only the commands of earlier versions, whose `key`
   * does not tell what it was rotated from, may do that more than once.
   */
  | {
      readonly type: "key.rotate";
      readonly atMs: number;
      readonly id: string;
      readonly key: ApiKeyRecord;
      readonly expiresAtMs: number;
    }
  | {
      readonly type: "model.register";
      readonly atMs: number;
      readonly model: ModelRecord;
      readonly deployment: DeploymentRecord;
      /** A model of that id that a job has trained gives way to this one. */
      readonly replaces?: boolean | undefined;
    }
  | {
      readonly type: "model.remove";
      readonly atMs: number;
      readonly id: string;
      /** The id gets another registration at once: that it was removed is not remembered. */
      readonly isReplaced?: boolean | undefined;
    }
  | {
      readonly type: "setting.put";
      readonly atMs: number;
      readonly name: string;
      readonly value: number;
      /** The change is made only where the setting has this version; 0 is one that was never set. */
      readonly ifVersion?: number | undefined;
    }
  | {
      readonly type: "join.create";
      readonly atMs: number;
      readonly id: string;
      readonly join: JoinRecord;
    }
  /** Uses a join token up; refused unless it is one for that role. */
  | {
      readonly type: "join.use";
      readonly atMs: number;
      readonly id: string;
      readonly role: JoinRecord["role"];
    };

/** What a command is answered with. */
export type ControlReply = Made | Refusal;

interface Made {
  readonly ok: true;
  /** The version that a versioned record now has. */
  readonly version?: number | undefined;
  /** The job that was submitted is one that was here before, and so nothing was changed. */
  readonly wasThere?: true | undefined;
  /** Of a plan: what did not hold any more, and why. */
  readonly refused?: readonly RefusedStart[] | undefined;
}

/** A job that a plan would have started, or made room for, and why that was refused. */
export interface RefusedStart {
  readonly jobId: string;
  readonly why: string;
}

export interface Refusal {
  readonly ok: false;
  readonly code: RefusalCode;
  readonly message: string;
  /** The part of the request at fault, as `resources.gpu_count`. */
  readonly param?: string | undefined;
}

type RefusalCode = Extract<
  ErrorCode,
  | "conflict"
  | "not_found"
  | "invalid_value"
  | "unprocessable"
  | "precondition_failed"
  | "insufficient_quota"
  | "overloaded"
  | "insufficient_storage"
  | "request_too_large"
>;

export const ACCEPTED: Made = { ok: true };

/** A refusal; the message is the end of a sentence: lower case, no full stop. */
export function refuse(code: RefusalCode, message: string, param?: string): Refusal {
  return param === undefined ? { ok: false, code, message } : { ok: false, code, message, param };
}
