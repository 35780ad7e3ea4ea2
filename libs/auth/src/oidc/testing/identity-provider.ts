import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair } from "jose";
import Provider, { type Configuration } from "oidc-provider";

const API = "urn:heddle:api";

/** A real identity provider on loopback that signs in `alice` without asking for a password. */
export class IdentityProvider {
  readonly #server: Server;
  readonly issuer: string;
  readonly audience = API;
  /** How often tokens were renewed. */
  renewals = 0;
  readonly #grants: string[] = [];
  readonly #provider: Provider;

  private constructor(server: Server, issuer: string, provider: Provider) {
    this.#server = server;
    this.issuer = issuer;
    this.#provider = provider;
    provider.on("grant.success", ({ oidc }) => {
      const { grantId } = oidc.entities.RefreshToken ?? {};
      if (grantId !== undefined) this.#grants.push(grantId);
      if (oidc.params?.["grant_type"] === "refresh_token") this.renewals++;
    });
  }

  /** Ends what the users have granted: no token is renewed any more. */
  async endGrants(): Promise<void> {
    for (const id of this.#grants) await this.#provider.RefreshToken.revokeByGrantId(id);
  }

  /** `console` is the address of a console that signs browsers in; `tokenSeconds` of its tokens. */
  static async start(console?: string, port = 0, tokenSeconds = 3_600): Promise<IdentityProvider> {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
    const issuer = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const provider = new Provider(issuer, await configuration(console, tokenSeconds));
    const handle = provider.callback();
    server.on("request", (request, response) => {
      if (!request.url?.startsWith("/sign-in/")) return void handle(request, response);
      void signIn(provider, request, response);
    });
    return new IdentityProvider(server, issuer, provider);
  }

  async close(): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }
}

async function configuration(
  console: string | undefined,
  tokenSeconds: number,
): Promise<Configuration> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  const jwk = { ...(await exportJWK(privateKey)), kid: "idp-1", alg: "RS256", use: "sig" };
  const device = "urn:ietf:params:oauth:grant-type:device_code";
  return {
    jwks: { keys: [jwk] },
    clients: [
      {
        client_id: "heddle-cli",
        application_type: "native",
        token_endpoint_auth_method: "none",
        grant_types: ["authorization_code", "refresh_token", device],
        response_types: ["code"],
        redirect_uris: ["http://127.0.0.1/callback"],
      },
      {
        client_id: "robot",
        client_secret: "robot-secret-of-the-test",
        grant_types: ["client_credentials"],
        response_types: [],
        redirect_uris: [],
      },
      ...(console === undefined ? [] : [consoleClient(console)]),
    ],
    cookies: { keys: ["a key of the test"] },
    // Its own refuses loopback, where the consoles of tests are.
    fetch: (url, options) => fetch(url, { ...options, dispatcher: undefined }),
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    interactions: { url: (_, { uid }) => `/sign-in/${uid}` },
    rotateRefreshToken: true,
    ttl: { AccessToken: tokenSeconds, ClientCredentials: 3_600, RefreshToken: 86_400 },
    features: {
      devInteractions: { enabled: false },
      deviceFlow: { enabled: true },
      clientCredentials: { enabled: true },
      revocation: { enabled: true },
      backchannelLogout: { enabled: true },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => API,
        useGrantedResource: () => true,
        getResourceServerInfo: () => ({
          scope: "",
          audience: API,
          accessTokenFormat: "jwt",
          jwt: { sign: { alg: "RS256" } },
        }),
      },
    },
  };
}

function consoleClient(url: string) {
  const session = `${url}/console/session`;
  return {
    client_id: "heddle-console",
    client_secret: "console-secret-of-the-test",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code" as const],
    redirect_uris: [`${session}/callback`],
    post_logout_redirect_uris: [`${url}/console/`],
    backchannel_logout_uri: `${session}/backchannel-logout`,
    backchannel_logout_session_required: true,
  };
}

/** The user signs in and consents to everything. */
async function signIn(
  provider: Provider,
  request: Parameters<Provider["interactionDetails"]>[0],
  response: Parameters<Provider["interactionDetails"]>[1],
): Promise<void> {
  const { prompt, params, session } = await provider.interactionDetails(request, response);
  if (prompt.name === "login") {
    await provider.interactionFinished(request, response, { login: { accountId: "alice" } });
    return;
  }
  const grant = new provider.Grant({
    accountId: session?.accountId ?? "alice",
    clientId: String(params["client_id"]),
  });
  grant.addOIDCScope(String(params["scope"] ?? "openid"));
  grant.addResourceScope(API, "");
  const grantId = await grant.save();
  await provider.interactionFinished(request, response, { consent: { grantId } });
}
