import type { KeyObject } from "node:crypto";
import { readFileSync } from "node:fs";
import type { IdentityAdapter } from "@heddle/auth/identity/identity-adapter";
import { KeyVerifier } from "@heddle/auth/key-verifier";
import { CodeSignIn } from "@heddle/auth/oidc/code-sign-in";
import { isActiveToken } from "@heddle/auth/oidc/introspection";
import { IssuerKeys } from "@heddle/auth/oidc/issuer-keys";
import { TokenVerifier } from "@heddle/auth/oidc/token-verifier";
import { FreshRun } from "@heddle/base/async/fresh-run";
import { resolvesWithin } from "@heddle/base/async/resolves-within";
import { AppError } from "@heddle/base/errors";
import { isOfDisabledService } from "@heddle/control/access/service-changes";
import type { ApiKeyRecord } from "@heddle/control/state";
import type { Logger } from "@heddle/observability/logger";
import type { AuthSettings } from "../../config/auth-file.ts";
import type { ControlPlane } from "../../control-plane/control-plane.ts";
import type { InProcessCalls } from "../in-process-calls.ts";
import { Authenticator } from "./authenticator.ts";
import { CallerResolver } from "./caller-resolver.ts";
import { ConsoleSessions } from "./console-sessions.ts";

/** The injection token of the AuthSettings; null without an `--auth-file`. */
export const AUTH_SETTINGS = Symbol("AuthSettings");

/** The injection token of the verifier of access tokens; null without an identity provider. */
export const TOKENS = Symbol("IdentityAdapter");

/** How long a call with a key that this master does not know waits for the newest state. */
const NEWEST_MS = 2_000;

/** The verifier of access tokens; null without an identity provider. */
export function openTokenVerifier(
  settings: AuthSettings | null,
  logger: Logger,
): IdentityAdapter | null {
  return settings?.oauth2 ? tokenVerifier(settings.oauth2, logger) : null;
}

/** The sessions of browsers; null where none signs in with an identity provider. */
export function openSessions(
  settings: AuthSettings | null,
  control: ControlPlane,
  pepper: KeyObject,
): ConsoleSessions | null {
  const oauth2 = settings?.oauth2;
  const own = oauth2?.console;
  if (!oauth2 || !own) return null;
  const { issuer, parameters } = oauth2;
  const publicUrl = new URL(own.public_url);
  const signIn = new CodeSignIn({
    issuer,
    clientId: consoleClientId(oauth2),
    clientSecret: own.client_secret_file && readSecretFile(own.client_secret_file, CONSOLE_SECRET),
    redirectUri: new URL(`${SESSION_PATH}/callback`, publicUrl).href,
    scopes: own.scopes,
    parameters,
  });
  const maxSessionMs = own.session_minutes * 60_000;
  return new ConsoleSessions({ publicUrl, maxSessionMs }, signIn, control, pepper);
}

const CONSOLE_SECRET = "oauth2.console.client_secret_file of --auth-file";

/** Where browsers begin and end their sessions. */
export const SESSION_PATH = "/console/session";

/** Throws for an `--auth-file` that names no client for the console. */
export function consoleClientId({
  client_id: clientId,
  console: own,
}: NonNullable<AuthSettings["oauth2"]>): string {
  const id = own?.client_id ?? clientId;
  if (id !== undefined) return id;
  const message = "--auth-file: oauth2.console.client_id: name the client of the console.";
  throw new AppError("invalid_value", message);
}

export function openAuthenticator(
  control: ControlPlane,
  pepper: KeyObject,
  inProcess: InProcessCalls,
  tokens: IdentityAdapter | null,
  sessions: ConsoleSessions | null,
): Authenticator {
  const verifier = new KeyVerifier<ApiKeyRecord>({
    lookup: (id) => control.state.keys.get(id),
    pepper,
    now: Date.now,
    isDisabled: (key) => isOfDisabledService(control.state, key),
  });
  const callers = new CallerResolver(() => control.state);
  const newest = new FreshRun(async () => {
    if (control.group) await resolvesWithin(control.group.readBarrier(), NEWEST_MS);
  });
  const users = { tokens: tokens ?? undefined, sessions: sessions ?? undefined };
  return new Authenticator(verifier, callers, inProcess, users, newest);
}

function tokenVerifier(
  settings: NonNullable<AuthSettings["oauth2"]>,
  logger: Logger,
): TokenVerifier {
  const { issuer, jwks_uri: jwksUri, claims, roles_prefix: rolesPrefix } = settings;
  const keys = new IssuerKeys({
    issuer,
    jwksUri,
    now: () => performance.now(),
    onFailure: ({ message }) =>
      logger.warn({ issuer, why: message }, "the identity provider's keys could not be read"),
  });
  const rules = {
    issuer,
    audience: [settings.audience].flat(),
    algorithms: settings.algorithms,
    tokenTypes: settings.token_types,
    clockSkewS: settings.clock_skew_seconds,
    claims: { user: claims.user, groups: claims.groups, roles: claims.roles, rolesPrefix },
  };
  return new TokenVerifier(rules, keys.find, Date.now, introspection(settings, logger));
}

function introspection(
  { introspection: asked }: NonNullable<AuthSettings["oauth2"]>,
  logger: Logger,
): ((token: string) => Promise<boolean>) | undefined {
  if (!asked) return undefined;
  const { endpoint, client_id: clientId, client_secret_file: file } = asked;
  const setting = "oauth2.introspection.client_secret_file of --auth-file";
  const clientSecret = readSecretFile(file, setting);
  const onFailure = ({ message }: Error) =>
    logger.warn({ endpoint, why: message }, "the identity provider did not check a token");
  return (token) => isActiveToken(token, { endpoint, clientId, clientSecret, onFailure });
}

/** The secret in a file that a setting names. */
function readSecretFile(file: string, setting: string): string {
  let secret: string;
  try {
    secret = readFileSync(file, "utf8").trim();
  } catch (error) {
    const message = `${setting}: ${file} cannot be read: ${(error as Error).message}.`;
    throw new AppError("invalid_value", message, { cause: error });
  }
  if (secret !== "") return secret;
  throw new AppError("invalid_value", `${setting}: ${file} is empty; it has the client's secret.`);
}
