import { grants } from "@heddle/auth/scopes";
import { AppError } from "@heddle/base/errors";
import { BINDS_ROLES, HAS_SERVICES, versionOf } from "@heddle/control/cluster-version";
import type { ApiKeyRecord, ControlState } from "@heddle/control/state";
import type { Caller } from "../../http/identity/caller.ts";
import { permissionsOf, rolesBoundTo } from "../../http/identity/caller-resolver.ts";

/** An administrator of the cluster may give permissions that it lacks, except all of them. */
export function refuseEscalation(
  caller: Caller,
  permissions: readonly string[],
  param: string,
): void {
  if (!permissions.includes("*") || grants(caller.scopes, "*")) return;
  const message = "Only a caller with the permission `*` may give it.";
  throw new AppError("permission_denied", message, { param });
}

/** Throws `unavailable` while some masters know no roles. */
export function checkBindsRoles(state: Pick<ControlState, "cluster">): void {
  if (versionOf(state) >= BINDS_ROLES) return;
  const message = "The masters know no roles yet: that begins when all of them run this build.";
  throw new AppError("unavailable", message);
}

/** The same of service accounts. */
export function checkHasServices(state: Pick<ControlState, "cluster">): void {
  if (versionOf(state) >= HAS_SERVICES) return;
  const message =
    "The masters know no service accounts yet: that begins when all of them run this build.";
  throw new AppError("unavailable", message);
}

/** Refuses escalation by a role that is bound in a project, where it does not administer the cluster. */
export function refuseRoleEscalation(
  caller: Caller,
  state: Pick<ControlState, "roles" | "access">,
  { role, project }: { readonly role: string; readonly project?: string | undefined },
): void {
  if (project !== undefined) return;
  refuseEscalation(caller, permissionsOf(state, role, project), "role");
}

/** Refuses a key with all permissions: by its scopes, its role, or the roles that it inherits. */
export function refuseKeyEscalation(
  caller: Caller,
  state: Pick<ControlState, "roles" | "access" | "bindings" | "keys">,
  key: ApiKeyRecord,
): void {
  const { scopes, role, project } = key;
  refuseEscalation(caller, scopes, "scopes");
  const own = role === undefined ? [] : [{ role, project }];
  for (const each of [...own, ...rolesBoundTo(state, key)]) {
    refuseRoleEscalation(caller, state, each);
  }
}
