import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { AppError } from "@heddle/base/errors";
import * as oauth from "oauth4webapi";
import {
  asked,
  grantedTokens,
  type IssuedTokens,
  openProvider,
  type ProviderClient,
} from "./provider.ts";

/** How long the user may take in the browser. */
const TIMEOUT_MS = 300_000;
const CALLBACK = "/callback";

/**
 * Signs in by authorization code with PKCE (RFC 7636, 8252): the browser returns to a port of
 * loopback. `show` gets the address that the user opens.
 */
export async function browserLogin(
  of: ProviderClient,
  show: (url: string) => void,
  signal: AbortSignal,
): Promise<IssuedTokens> {
  const provider = await openProvider(of);
  const { server, client } = provider;
  const callback = await openCallback();
  try {
    const verifier = oauth.generateRandomCodeVerifier();
    const state = oauth.generateRandomState();
    show(await authorizationUrl(of, server, { redirectUri: callback.uri, verifier, state }));
    const returned = await callback.returned(signal);
    const code = await asked(of, async () =>
      oauth.validateAuthResponse(server, client, returned, state),
    );
    return await grantedTokens(
      of,
      provider,
      (options) =>
        oauth.authorizationCodeGrantRequest(
          server,
          client,
          oauth.None(),
          code,
          callback.uri,
          verifier,
          options,
        ),
      oauth.processAuthorizationCodeResponse,
    );
  } finally {
    callback.close();
  }
}

async function authorizationUrl(
  { issuer, clientId, scopes, parameters }: ProviderClient,
  { authorization_endpoint: endpoint }: oauth.AuthorizationServer,
  { redirectUri, verifier, state }: { redirectUri: string; verifier: string; state: string },
): Promise<string> {
  if (!endpoint) {
    const message = `The identity provider ${issuer} has no page to sign in. Use \`heddle auth login --device\`.`;
    throw new AppError("invalid_value", message);
  }
  const url = new URL(endpoint);
  const query = {
    ...parameters,
    client_id: clientId,
    redirect_uri: redirectUri,
    response_type: "code",
    scope: scopes.join(" "),
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: "S256",
    state,
    ...(scopes.includes("offline_access") && { prompt: "consent" }),
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

interface Callback {
  readonly uri: string;
  /** The URL of the browser's redirect. */
  returned(signal: AbortSignal): Promise<URL>;
  close(): void;
}

/** Waits on a free port of loopback for the browser. */
async function openCallback(): Promise<Callback> {
  const came = Promise.withResolvers<URL>();
  const server: Server = createServer((request, response) => {
    const url = URL.parse(request.url ?? "", "http://127.0.0.1");
    if (url?.pathname !== CALLBACK) {
      response.writeHead(404).end();
      return;
    }
    const head = { "content-type": "text/plain; charset=utf-8", connection: "close" };
    response.writeHead(200, { ...head, "referrer-policy": "no-referrer" });
    response.end("You may close this page and return to the terminal.\n");
    came.resolve(url);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject).listen(0, "127.0.0.1", resolve);
  });
  const uri = `http://127.0.0.1:${(server.address() as AddressInfo).port}${CALLBACK}`;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  const returned = (signal: AbortSignal) => {
    const timeout = AbortSignal.timeout(TIMEOUT_MS);
    const ended = AbortSignal.any([signal, timeout]);
    ended.addEventListener("abort", () => {
      const why = timeout.aborted
        ? "the browser did not come back within 5 minutes"
        : "interrupted";
      came.reject(
        new AppError(
          timeout.aborted ? "unavailable" : "cancelled",
          `You are not signed in: ${why}.`,
        ),
      );
    });
    return came.promise;
  };
  return { uri, returned, close };
}
