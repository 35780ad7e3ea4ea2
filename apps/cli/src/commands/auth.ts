import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { AppError } from "@heddle/base/errors";
import type { CallerView } from "@heddle/contracts/api/access/bindings";
import type { Command } from "commander";
import { freshToken } from "../auth/fresh-token.ts";
import { type StoredLogin, TokenStore } from "../auth/token-store.ts";
import { wordsOf } from "../comma-list.ts";
import { type CommandContext, commandContext } from "../command-context.ts";
import { type Connection, clientOf, dataDirectory } from "../connection.ts";
import { watchInterrupts } from "../interrupt.ts";
import { type Column, printChange, printRow } from "../output/rows.ts";

const COLUMNS: readonly Column<CallerView>[] = [
  { header: "KIND", value: ({ kind }) => kind },
  { header: "NAME", value: ({ name }) => name },
  { header: "ID", value: ({ id }) => id, wide: true },
  { header: "PROJECT", value: ({ project }) => project },
  { header: "PROJECTS", value: ({ projects }) => projects?.join(",") ?? "all", wide: true },
  { header: "PERMISSIONS", value: ({ permissions }) => permissions.join(",") },
];

/** `heddle auth login`. */
export async function login(command: Command): Promise<number> {
  const context = commandContext(command);
  const { device, browser } = command.opts<{ device?: boolean; browser: boolean }>();
  const of = await providerOf(context.connection);
  if (of.clientId === "") {
    const message =
      "The cluster's --auth-file has no `client_id`: ask its administrator to add the client for people.";
    throw new AppError("invalid_value", message);
  }
  const { signal, release } = watchInterrupts();
  try {
    const tokens = device
      ? await byDevice(of, context, signal)
      : await byBrowser(of, context, browser, signal);
    const { endpoint } = context.connection;
    const { issuer, clientId, parameters } = of;
    store().set(endpoint, { issuer, clientId, parameters, ...tokens });
  } finally {
    release();
  }
  const caller = await commandContext(command).heddle.access.whoami();
  const sentence = `signed in as ${caller.name}, in the project ${caller.project}`;
  printChange({ record: caller, name: caller.id, sentence }, context);
  return 0;
}

type Client = Awaited<ReturnType<typeof providerOf>>;

async function byBrowser(
  of: Client,
  { messages }: CommandContext,
  opensBrowser: boolean,
  signal: AbortSignal,
) {
  const { browserLogin } = await import("../auth/browser-login.ts");
  const show = (url: string) => {
    messages.write(`Open this address to sign in:\n\n  ${url}\n\n`);
    if (opensBrowser) openBrowser(url);
  };
  return browserLogin(of, show, signal);
}

async function byDevice(of: Client, { messages }: CommandContext, signal: AbortSignal) {
  const { deviceLogin } = await import("../auth/device-login.ts");
  return deviceLogin(
    of,
    ({ url, code, wholeUrl }) =>
      messages.write(
        `Open ${url} on any device and type the code\n\n  ${code}\n\n${wholeUrl ? `or open ${wholeUrl}\n` : ""}`,
      ),
    signal,
  );
}

/** `heddle auth status`. */
export async function authStatus(command: Command): Promise<number> {
  const { heddle, data, format } = commandContext(command);
  printRow(await heddle.access.whoami(), COLUMNS, format, data);
  return 0;
}

/** `heddle auth logout`. */
export async function logout(command: Command): Promise<number> {
  const context = commandContext(command);
  const { endpoint } = context.connection;
  const known = store().get(endpoint);
  // Here first: the sign-in ends even if the provider does not answer.
  store().set(endpoint, undefined);
  const isRevoked = known !== undefined && (await revoked(known, context));
  const sentence = known
    ? `signed out of ${endpoint}${isRevoked ? "" : "; the identity provider knows of it no earlier than the tokens expire"}`
    : `not signed in to ${endpoint}`;
  printChange(
    { record: { object: "logout", endpoint, revoked: isRevoked }, name: endpoint, sentence },
    context,
  );
  return 0;
}

async function revoked(known: StoredLogin, { messages }: CommandContext): Promise<boolean> {
  const { revokeToken } = await import("../auth/provider.ts");
  const { issuer, clientId, parameters, accessToken, refreshToken } = known;
  try {
    const of = { issuer, clientId, parameters, scopes: [] };
    return await revokeToken(of, refreshToken ?? accessToken);
  } catch (error) {
    messages.write(`warning: ${(error as Error).message}\n`);
    return false;
  }
}

/** `heddle auth token`: prints the token alone on standard output, for `$(...)`. */
export async function printToken(command: Command): Promise<number> {
  const { connection, data } = commandContext(command);
  const { clientId, clientSecretFile, scopes } = command.opts<ServiceFlags>();
  if ((clientId === undefined) !== (clientSecretFile === undefined)) {
    const message =
      "--client-id and --client-secret-file belong together: give both for a service.";
    throw new AppError("invalid_value", message);
  }
  if (clientId === undefined || clientSecretFile === undefined) {
    data.write(`${await freshToken(store(), connection.endpoint)}\n`);
    return 0;
  }
  const { serviceTokens } = await import("../auth/provider.ts");
  const of = { ...(await providerOf(connection)), clientId, scopes: wordsOf(scopes ?? "") };
  const { accessToken } = await serviceTokens(of, secretOf(clientSecretFile));
  data.write(`${accessToken}\n`);
  return 0;
}

type ServiceFlags = Partial<Record<"clientId" | "clientSecretFile" | "scopes", string>>;

function secretOf(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch (error) {
    const message = `--client-secret-file ${file} cannot be read: ${(error as Error).message}.`;
    throw new AppError("invalid_value", message);
  }
}

/** The identity provider that the cluster names, and the client for people. */
async function providerOf(connection: Connection) {
  // Without credentials: those that it has may have ended.
  const anonymous = clientOf({ ...connection, apiKey: undefined, login: undefined });
  const { oauth2 } = await anonymous.access.methods();
  if (!oauth2) {
    const message =
      "This cluster has no identity provider: use an API key, or ask its administrator.";
    throw new AppError("invalid_value", message);
  }
  const { issuer, client_id: clientId, scopes, parameters } = oauth2;
  return { issuer, clientId: clientId ?? "", scopes, parameters };
}

function store(): TokenStore {
  return new TokenStore(dataDirectory(undefined));
}

/** Best effort: the address is printed too. */
function openBrowser(url: string): void {
  const opener = { darwin: "open", win32: "explorer" }[process.platform as string] ?? "xdg-open";
  const child = spawn(opener, [url], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}
