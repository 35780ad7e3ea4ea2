import {
  GRANTABLE,
  PROJECT_NAME,
  ROLE_NAME,
  SHIPPED_ROLES,
  SUBJECT_KINDS,
  SUBJECT_NAME,
} from "@heddle/contracts/roles";
import { HAS_SERVICES, KEEPS_SECRETS, versionOf } from "../cluster-version.ts";
import { ACCEPTED, type ControlReply, refuse } from "../command.ts";
import type { ControlState } from "../state.ts";
import {
  type AccessCommand,
  type AccessPolicyRecord,
  type BindingName,
  type BoundRole,
  bindingKey,
  type RoleRecord,
} from "./records.ts";

const MAX_ROLES = 1_000;
const MAX_SUBJECTS = 50_000;
const MAX_ROLES_OF_SUBJECT = 64;
const MAX_PERMISSIONS = 64;
const MAX_ADMIN_ROLES = 32;
const MAX_DESCRIPTION = 200;

type AccessState = Pick<
  ControlState,
  "roles" | "bindings" | "access" | "keys" | "services" | "cluster"
>;

/**
 * The only code that changes roles, bindings and the access policy.
 * - A bound role exists.
 * - Repeating a binding, or the removal of one, succeeds and changes nothing.
 */
export function changeAccess(state: AccessState, command: AccessCommand): ControlReply {
  switch (command.type) {
    case "role.set":
      return setRole(state, command.name, command.role);
    case "role.remove":
      return removeRole(state, command.name);
    case "binding.add":
      return addBinding(state, command.binding, command.atMs);
    case "binding.remove":
      return removeBinding(state, command.binding);
    case "access.set":
      return setPolicy(state, command.policy);
    default:
      return command satisfies never;
  }
}

export function isAccessCommand(command: { readonly type: string }): command is AccessCommand {
  return TYPES.has(command.type);
}

const TYPES: ReadonlySet<string> = new Set<AccessCommand["type"]>([
  "role.set",
  "role.remove",
  "binding.add",
  "binding.remove",
  "access.set",
]);

/** Whether that role is shipped or the cluster's own. */
export function isRole({ roles }: Pick<AccessState, "roles">, name: string): boolean {
  return isShipped(name) || roles.has(name);
}

function isShipped(name: string): boolean {
  return Object.hasOwn(SHIPPED_ROLES, name);
}

function setRole(state: AccessState, name: string, role: RoleRecord): ControlReply {
  const fault = roleFault(name, role, versionOf(state));
  if (fault) return refuse("invalid_value", fault);
  if (isShipped(name)) {
    return refuse("conflict", `the role ${name} is every cluster's; choose another name`);
  }
  if (!state.roles.has(name) && state.roles.size >= MAX_ROLES) {
    return refuse("conflict", `the cluster has ${MAX_ROLES} roles of its own`);
  }
  state.roles.set(name, role);
  return ACCEPTED;
}

function roleFault(
  name: string,
  { permissions, description }: RoleRecord,
  version: number,
): string | undefined {
  if (!ROLE_NAME.test(name)) return "a role's name has 1 to 32 of a-z, 0-9, `.`, `_` and `-`";
  if (permissions.length === 0 || permissions.length > MAX_PERMISSIONS) {
    return `a role has 1 to ${MAX_PERMISSIONS} permissions`;
  }
  const unknown = permissions.find(
    (each) => !GRANTABLE.includes(each) || (version < KEEPS_SECRETS && isOfSecrets(each)),
  );
  if (unknown !== undefined) return `there is no permission ${unknown}`;
  return description.length > MAX_DESCRIPTION
    ? `a description has at most ${MAX_DESCRIPTION} characters`
    : undefined;
}

function isOfSecrets(permission: string): boolean {
  return permission.startsWith("secrets:");
}

/** Refused while something names it, so that no later role of the name is bound unnoticed. */
function removeRole(state: AccessState, name: string): ControlReply {
  if (isShipped(name)) return refuse("conflict", `the role ${name} is every cluster's`);
  if (!state.roles.has(name)) return refuse("not_found", `no role has the name ${name}`);
  const user = userOf(state, name);
  if (user !== undefined) return refuse("conflict", `the role ${name} is in use: ${user}`);
  state.roles.delete(name);
  return ACCEPTED;
}

/** What names the role. */
function userOf({ bindings, access, keys }: AccessState, name: string): string | undefined {
  for (const [subject, { roles }] of bindings) {
    if (roles.some(({ role }) => role === name)) return `${subject} has it`;
  }
  for (const { id, role, revokedAtMs } of keys.values()) {
    if (role === name && revokedAtMs === undefined) return `the key ${id} has it`;
  }
  const policy = access.get("policy");
  const isNamed = policy?.defaultRole === name || policy?.adminRoles.includes(name);
  return isNamed ? "the access policy names it" : undefined;
}

function addBinding(state: AccessState, binding: BindingName, atMs: number): ControlReply {
  const fault = bindingFault(binding, versionOf(state));
  if (fault) return refuse("invalid_value", fault);
  const { kind, subject, role, project } = binding;
  if (!isRole(state, role)) return refuse("not_found", `no role has the name ${role}`, "role");
  if (kind === "key" && !state.keys.has(subject)) {
    return refuse("not_found", `no key has the id ${subject}`, "subject");
  }
  if (kind === "service" && !state.services.has(subject)) {
    return refuse("not_found", `no service account has the name ${subject}`, "subject");
  }
  const at = bindingKey(kind, subject);
  const roles = state.bindings.get(at)?.roles ?? [];
  if (roles.some((each) => isSame(each, binding))) return ACCEPTED;
  if (roles.length === 0 && state.bindings.size >= MAX_SUBJECTS) {
    return refuse("conflict", `${MAX_SUBJECTS} users, groups and keys have roles already`);
  }
  if (roles.length >= MAX_ROLES_OF_SUBJECT) {
    return refuse("conflict", `the ${kind} ${subject} has ${MAX_ROLES_OF_SUBJECT} roles already`);
  }
  const bound: BoundRole = { role, ...(project !== undefined && { project }), atMs };
  state.bindings.set(at, { roles: [...roles, bound] });
  return ACCEPTED;
}

function bindingFault(
  { kind, subject, project }: BindingName,
  version: number,
): string | undefined {
  const kinds = SUBJECT_KINDS.filter((each) => each !== "service" || version >= HAS_SERVICES);
  if (!kinds.includes(kind)) return `a role is bound to ${kinds.join(", ")}`;
  if (!SUBJECT_NAME.test(subject)) return "a subject has 1 to 200 printable characters";
  return project === undefined || PROJECT_NAME.test(project)
    ? undefined
    : "a project's name has 1 to 63 of a-z, 0-9, `.`, `_` and `-`";
}

function removeBinding(state: AccessState, binding: BindingName): ControlReply {
  const at = bindingKey(binding.kind, binding.subject);
  const roles = state.bindings.get(at)?.roles ?? [];
  const others = roles.filter((each) => !isSame(each, binding));
  if (others.length === roles.length) return ACCEPTED;
  if (others.length === 0) state.bindings.delete(at);
  else state.bindings.set(at, { roles: others });
  return ACCEPTED;
}

function isSame(bound: BoundRole, { role, project }: BindingName): boolean {
  return bound.role === role && bound.project === project;
}

function setPolicy(state: AccessState, policy: AccessPolicyRecord): ControlReply {
  const { adminRoles, defaultRole } = policy;
  if (adminRoles.length === 0 || adminRoles.length > MAX_ADMIN_ROLES) {
    return refuse("invalid_value", `there are 1 to ${MAX_ADMIN_ROLES} roles of administrators`);
  }
  const named = defaultRole === undefined ? adminRoles : [...adminRoles, defaultRole];
  const unknown = named.find((name) => !isRole(state, name));
  if (unknown !== undefined) return refuse("not_found", `no role has the name ${unknown}`);
  if (defaultRole !== undefined && adminRoles.includes(defaultRole)) {
    const message = `the default role ${defaultRole} would make every user an administrator`;
    return refuse("invalid_value", message, "default_role");
  }
  state.access.set("policy", policy);
  return ACCEPTED;
}
