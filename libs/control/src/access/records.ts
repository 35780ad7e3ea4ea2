import type { SubjectKind } from "@heddle/contracts/roles";

/** A role of the cluster's own. */
export interface RoleRecord {
  readonly description: string;
  /** Permissions, `jobs:*` for a group, or `*` for all. */
  readonly permissions: readonly string[];
  readonly updatedAtMs: number;
}

/** A role that a subject has. */
export interface BoundRole {
  readonly role: string;
  /** The only project in which it holds; the whole cluster if absent. */
  readonly project?: string | undefined;
  readonly atMs: number;
}

/** The roles of one subject, at least one. */
export interface SubjectRecord {
  readonly roles: readonly BoundRole[];
}

/** What names a binding. */
export interface BindingName {
  readonly kind: SubjectKind;
  readonly subject: string;
  readonly role: string;
  readonly project?: string | undefined;
}

export interface AccessPolicyRecord {
  /** The role of users without any other; none if absent. */
  readonly defaultRole?: string | undefined;
  /** Roles that grant everything where they are bound in the whole cluster. */
  readonly adminRoles: readonly string[];
  readonly updatedAtMs: number;
}

/** Changes of roles, bindings and the access policy. */
export type AccessCommand =
  | {
      readonly type: "role.set";
      readonly atMs: number;
      readonly name: string;
      readonly role: RoleRecord;
    }
  | { readonly type: "role.remove"; readonly atMs: number; readonly name: string }
  | { readonly type: "binding.add"; readonly atMs: number; readonly binding: BindingName }
  | { readonly type: "binding.remove"; readonly atMs: number; readonly binding: BindingName }
  | { readonly type: "access.set"; readonly atMs: number; readonly policy: AccessPolicyRecord };

/** The key of a subject's record in the state. */
export function bindingKey(kind: SubjectKind, subject: string): string {
  return `${kind}:${subject}`;
}

/** Sessions that were ended before their time. */
export interface EndedSession {
  /** Sessions that began until then have ended. */
  readonly beganUntilMs: number;
  /** From then on none of them would be valid anyway. */
  readonly forgetAtMs: number;
}

/** Ends the sessions of browsers that have a name in common. */
export type SessionCommand = {
  readonly type: "session.end";
  readonly atMs: number;
  /** A SHA-256, hexadecimal: the state does not have the names of people or sessions. */
  readonly names: readonly string[];
} & EndedSession;
