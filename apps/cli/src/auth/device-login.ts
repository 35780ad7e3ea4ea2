import { setTimeout as sleep } from "node:timers/promises";
import { AppError } from "@heddle/base/errors";
import * as oauth from "oauth4webapi";
import {
  asked,
  grantedTokens,
  type IssuedTokens,
  openProvider,
  type ProviderClient,
  refusalCode,
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
  const provider = await openProvider(of);
  const { server, client } = provider;
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
    const asking = grantedTokens(
      of,
      provider,
      (options) =>
        oauth.deviceCodeGrantRequest(server, client, oauth.None(), begun.device_code, options),
      oauth.processDeviceCodeResponse,
    );
    const outcome = await asking.catch(pendingCode);
    if (typeof outcome === "object") return outcome;
    if (outcome === "slow_down") intervalS += SLOWER_S;
  }
  throw new AppError("unavailable", "You are not signed in: the code has expired. Try again.");
}

/** Why the provider wants to be asked again; other errors are thrown. */
function pendingCode(error: Error): "authorization_pending" | "slow_down" {
  const code = refusalCode(error);
  if (code === "authorization_pending" || code === "slow_down") return code;
  throw error;
}
