import type { ErrorCode } from "@heddle/base/errors";
import type { LimitedSubject } from "@heddle/contracts/limits";
import type { ScalingTargets } from "@heddle/scheduler/serving/replica-count";
import type { AccessCommand, ServiceCommand, SessionCommand } from "./access/records.ts";
import type { AuditCommand } from "./audit/records.ts";
import type { WebhookCommand } from "./audit/webhook-records.ts";
import type { DocumentRecord, DocumentsCommand } from "./documents/records.ts";
import type { JobsCommand, LoggedEntry, LoggedJobsCommand } from "./jobs/records/commands.ts";
import type { SecretCommand } from "./secrets/records.ts";
import type {
  ApiKeyRecord,
  DeploymentRecord,
  JoinRecord,
  LimitsRecord,
  ModelRecord,
} from "./state.ts";
import type { UsageSum } from "./usage-sum.ts";

/**
 * Every command that changes the replicated state. The proposer sets `atMs`, the only clock that
 * `apply` reads.
 */
export type ControlCommand =
  | AccessCommand
  | AuditCommand
  | CatalogCommand
  | DocumentsCommand
  | JobsCommand
  | SecretCommand
  | ServiceCommand
  | SessionCommand
  | WebhookCommand;

/** The same as a log holds it, in the present or an earlier form. */
export type LoggedCommand =
  | AccessCommand
  | AuditCommand
  | CatalogCommand
  | DocumentsCommand
  | LoggedJobsCommand
  | SecretCommand
  | ServiceCommand
  | SessionCommand
  | WebhookCommand;

/** Changes of keys, models and what nodes join with. */
export type CatalogCommand =
  /** Ends the certificates that a node has; its name stays free for later ones. */
  | {
      readonly type: "node.revoke";
      readonly atMs: number;
      readonly nodeId: string;
      readonly role: Exclude<JoinRecord["role"], "master">;
      readonly name: string;
    }
  | { readonly type: "key.create"; readonly atMs: number; readonly key: ApiKeyRecord }
  | { readonly type: "key.revoke"; readonly atMs: number; readonly id: string }
  /**
   * Makes `key` the successor of the key `id`, which expires at `expiresAtMs` or at its own time,
   * if earlier. Refused where an active successor exists, unless `key` lacks `rotatedFrom` (old
   * logs).
   */
  | {
      readonly type: "key.rotate";
      readonly atMs: number;
      readonly id: string;
      readonly key: ApiKeyRecord;
      readonly expiresAtMs: number;
    }
  /** Replaces the limits of a key, or the record of a project or a model. */
  | (LimitedSubject & {
      readonly type: "limits.set";
      readonly atMs: number;
      readonly record: LimitsRecord;
    })
  /** The present sums of a master. */
  | {
      readonly type: "usage.put";
      readonly atMs: number;
      readonly master: number;
      readonly sums: readonly UsageSum[];
    }
  | {
      readonly type: "model.register";
      readonly atMs: number;
      readonly model: ModelRecord;
      readonly deployment: DeploymentRecord;
      /** Replaces a model of the same id that a job has trained. */
      readonly replaces?: boolean | undefined;
    }
  | {
      readonly type: "model.remove";
      readonly atMs: number;
      readonly id: string;
      /** The project of a model that only one project knows of. */
      readonly project?: string | undefined;
      /** The id is registered again at once, so its removal is not remembered. */
      readonly isReplaced?: boolean | undefined;
    }
  /** The load asks for another number of replicas than `from`. */
  | {
      readonly type: "deployment.scale";
      readonly atMs: number;
      readonly deployment: string;
      readonly from: DeploymentRecord["replicas"];
      readonly replicas: number;
      readonly reason: string;
    }
  /** An operator sets the number of replicas, or its bounds. */
  | {
      readonly type: "deployment.configure";
      readonly atMs: number;
      readonly deployment: string;
      readonly replicas: DeploymentRecord["replicas"];
      readonly scaling?: ScalingTargets | undefined;
    }
  | {
      readonly type: "setting.put";
      readonly atMs: number;
      readonly name: string;
      readonly value: number;
      /** Compare-and-set: the setting must have this version; 0 for one that was never set. */
      readonly ifVersion?: number | undefined;
    }
  | {
      readonly type: "join.create";
      readonly atMs: number;
      readonly id: string;
      readonly join: JoinRecord;
    }
  /** Consumes a join token; refused unless the token is for that role. */
  | {
      readonly type: "join.use";
      readonly atMs: number;
      readonly id: string;
      readonly role: JoinRecord["role"];
    };

/** The reply to a command. */
export type ControlReply = Made | Refusal;

interface Made {
  readonly ok: true;
  /** The new version of a versioned record. */
  readonly version?: number | undefined;
  /** The record of a document that was put. */
  readonly document?: DocumentRecord | undefined;
  /** The job was submitted before, so nothing changed. */
  readonly wasThere?: true | undefined;
  /** The starts of a plan that were refused, and why. */
  readonly refused?: readonly RefusedStart[] | undefined;
  /** The project of what was removed, where it belonged to one. */
  readonly project?: string | undefined;
}

/** A start or preemption of a plan that was refused, and why. */
export type RefusedStart = LoggedEntry & { readonly why: string };

export interface Refusal {
  readonly ok: false;
  readonly code: RefusalCode;
  readonly message: string;
  /** The field of the request at fault, as `resources.gpu_count`. */
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

/** A refusal. The message completes a sentence: lower case, no full stop. */
export function refuse(code: RefusalCode, message: string, param?: string): Refusal {
  return param === undefined ? { ok: false, code, message } : { ok: false, code, message, param };
}
