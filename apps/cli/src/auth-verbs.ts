import type { Command } from "commander";
import type { Lazy } from "./cluster-verbs.ts";

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
