import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

/** Adds `heddle context ...`. */
export function addContexts(program: Command, lazy: Lazy): void {
  const context = program.command("context").description("name clusters, and choose one");
  context
    .command("list")
    .description("list the named clusters")
    .action(lazy(async () => (await import("./commands/contexts.ts")).listContexts));
  context
    .command("use")
    .description("have commands call a named cluster; `local` is that of this machine")
    .argument("<name>", "name of the context")
    .action(lazy(async () => (await import("./commands/contexts.ts")).useContext));
  context
    .command("set")
    .description("name the cluster at --endpoint, with its --ca, or change what is given")
    .argument("<name>", "name of the context")
    .option("--api-key-file <file>", "file with the API key, read at each command")
    .option("--project <name>", "project in which commands act")
    .action(lazy(async () => (await import("./commands/contexts.ts")).setContext));
  context
    .command("remove")
    .description("forget a named cluster")
    .argument("<name>", "name of the context")
    .action(lazy(async () => (await import("./commands/contexts.ts")).removeContext));
}

/** Adds `heddle auth ...`. */
export function addAuth(program: Command, lazy: Lazy): void {
  const auth = program.command("auth").description("sign in with the cluster's identity provider");
  auth
    .command("login")
    .description("sign in, in the browser or with a code on another device")
    .option("--device", "show a code to type on another device")
    .option("--no-browser", "print the address in place of opening the browser")
    .action(lazy(async () => (await import("./commands/auth.ts")).login));
  auth
    .command("status")
    .description("show who calls the cluster, and what the caller may do")
    .action(lazy(async () => (await import("./commands/auth.ts")).authStatus));
  auth
    .command("logout")
    .description("end the sign-in here and at the identity provider")
    .action(lazy(async () => (await import("./commands/auth.ts")).logout));
  auth
    .command("token")
    .description("print an access token: of the sign-in, or of a service by its secret")
    .option("--client-id <id>", "client of the service at the identity provider")
    .option("--client-secret-file <file>", "file with the client's secret")
    .option("--scopes <list>", "comma-separated scopes of the service's token")
    .action(lazy(async () => (await import("./commands/auth.ts")).printToken));
}
