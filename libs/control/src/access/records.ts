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

/** A program with keys of its own. */
export interface ServiceRecord {
  readonly description: string;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  /** From then on its keys are refused. */
  readonly disabledAtMs?: number | undefined;
}

/** Changes of service accounts. */
export type ServiceCommand =
  | {
      readonly type: "service.set";
      readonly atMs: number;
      readonly name: string;
      /** What is absent stays as it is. */
      readonly description?: string | undefined;
      readonly isDisabled?: boolean | undefined;
    }
  | { readonly type: "service.remove"; readonly atMs: number; readonly name: string };

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

/** The tokens of a session, which its provider renews. */
export interface SessionTokens {
  /** Ciphertext; the key is in the browser's cookie. Base64. */
  readonly sealed: string;
  /** Incremented with each renewal. */
  readonly version: number;
  /** Until then one master renews them, and no other. */
  readonly claimedUntilMs?: number | undefined;
  /** When the session ends at the latest. */
  readonly forgetAtMs: number;
}

/** Changes of browsers' sessions; names are SHA-256, hexadecimal: of no person in clear. */
export type SessionCommand =
  /** Ends the sessions that have a name in common. */
  | ({
      readonly type: "session.end";
      readonly atMs: number;
      readonly names: readonly string[];
    } & EndedSession)
  /** Keeps tokens in place of those of that version; 0 for a new session. */
  | ({
      readonly type: "session.keep";
      readonly atMs: number;
      readonly name: string;
    } & Pick<SessionTokens, "sealed" | "version" | "forgetAtMs">)
  /** One master renews the tokens of that version. */
  | {
      readonly type: "session.claim";
      readonly atMs: number;
      readonly name: string;
      readonly version: number;
      readonly untilMs: number;
    }
  /** The provider has ended the session. */
  | { readonly type: "session.drop"; readonly atMs: number; readonly name: string };
