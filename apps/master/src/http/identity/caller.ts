import type { Grants } from "@heddle/auth/access/grants";
import type { SubjectKind } from "@heddle/contracts/roles";
import type { ApiKeyRecord, ControlState } from "@heddle/control/state";

/** What calls count for, and which models they may use. */
type KeyFields = Pick<
  ApiKeyRecord,
  "id" | "scopes" | "models" | "limits" | "rotatedFrom" | "deterministic"
>;

/** Who calls, for one project. Its `scopes` are all that it may do there and with the cluster. */
export interface Caller extends KeyFields {
  readonly kind: Extract<SubjectKind, "key" | "user">;
  /** The service account whose key it is. */
  readonly service?: string | undefined;
  /** For people: a key's name, or a user's subject. */
  readonly name: string;
  /** The project that the call counts for, and in which it acts. */
  readonly project: string;
  readonly grants: Grants;
}

/** In error messages. */
export function callerText({ kind, id, name }: Caller): string {
  return kind === "key" ? `The API key ${id}` : `The user ${name}`;
}

/** The caller of a request that passed the access check of a route that is not public. */
export function requestCaller({ caller }: { readonly caller: Caller | null }): Caller {
  if (!caller) throw new Error("no call gets here without a caller");
  return caller;
}

export const JOB_PERMISSIONS = ["jobs:read", "jobs:cancel", "jobs:create"] as const;

/** Whether a caller may know that jobs of the project exist. */
export function seesJobsOf({ grants }: Pick<Caller, "grants">, project: string): boolean {
  return JOB_PERMISSIONS.some((permission) => grants.may(permission, project));
}

/** Whether a caller may know of the job with an id. */
export type SeesJob = (jobId: string) => boolean;

/** Undefined for a caller who may know of the jobs of all projects. */
export function seenJobs(
  caller: Pick<Caller, "grants">,
  { jobs }: Pick<ControlState, "jobs">,
): SeesJob | undefined {
  if (JOB_PERMISSIONS.some((each) => caller.grants.mayEverywhere(each))) return undefined;
  return (jobId) => {
    const job = jobs.get(jobId);
    return job !== undefined && seesJobsOf(caller, job.project);
  };
}
