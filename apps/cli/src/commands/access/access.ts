import type { Binding, BindingSpec } from "@heddle/contracts/api/access/bindings";
import type { RoleSettings, RoleView } from "@heddle/contracts/api/access/roles";
import type { Command } from "commander";
import { wordsOf } from "../../comma-list.ts";
import { commandContext } from "../../command-context.ts";
import { type Column, printChange, printRow, printRows } from "../../output/rows.ts";

const ROLE_COLUMNS: readonly Column<RoleView>[] = [
  { header: "NAME", value: ({ name }) => name },
  { header: "PERMISSIONS", value: ({ permissions }) => permissions.join(",") },
  { header: "SHIPPED", value: ({ shipped }) => (shipped ? "yes" : "no") },
  { header: "DESCRIPTION", value: ({ description }) => description, wide: true },
];

const BINDING_COLUMNS: readonly Column<Binding>[] = [
  { header: "KIND", value: ({ kind }) => kind },
  { header: "SUBJECT", value: ({ subject }) => subject },
  { header: "ROLE", value: ({ role }) => role },
  { header: "PROJECT", value: ({ project }) => project ?? "all" },
  { header: "CREATED", value: ({ created_at }) => created_at, wide: true },
];

/** `heddle roles list`. */
export async function listRoles(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const roles: RoleView[] = [];
  for await (const role of heddle.roles.list()) roles.push(role);
  printRows(roles, ROLE_COLUMNS, format, data);
  return 0;
}

/** `heddle roles get <name>`. */
export async function getRole(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRow(await heddle.roles.get(command.args[0] ?? ""), ROLE_COLUMNS, format, data);
  return 0;
}

/** `heddle roles set <name>`. */
export async function setRole(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { permissions, description } = command.opts<{
    permissions: string;
    description?: string;
  }>();
  const settings = { permissions: wordsOf(permissions), description } as RoleSettings;
  printRow(await heddle.roles.set(command.args[0] ?? "", settings), ROLE_COLUMNS, format, data);
  return 0;
}

/** `heddle roles remove <name>`. */
export async function removeRole(command: Command): Promise<number> {
  const context = commandContext(command);
  const name = command.args[0] ?? "";
  const record = await context.heddle.roles.remove(name);
  printChange({ record, name, sentence: `role ${name} is removed` }, context);
  return 0;
}

/** `heddle roles policy`: unset flags keep what is set. */
export async function accessPolicy(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { defaultRole, adminRoles } = command.opts<{ defaultRole?: string; adminRoles?: string }>();
  let policy = await heddle.access.policy();
  if (defaultRole !== undefined || adminRoles !== undefined) {
    const asked = defaultRole ?? policy.default_role ?? "none";
    policy = await heddle.access.setPolicy({
      default_role: asked === "none" ? null : asked,
      admin_roles: adminRoles === undefined ? [...policy.admin_roles] : wordsOf(adminRoles),
    });
  }
  const columns: readonly Column<typeof policy>[] = [
    { header: "DEFAULT ROLE", value: ({ default_role }) => default_role ?? "none" },
    { header: "ADMIN ROLES", value: ({ admin_roles }) => admin_roles.join(",") },
  ];
  printRow(policy, columns, format, data);
  return 0;
}

/** `heddle bindings list`. */
export async function listBindings(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  const { kind, subject, role, project } = command.opts<Partial<BindingSpec>>();
  const bindings: Binding[] = [];
  for await (const each of heddle.bindings.list({ kind, subject, role, project })) {
    bindings.push(each);
  }
  printRows(bindings, BINDING_COLUMNS, format, data);
  return 0;
}

/** `heddle bindings add <kind> <subject> <role>`. */
export async function addBinding(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRow(await heddle.bindings.add(bindingOf(command)), BINDING_COLUMNS, format, data);
  return 0;
}

/** `heddle bindings remove <kind> <subject> <role>`. */
export async function removeBinding(command: Command): Promise<number> {
  const context = commandContext(command);
  const binding = bindingOf(command);
  const record = await context.heddle.bindings.remove(binding);
  const { kind, subject, role } = binding;
  const sentence = `the ${kind} ${subject} does not have the role ${role} there any more`;
  printChange({ record, name: record.id, sentence }, context);
  return 0;
}

function bindingOf(command: Command): BindingSpec {
  const [kind = "", subject = "", role = ""] = command.args;
  const { project } = command.opts<{ project?: string }>();
  return { kind: kind as BindingSpec["kind"], subject, role, project };
}
