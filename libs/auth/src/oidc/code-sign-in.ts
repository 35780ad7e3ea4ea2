import { AppError } from "@heddle/base/errors";
import { isLoopback } from "@heddle/base/network/network-address";
import { decodeJwt } from "jose";
import * as oauth from "oauth4webapi";

/** A web client of an identity provider. */
export interface WebClient {
  readonly issuer: string;
  readonly clientId: string;
  /** Absent for a public client. */
  readonly clientSecret?: string | undefined;
  readonly redirectUri: string;
  readonly scopes: readonly string[];
  /** Further members of the requests. */
  readonly parameters: Readonly<Record<string, string>>;
}

/** What the browser must bring back; it is kept where only that browser has it. */
export interface PendingSignIn {
  readonly state: string;
  readonly nonce: string;
  readonly verifier: string;
}

/** What the provider says of a browser that came back. */
export interface CodeAnswer {
  readonly accessToken: string;
  readonly subject: string;
  /** The provider's session, which its logout names. */
  readonly sid: string | undefined;
  /** When the access token ends; undefined if it does not say so. */
  readonly expiresAtMs: number | undefined;
  /** What gets the next tokens; undefined where the provider gives none. */
  readonly refreshToken: string | undefined;
}

/** Tokens that can be renewed once. */
export interface RenewedTokens {
  readonly accessToken: string;
  readonly refreshToken: string;
  readonly expiresAtMs: number;
}

const TIMEOUT_MS = 10_000;
const MAX_SID_CHARS = 256;

/** Signs a browser in by authorization code with PKCE (RFC 7636, OpenID Connect Core). */
export class CodeSignIn {
  readonly #of: WebClient;
  readonly #client: oauth.Client;
  readonly #authentication: oauth.ClientAuth;
  #server: Promise<oauth.AuthorizationServer> | undefined;

  constructor(of: WebClient) {
    this.#of = of;
    this.#client = { client_id: of.clientId };
    const { clientSecret } = of;
    this.#authentication = clientSecret ? oauth.ClientSecretBasic(clientSecret) : oauth.None();
  }

  /** The address to which the browser goes. */
  async begin(): Promise<{ readonly url: string; readonly pending: PendingSignIn }> {
    const { authorization_endpoint: endpoint } = await this.#metadata();
    if (!endpoint) throw failed("it has no page to sign in");
    const pending = {
      state: oauth.generateRandomState(),
      nonce: oauth.generateRandomNonce(),
      verifier: oauth.generateRandomCodeVerifier(),
    };
    const { clientId, redirectUri, scopes, parameters } = this.#of;
    // Providers give refresh tokens to browsers' sign-ins only where the user was asked.
    const asks = scopes.includes("offline_access") ? { prompt: "consent" } : {};
    const query = {
      ...asks,
      ...parameters,
      client_id: clientId,
      redirect_uri: redirectUri,
      response_type: "code",
      scope: scopes.join(" "),
      code_challenge: await oauth.calculatePKCECodeChallenge(pending.verifier),
      code_challenge_method: "S256",
      state: pending.state,
      nonce: pending.nonce,
    };
    const url = new URL(endpoint);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return { url: url.href, pending };
  }

  /** `returned` is the address with which the browser came back. Throws `invalid_api_key`. */
  async finish(returned: URL, { state, nonce, verifier }: PendingSignIn): Promise<CodeAnswer> {
    const server = await this.#metadata();
    const { redirectUri, parameters } = this.#of;
    try {
      const code = oauth.validateAuthResponse(server, this.#client, returned, state);
      const response = await oauth.authorizationCodeGrantRequest(
        server,
        this.#client,
        this.#authentication,
        code,
        redirectUri,
        verifier,
        { ...this.#options(), additionalParameters: parameters },
      );
      const tokens = await oauth.processAuthorizationCodeResponse(server, this.#client, response, {
        expectedNonce: nonce,
        requireIdToken: true,
      });
      const { sub: subject, sid } = oauth.getValidatedIdTokenClaims(tokens) as oauth.IDToken;
      const isSid = typeof sid === "string" && sid.length <= MAX_SID_CHARS;
      const { access_token: accessToken, refresh_token: refreshToken } = tokens;
      const expiresAtMs = endOf(tokens);
      return { accessToken, subject, sid: isSid ? sid : undefined, expiresAtMs, refreshToken };
    } catch (error) {
      throw refused(error);
    }
  }

  /**
   * The next tokens of a subject; undefined where the provider has ended what the token is of.
   * Throws `unavailable` where it cannot be asked.
   */
  async renew(refreshToken: string, subject: string): Promise<RenewedTokens | undefined> {
    const server = await this.#metadata();
    const { parameters } = this.#of;
    try {
      const response = await oauth.refreshTokenGrantRequest(
        server,
        this.#client,
        this.#authentication,
        refreshToken,
        { ...this.#options(), additionalParameters: parameters },
      );
      const tokens = await oauth.processRefreshTokenResponse(server, this.#client, response);
      const sub = oauth.getValidatedIdTokenClaims(tokens)?.sub ?? subject;
      const expiresAtMs = endOf(tokens);
      if (sub !== subject || expiresAtMs === undefined) return undefined;
      const { access_token: accessToken, refresh_token: next = refreshToken } = tokens;
      return { accessToken, refreshToken: next, expiresAtMs };
    } catch (error) {
      if (error instanceof oauth.ResponseBodyError && error.error === "invalid_grant") {
        return undefined;
      }
      throw failed((error as Error).message, error);
    }
  }

  /** Where the browser ends its session at the provider; undefined if the provider has no page for it. */
  async logoutUrl(returnTo: string): Promise<string | undefined> {
    const { end_session_endpoint: endpoint } = await this.#metadata();
    if (typeof endpoint !== "string") return undefined;
    const url = new URL(endpoint);
    url.searchParams.set("client_id", this.#of.clientId);
    url.searchParams.set("post_logout_redirect_uri", returnTo);
    return url.href;
  }

  #options() {
    return {
      signal: () => AbortSignal.timeout(TIMEOUT_MS),
      [oauth.allowInsecureRequests]: isLoopback(new URL(this.#of.issuer).hostname),
    };
  }

  /** Read once; a failure is not kept. */
  #metadata(): Promise<oauth.AuthorizationServer> {
    this.#server ??= this.#read().catch((error: unknown) => {
      this.#server = undefined;
      throw failed((error as Error).message, error);
    });
    return this.#server;
  }

  async #read(): Promise<oauth.AuthorizationServer> {
    const issuer = new URL(this.#of.issuer);
    const response = await oauth.discoveryRequest(issuer, {
      algorithm: "oidc",
      ...this.#options(),
    });
    return oauth.processDiscoveryResponse(issuer, response);
  }
}

function endOf(tokens: oauth.TokenEndpointResponse): number | undefined {
  const { access_token: token, expires_in: seconds } = tokens;
  return expiryOf(token) ?? (seconds === undefined ? undefined : Date.now() + seconds * 1_000);
}

/** Unverified: who accepts the token verifies it. */
function expiryOf(token: string): number | undefined {
  try {
    const { exp } = decodeJwt(token);
    return exp === undefined ? undefined : exp * 1_000;
  } catch {
    return undefined;
  }
}

function failed(why: string, cause?: unknown): AppError {
  const message = `The identity provider cannot be used now: ${why}.`;
  return new AppError("unavailable", message, { retryAfterMs: 5_000, cause });
}

/** What the provider refused; anything else that went wrong on the way to it is `unavailable`. */
function refused(error: unknown): AppError {
  if (
    error instanceof oauth.AuthorizationResponseError ||
    error instanceof oauth.ResponseBodyError
  ) {
    const message = `The identity provider refused the sign-in (${error.error}).`;
    return new AppError("invalid_api_key", message, { cause: error });
  }
  if (error instanceof oauth.OperationProcessingError) {
    const message = "The sign-in was not completed: its answer does not belong to this browser.";
    return new AppError("invalid_api_key", message, { cause: error });
  }
  return failed((error as Error).message, error);
}
