import type { ApiKeyRecord, DeploymentRecord, ModelRecord } from "./state.ts";

/**
 * Everything that changes the replicated state. `atMs` is stamped by the proposer and is the only
 * time that `apply` knows.
 */
export type ControlCommand =
  | { readonly type: "key.create"; readonly atMs: number; readonly key: ApiKeyRecord }
  | { readonly type: "key.revoke"; readonly atMs: number; readonly id: string }
  | {
      readonly type: "model.register";
      readonly atMs: number;
      readonly model: ModelRecord;
      readonly deployment: DeploymentRecord;
    }
  | { readonly type: "model.remove"; readonly atMs: number; readonly id: string }
  | {
      readonly type: "setting.put";
      readonly atMs: number;
      readonly name: string;
      readonly value: number;
      /** The change is made only where the setting has this version; 0 is one that was never set. */
      readonly ifVersion?: number | undefined;
    };

export type ControlReply =
  | {
      readonly ok: true;
      /** The version that a versioned record now has. */
      readonly version?: number | undefined;
    }
  | {
      readonly ok: false;
      readonly code:
        | "conflict"
        | "not_found"
        | "invalid_value"
        | "precondition_failed"
        | "unprocessable";
      readonly message: string;
    };
