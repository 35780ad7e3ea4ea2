import type { ApiKeyRecord, DeploymentRecord, ModelRecord } from "./state.ts";

/**
 * Everything that changes the replicated state. `atMs` is stamped by the proposer and is the only
 * time that `apply` knows.
 */
export type ControlCommand =
  | { readonly type: "key.create"; readonly atMs: number; readonly key: ApiKeyRecord }
  | { readonly type: "key.revoke"; readonly atMs: number; readonly id: string }
  /** Makes `key` in place of the key `id`, which ends at `expiresAtMs` or at its own time before. */
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
    }
  | {
      readonly type: "model.remove";
      readonly atMs: number;
      readonly id: string;
      /** The id gets another registration at once: that it was removed is not remembered. */
      readonly isReplaced?: boolean | undefined;
    };

export type ControlReply =
  | { readonly ok: true }
  | {
      readonly ok: false;
      readonly code: "conflict" | "not_found" | "invalid_value";
      readonly message: string;
    };
