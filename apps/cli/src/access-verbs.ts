import { Argument, type Command, Option } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

const SUBJECT_KINDS = ["user", "group", "key"];

/** Adds `heddle roles ...` and `heddle bindings ...`. */
export function addAccess(program: Command, lazy: Lazy): void {
  addRoles(program, lazy);
  addBindings(program, lazy);
}

function addRoles(program: Command, lazy: Lazy): void {
  const roles = program.command("roles").description("manage roles: named sets of permissions");
  roles
    .command("list")
    .description("list the roles with their permissions")
    .action(lazy(async () => (await import("./commands/access/access.ts")).listRoles));
  roles
    .command("get")
    .description("show a role")
    .argument("<name>", "name of the role")
    .action(lazy(async () => (await import("./commands/access/access.ts")).getRole));
  roles
    .command("set")
    .description("create or replace a role of the cluster's own")
    .argument("<name>", "name of the role")
    .requiredOption("--permissions <list>", "comma-separated permissions, for example jobs:*")
    .option("--description <text>", "what the role is for")
    .action(lazy(async () => (await import("./commands/access/access.ts")).setRole));
  roles
    .command("remove")
    .description("remove a role that nothing names")
    .argument("<name>", "name of the role")
    .action(lazy(async () => (await import("./commands/access/access.ts")).removeRole));
  roles
    .command("policy")
    .description("show or set the default role and the roles of administrators")
    .option("--default-role <name>", "role of users without any other; none for no role")
    .option("--admin-roles <list>", "comma-separated roles that grant everything")
    .action(lazy(async () => (await import("./commands/access/access.ts")).accessPolicy));
}

function addBindings(program: Command, lazy: Lazy): void {
  const bindings = program.command("bindings").description("manage who has which role");
  bindings
    .command("list")
    .description("list who has which role, and where")
    .addOption(new Option("--kind <kind>", "only of users, groups or keys").choices(SUBJECT_KINDS))
    .option("--subject <name>", "only of that user, group or key")
    .option("--role <name>", "only of that role")
    .option("--project <name>", "only in that project")
    .action(lazy(async () => (await import("./commands/access/access.ts")).listBindings));
  binding(bindings.command("add").description("give a role to a user, group or key")).action(
    lazy(async () => (await import("./commands/access/access.ts")).addBinding),
  );
  binding(bindings.command("remove").description("take a role from a user, group or key")).action(
    lazy(async () => (await import("./commands/access/access.ts")).removeBinding),
  );
}

function binding(command: Command): Command {
  return command
    .addArgument(new Argument("<kind>", "what the subject is").choices(SUBJECT_KINDS))
    .argument("<subject>", "a user's subject, a group's name or a key's id")
    .argument("<role>", "name of the role")
    .option("--project <name>", "only in that project (default: the whole cluster)");
}
