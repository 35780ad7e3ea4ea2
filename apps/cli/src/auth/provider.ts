import { AppError } from "@heddle/base/errors";
import { isLoopback } from "@heddle/base/network/network-address";
import * as oauth from "oauth4webapi";

/** The client of an identity provider, as a cluster names it. */
export interface ProviderClient {
  readonly issuer: string;
  readonly clientId: string;
  readonly scopes: readonly string[];
  readonly parameters: Readonly<Record<string, string>>;
}

/** What the provider gave. */
export interface IssuedTokens {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
  /** Milliseconds since the epoch. */
  readonly expiresAtMs: number | undefined;
}

/** An identity provider whose metadata were read; every request has 10 s. */
export interface Provider {
  readonly server: oauth.AuthorizationServer;
  readonly client: oauth.Client;
}

const TIMEOUT_MS = 10_000;

/** Options of every request: plain HTTP only on loopback. */
export function requestOptions({ issuer }: Pick<ProviderClient, "issuer">) {
  return {
    signal: () => AbortSignal.timeout(TIMEOUT_MS),
    [oauth.allowInsecureRequests]: isLoopback(new URL(issuer).hostname),
  };
}

/** Reads the metadata of the issuer. */
export function openProvider(of: ProviderClient): Promise<Provider> {
  return asked(of, async () => {
    const issuer = new URL(of.issuer);
    const response = await oauth.discoveryRequest(issuer, {
      algorithm: "oidc",
      ...requestOptions(of),
    });
    const server = await oauth.processDiscoveryResponse(issuer, response);
    return { server, client: { client_id: of.clientId } };
  });
}

/** What reads the answer to a grant's request. */
type AnswerReader = (
  server: oauth.AuthorizationServer,
  client: oauth.Client,
  response: Response,
) => Promise<oauth.TokenEndpointResponse>;

/** Tokens by a grant whose request `send` makes. */
export function grantedTokens(
  of: ProviderClient,
  { server, client }: Provider,
  send: (options: oauth.TokenEndpointRequestOptions) => Promise<Response>,
  read: AnswerReader,
): Promise<IssuedTokens> {
  return asked(of, async () => {
    const response = await send({ ...requestOptions(of), additionalParameters: of.parameters });
    return issuedTokens(await read(server, client, response));
  });
}

/** The provider's code of a refusal, where the error is one. */
export function refusalCode(error: unknown): string | undefined {
  const cause = error instanceof AppError ? error.cause : undefined;
  return cause instanceof oauth.ResponseBodyError ? cause.error : undefined;
}

/** New tokens for a refresh token. Throws `invalid_api_key` where it is no longer valid. */
export async function refreshTokens(
  of: ProviderClient,
  refreshToken: string,
): Promise<IssuedTokens> {
  const provider = await openProvider(of);
  const { server, client } = provider;
  const issued = await grantedTokens(
    of,
    provider,
    (options) =>
      oauth.refreshTokenGrantRequest(server, client, oauth.None(), refreshToken, options),
    oauth.processRefreshTokenResponse,
  );
  return { ...issued, refreshToken: issued.refreshToken ?? refreshToken };
}

/** Tokens of a service by its client's secret. */
export async function serviceTokens(of: ProviderClient, secret: string): Promise<IssuedTokens> {
  const provider = await openProvider(of);
  const { server, client } = provider;
  const secretAuth = oauth.ClientSecretBasic(secret);
  const parameters = {
    ...of.parameters,
    ...(of.scopes.length > 0 && { scope: of.scopes.join(" ") }),
  };
  return grantedTokens(
    of,
    provider,
    () =>
      oauth.clientCredentialsGrantRequest(
        server,
        client,
        secretAuth,
        parameters,
        requestOptions(of),
      ),
    oauth.processClientCredentialsResponse,
  );
}

/** Ends a token at the provider, if the provider can. */
export function revokeToken(of: ProviderClient, token: string): Promise<boolean> {
  return asked(of, async () => {
    const { server, client } = await openProvider(of);
    if (!server.revocation_endpoint) return false;
    const response = await oauth.revocationRequest(
      server,
      client,
      oauth.None(),
      token,
      requestOptions(of),
    );
    await oauth.processRevocationResponse(response);
    return true;
  });
}

function issuedTokens(response: oauth.TokenEndpointResponse): IssuedTokens {
  const { access_token: accessToken, refresh_token: refreshToken, expires_in } = response;
  const expiresAtMs = expires_in === undefined ? undefined : Date.now() + expires_in * 1_000;
  return { accessToken, refreshToken, expiresAtMs };
}

/** The provider's refusals and failures as errors of this program. */
export async function asked<T>({ issuer }: { readonly issuer: string }, ask: () => Promise<T>) {
  try {
    return await ask();
  } catch (error) {
    if (error instanceof AppError) throw error;
    if (
      error instanceof oauth.ResponseBodyError ||
      error instanceof oauth.AuthorizationResponseError
    ) {
      const { error: code, error_description: text } = error;
      const message = `The identity provider ${issuer} refused: ${text ?? code} (${code}). Sign in again with \`heddle auth login\`.`;
      throw new AppError("invalid_api_key", message, { cause: error });
    }
    if (error instanceof oauth.WWWAuthenticateChallengeError) {
      const message = `The identity provider ${issuer} refused the client: check its id and its secret.`;
      throw new AppError("invalid_api_key", message, { cause: error });
    }
    const reason = (error as Error).message;
    const cause = (error as Error).cause;
    const detail = cause instanceof Error ? `${reason}: ${cause.message}` : reason;
    const message = `The identity provider ${issuer} could not be asked: ${detail}.`;
    throw new AppError("unavailable", message, { cause: error });
  }
}
