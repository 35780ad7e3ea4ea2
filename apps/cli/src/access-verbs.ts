import { Argument, type Command, Option } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

const SUBJECT_KINDS = ["user", "group", "key", "service"];

/** Adds `heddle roles ...`, `heddle service-accounts ...` and `heddle bindings ...`. */
export function addAccess(program: Command, lazy: Lazy): void {
  addRoles(program, lazy);
  addServices(program, lazy);
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

function addServices(program: Command, lazy: Lazy): void {
  const services = program
    .command("service-accounts")
    .description("manage service accounts: programs with keys and roles of their own");
  services
    .command("list")
    .description("list the service accounts")
    .action(lazy(async () => (await import("./commands/access/service-accounts.ts")).listServices));
  services
    .command("get")
    .description("show a service account")
    .argument("<name>", "name of the service account")
    .action(lazy(async () => (await import("./commands/access/service-accounts.ts")).getService));
  services
    .command("create")
    .description("create a service account, or change its description")
    .argument("<name>", "name of the service account")
    .option("--description <text>", "what the program does")
    .action(
      lazy(async () => (await import("./commands/access/service-accounts.ts")).createService),
    );
  services
    .command("disable")
    .description("refuse the keys of a service account from now on")
    .argument("<name>", "name of the service account")
    .action(
      lazy(async () => (await import("./commands/access/service-accounts.ts")).disableService),
    );
  services
    .command("enable")
    .description("accept the keys of a service account again")
    .argument("<name>", "name of the service account")
    .action(
      lazy(async () => (await import("./commands/access/service-accounts.ts")).enableService),
    );
  services
    .command("remove")
    .description("remove a service account without valid keys, and its roles")
    .argument("<name>", "name of the service account")
    .action(
      lazy(async () => (await import("./commands/access/service-accounts.ts")).removeService),
    );
}

function addBindings(program: Command, lazy: Lazy): void {
  const bindings = program.command("bindings").description("manage who has which role");
  bindings
    .command("list")
    .description("list who has which role, and where")
    .addOption(new Option("--kind <kind>", "only of subjects of that kind").choices(SUBJECT_KINDS))
    .option("--subject <name>", "only of that subject")
    .option("--role <name>", "only of that role")
    .option("--project <name>", "only in that project")
    .action(lazy(async () => (await import("./commands/access/access.ts")).listBindings));
  binding(
    bindings.command("add").description("give a role to a user, group, key or service account"),
  ).action(lazy(async () => (await import("./commands/access/access.ts")).addBinding));
  binding(
    bindings
      .command("remove")
      .description("take a role from a user, group, key or service account"),
  ).action(lazy(async () => (await import("./commands/access/access.ts")).removeBinding));
}

function binding(command: Command): Command {
  return command
    .addArgument(new Argument("<kind>", "what the subject is").choices(SUBJECT_KINDS))
    .argument(
      "<subject>",
      "a user's subject, a key's id, or the name of a group or service account",
    )
    .argument("<role>", "name of the role")
    .option("--project <name>", "only in that project (default: the whole cluster)");
}
