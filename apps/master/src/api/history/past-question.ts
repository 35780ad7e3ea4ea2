import type { ErrorCode } from "@heddle/base/errors";
import type { PastCollection } from "@heddle/contracts/api/history/state";

/** What is asked of a past state. */
export type PastQuestion =
  | {
      readonly kind: "state";
      readonly collection: PastCollection | undefined;
      readonly limit: number;
      readonly after: string | undefined;
    }
  | { readonly kind: "decision"; readonly job: string };

/** What the thread is started with. */
export interface PastOrder {
  readonly directory: string;
  readonly owner: { readonly cluster: string; readonly node: string };
  readonly secretsKeyFile: string | undefined;
  readonly at: number;
  readonly question: PastQuestion;
}

/** What the thread answers, once. */
export type PastAnswer =
  | { readonly ok: true; readonly json: string }
  | { readonly ok: false; readonly code: ErrorCode; readonly message: string };
