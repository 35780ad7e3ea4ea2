import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import * as oauth from "oauth4webapi";
import {
  asked,
  type IssuedTokens,
  issuedTokens,
  openProvider,
  type ProviderClient,
  requestOptions,
} from "./provider.ts";

const DEFAULT_INTERVAL_S = 5;
const SLOWER_S = 5;
/** The longest time that a code is tried, whatever the provider says. */
const MAX_WAIT_S = 1_800;

/** What the user opens and types on another device. */
interface DevicePrompt {
  readonly url: string;
  readonly code: string;
  /** The address with the code in it, if the provider has one. */
  readonly wholeUrl: string | undefined;
}

/** Signs in on another device (RFC 8628), for machines without a browser. */
export async function deviceLogin(
  of: ProviderClient,
  show: (prompt: DevicePrompt) => void,
  signal: AbortSignal,
): Promise<IssuedTokens> {
  const { server, client } = await openProvider(of);
  if (!server.device_authorization_endpoint) {
    const message = `The identity provider ${of.issuer} offers no device codes (RFC 8628).`;
    throw new AppError("invalid_value", message);
  }
  const begun = await asked(of, async () => {
    const parameters = { ...of.parameters, scope: of.scopes.join(" ") };
    const response = await oauth.deviceAuthorizationRequest(
      server,
      client,
      oauth.None(),
      parameters,
      requestOptions(of),
    );
    return oauth.processDeviceAuthorizationResponse(server, client, response);
  });
  const { verification_uri: url, verification_uri_complete: wholeUrl, user_code: code } = begun;
  show({ url, code, wholeUrl });
  const untilMs = performance.now() + Math.min(begun.expires_in, MAX_WAIT_S) * 1_000;
  let intervalS = begun.interval ?? DEFAULT_INTERVAL_S;
  while (performance.now() < untilMs) {
    await sleep(intervalS * 1_000, undefined, { signal });
    const tokens = await asked(of, async () => {
      const response = await oauth.deviceCodeGrantRequest(
        server,
        client,
        oauth.None(),
        begun.device_code,
        { ...requestOptions(of), additionalParameters: of.parameters },
      );
      return pendingOr(await settled(oauth.processDeviceCodeResponse(server, client, response)));
    });
    if (typeof tokens === "object") return tokens;
    if (tokens === "slow_down") intervalS += SLOWER_S;
  }
  throw new AppError("unavailable", "You are not signed in: the code has expired. Try again.");
}

type Pending = "authorization_pending" | "slow_down";

function pendingOr(outcome: IssuedTokens | Error): IssuedTokens | Pending {
  if (!(outcome instanceof Error)) return outcome;
  const code = outcome instanceof oauth.ResponseBodyError ? outcome.error : undefined;
  if (code === "authorization_pending" || code === "slow_down") return code;
  throw outcome;
}

async function settled(response: Promise<oauth.TokenEndpointResponse>) {
  return response.then(issuedTokens, (error: Error) => error);
}
