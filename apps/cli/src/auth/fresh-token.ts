import { closeSync, openSync, rmSync, statSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import type { StoredLogin, TokenStore } from "./token-store.ts";

/** A token is renewed this long before it expires. */
const EARLY_MS = 30_000;
/** A lock of a process that died is broken after this time. */
const LOCK_MS = 20_000;
const POLL_MS = 100;

/**
 * The access token of a sign-in, renewed if it soon expires. Only one process renews at a time,
 * because a provider may end a session whose refresh token is used twice.
 */
export async function freshToken(store: TokenStore, endpoint: string): Promise<string> {
  const login = known(store, endpoint);
  if (!isStale(login)) return login.accessToken;
  if (login.refreshToken === undefined) throw ended("the access token has expired");
  return locked(`${store.file}.lock`, async () => {
    const present = known(store, endpoint);
    if (!isStale(present)) return present.accessToken;
    const { refreshTokens } = await import("./provider.ts");
    const { issuer, clientId, parameters, refreshToken = "" } = present;
    const of = { issuer, clientId, parameters, scopes: [] };
    const tokens = await refreshTokens(of, refreshToken);
    store.set(endpoint, { ...present, ...tokens });
    return tokens.accessToken;
  });
}

function isStale({ expiresAtMs }: StoredLogin): boolean {
  return expiresAtMs !== undefined && Date.now() > expiresAtMs - EARLY_MS;
}

function known(store: TokenStore, endpoint: string): StoredLogin {
  const login = store.get(endpoint);
  if (!login) throw ended("this cluster has none of your tokens");
  return login;
}

function ended(why: string): AppError {
  const message = `Not signed in: ${why}. Sign in with \`heddle auth login\`.`;
  return new AppError("invalid_api_key", message);
}

async function locked<T>(file: string, work: () => Promise<T>): Promise<T> {
  while (!take(file)) await sleep(POLL_MS);
  try {
    return await work();
  } finally {
    rmSync(file, { force: true });
  }
}

function take(file: string): boolean {
  try {
    closeSync(openSync(file, "wx", 0o600));
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
  const takenAtMs = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? Date.now();
  if (Date.now() - takenAtMs > LOCK_MS) rmSync(file, { force: true });
  return false;
}
