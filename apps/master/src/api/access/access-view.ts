import type { AccessPolicy, Binding } from "@heddle/contracts/api/access/bindings";
import type { RoleView } from "@heddle/contracts/api/access/roles";
import type { ServiceAccount } from "@heddle/contracts/api/access/service-accounts";
import { SHIPPED_ADMIN_ROLES, SHIPPED_ROLES } from "@heddle/contracts/roles";
import type {
  AccessPolicyRecord,
  BindingName,
  BoundRole,
  RoleRecord,
  ServiceRecord,
} from "@heddle/control/access/records";
import type { ControlState } from "@heddle/control/state";

/** A role by its name; undefined if there is none. */
export function viewRole(
  { roles }: Pick<ControlState, "roles">,
  name: string,
): RoleView | undefined {
  const own = roles.get(name);
  if (own) return viewOwnRole(name, own);
  if (!Object.hasOwn(SHIPPED_ROLES, name)) return undefined;
  const { description, permissions } = SHIPPED_ROLES[name as keyof typeof SHIPPED_ROLES];
  const fields = { id: name, object: "role", name, description } as const;
  return { ...fields, permissions, shipped: true, updated_at: null };
}

export function viewOwnRole(name: string, role: RoleRecord): RoleView {
  const { description, permissions, updatedAtMs } = role;
  const updated_at = new Date(updatedAtMs).toISOString();
  const fields = { id: name, object: "role", name, description } as const;
  return { ...fields, permissions, shipped: false, updated_at };
}

export function viewBinding(
  { kind, subject }: Pick<BindingName, "kind" | "subject">,
  { role, project, atMs }: BoundRole,
): Binding {
  return {
    id: `${kind}:${subject} ${role} ${project ?? "*"}`,
    object: "binding",
    kind,
    subject,
    role,
    project: project ?? null,
    created_at: new Date(atMs).toISOString(),
  };
}

export function viewService(name: string, record: ServiceRecord): ServiceAccount {
  const { description, createdAtMs, updatedAtMs, disabledAtMs } = record;
  return {
    id: name,
    object: "service_account",
    name,
    description,
    disabled: disabledAtMs !== undefined,
    created_at: new Date(createdAtMs).toISOString(),
    updated_at: new Date(updatedAtMs).toISOString(),
    disabled_at: disabledAtMs === undefined ? null : new Date(disabledAtMs).toISOString(),
  };
}

export function viewPolicy(policy: AccessPolicyRecord | undefined): AccessPolicy {
  return {
    object: "access_policy",
    default_role: policy?.defaultRole ?? null,
    admin_roles: policy?.adminRoles ?? SHIPPED_ADMIN_ROLES,
    updated_at: policy ? new Date(policy.updatedAtMs).toISOString() : null,
  };
}
